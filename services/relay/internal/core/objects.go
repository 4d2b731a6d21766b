package core

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/pattern"
)

// LabelOwner is the label of every object that k8s.apply has created. Its value is the owner of the call: the control plane sets that,
// never a program, so the objects of one application in one environment are not those of another one.
const LabelOwner = "lockstep.dev/owner"

// LabelInstallation is the label of every object that k8s.apply has created for a control plane that reports which installation it is:
// owners of two installations may have the same names.
const LabelInstallation = "lockstep.dev/installation"

const (
	// reserved begins the labels and annotations that a program may not set.
	reserved = "lockstep.dev/"
	// annotationPrune with the value "false" keeps an object of its owner from being pruned.
	annotationPrune = "lockstep.dev/prune"
	// annotationHelm with the value "keep" does so too: it is what Helm says.
	annotationHelm = "helm.sh/resource-policy"
	// maxObjects is the maximum number of objects in one call.
	maxObjects = 2000
	// parallel is the maximum number of concurrent requests of one call.
	parallel = 8
)

// Resource is a kind as the API server serves it.
type Resource struct {
	Kind
	// Name is the plural with its group, as in deployments.apps; the core group has none, as in services.
	Name       string
	Namespaced bool
}

// LogRequest selects a part of the log of a container.
type LogRequest struct {
	Namespace, Pod, Container string
	// Lines is the number of the latest lines, Bytes the maximum size; Seconds is how long ago the first line was written, 0 for any time.
	Lines, Bytes, Seconds int64
	// Previous is the container before its latest restart.
	Previous bool
}

// Seen is an object as it was read. Without a Version, it may have changed since.
type Seen struct{ UID, Version string }

// Objects is the core's port to a cluster for objects that Lockstep applies itself. Errors are those of Cluster.
type Objects interface {
	// Resource looks up a kind; one that the cluster does not serve is an *Error with CodeUnknownKind.
	Resource(ctx context.Context, k Kind) (Resource, error)
	// Resources returns the kinds whose objects can be listed and deleted, each in one version.
	Resources(ctx context.Context) ([]Resource, error)
	// Pages hands over all objects of a selection, a page at a time. After an error they have to be read again from the first. More than a
	// cluster can hold of a kind are an *Error with CodeTooLarge.
	Pages(ctx context.Context, s Selection, page func([]Object)) error
	// Apply is a server-side apply by a field manager, and returns the object afterwards. Fields that belong to another manager are an
	// *Error with CodeConflict that names field and manager; a uid of another object is Conflict. With dryRun nothing is stored.
	Apply(ctx context.Context, ref Ref, o Object, manager string, dryRun bool) (Object, error)
	// Delete deletes an object if it is still as it was seen, and answers Conflict otherwise. propagation is background, foreground or orphan.
	Delete(ctx context.Context, ref Ref, seen Seen, propagation string) error
	// Logs reads the end of a log: at most one byte more than is wanted, which shows that there is more.
	Logs(ctx context.Context, l LogRequest) (string, error)
	// Health is the state of an object, by kstatus (Current, InProgress, Failed, Terminating, Unknown), and the reason.
	Health(o Object) (state, reason string)
}

// ObjectLimits bound what k8s.apply, k8s.patch, k8s.delete and k8s.logs may touch. An empty list allows nothing.
type ObjectLimits struct {
	// Apply, Patch and Delete are the resources, as deployments.apps, whose objects each Function may change. Apply also lets prune delete.
	Apply, Patch, Delete []string
	// Logs allows to read the logs of pods.
	Logs bool
	// Others are objects without the label of an owner that may be changed all the same, as resource/namespace/name.
	Others []string
}

// permit refuses a resource, or a namespace, that a Function may not change. setting is the key of the relay's configuration.
func (l Limits) permit(setting string, list []string, res Resource, ref Ref) error {
	if res.Kind.Kind == "Secret" {
		return &Error{Code: CodeForbidden, Message: fmt.Sprintf("%s: its values would become part of the workflow's history; expected an object that refers to a store of secrets", ref)}
	}
	if len(list) == 0 {
		return &Error{Code: CodeForbidden, Message: fmt.Sprintf("%s: this relay's %s allows no resource", ref, setting)}
	}
	if !pattern.Allows(list, res.Name) {
		return l.refusal(ref.String()+": resource", res.Name, setting, list)
	}
	return l.permitNamespace(ref)
}

