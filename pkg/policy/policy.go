// Package policy evaluates Cedar policies about rollouts: a schema of ours, strict validation when policies are written, and decisions that
// fail closed (D51).
//
// It is pure: it reads no store and no clock. What a policy may ask of, a Request has. Nothing here decides which policies concern a
// request: the caller passes those of the installation, the organization, groups, the application and the environment as levels.
//
// Three rules differ from plain Cedar, and each is stricter:
//   - a policy that cannot be evaluated denies, where Cedar skips it, so that a broken forbid does not fail open;
//   - every level that has policies has to permit by itself, so that a lower level only makes stricter what it inherits;
//   - a permit with @require("approval") requests the approval even if another permit matches as well.
package policy

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cedar-policy/cedar-go"
)

// The bounds of what authors and callers may send.
const (
	// MaxText is the size of one policy set in bytes.
	MaxText = 64 << 10
	// MaxPolicies is how many policies one policy set has.
	MaxPolicies = 200
	// MaxCombined is how many policies may concern one request, of all levels.
	MaxCombined = 1000
	// MaxDepth is how deep brackets and conditionals may be nested.
	MaxDepth = 32
	// MaxRequest is the size of a request as JSON, in bytes, and MaxCall that of the arguments of a call. A larger one is denied.
	MaxRequest = 256 << 10
	MaxCall    = 64 << 10
	// MaxQuorum and MaxExpiry bound a required approval.
	MaxQuorum = 20
	MaxExpiry = 30 * 24 * time.Hour
	// maxProblems is how many problems of one policy set are reported.
	maxProblems = 50
)

// Verdict is the outcome of a decision, or of one policy.
type Verdict string

// The verdicts, from the least strict one.
const (
	Allow         Verdict = "allow"
	NeedsApproval Verdict = "needs_approval"
	Deny          Verdict = "deny"
)

// stricter is the stricter one of two verdicts.
func (v Verdict) stricter(other Verdict) Verdict {
	if slices.Index(strictness(), other) > slices.Index(strictness(), v) {
		return other
	}
	return v
}

func strictness() []Verdict { return []Verdict{Allow, NeedsApproval, Deny} }

// Action is what a decision is about.
type Action string

// The actions.
const (
	EnterEnvironment Action = "environment.enter"
	PassGate         Action = "gate.pass"
	CreateRollout    Action = "rollout.create"
	Rollback         Action = "rollout.rollback"
	// FunctionCall means that a program calls a Function. Its policies are apart from those about rollouts (call.go).
	FunctionCall Action = "function.call"
	// CompleteRollout means that the run of a rollout has done everything, BypassFreeze that a member lets a rollout past a freeze, and
	// ChangeControl that a member changes a control. Their policies are apart as well (control.go).
	CompleteRollout Action = "rollout.complete"
	BypassFreeze    Action = "freeze.bypass"
	ChangeControl   Action = "control.change"
)

// Actions are all that policies decide.
func Actions() []Action { return append(rolloutActions(), ownActions()...) }

// rolloutActions are those that policies decide about rollouts.
func rolloutActions() []Action { return []Action{EnterEnvironment, PassGate, CreateRollout, Rollback} }

// Requirement is an approval that a policy requires.
type Requirement struct {
	// Group is whose members may give it; empty for everybody who may approve.
	Group string `json:"group,omitempty"`
	// Quorum is how many different people have to give it, at least 1.
	Quorum int `json:"quorum"`
	// ExpiresSeconds is how long it may take before it counts as rejected; 0 for no limit.
	ExpiresSeconds int `json:"expires_seconds,omitempty"`
	// RequesterMay reports whether the person who requested the rollout may give it, too.
	RequesterMay bool `json:"requester_may,omitempty"`
}

// Ruling is the outcome of one policy in a decision.
type Ruling struct {
	// Set is the name of the policy set, and Policy the @id of the policy. Policy is empty where no policy of the level permits the request.
	Set    string `json:"set"`
	Policy string `json:"policy,omitempty"`
	// Line is that of the policy in its set; 0 for none.
	Line    int     `json:"line,omitempty"`
	Verdict Verdict `json:"verdict"`
	// Message is what the policy says to people (@message), or why it could not be evaluated.
	Message string `json:"message,omitempty"`
	// Failed reports whether it could not be evaluated, which denies.
	Failed bool `json:"failed,omitempty"`
	// Requires is the approval that it requires; nil for none.
	Requires *Requirement `json:"requires,omitempty"`
	// Given reports whether the approval has been given, so that the verdict is allow.
	Given bool `json:"given,omitempty"`
	// DryRun reports whether the set is tried out: the ruling does not count.
	DryRun bool `json:"dry_run,omitempty"`
}

// Name is the policy for people: set/policy.
func (r Ruling) Name() string {
	if r.Policy == "" {
		return r.Set
	}
	return r.Set + "/" + r.Policy
}

