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
	// CallID marks the operation as ours. Revision is a full commit id.
	CallID   string
	Ref      Ref
	Revision string
	Mode     string
	// Source is nil where the Application has to exist. Prune has the sync delete what the revision no longer has.
	Source *Source
	Prune  bool
	// Now is when the Application was looked at.
	Now time.Time
	// Overrides, where given, are rendered at the revision. An earlier sync of ours that lacks them does not count.
	Overrides Overrides
}

var commitID = regexp.MustCompile(`^([0-9a-f]{40}|[0-9a-f]{64})$`)

// parseSync reads the arguments of argo.sync.
func parseSync(call Call) (SyncRequest, error) {
	a, err := readArgs(call.Args)
	if err != nil {
		return SyncRequest{}, err
	}
	a.known["agent_id"] = true
	want := SyncRequest{
		CallID:   call.ID,
		Ref:      Ref{Kind: applicationKind, Namespace: a.name("app_namespace", true), Name: a.name("app_name", true)},
		Revision: a.text("revision", true),
		Mode:     a.oneOf("mode", ModeManaged, ModeExisting),
		Prune:    a.flag("prune"),
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
	want.Overrides = a.readOverrides()
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
func NextSync(want SyncRequest, observed Object) (Decision, error) {
	if observed == nil {
		return createApplication(want)
	}
	if err := mayTake(want, observed); err != nil {
		return Decision{}, err
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
		if entry.text("revision") == want.Revision && entry.text("initiatedBy", "username") == username(want.CallID) {
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

// isOurs reports whether the operation was started by this very call.
func isOurs(operation Object, want SyncRequest) bool {
	for _, i := range operation.list("info") {
		m, _ := i.(map[string]any)
		if m["name"] == infoCall {
			return m["value"] == want.CallID
		}
	}
	return operation.text("initiatedBy", "username") == username(want.CallID)
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
func startOperation(want SyncRequest, observed Object) Object {
	return Object{
		"metadata":  observed.precondition(),
		"spec":      map[string]any{"source": want.Overrides.into(map[string]any{"targetRevision": want.Revision})},
		"operation": operation(want, observed),
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
		"initiatedBy": map[string]any{"username": username(want.CallID)},
		"info":        []any{map[string]any{"name": infoCall, "value": want.CallID}},
		"sync":        sync,
	}
}