// permitNamespace refuses an object in a namespace, or the namespace itself, that may not be deployed to.
func (l Limits) permitNamespace(ref Ref) error {
	namespace := ref.Namespace
	if isNamespace(ref) {
		namespace = ref.Name
	}
	if namespace == "" || allowed(l.destinations(l.Home), namespace) {
		return nil
	}
	return l.refusal(ref.String()+": namespace", namespace, "allow_destination_namespaces", l.destinations(l.Home))
}

const kindNamespace = "Namespace"

// isNamespace reports whether a reference names a namespace. The control plane has the same rule for what a call changes.
func isNamespace(ref Ref) bool { return ref.Kind.Kind == kindNamespace && ref.APIVersion == "v1" }

// withoutNamespace is the error for a namespaced object whose namespace is not known.
func (r Ref) withoutNamespace() error {
	return &Error{Code: CodeInvalid, Message: fmt.Sprintf("%s has no namespace, expected one in its metadata, or in the argument namespace",
		r)}
}

// hasOwner refuses a call without an owner, as a control plane of an earlier release sends it.
func hasOwner(call Call) error {
	if call.Owner == "" {
		return &Error{Code: CodeForbidden, Message: "the control plane does not report whose objects the call is about; upgrade it"}
	}
	return nil
}

// own refuses an object of another owner. One without an owner may be changed if the relay's configuration names it, or if it was handed
// over to the organization.
func (l Limits) own(call Call, res Resource, ref Ref, o Object) error {
	if err := hasOwner(call); err != nil {
		return err
	}
	namespace := ""
	if ref.Namespace != "" {
		namespace = "-n " + ref.Namespace + " "
	}
	switch found := o.text("metadata", "labels", LabelOwner); {
	case found == call.Owner && foreign(call, o):
		return &Error{Code: CodeOwned, Message: fmt.Sprintf(
			"%s belongs to another installation of Lockstep (label %s, found %q, expected %q); to hand it over: kubectl %slabel %s %s %s-", ref,
			LabelInstallation, o.text("metadata", "labels", LabelInstallation), call.Installation, namespace, res.Name, ref.Name, LabelInstallation)}
	case found == call.Owner:
		return nil
	case found != "":
		return &Error{Code: CodeOwned, Message: fmt.Sprintf("%s belongs to another application or environment (label %s, found %q, expected %q)",
			ref, LabelOwner, found, call.Owner)}
	case pattern.Allows(l.Objects.Others, res.Name+"/"+ref.Namespace+"/"+ref.Name), authorizes(o, call.Organization):
		return nil
	}
	return &Error{Code: CodeOwned, Message: fmt.Sprintf("%s exists and was not created by Lockstep (no label %s); to hand it over: kubectl %sannotate --overwrite %s %s %s=%s",
		ref, LabelOwner, namespace, res.Name, ref.Name, annotationAuthorized, call.Organization)}
}

// foreign reports whether another installation has created an object. One without the label was created for a control plane of an earlier
// release, and is whose its owner's label says; so is every object for a call of such a control plane.
func foreign(call Call, o Object) bool {
	found := o.text("metadata", "labels", LabelInstallation)
	return call.Installation != "" && found != "" && found != call.Installation
}

// checkWeights refuses to change a Rollout while a weight of it is held: such a change could take it past the weight without its passage.
func checkWeights(call Call, ref Ref) error {
	group, _, _ := strings.Cut(ref.APIVersion, "/")
	if len(call.HeldWeights) == 0 || ref.Kind.Kind != rolloutKind.Kind || group != "argoproj.io" {
		return nil
	}
	return &Error{Code: CodeForbidden, Message: ref.String() + ": passages for weights have not been granted; expected argo.promote"}
}