// Approval identifies the approval that the policy requires: a policy that comes to require another one is not satisfied by the former.
func (r Ruling) Approval() string {
	if r.Requires == nil {
		return ""
	}
	q := *r.Requires
	return fmt.Sprintf("%s?group=%s&quorum=%d&expires=%d&requester=%t", r.Name(), q.Group, q.Quorum, q.ExpiresSeconds, q.RequesterMay)
}

// Sentence says for people what the policy decided and why.
func (r Ruling) Sentence() string {
	text := map[Verdict]string{Allow: "allows it", Deny: "denies it", NeedsApproval: "requires an approval"}[r.Verdict]
	if r.Verdict == NeedsApproval && r.Requires != nil {
		who := "a member who may approve"
		if r.Requires.Group != "" {
			who = fmt.Sprintf("the group %q", r.Requires.Group)
		}
		text = fmt.Sprintf("requires %d of %s to approve", r.Requires.Quorum, who)
	}
	if r.Failed {
		text = "cannot be evaluated, which denies it"
	}
	text = fmt.Sprintf("policy %s %s", r.Name(), text)
	if r.Policy == "" {
		text = fmt.Sprintf("no policy of %s permits it", r.Set)
	}
	if r.Message != "" {
		text += ": " + r.Message
	}
	return text
}

// Decision is what the policies of all levels decide about a request.
type Decision struct {
	Verdict Verdict `json:"verdict"`
	// Digest identifies the policies that were asked: sha256 and the hexadecimal digest of their texts. Empty where there are none.
	Digest string `json:"digest,omitempty"`
	// Rulings are the policies that matched, and what denied, in the order of the levels.
	Rulings []Ruling `json:"rulings,omitempty"`
	// Pinned identifies the policies that the rollout was created with, if they are not the present ones. Both have decided.
	Pinned string `json:"pinned,omitempty"`
	// WouldBe is the verdict if the sets that are tried out counted as well; empty where none is.
	WouldBe Verdict `json:"would_be,omitempty"`
}

// Deciding are the rulings that brought the verdict about; of an allowed request, those that permit it.
func (d Decision) Deciding() []Ruling {
	var all []Ruling
	for _, r := range d.Rulings {
		if r.Verdict == d.Verdict && !r.DryRun {
			all = append(all, r)
		}
	}
	return all
}

// Sentence says for people what was decided and by which policies.
func (d Decision) Sentence() string {
	var parts []string
	for _, r := range d.Deciding() {
		parts = append(parts, r.Sentence())
	}
	if len(parts) == 0 {
		parts = []string{"no policy concerns it"}
	}
	if d.WouldBe != "" && d.WouldBe != d.Verdict {
		parts = append(parts, "with the policies that are tried out it would be "+strings.ReplaceAll(string(d.WouldBe), "_", " "))
	}
	return strings.Join(parts, "; ")
}

// Same reports whether two decisions say the same by the same policies.
func (d Decision) Same(other Decision) bool {
	return d.Verdict == other.Verdict && d.WouldBe == other.WouldBe && d.Digest == other.Digest && d.Pinned == other.Pinned &&
		slices.EqualFunc(d.Rulings, other.Rulings, func(a, b Ruling) bool {
			return a.Name() == b.Name() && a.Verdict == b.Verdict && a.Given == b.Given && a.Failed == b.Failed && a.DryRun == b.DryRun &&
				a.Approval() == b.Approval()
		})
}

// With is the stricter one of the present policies' decision and of the pinned ones', with the rulings of both.
func (d Decision) With(pinned Decision) Decision {
	if pinned.Digest == d.Digest {
		return d
	}
	d.Verdict, d.Pinned = d.Verdict.stricter(pinned.Verdict), pinned.Digest
	d.Rulings = slices.Clone(d.Rulings)
	for _, r := range pinned.Rulings {
		// A policy may require another approval now than when it was pinned: both are asked for.
		same := func(o Ruling) bool {
			return o.Name() == r.Name() && o.Verdict == r.Verdict && o.Approval() == r.Approval() && !o.DryRun
		}
		if !r.DryRun && !slices.ContainsFunc(d.Rulings, same) {
			d.Rulings = append(d.Rulings, r)
		}
	}
	return d
}

// Failed is the decision where the policies themselves cannot be used: it denies.
func Failed(set, why string) Decision {
	return Decision{Verdict: Deny, Rulings: []Ruling{{Set: set, Verdict: Deny, Message: why, Failed: true}}}
}

// Member is a policy set within a level.
type Member struct {
	// Name is that of the set.
	Name string
	*Document
	// Zone is where the days and hours of context.time are; nil for UTC.
	Zone *time.Location
	// DryRun reports whether the set is tried out: it is evaluated and reported, and does not count.
	DryRun bool
}

// Level are the policy sets of one scope: the installation, the organization, a group of applications, an application, or an environment.
type Level struct {
	// Name is the scope for people: the organization, application "shop".
	Name    string
	Members []Member
}

// Set are the policies of all levels, ready to decide. It is safe for concurrent use.
type Set struct {
	levels []Level
	digest string
	id     *setID
}

