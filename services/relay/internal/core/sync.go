package core

import (
	"fmt"
	"regexp"
	"time"
)

// The modes of an Application (D21).
const (
	// ModeManaged creates the Application when it is absent, and adopts it when it exists.
	ModeManaged = "managed"
	// ModeExisting only ever adopts.
	ModeExisting = "existing"
)

// Source says where an Application that has to be created finds its manifests, and where they go.
type Source struct {
	RepoURL, Path, Project, DestinationNamespace string
}

// SyncRequest is what argo.sync is asked for.
type SyncRequest struct {
	// Organization is whose call it is.
	Organization string
	// Operation marks the operation as ours: the id that the program has given it, or that of the call. Calls with the same one are
	// about the same sync, of which there is then one. Revision is a full commit id.
	Operation string
	Ref       Ref
	Revision  string
	Mode      string
	// Source is nil where the Application has to exist. Prune has the sync delete what the revision no longer has.
	Source *Source
	Prune  bool
	// Start has the call answered with how far the sync has come, in place of waiting for its end.
	Start bool
	// Supersede ends a sync that Lockstep has begun under another id and that is still under way, in place of waiting for its end.
	Supersede bool
	// Check only says whether the Application may be taken. It has no Revision.
	Check bool
	// Allowed is what the owner of the environment allows, beside the relay's own limits.
	Allowed Limits
	// Now is when the Application was looked at.
	Now time.Time
	// Overrides, where given, are rendered at the revision. An earlier sync of ours that lacks them does not count.
	Overrides Overrides
}

// The ends that a call of argo.sync can wait for: that of the sync, or none.
const (
	waitEnd   = "end"
	waitStart = "start"
)