// objectRef reads the reference to one object among arguments.
func (a args) objectRef(namespace string) Ref {
	ref := Ref{
		Kind:      Kind{APIVersion: a.text("api_version", true), Kind: a.text("kind", true)},
		Namespace: a.name("namespace", false), Name: a.name("name", true),
	}
	if ref.Namespace == "" {
		ref.Namespace = namespace
	}
	return ref
}

// objects reads a list of objects of arguments, with one reader for each.
func (a args) objects(name string, required bool) []args {
	a.known[name] = true
	v, given := a.values[name]
	list, isList := v.([]any)
	switch {
	case v != nil && !isList:
		a.problem(name, "found %s, expected a list of objects", describe(v))
	case required && len(list) == 0:
		a.problem(name, "%s, expected at least one object", map[bool]string{true: "found none", false: "missing"}[given])
	case len(list) > maxObjects:
		a.problem(name, "found %d objects, expected at most %d in one call", len(list), maxObjects)
		return nil
	}
	readers := make([]args, len(list))
	for i, item := range list {
		m, isObject := item.(map[string]any)
		if !isObject {
			a.problem(fmt.Sprintf("%s[%d]", name, i), "found %s, expected an object", describe(item))
		}
		readers[i] = args{values: m, known: map[string]bool{}, prefix: fmt.Sprintf("%s%s[%d].", a.prefix, name, i), wrong: a.wrong}
	}
	return readers
}

// resolve looks up the resource of an object to change. The passage that opened the call was for the namespace of the reference, so an
// object of the cluster must not have one.
func (r *Runner) resolve(ctx context.Context, ref Ref) (Resource, error) {
	res, err := r.objects.Resource(ctx, ref.Kind)
	switch {
	case err != nil:
		return res, err
	case !res.Namespaced && ref.Namespace != "":
		return res, &Error{Code: CodeInvalid, Message: fmt.Sprintf("%s is cluster-scoped, found namespace %q", ref, ref.Namespace)}
	case res.Namespaced && ref.Namespace == "":
		return res, ref.withoutNamespace()
	}
	return res, nil
}

// persist repeats an action until the cluster answers, also while others change the object at the same time, or until ctx ends.
func (r *Runner) persist(ctx context.Context, ref Ref, act func() error) error {
	waiting, pause := "the cluster to answer", firstPause
	for ctx.Err() == nil {
		err := act()
		switch {
		case err == nil:
			return nil
		case fault.Is(err, fault.Unavailable):
			waiting = "the cluster to answer: " + err.Error()
		case fault.Is(err, fault.Conflict):
			waiting = "others to stop changing it: " + err.Error()
		default:
			return err
		}
		_ = clock.Sleep(ctx, r.clock, pause) // the loop's condition checks ctx
		pause = min(2*pause, longestPause)
	}
	return &Error{Code: CodeTimeout, Message: fmt.Sprintf("%s: waited until the deadline for %s", ref, waiting)}
}

