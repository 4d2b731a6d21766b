// Package function has the Functions that programs call (E38): those executed here (git.*, manifest.*, http.request, checkpoint), and the
// declarations of those that relays execute (k8s.*, argo.*), whose arguments are checked here before anything is sent.
//
// A Function translates: arguments into a port's call, errors into codes. What Git is, or YAML, it does not know.
package function

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/activity"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/history"
)

// Retry says what a Function's failures are good for.
type Retry int

const (
	// RetryNever is for Functions of which the same call would fail in the same way.
	RetryNever Retry = iota
	// RetryUnavailable makes the engine call again, until the deadline, when something was away.
	RetryUnavailable
)

// Spec declares a Function.
type Spec struct {
	Name string
	// Doc says in the reference what the Function does and answers. It is Markdown.
	Doc string
	// Location says who carries it out.
	Location activity.Location
	// Arguments are all that it takes; others are refused.
	Arguments []Field
	// Retry says which failures the engine may try again.
	Retry Retry
	// Idempotent Functions may be called twice without their call id: they only read, or end in the same state. The others
	// recognize a repeat by it.
	Idempotent bool
	// Pure Functions do nothing in the world and answer at once, from their arguments alone (activity.Pure).
	Pure bool
	// Computes is for Functions that do nothing in the world and compute their answer from their arguments alone (activity.Computing).
	Computes bool
	// Effect states what it does to anything outside of this service. A Function without one cannot be registered.
	Effect activity.Effect
	// Touches returns the places that a call changes; nil for Functions that only read.
	Touches func(args map[string]any) []activity.Place
	// Owned Functions change only objects with the label of an owner, whom the guard determines.
	Owned bool
	// Ends returns the operation whose object a call ends; nil for Functions that end nothing.
	Ends func(args map[string]any) string
	// EffectOf is the effect of one call; nil for Functions of which all calls have the same.
	EffectOf func(args map[string]any) activity.Effect
	// TakesBackAt reports whether calls take something back at a place (activity.Confined); nil for all places.
	TakesBackAt func(opened, touched activity.Place) bool
	// Entered reports whether a call is executed in the run of a rollout alone, behind a passage (activity.Entering); nil for no call.
	Entered func(args map[string]any) bool
	// LocationOf is where one call is carried out; nil for Functions of which all calls are in the same place.
	LocationOf func(args map[string]any) activity.Location
	// Web Functions send requests to other servers: of one organization only so many are in progress at a time (activity.WebShare).
	Web bool
	// Reports returns what the domain service hears of an answer (activity.Reporting); nil for nothing.
	Reports func(call activity.Call, value json.RawMessage) (activity.Report, bool)
	// Intends returns what it hears of a call before it is made; nil for nothing.
	Intends func(call activity.Call) (activity.Report, bool)
	// Check finds what is wrong with arguments together; nil for nothing. It is called with those that pass one by one.
	Check func(args map[string]any) []fault.Field
}

// Function is a declaration, and for Functions that are carried out here the deed. do is nil for those of relays.
type Function struct {
	spec Spec
	do   func(ctx context.Context, call activity.Call) (any, error)
}

var (
	_ activity.Function  = (*Function)(nil)
	_ activity.Checker   = (*Function)(nil)
	_ activity.Pure      = (*Function)(nil)
	_ activity.Computing = (*Function)(nil)
	_ activity.Sharing   = (*Function)(nil)
	_ activity.Toucher   = (*Function)(nil)
	_ activity.Varying   = (*Function)(nil)
	_ activity.Ender     = (*Function)(nil)
	_ activity.Owned     = (*Function)(nil)
	_ activity.Confined  = (*Function)(nil)
	_ activity.Placed    = (*Function)(nil)
	_ activity.Entering  = (*Function)(nil)
	_ activity.Reporting = (*Function)(nil)
)

// Outgoing sends what leaves this installation.
type Outgoing interface {
	activity.Web
	activity.Mailer
	activity.Publisher
	activity.Charts
}

// All are the Functions that programs may run, beside the engine's own emit.
func All(forge activity.Forge, web Outgoing, renderer activity.Renderer) []activity.Function {
	return []activity.Function{
		readFile(forge), readCommit(forge), readDifference(forge), commit(forge),
		propose(forge), merge(forge), readProposal(forge), withdraw(forge), readStatus(forge), setStatus(forge), setDeployment(forge),
		readChange(forge), writeComment(forge),
		pin(), pinKustomization(), pinValues(), editFile(), difference(), compareManifests(), redactSecrets(),
		get(), listObjects(), checkApplication(), sync(), terminate(), promote(), abort(), retry(),
		submitWorkflow(), stopWorkflow(), terminateWorkflow(), workflowLogs(), runJob(), stopJob(), jobLogs(), analyze(), endAnalysis(),
		renderTemplate(), evaluate(), renderKustomization(forge, renderer), renderChart(forge, web, renderer),
		compareRendered(forge, web, renderer),
		applyObjects(), patchObject(), deleteObject(), readLogs(), healthOfObjects(),
		httpRequest(web), sendMail(web), publish(web), checkpoint(),
	}
}

// Computing are the Functions that only compute, from their arguments alone.
func Computing() []activity.Function {
	return []activity.Function{renderTemplate(), evaluate(), editFile(), redactSecrets()}
}