var (
	commitID = regexp.MustCompile(`^([0-9a-f]{40}|[0-9a-f]{64})$`)
	// operationID keeps what becomes a user name and a value in an Application to the characters of call ids and UUIDs.
	operationID = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._/-]{0,199}$`)
)

// operation is the argument of that name: the id under which a sync goes.
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

// parseSync reads the arguments of argo.sync, and those of argo.check, which are about the Application alone.
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

// Action is what a decision asks for.
type Action int

// The actions.
const (
	// Wait for the object to change, and decide again.
	Wait Action = iota
	// Create the object.
	Create
	// Patch the object, and decide again.
	Patch
	// Done: Value is the answer.
	Done
)

// Decision is the next thing to do about an object.
type Decision struct {
	Action Action
	// Body is the object to create, or the merge patch.
	Body Object
	// Status sends the patch to the status subresource.
	Status bool
	// Value is the answer of a call that is done, or that is done once the patch is applied.
	Value map[string]any
	// Waiting says what a wait waits for, in the words of the timeout's message.
	Waiting string
}

// wait is the decision to wait for what the words say.
func wait(format string, args ...any) Decision {
	return Decision{Action: Wait, Waiting: fmt.Sprintf(format, args...)}
}

// NextSync decides what brings an Application to the revision: observed is the Application as it stands, nil where
// there is none. The error is an *Error.
//
// A sync counts as ours by the call id that the operation carries: only then is its success our success (D11) and its
// failure our failure. A finished operation of somebody else counts when it brought everything to our revision.
//
// A call that only starts the sync is answered in place of each wait: with the phase, what Argo CD waits for, and which Rollouts it has
// applied. The same call again goes on from there.
func NextSync(want SyncRequest, observed Object) (Decision, error) {
	d, err := nextSync(want, observed)
	if err != nil || d.Action != Wait || !want.Start {
		return d, err
	}
	return underWay(want, observed, d), nil
}

func nextSync(want SyncRequest, observed Object) (Decision, error) {
	if observed == nil {
		return createApplication(want)
	}
	if err := mayTake(want, observed); err != nil {
		return Decision{}, err
	}
	if want.Check {
		return Decision{Action: Done, Value: map[string]any{"found": true, "managed": isManaged(observed)}}, nil
	}
	state := observed.object("status", "operationState")
	pending := observed.object("operation")
	finished := isFinished(state.text("phase"))
	switch {
	// .operation stays until Argo CD has finished it; status.operationState is of the last one that it has begun.
	case pending != nil && isOurs(pending, want):
		return waitForOperation(want, state), nil
	case isOurs(state.object("operation"), want) && !finished:
		return waitForOperation(want, state), nil
	// Ours is judged before we wait for anybody else's: the next one that begins takes its place in operationState.
	// What ended because something was away is begun again, unless somebody else has begun meanwhile.
	case isOurs(state.object("operation"), want) && !isPassing(state) && !isStray(want, state):
		return ended(want, state)
	case isOurs(state.object("operation"), want) && pending == nil:
		return again(want, observed, state), nil
	case want.Supersede && isLockstep(pending, state, finished):
		return supersede(want, observed, pending, state), nil
	case pending != nil || (state != nil && !finished):
		return wait("another sync of it, started by %s, to end", initiator(pending, state)), nil
	// A repeat after a crash comes by here, and must not sync a second time (E24).
	case deployedBefore(want, observed) || standsAt(want, observed, state):
		return synced(want.Revision), nil
	default:
		return Decision{Action: Patch, Body: startOperation(want, observed)}, nil
	}
}

// waitForOperation says how far our own operation has come.
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

// ended judges our own finished operation, which has come to our revision or has failed for good (D11).
func ended(want SyncRequest, state Object) (Decision, error) {
	phase := state.text("phase")
	if phase == "Succeeded" {
		return synced(want.Revision), nil
	}
	return Decision{}, &Error{Code: CodeSyncFailed, Message: fmt.Sprintf(
		"the sync of %s to %s ended as %s: %s", want.Ref, want.Revision, phase, failure(state))}
}

// failure is what Argo CD says about a failed operation, with the first resource that failed.
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

// deployedBefore finds our own sync in the Application's history, for the case that another one has come after it.
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

// standsAt reports whether a finished operation, whoever started it, has brought the whole Application to our revision
// and it still stands there: to sync once more would change nothing.
func standsAt(want SyncRequest, observed, state Object) bool {
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

// isFinished: Argo CD will not change the operation any more. Terminating is not finished.
func isFinished(phase string) bool {
	switch phase {
	case "Succeeded", "Failed", "Error":
		return true
	default:
		return false
	}
}

// infoCall is the name under which an operation carries the call that started it.
const infoCall = "lockstep.dev/call"

// username is whom Argo CD shows as the initiator of a call's sync. It carries the call, because the history keeps the
// initiator and nothing else of an operation.
func username(callID string) string { return "lockstep:" + callID }

// isOurs reports whether the operation is the one that is asked for.
func isOurs(operation Object, want SyncRequest) bool {
	for _, i := range operation.list("info") {
		m, _ := i.(map[string]any)
		if m["name"] == infoCall {
			return m["value"] == want.Operation
		}
	}
	return operation.text("initiatedBy", "username") == username(want.Operation)
}

// initiator is who started what we wait for, for the reader of a timeout.
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
	return "somebody else"
}

// startOperation is the patch that points the Application at the revision and has Argo CD sync it. Both are one
// patch: between two, a crash would leave the Application pointed at a revision that nobody syncs.
//
// The state of the operation before goes in the same patch, as Argo CD's own command has it. Argo CD merges the state of the new one into
// what is there: it would take hooks and waves of the old one for its own, and end without having applied anything.
func startOperation(want SyncRequest, observed Object) Object {
	return Object{
		"metadata":  observed.precondition(),
		"spec":      map[string]any{"source": want.Overrides.into(map[string]any{"targetRevision": want.Revision})},
		"operation": operation(want, observed),
		"status":    map[string]any{"operationState": nil},
	}
}

// operation is what Argo CD's own command would write, with the call in it.
func operation(want SyncRequest, observed Object) map[string]any {
	sync := map[string]any{
		"revision": want.Revision,
		"prune":    want.Prune,
		// hook is what Argo CD's own sync button does: kubectl apply, with the manifests' hooks.
		"syncStrategy": map[string]any{"hook": map[string]any{}},
	}
	// The options of the Application hold for automatic syncs only, unless whoever starts one passes them on.
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