// each calls do for the numbers below n, a few at a time, and returns the first error by number. After an error no further call starts.
func each(n int, do func(i int) error) error {
	errs := make([]error, n)
	var (
		mu     sync.Mutex
		next   int
		failed bool
		group  sync.WaitGroup
	)
	for range min(parallel, n) {
		group.Go(func() {
			for {
				mu.Lock()
				i := next
				next++
				stop := failed || i >= n
				mu.Unlock()
				if stop {
					return
				}
				if errs[i] = do(i); errs[i] != nil {
					mu.Lock()
					failed = true
					mu.Unlock()
				}
			}
		})
	}
	group.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// named is a reference as answers have it.
func (r Ref) named(more map[string]any) map[string]any {
	value := map[string]any{"api_version": r.APIVersion, "kind": r.Kind.Kind, "name": r.Name}
	if r.Namespace != "" {
		value["namespace"] = r.Namespace
	}
	for key, v := range more {
		value[key] = v
	}
	return value
}

// identity is what makes two references one object: versions of a group are the same kind.
func (r Ref) identity() string {
	group, _, found := strings.Cut(r.APIVersion, "/")
	if !found {
		group = ""
	}
	return group + "/" + r.Kind.Kind + "/" + r.Namespace + "/" + r.Name
}

// fits refuses a value that is too large for an answer.
func fits(what string, value map[string]any) (map[string]any, error) {
	if b, err := json.Marshal(value); err != nil || len(b) > maxValue {
		return nil, &Error{Code: CodeTooLarge, Message: fmt.Sprintf("%s: the answer is larger than %d bytes", what, maxValue)}
	}
	return value, nil
}

// parseDelete parses the arguments of k8s.delete.
func parseDelete(raw json.RawMessage) (ref Ref, uid, propagation string, err error) {
	a, err := readArgs(raw)
	if err != nil {
		return Ref{}, "", "", err
	}
	a.known["agent_id"], a.known["environment_id"] = true, true
	ref, uid = a.objectRef(""), a.text("uid", false)
	propagation = a.oneOf("propagation", "background", "foreground", "orphan")
	a.rest()
	return ref, uid, propagation, a.err()
}

// remove deletes one object. Repeated, it finds the object gone.
func (r *Runner) remove(ctx context.Context, call Call) (map[string]any, error) {
	ref, uid, propagation, err := parseDelete(call.Args)
	if err != nil {
		return nil, err
	}
	if ref.Kind.Kind == kindNamespace {
		return nil, &Error{Code: CodeForbidden, Message: ref.String() + ": a namespace has the objects of others in it; delete it by hand"}
	}
	res, err := r.resolve(ctx, ref)
	if err != nil {
		return nil, err
	}
	if err := checkWeights(call, ref); err != nil {
		return nil, err
	}
	if err := r.limits.permit("allow_delete", r.limits.Objects.Delete, res, ref); err != nil {
		return nil, err
	}
	deleted := false
	err = r.persist(ctx, ref, func() error {
		found, err := r.cluster.Get(ctx, ref)
		if fault.Is(err, fault.NotFound) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := r.limits.own(call, res, ref, found); err != nil {
			return err
		}
		if uid != "" && found.text("metadata", "uid") != uid {
			return nil // another object of the same name
		}
		err = r.objects.Delete(ctx, ref, Seen{UID: found.text("metadata", "uid")}, propagation)
		deleted = deleted || err == nil
		if fault.Is(err, fault.NotFound) {
			return nil
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return map[string]any{"deleted": deleted}, nil
}

// parsePatch parses the arguments of k8s.patch.
func parsePatch(raw json.RawMessage) (ref Ref, patch Object, err error) {
	a, err := readArgs(raw)
	if err != nil {
		return Ref{}, nil, err
	}
	a.known["agent_id"], a.known["environment_id"] = true, true
	ref = a.objectRef("")
	given, isObject := a.object("patch")
	if !isObject || len(given.values) == 0 {
		a.problem("patch", "expected a JSON merge patch with at least one member")
	}
	patch = given.values
	if problem := readable(ref.Kind); problem != "" {
		a.problem("kind", "%s", problem)
	}
	for _, name := range []string{"apiVersion", "kind", "status"} {
		if _, found := patch[name]; found {
			a.problem("patch."+name, "found, expected a patch of what the object is to be")
		}
	}
	checkMetadata(a, "patch.metadata", patch["metadata"], "labels", "annotations")
	a.rest()
	return ref, patch, a.err()
}

// checkMetadata refuses metadata by which a program would say whose an object is. Members are those that may be given.
func checkMetadata(a args, at string, metadata any, members ...string) {
	m, isObject := metadata.(map[string]any)
	if metadata != nil && !isObject {
		a.problem(at, "found %s, expected an object", describe(metadata))
	}
	for name, value := range m {
		if !slices.Contains(members, name) {
			a.problem(at+"."+name, "found, expected only %s", strings.Join(members, ", "))
			continue
		}
		if name != "labels" && name != "annotations" {
			continue
		}
		of, isObject := value.(map[string]any)
		if !isObject {
			a.problem(at+"."+name, "found %s, expected an object", describe(value))
		}
		for key := range of {
			if strings.HasPrefix(key, reserved) && key != annotationPrune {
				a.problem(at+"."+name, "found %q, which only Lockstep sets", key)
			}
		}
	}
}

// patch merges a patch into one object that exists.
func (r *Runner) patch(ctx context.Context, call Call) (map[string]any, error) {
	ref, patch, err := parsePatch(call.Args)
	if err != nil {
		return nil, err
	}
	res, err := r.resolve(ctx, ref)
	if err != nil {
		return nil, err
	}
	if err := checkWeights(call, ref); err != nil {
		return nil, err
	}
	if err := r.limits.permit("allow_patch", r.limits.Objects.Patch, res, ref); err != nil {
		return nil, err
	}
	err = r.persist(ctx, ref, func() error {
		found, err := r.cluster.Get(ctx, ref)
		if err != nil {
			return err
		}
		if err := r.limits.own(call, res, ref, found); err != nil {
			return err
		}
		body := Object{}
		for name, value := range patch {
			body[name] = value
		}
		metadata := found.precondition()
		for name, value := range patch.object("metadata") {
			metadata[name] = value
		}
		body["metadata"] = metadata
		return r.cluster.Patch(ctx, ref, body, false)
	})
	if err != nil {
		return nil, err
	}
	return map[string]any{"patched": true}, nil
}

// health reports the states of objects.
func (r *Runner) health(ctx context.Context, call Call) (map[string]any, error) {
	a, err := readArgs(call.Args)
	if err != nil {
		return nil, err
	}
	a.known["agent_id"] = true
	namespace := a.name("namespace", false)
	var refs []Ref
	for _, one := range a.objects("objects", true) {
		ref := one.objectRef(namespace)
		if problem := readable(ref.Kind); problem != "" {
			one.problem("kind", "%s", problem)
		}
		one.rest()
		refs = append(refs, ref)
	}
	a.rest()
	if err := a.err(); err != nil {
		return nil, err
	}
	states, reasons := make([]string, len(refs)), make([]string, len(refs))
	err = each(len(refs), func(i int) error {
		res, err := r.objects.Resource(ctx, refs[i].Kind)
		if err != nil {
			return err
		}
		if !res.Namespaced {
			refs[i].Namespace = ""
		}
		o, err := r.cluster.Get(ctx, refs[i])
		switch {
		case fault.Is(err, fault.NotFound):
			states[i], reasons[i] = "NotFound", "it does not exist"
		case err != nil:
			return err
		default:
			states[i], reasons[i] = r.objects.Health(o)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return fits("k8s.health", healthOf(refs, states, reasons))
}

// maxReason is the maximum size of a reason in an answer, in bytes: controllers write texts of any size, and a history keeps them.
const maxReason = 1000

// shortened returns the beginning of a reason, as valid UTF-8.
func shortened(reason string) string {
	reason = strings.ToValidUTF8(reason, "\uFFFD")
	if len(reason) <= maxReason {
		return reason
	}
	return strings.ToValidUTF8(reason[:maxReason], "") // without the rest of a character that was cut
}

// healthOf summarizes states: Failed before anything that is awaited, which is shown up to a number.
func healthOf(refs []Ref, states, reasons []string) map[string]any {
	const shown = 20
	current, failed := 0, false
	pending := []any{}
	for _, wanted := range []bool{true, false} { // what has failed comes first
		for i, state := range states {
			if state == "Current" || (state == "Failed") != wanted {
				continue
			}
			failed = failed || wanted
			if len(pending) < shown {
				pending = append(pending, refs[i].named(map[string]any{"state": state, "reason": shortened(reasons[i])}))
			}
		}
	}
	for _, state := range states {
		if state == "Current" {
			current++
		}
	}
	state := "InProgress"
	switch {
	case failed:
		state = "Failed"
	case current == len(states):
		state = "Current"
	}
	return map[string]any{"state": state, "current": current, "total": len(states), "pending": pending}
}
