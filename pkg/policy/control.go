package policy

import (
	_ "embed"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/cedar-policy/cedar-go"
	"github.com/cedar-policy/cedar-go/types"
	"github.com/cedar-policy/cedar-go/x/exp/schema/validate"
)

// Policies about the end of rollouts, about freezes and about changes of controls are apart from those about rollouts, as those about calls
// are: a policy is about such an action if its scope names it, and then it names nothing else. A set concerns the action if one of its
// policies is about it. So what was stored before these actions were decided means what it meant.

//go:embed controls.cedarschema
var controlSchema string

// ControlSchema is what policies about CompleteRollout, BypassFreeze and ChangeControl may speak of, in Cedar's own syntax.
func ControlSchema() string { return Schema + "\n" + controlSchema }

// strictControls is the validator of ControlSchema.
var strictControls = sync.OnceValues(func() (*validate.Validator, error) { //nolint:gochecknoglobals // made once, and never changed
	return validatorOf("controls.cedarschema", ControlSchema())
})

// Control is a change that a decision is about.
type Control struct {
	// Kind and ID are those of what is changed, and Name is what people call it.
	Kind string `json:"kind"`
	ID   int64  `json:"id"`
	Name string `json:"name,omitempty"`
	// Action is the mutation.
	Action    string `json:"action"`
	Stricter  bool   `json:"stricter,omitempty"`
	Confirmed bool   `json:"confirmed,omitempty"`
	Forced    bool   `json:"forced,omitempty"`
}

// ownActions are those that policies decide only where a policy names them.
func ownActions() []Action {
	return []Action{FunctionCall, CompleteRollout, BypassFreeze, ChangeControl}
}

// Own reports whether policies decide about an action only where one of the set names it.
func (a Action) Own() bool { return slices.Contains(ownActions(), a) }

// own is the action of its own that the scope of a policy names; empty for none.
func (p *policy) own() Action {
	for _, named := range p.named() {
		if a := Action(named.ID); named == actionUID(a) && a.Own() {
			return a
		}
	}
	return ""
}

// onlyOwn is what is wrong with the scope of a policy that names an action of its own.
func (p *policy) onlyOwn(own Action) (wrong []string) {
	for _, a := range p.named() {
		if Action(a.ID) == own {
			continue
		}
		message := fmt.Sprintf("found Action::%q beside Action::%q; expected a policy of its own", a.ID, own)
		if own == FunctionCall {
			message += " for calls"
		}
		wrong = append(wrong, message+": they have another context")
	}
	return wrong
}

// validatorFor is that of the policies about an action of its own; of the others for none.
func validatorFor(own Action) (*validate.Validator, error) {
	switch own {
	case "":
		return strict()
	case FunctionCall:
		return strictCalls()
	default:
		return strictControls()
	}
}

// Concerns reports whether the policies of the document decide about an action.
func (d *Document) Concerns(a Action) bool {
	if a.Own() {
		return d.own[a] != nil
	}
	return len(d.index.all) > 0 || len(d.own) == 0
}

// of is the index of the policies that decide about an action.
func (d *Document) of(a Action) *index {
	if a.Own() {
		return d.own[a]
	}
	return d.index
}

// Mentions reports whether a text may have policies about an action of its own, also one that cannot be read. It may say so of one that
// has none.
func Mentions(text string, own Action) bool {
	return strings.Contains(text, string(own)) || strings.Contains(text, `\`) // which may write any letter
}

// MentionsAttribute reports the same of an attribute of an entity.
func MentionsAttribute(text, attribute string) bool {
	return strings.Contains(text, attribute) || strings.Contains(text, `\`)
}

// CombineFor makes the policies ready that decide about an action. Sets and levels that are not about it are left out.
func CombineFor(a Action, levels ...Level) (*Set, error) {
	return combine(levels, func(d *Document) bool { return d.Concerns(a) })
}

// control completes the world of a request about an action of its own.
func (w *world) control(r Request) error {
	w.context["environments"] = w.environments(r.Environments)
	switch r.Action { //nolint:exhaustive // those of its own only
	case CompleteRollout:
		w.context["completed"] = w.environments(r.Completed)
		w.context["degraded"] = types.Boolean(r.Degraded)
		w.context["rollback"] = types.Boolean(r.Rollback)
		w.rollout(r)
		w.base.Resource = w.application(r)
		return nil
	case BypassFreeze:
		w.context["gate"], w.context["reason"] = types.String(r.Gate), types.String(r.Reason)
		w.context["freezes"], w.context["ownRollout"] = texts(r.Freezes), types.Boolean(r.OwnRollout)
		w.context["rollback"] = types.Boolean(r.Rollback)
		if r.Environment != nil {
			w.context["environment"] = w.environment(*r.Environment)
		}
		w.rollout(r)
		w.base.Resource = w.application(r)
		return nil
	}
	c := r.Control
	if c == nil {
		return fmt.Errorf("found no control; expected the one of %s", r.Action)
	}
	w.base.Resource = w.entity("Control", fmt.Sprintf("%s/%d", c.Kind, c.ID), cedar.RecordMap{
		"kind": types.String(c.Kind), "name": types.String(c.Name),
	})
	w.context["action"], w.context["reason"] = types.String(c.Action), types.String(r.Reason)
	w.context["stricter"], w.context["confirmed"] = types.Boolean(c.Stricter), types.Boolean(c.Confirmed)
	w.context["forced"] = types.Boolean(c.Forced)
	if r.Application != "" {
		w.context["application"] = w.application(r)
	}
	return nil
}