// Combine makes the policies about rollouts of levels ready, those of the organization first. It refuses more than MaxCombined. Sets that
// are only about calls, the end of rollouts, freezes or controls are left out.
func Combine(levels ...Level) (*Set, error) { return CombineFor(CreateRollout, levels...) }

func combine(levels []Level, concerns func(*Document) bool) (*Set, error) {
	s := &Set{id: &setID{}}
	count, sum := 0, sha256.New()
	for _, l := range levels {
		l.Members = slices.DeleteFunc(slices.Clone(l.Members), func(m Member) bool { return !concerns(m.Document) })
		if len(l.Members) == 0 {
			continue
		}
		s.levels = append(s.levels, l)
		for _, m := range l.Members {
			count += len(m.policies)
			zone := time.UTC
			if m.Zone != nil {
				zone = m.Zone
			}
			// Each part with its length, so that no two combinations write the same bytes.
			for _, part := range []string{l.Name, m.Name, zone.String(), strconv.FormatBool(m.DryRun), m.text} {
				_, _ = fmt.Fprintf(sum, "%d:%s", len(part), part)
			}
		}
	}
	if count > MaxCombined {
		return nil, fmt.Errorf("found %d policies that concern one request; expected at most %d", count, MaxCombined)
	}
	if len(s.levels) > 0 {
		s.digest = "sha256:" + hex.EncodeToString(sum.Sum(nil))
	}
	return s, nil
}

// Digest identifies the policies; empty where there are none.
func (s *Set) Digest() string { return s.digest }

// Empty reports whether there are no policies at all.
func (s *Set) Empty() bool { return len(s.levels) == 0 }

// Decide evaluates all policies that may concern a request. It fails closed: what cannot be evaluated denies.
func (s *Set) Decide(r Request) Decision {
	if s.Empty() {
		return Decision{Verdict: Allow, Digest: s.digest}
	}
	w, err := r.world()
	if err != nil {
		return s.failed(err)
	}
	return s.decide(w, r.Given, s.plan(r.Action, w.base.Principal, w.base.Resource))
}

// failed is the decision about a request that cannot be read: it denies.
func (s *Set) failed(err error) Decision {
	d := Failed("the request", err.Error())
	d.Digest = s.digest
	return d
}

// decide evaluates the policies of a plan in a world.
func (s *Set) decide(w *world, given []string, p *plan) Decision {
	d := Decision{Verdict: Allow, Digest: s.digest}
	tried := false
	wouldBe := Allow
	lists := p.lists
	for _, l := range s.levels {
		rulings := l.decide(w, given, lists)
		lists = lists[len(l.Members):]
		counted, all := l.verdict(rulings, false), l.verdict(rulings, true)
		d.Verdict, wouldBe = d.Verdict.stricter(counted.Verdict), wouldBe.stricter(all.Verdict)
		if counted.Policy == "" && counted.Set != "" {
			rulings = append(rulings, counted)
		}
		d.Rulings = append(d.Rulings, rulings...)
		tried = tried || slices.ContainsFunc(l.Members, func(m Member) bool { return m.DryRun })
	}
	if tried {
		d.WouldBe = wouldBe
	}
	return d
}

// decide are the policies of a level that match a request or cannot be evaluated. The first lists are the candidates of its members.
func (l Level) decide(w *world, given []string, lists []candidates) []Ruling {
	var all []Ruling
	for i, m := range l.Members {
		_, diagnostic := cedar.Authorize(&lists[i], w, w.request(m.Zone))
		for _, e := range diagnostic.Errors {
			all = append(all, Ruling{
				Set: m.Name, Policy: string(e.PolicyID), Line: e.Position.Line, Verdict: Deny, Message: e.Message, Failed: true, DryRun: m.DryRun,
			})
		}
		for _, reason := range diagnostic.Reasons {
			p := m.byID[string(reason.PolicyID)]
			ruling := Ruling{
				Set: m.Name, Policy: p.ID, Line: p.Line, Verdict: Allow, Message: p.Message, Requires: p.Requires, DryRun: m.DryRun,
			}
			switch {
			case p.Forbids:
				ruling.Verdict = Deny
			case p.Requires != nil && slices.Contains(given, ruling.Approval()):
				ruling.Given = true
			case p.Requires != nil:
				ruling.Verdict = NeedsApproval
			}
			all = append(all, ruling)
		}
	}
	return all
}

// verdict is that of a level: the strictest one of its policies, and deny where none permits. The zero Set of the answer says that a policy
// decided.
func (l Level) verdict(rulings []Ruling, tried bool) Ruling {
	counts, permitted := false, false
	for _, m := range l.Members {
		counts = counts || tried || !m.DryRun
	}
	v := Allow
	for _, r := range rulings {
		if r.DryRun && !tried {
			continue
		}
		v = v.stricter(r.Verdict)
		permitted = permitted || r.Verdict != Deny
	}
	if counts && !permitted && v != Deny {
		return Ruling{Set: l.Name, Verdict: Deny}
	}
	return Ruling{Verdict: v}
}