// Name is what programs call it.
func (f *Function) Name() string { return f.spec.Name }

// Location is where it is carried out.
func (f *Function) Location() activity.Location { return f.spec.Location }

// LocationOf is where one call is carried out.
func (f *Function) LocationOf(data json.RawMessage) activity.Location {
	if f.spec.LocationOf == nil {
		return f.spec.Location
	}
	args, err := history.Arguments(data)
	if err != nil {
		return f.spec.Location
	}
	return f.spec.LocationOf(args)
}

// Pure reports whether a call has no effect that could be observed.
func (f *Function) Pure() bool { return f.spec.Pure }

// Share is activity.Sharing.
func (f *Function) Share() (name string, most int) {
	if !f.spec.Web {
		return "", 0
	}
	return activity.WebShare, activity.RequestsAtOnce
}

// Computes reports whether a call only computes.
func (f *Function) Computes() bool { return f.spec.Computes }

// Effect is what it does to anything outside of this service.
func (f *Function) Effect() activity.Effect {
	if f.spec.Effect.Mutates() && f.spec.Touches == nil {
		return activity.Unstated // it cannot be registered
	}
	return f.spec.Effect
}

// Owned reports whether it changes only objects of an owner.
func (f *Function) Owned() bool { return f.spec.Owned }

// EffectOf is the effect of one call.
func (f *Function) EffectOf(args map[string]any) activity.Effect {
	if f.spec.EffectOf == nil {
		return f.Effect()
	}
	return f.spec.EffectOf(args)
}

// Touches are the places that a call changes.
func (f *Function) Touches(args map[string]any) []activity.Place {
	if f.spec.Touches == nil {
		return nil
	}
	return f.spec.Touches(args)
}

// EndsNothing reports whether no call of the Function ends what an operation has started.
func (f *Function) EndsNothing() bool { return f.spec.Ends == nil }

// Ends is the operation whose object a call ends; empty for none.
func (f *Function) Ends(args map[string]any) string {
	if f.spec.Ends == nil {
		return ""
	}
	return f.spec.Ends(args)
}

// TakesBackAt reports whether calls that touch a place take something back where a passage opens the other.
func (f *Function) TakesBackAt(opened, touched activity.Place) bool {
	return f.spec.TakesBackAt == nil || f.spec.TakesBackAt(opened, touched)
}

// Entered reports whether a call is executed in the run of a rollout alone.
func (f *Function) Entered(args map[string]any) bool {
	return f.spec.Entered != nil && f.spec.Entered(args)
}

// Report returns what the domain service hears of an answer.
func (f *Function) Report(call activity.Call, value json.RawMessage) (activity.Report, bool) {
	if f.spec.Reports == nil {
		return activity.Report{}, false
	}
	return f.spec.Reports(call, value)
}

// Intent returns what the domain service hears of a call before it is made: nothing of one that is refused for its arguments, since it
// does nothing.
func (f *Function) Intent(call activity.Call) (activity.Report, bool) {
	if f.spec.Intends == nil || f.Check(call.Args) != nil {
		return activity.Report{}, false
	}
	return f.spec.Intends(call)
}

// Spec is its declaration.
func (f *Function) Spec() Spec { return f.spec }

// Check compares arguments with the declaration. The error is a *history.FunctionError that names every field at fault, what
// was found and what was expected.
func (f *Function) Check(args map[string]any) error {
	wrong := check(f.spec.Arguments, args, "")
	if len(wrong) == 0 && f.spec.Check != nil {
		wrong = f.spec.Check(args)
	}
	if len(wrong) > 0 {
		return &history.FunctionError{Code: history.CodeInvalid, Message: f.spec.Name + ": " + fault.InvalidFields(wrong...).Error()}
	}
	return nil
}

// Call carries it out.
func (f *Function) Call(ctx context.Context, call activity.Call) (any, error) {
	if f.do == nil {
		return nil, &history.FunctionError{Code: history.CodeInternal, Message: f.spec.Name + " is executed by a relay, not here"}
	}
	if err := f.Check(call.Args); err != nil {
		return nil, err
	}
	value, err := f.do(ctx, call)
	if err != nil {
		return nil, f.inWords(err)
	}
	return value, nil
}

// inWords gives a classed error the code that programs see. Others stay as they are: their text is for the log. Codes
// are what programs compare with (on_error="return"): a new word for an old failure breaks drivers.
func (f *Function) inWords(err error) error {
	code := codes()[fault.ClassOf(err)]
	if code == "" {
		return fmt.Errorf("%s: %w", f.spec.Name, err)
	}
	return &history.FunctionError{
		Code: code, Message: fault.Public(err),
		Retryable: f.spec.Retry == RetryUnavailable && fault.Is(err, fault.Unavailable),
	}
}

// codes are those of classed errors.
func codes() map[fault.Class]string {
	return map[fault.Class]string{
		fault.Invalid:         history.CodeInvalid,
		fault.NotFound:        "not_found",
		fault.Conflict:        "conflict",
		fault.Refused:         "refused",
		fault.Unauthenticated: "unauthorized",
		fault.Denied:          "unauthorized",
		fault.Unavailable:     "unreachable",
	}
}
