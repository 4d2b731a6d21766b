package function

import (
	"fmt"
	"slices"
	"strings"

	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/activity"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/history"
)

// Argument is one argument of a Function in the reference, or a field inside one.
type Argument struct {
	// Name has dots between an argument and the fields inside it, and [] for the items of a list.
	Name string
	// Expected is what a value has to be.
	Expected string
	Required bool
	Doc      string
}

// Reference lists the arguments of the Function, each followed by the fields inside it.
func (s Spec) Reference() []Argument { return arguments(s.Arguments, "") }

// OnCluster reports whether a relay executes it.
func (s Spec) OnCluster() bool { return s.Location == activity.Cluster }

// Passage says whether a call needs the passage of an environment.
func (s Spec) Passage() string {
	if s.EffectOf != nil {
		return "Calls that change something need the passage of the environment that they change."
	}
	switch s.Effect {
	case activity.Changes:
		return "It changes something: it needs the passage of the environment that it changes."
	case activity.TakesBack:
		return "It only takes back what a rollout has begun: it needs the passage of the environment that it changes, and is executed after an abort, too."
	case activity.Proposes:
		return "It changes only the branch of a proposal, so it needs no passage. It is refused once the rollout has ended, and where an environment is deployed from such a branch."
	case activity.Publishes:
		return "It publishes what the domain service has recorded. Only the runs that the domain service starts for that call it; any other run is refused."
	case activity.Reads, activity.Unstated:
	}
	return "It changes nothing outside of the workflow service, so it needs no passage."
}

func arguments(fields []Field, under string) []Argument {
	var all []Argument
	for _, f := range fields {
		a := Argument{Name: under + f.Name, Expected: f.expected(), Required: f.Required, Doc: f.Doc}
		inside, within := f.Fields, a.Name+"."
		if f.Element != nil {
			a.Expected = "a list, each item " + f.Element.expected()
			inside, within = f.Element.Fields, a.Name+"[]."
		}
		all = append(append(all, a), arguments(inside, within)...)
	}
	return all
}

// Code is an error code that a program may compare with the field code of an answer to a call with on_error = "return".
type Code struct{ Name, Doc string }

// CheckCode finds a fault in an error code that a test lets a Function answer: Lockstep's own answer documented ones only. Those of the
// organization's own workers may be any, so functions with other names have none.
func CheckCode(function, code string) error {
	named := func(f activity.Function) bool { return f.Name() == function }
	if function != activity.EmitFunction && !slices.ContainsFunc(append(All(nil, nil, nil), Watching(WatchDeps{})...), named) {
		return nil
	}
	var known []string
	for _, c := range Codes() {
		known = append(known, c.Name)
	}
	if slices.Contains(known, code) {
		return nil
	}
	return fmt.Errorf("found the code %q, which %s never answers, expected one of %s", code, function, strings.Join(known, ", "))
}

// Codes are all error codes, those of relays included.
func Codes() []Code {
	return []Code{
		{history.CodeInvalid, "The arguments are invalid. Repeating the call is of no use."},
		{history.CodeUnknownFunction, "The Function does not exist."},
		{"not_found", "The object, repository or file does not exist."},
		{"conflict", "The current state contradicts the call: another version, another owner, another commit."},
		{"refused", "The request was understood and refused."},
		{history.CodeLimited, "A limit of the organization is reached: open runs, or storage. Try again when others have ended, or do without."},
		{CodeNotConfigured, "No forge is configured for the repository, so nothing was sent."},
		{"unauthorized", "The credentials are missing or invalid, or lack a permission."},
		{"unreachable", "There was no answer. The engine repeats the call until its timeout, unless `retry` says otherwise."},
		{CodeExpressionCompile, "The expression is malformed; the message says where."},
		{CodeExpressionEvaluate, "The expression could not be evaluated, or costs too much."},
		{CodeStatus, "The server answered with a status after which the request is repeated, until the timeout."},
		{history.CodeTimeout, "There was no answer, or not the expected state, in time."},
		{history.CodeTooLarge, "The answer is larger than a program may receive."},
		{history.CodeUnreadable, "The answer contains what a program cannot read."},
		{history.CodeInvalidYAML, "`parse_yaml` cannot read the text: it is no YAML, has a key twice, or is too large."},
		{"unknown_kind", "The cluster does not have the kind."},
		{history.CodeForbidden, "No passage of the rollout permits it, or an environment is protected; from a relay: the cluster does not permit it to the relay."},
		{"auto_sync", "The Application is synced automatically, which a sync to a given commit would compete with."},
		{"owned", "Another object owns the Application and would revert it."},
		{"sync_failed", "Argo CD has carried out the sync, and it failed."},
		{CodeTemplateParse, "The text is not a template."},
		{CodeTemplateExecute, "The template cannot be filled in with the data."},
		{"child_failed", "The child that `await_workflow` waits for has failed."},
		{"child_cancelled", "The child that `await_workflow` waits for was cancelled or terminated."},
		{history.CodeInternal, "An unexpected error; the log of the service has it."},
	}
}
