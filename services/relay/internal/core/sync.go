package core

import (
	"fmt"
	"regexp"
	"time"
)

// The modes of an Application (D21).
const (
	// ModeManaged creates a missing Application, and adopts an existing one.
	ModeManaged = "managed"
	// ModeExisting only adopts.
	ModeExisting = "existing"
)

// Source is the source of an Application that has to be created, and its destination.
type Source struct {
	RepoURL, Path, Project, DestinationNamespace string
}

// SyncRequest holds the arguments of argo.sync.
type SyncRequest struct {
	// Organization is the caller's.
	Organization string
	// Operation identifies the sync: the id that the program has given it, or that of the call. Calls with the same id are about the same
	// sync, which is started once. Revision is a full commit id.
	Operation string
	Ref       Ref
	Revision  string
	Mode      string
	// Source is nil if the Application has to exist. Prune makes the sync delete what the revision no longer has.
	Source *Source
	Prune  bool
	// Start makes the call return the progress of the sync, instead of waiting for its end.
	Start bool
	// Supersede ends a running sync that Lockstep has started with another id, instead of waiting for its end.
	Supersede bool
	// Check only checks whether the Application would be accepted. It has no Revision.
	Check bool
	// Allowed holds the limits of the environment, which apply in addition to the relay's own.
	Allowed Limits
	// Now is when the Application was read.
	Now time.Time
	// Overrides, if given, are rendered at the revision. An earlier sync of ours without them does not count.
	Overrides Overrides
}

// The values of argo.sync's argument wait: the end of the sync, or only its start.
const (
	waitEnd   = "end"
	waitStart = "start"
)

