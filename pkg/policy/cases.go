package policy

import (
	"bytes"
	"encoding/json"
	"fmt"
	"time"
)

// Cases are requests with the verdicts that their author expects.
type Cases struct {
	// Policies is the file with the policies, relative to the one with the cases.
	Policies string `json:"policies"`
	// TimeZone is where the days and hours are; UTC if it is empty.
	TimeZone string `json:"time_zone"`
	Cases    []Case `json:"cases"`
}

// Case is a request with the verdict that its author expects.
type Case struct {
	Name string `json:"name"`
	// Request has the fields of recorded requests. What is left out is empty; the principal is a person then.
	Request Request `json:"request,omitzero"`
	// Call is the call that is decided, in place of a request about a rollout; nil for none.
	Call    *Call   `json:"call,omitempty"`
	Verdict Verdict `json:"verdict"`
	// By is the @id of a policy that has to be among those that decide; empty for any.
	By string `json:"by"`
}

// Outcome is the result of a case.
type Outcome struct {
	Case     Case
	Decision Decision
	Passed   bool
}

// Expected is what the author of the case expects.
func (o Outcome) Expected() string {
	if o.Case.By == "" {
		return string(o.Case.Verdict)
	}
	return fmt.Sprintf("%s by %s", o.Case.Verdict, o.Case.By)
}

// maxCases is how many cases a file has.
const maxCases = 1000

// ReadCases reads cases as JSON. Fields that do not exist are refused, because a misspelt one would be a case that shows nothing.
func ReadCases(text []byte) (Cases, error) {
	var c Cases
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&c); err != nil {
		return c, fmt.Errorf("read cases: %w", err)
	}
	if len(c.Cases) == 0 || len(c.Cases) > maxCases {
		return c, fmt.Errorf("found %d cases; expected 1 to %d", len(c.Cases), maxCases)
	}
	for i, one := range c.Cases {
		switch one.Verdict {
		case Allow, NeedsApproval, Deny:
		default:
			return c, fmt.Errorf("case %d, %q: found the verdict %q; expected %s, %s or %s", i+1, one.Name, one.Verdict, Allow, NeedsApproval, Deny)
		}
	}
	return c, nil
}

// Run decides the cases by the text of one policy set, as if it were the only one.
func (c Cases) Run(text string) ([]Outcome, []Problem) {
	d, problems := Parse(text)
	if len(problems) > 0 {
		return nil, problems
	}
	zone, err := time.LoadLocation(c.TimeZone)
	if err != nil {
		return nil, []Problem{{Message: fmt.Sprintf("found the time zone %q; expected one such as Europe/Berlin", c.TimeZone)}}
	}
	level := Level{Name: "the set", Members: []Member{{Name: "set", Document: d, Zone: zone}}}
	all := make([]Outcome, len(c.Cases))
	for i, one := range c.Cases {
		r := one.Request
		if r.Principal.Kind == "" {
			r.Principal.Kind, r.Principal.ID = User, "1"
		}
		action := r.Action
		if one.Call != nil {
			action = FunctionCall
		}
		set, err := CombineFor(action, level)
		if err != nil {
			return nil, []Problem{{Message: err.Error()}}
		}
		decision := set.Decide(r)
		if one.Call != nil {
			call := *one.Call
			if call.Principal.Kind == "" {
				call.Principal = r.Principal
			}
			decision = (&CallSet{set: *set}).Decide(call)
		}
		all[i] = Outcome{Case: one, Decision: decision, Passed: decision.Verdict == one.Verdict}
		if all[i].Passed && one.By != "" {
			all[i].Passed = false
			for _, ruling := range decision.Deciding() {
				all[i].Passed = all[i].Passed || ruling.Policy == one.By
			}
		}
	}
	return all, nil
}