var (
	commitID = regexp.MustCompile(`^([0-9a-f]{40}|[0-9a-f]{64})$`)
	// operationID restricts what becomes a user name and a value in an Application to the characters of call ids and UUIDs.
	operationID = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._/-]{0,199}$`)
)

// operation reads the argument operation: the id of the sync.
func (a args) operation(otherwise string) string {
	given := a.text("operation", false)
	if given == "" {
		return otherwise
	}
	if !operationID.MatchString(given) {
		a.problem("operation", "found %q, expected up to 200 letters, digits, '.', '_', '/' and '-', such as a UUID", given)
	}
	return given
}

// parseSync parses the arguments of argo.sync, or those of argo.check, which describe the Application only.
func parseSync(call Call, check bool) (SyncRequest, error) {
	a, err := readArgs(call.Args)
	if err != nil {
		return SyncRequest{}, err
	}
	a.known["agent_id"] = true
	want := SyncRequest{
		Organization: call.Organization, Check: check,
		Ref:  Ref{Kind: applicationKind, Namespace: a.name("app_namespace", true), Name: a.name("app_name", true)},
		Mode: a.oneOf("mode", ModeManaged, ModeExisting),
	}
	want.Allowed = a.readLimits()
	if !check {
		want.Operation, want.Revision, want.Overrides = a.operation(call.ID), a.text("revision", true), a.readOverrides()
		want.Prune, want.Supersede = a.flag("prune"), a.flag("supersede")
		want.Start = a.oneOf("wait", waitEnd, waitStart) == waitStart
	}
	if want.Revision != "" && !commitID.MatchString(want.Revision) {
		a.problem("revision", "found %q, expected a full commit id, because a branch or tag may move", want.Revision)
	}
	if s, ok := a.object("source"); ok {
		want.Source = &Source{
			RepoURL: s.text("repo_url", true), Path: s.text("path", true),
			Project: s.text("project", false), DestinationNamespace: s.name("destination_namespace", true),
		}
		if want.Source.Project == "" {
			want.Source.Project = "default"
		}
		s.rest()
	}
	a.rest()
	return want, a.err()
}

// Action is the kind of a decision.
type Action int

// The actions.
const (
	// Wait waits until the object has changed, and decides again.
	Wait Action = iota
	// Create creates the object.
	Create
	// Patch patches the object, and decides again.
	Patch
	// Done ends the call: Value is the answer.
	Done
)

// Decision is the next action on an object.
type Decision struct {
	Action Action
	// Body is the object to create, or the merge patch.
	Body Object
	// Status means that the patch is for the status subresource.
	Status bool
	// Value is the answer of a call that is done, or that is done once the patch is applied.
	Value map[string]any
	// Waiting describes what is waited for, for the message of a timeout.
	Waiting string
}

// wait returns the decision to wait for what is described.
func wait(format string, args ...any) Decision {
	return Decision{Action: Wait, Waiting: fmt.Sprintf(format, args...)}
}

// NextSync decides how to bring an Application to the revision: observed is the present Application, nil if there is none. The error is an
// *Error.
//
// A sync counts as ours by the call id in its operation: only then is its success our success (D11) and its failure our failure. A finished
// operation of another actor counts if it brought everything to our revision.
//
// A call that only starts the sync returns instead of waiting: with the phase, what Argo CD waits for, and the Rollouts that it has
// applied. Repeating the call continues from there.
func NextSync(want SyncRequest, observed Object) (Decision, error) {
	d, err := nextSync(want, observed)
	if err != nil || d.Action != Wait || !want.Start {
		return d, err
	}
	return underWay(want, observed, d), nil
}

// nextSync decides by the first of the rules that applies.
func nextSync(want SyncRequest, observed Object) (Decision, error) {
	if observed == nil {
		return createApplication(want)
	}
	if err := mayTake(want, observed); err != nil {
		return Decision{}, err
	}
	c := caseOf(want, observed)
	for _, rule := range syncRules() {
		if rule.applies(c) {
			return rule.decide(c)
		}
	}
	return Decision{Action: Patch, Body: startOperation(want, observed)}, nil
}

// waitForOperation returns a wait that describes the progress of our own operation.
func waitForOperation(want SyncRequest, state Object) Decision {
	phase := "not started yet"
	if isOurs(state.object("operation"), want) {
		phase = "phase " + state.text("phase")
	}
	message := state.text("message")
	if message != "" {
		message = ": " + message
	}
	return wait("its sync to %s to succeed (%s%s)", want.Revision, phase, message)
}

// ended judges our own finished operation, which has reached our revision or has failed permanently (D11).
func ended(want SyncRequest, state Object) (Decision, error) {
	phase := state.text("phase")
	if phase == "Succeeded" {
		return synced(want.Revision), nil
	}
	return Decision{}, &Error{Code: CodeSyncFailed, Message: fmt.Sprintf(
		"the sync of %s to %s ended as %s: %s", want.Ref, want.Revision, phase, failure(state))}
}

// failure returns Argo CD's message about a failed operation, with the first resource that failed.
func failure(state Object) string {
	message := state.text("message")
	for _, r := range state.list("syncResult", "resources") {
		m, _ := r.(map[string]any)
		res := Object(m)
		if res.text("status") == "SyncFailed" || res.text("hookPhase") == "Failed" {
			return fmt.Sprintf("%s (%s %s/%s: %s)", message,
				res.text("kind"), res.text("namespace"), res.text("name"), res.text("message"))
		}
	}
	return message
}

// deployedBefore finds our own sync in the Application's history, in case another one came after it.
func deployedBefore(want SyncRequest, observed Object) bool {
	for _, h := range observed.list("status", "history") {
		m, _ := h.(map[string]any)
		entry := Object(m)
		if entry.text("revision") == want.Revision && entry.text("initiatedBy", "username") == username(want.Operation) {
			return true
		}
	}
	return false
}

// isAt reports whether a finished operation, of any actor, has brought the whole Application to our revision and it is still there: another
// sync would change nothing.
func isAt(want SyncRequest, observed, state Object) bool {
	op := state.object("operation", "sync")
	return state.text("phase") == "Succeeded" && state.text("syncResult", "revision") == want.Revision &&
		!op.flag("dryRun") && len(op.list("resources")) == 0 &&
		want.Overrides.hold(observed.object("spec", "source")) && want.Overrides.hold(state.object("syncResult", "source")) &&
		observed.text("spec", "source", "targetRevision") == want.Revision &&
		observed.text("status", "sync", "revision") == want.Revision &&
		observed.text("status", "sync", "status") == "Synced"
}

func synced(revision string) Decision {
	return Decision{Action: Done, Value: map[string]any{"revision": revision, "phase": "Succeeded"}}
}

// isFinished reports whether Argo CD will no longer change the operation. Terminating is not finished.
func isFinished(phase string) bool {
	switch phase {
	case "Succeeded", "Failed", "Error":
		return true
	default:
		return false
	}
}

// infoCall is the key of the call id in an operation.
const infoCall = "lockstep.dev/call"

// username returns the initiator of a call's sync as shown by Argo CD. It contains the call id, because the history keeps only the
// initiator of an operation.
func username(callID string) string { return "lockstep:" + callID }

// isOurs reports whether the operation is the requested one.
func isOurs(operation Object, want SyncRequest) bool {
	for _, i := range operation.list("info") {
		m, _ := i.(map[string]any)
		if m["name"] == infoCall {
			return m["value"] == want.Operation
		}
	}
	return operation.text("initiatedBy", "username") == username(want.Operation)
}

// initiator names who started the operation that is waited for, for the message of a timeout.
func initiator(pending, state Object) string {
	op := pending
	if op == nil {
		op = state.object("operation")
	}
	if op.flag("initiatedBy", "automated") {
		return "Argo CD itself"
	}
	if u := op.text("initiatedBy", "username"); u != "" {
		return u
	}
	return "an unknown actor"
}

// startOperation returns the patch that points the Application at the revision and makes Argo CD sync it. It is one patch: between two, a
// crash would leave the Application pointed at a revision that nobody syncs.
//
// Like Argo CD's own command, the patch also clears the state of the previous operation. Argo CD merges the state of the new one into it:
// it would mistake the hooks and waves of the old operation for its own, and end without having applied anything.
func startOperation(want SyncRequest, observed Object) Object {
	return Object{
		"metadata":  observed.precondition(),
		"spec":      map[string]any{"source": want.Overrides.into(map[string]any{"targetRevision": want.Revision})},
		"operation": operation(want, observed),
		"status":    map[string]any{"operationState": nil},
	}
}

// operation returns what Argo CD's own command would write, with the call in it.
func operation(want SyncRequest, observed Object) map[string]any {
	sync := map[string]any{
		"revision": want.Revision,
		"prune":    want.Prune,
		// hook is what Argo CD's own sync button uses: kubectl apply, with the manifests' hooks.
		"syncStrategy": map[string]any{"hook": map[string]any{}},
	}
	// The options of the Application apply to automatic syncs only, unless the initiator of a sync passes them on.
	options := observed.list("spec", "syncPolicy", "syncOptions")
	if isManaged(observed) {
		options = append(options[:len(options):len(options)], "CreateNamespace=true")
	}
	if len(options) > 0 {
		sync["syncOptions"] = options
	}
	return map[string]any{
		"initiatedBy": map[string]any{"username": username(want.Operation)},
		"info":        []any{map[string]any{"name": infoCall, "value": want.Operation}},
		"sync":        sync,
	}
}
