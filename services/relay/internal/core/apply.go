package core

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/pkg/fault"
)

// The scopes of a call of k8s.apply: one call applies namespaced objects or cluster-scoped ones, because they need different passages.
const (
	scopeNamespaced = "namespaced"
	scopeCluster    = "cluster"
)

// ApplyRequest is what k8s.apply is to do.
type ApplyRequest struct {
	Cluster          bool
	Namespace        string
	CreateNamespaces bool
	Prune, DryRun    bool
	// Namespaces are those to prune in addition to those of the objects.
	Namespaces []string
	// Keep are identities of objects of the owner that are not pruned though they are not applied.
	Keep    map[string]bool
	Objects []applied
}

// applied is one object of a call, and its outcome.
type applied struct {
	ref    Ref
	object Object
	res    Resource
	// uid and version are those of the object before; empty if there was none.
	uid, version string
	// owner is the owner of the call; in a dry run without one, that of the object.
	owner string
	// installation is that of the call, empty if it reports none; in a dry run without an owner, that of the object.
	installation string
	action       string
	// before is the object before a dry run, and fields are those that the apply would change.
	before Object
	fields []field
}

// parseApply parses the arguments of k8s.apply.
func parseApply(raw json.RawMessage) (ApplyRequest, error) {
	a, err := readArgs(raw)
	if err != nil {
		return ApplyRequest{}, err
	}
	a.known["agent_id"], a.known["environment_id"] = true, true
	want := ApplyRequest{
		Cluster:   a.oneOf("scope", scopeNamespaced, scopeCluster) == scopeCluster,
		Namespace: a.name("namespace", false), CreateNamespaces: a.flag("create_namespaces"),
		Prune: a.flag("prune"), DryRun: a.flag("dry_run"), Namespaces: a.texts("namespaces"), Keep: map[string]bool{},
	}
	for _, one := range a.objects("keep", false) {
		ref := one.objectRef(want.Namespace)
		if want.Cluster {
			ref.Namespace = ""
		}
		one.rest()
		want.Keep[ref.identity()] = true
	}
	seen := map[string]bool{}
	for i, one := range a.objects("objects", true) {
		o := Object(one.values)
		of := applied{object: o, ref: Ref{
			Kind: Kind{APIVersion: o.text("apiVersion"), Kind: o.text("kind")}, Namespace: o.text("metadata", "namespace"),
			Name: o.text("metadata", "name"),
		}}
		switch {
		case want.Cluster, isNamespace(of.ref):
			of.ref.Namespace = ""
		case of.ref.Namespace == "":
			of.ref.Namespace = want.Namespace
		}
		a.checkApplied(fmt.Sprintf("objects[%d]", i), of.ref, o)
		identity := of.ref.identity()
		if seen[identity] {
			a.problem(fmt.Sprintf("objects[%d]", i), "found %s a second time", of.ref)
		}
		seen[identity], want.Keep[identity] = true, true
		want.Objects = append(want.Objects, of)
	}
	a.rest()
	return want, a.err()
}

// checkApplied refuses objects that are not whole, and those that would say whose they are.
func (a args) checkApplied(at string, ref Ref, o Object) {
	if ref.APIVersion == "" || ref.Kind.Kind == "" || ref.Name == "" {
		a.problem(at, "found apiVersion %q, kind %q and name %q, expected all three", ref.APIVersion, ref.Kind.Kind, ref.Name)
		return
	}
	if len(ref.Name) > 253 || !dnsName.MatchString(ref.Name) || ref.Namespace != "" && !dnsName.MatchString(ref.Namespace) {
		a.problem(at+".metadata", "found name %q in namespace %q, expected Kubernetes names", ref.Name, ref.Namespace)
	}
	if problem := readable(ref.Kind); problem != "" {
		a.problem(at+".kind", "%s", problem)
	}
	// A renderer writes these two, always empty.
	delete(o, "status")
	delete(o.object("metadata"), "creationTimestamp")
	checkMetadata(a, at+".metadata", o["metadata"], "name", "namespace", "labels", "annotations", "finalizers")
}

// manager is the field manager of an owner: the API server refuses to let it take over the label of another owner.
func manager(owner string) string { return fieldManager + "-" + owner }

const fieldManager = "lockstep"

// apply brings objects into the cluster. Nothing is changed before all objects were compared with the limits and with their owners.
func (r *Runner) apply(ctx context.Context, call Call) (map[string]any, error) {
	want, err := parseApply(call.Args)
	if err != nil {
		return nil, err
	}
	// A dry run needs no passage, so its owner may be unknown; which objects it would prune is unknown then, too.
	want.Prune = want.Prune && (call.Owner != "" || !want.DryRun)
	digest, err := want.digest()
	if err != nil {
		return nil, err
	}
	later, err := r.examine(ctx, call, &want)
	if err != nil {
		return nil, err
	}
	for _, group := range inOrder(want.Objects, later) {
		err := each(len(group), func(i int) error { return r.applyOne(ctx, call, want, group[i]) })
		if err != nil {
			return nil, err
		}
	}
	if err := r.applyLater(ctx, call, want, later); err != nil {
		return nil, err
	}
	value := want.counts()
	if want.Prune {
		if err := r.prune(ctx, call, want, value); err != nil {
			return nil, err
		}
	}
	value["owner"], value["digest"] = call.Owner, digest
	return fits("k8s.apply", value)
}

const (
	// mostChanged is the size of the objects that an answer names as changed, in bytes; the others are counted. All of a dry run are named:
	// programs decide by what it would change.
	mostChanged = 256 << 10
	// mostPruned is that of the objects that are pruned, and that of those that are not. After changes, the three lists fit into an answer
	// whatever their lengths: a call that has deleted objects must not fail because there are too many to name.
	mostPruned = 64 << 10
)

// nameSome adds objects to an answer, as many as fit into a size, and the number of others.
func nameSome(value map[string]any, name string, all []map[string]any, most int) {
	some := []any{}
	for _, one := range all {
		text, err := json.Marshal(one)
		if most -= len(text) + 1; err != nil || most < 0 {
			break
		}
		some = append(some, one)
	}
	value[name], value["more_"+name] = some, len(all)-len(some)
}

// digest is that of the objects as the call has them, in its order.
func (want *ApplyRequest) digest() (string, error) {
	h := sha256.New()
	for i := range want.Objects {
		text, err := json.Marshal(want.Objects[i].object) // members are in order
		if err != nil {
			return "", fmt.Errorf("encode %s: %w", want.Objects[i].ref, err)
		}
		_, _ = h.Write(append(text, '\n')) // never fails
	}
	return "sha256:" + hex.EncodeToString(h.Sum(nil)), nil
}

// counts is the answer about the objects of the call.
func (want *ApplyRequest) counts() map[string]any {
	value := map[string]any{"created": 0, "configured": 0, "unchanged": 0}
	var changed []map[string]any
	left, most := mostFieldsTogether, mostChanged
	if want.DryRun {
		most = math.MaxInt
	}
	for i := range want.Objects {
		o := &want.Objects[i]
		n, _ := value[o.action].(int)
		value[o.action] = n + 1
		if o.action != "unchanged" {
			one := map[string]any{"action": o.action}
			if want.DryRun && o.action == "configured" {
				one["fields"], one["more_fields"] = fieldsOf(o.fields, &left)
			}
			changed = append(changed, o.ref.named(one))
		}
	}
	nameSome(value, "changed", changed, most)
	return value
}

// examine compares every object with the limits, and reads the ones that exist. It returns the indices of objects of kinds that the cluster
// does not serve yet.
func (r *Runner) examine(ctx context.Context, call Call, want *ApplyRequest) (later []int, err error) {
	var mu sync.Mutex
	err = each(len(want.Objects), func(i int) error {
		err := r.examineOne(ctx, call, *want, &want.Objects[i])
		if e, unknown := errors.AsType[*Error](err); unknown && e.Code == CodeUnknownKind {
			mu.Lock()
			defer mu.Unlock()
			later = append(later, i)
			return nil
		}
		return err
	})
	slices.Sort(later)
	return later, err
}

// examineOne compares one object with the limits and with its owner.
func (r *Runner) examineOne(ctx context.Context, call Call, want ApplyRequest, o *applied) error {
	err := r.persist(ctx, o.ref, func() (err error) {
		o.res, err = r.objects.Resource(ctx, o.ref.Kind)
		return err
	})
	if err != nil {
		return err
	}
	// The passage that opened the call was for the namespace that the control plane saw.
	switch {
	case o.res.Namespaced && want.Cluster:
		return &Error{Code: CodeInvalid, Message: fmt.Sprintf("%s is namespaced, and the scope of the call is cluster", o.ref)}
	case o.res.Namespaced && o.ref.Namespace == "":
		return o.ref.withoutNamespace()
	case !o.res.Namespaced && !want.Cluster && !isNamespace(o.ref):
		return &Error{Code: CodeForbidden, Message: fmt.Sprintf("%s is cluster-scoped, and the scope of the call is namespaced; it needs a call with the scope cluster, and a passage for the whole cluster", o.ref)}
	}
	if err := r.limits.permit("allow_apply", r.limits.Objects.Apply, o.res, o.ref); err != nil {
		return err
	}
	if !want.DryRun {
		if err := checkWeights(call, o.ref); err != nil {
			return err
		}
	}
	return r.persist(ctx, o.ref, func() error {
		found, err := r.cluster.Get(ctx, o.ref)
		o.uid, o.version, o.owner = found.text("metadata", "uid"), found.resourceVersion(), call.Owner
		o.installation = call.Installation
		if want.DryRun {
			o.before = found
		}
		if call.Owner == "" && want.DryRun {
			o.owner = cmp.Or(found.text("metadata", "labels", LabelOwner), "preview")
			// Who applies it next keeps the label. Without it, a dry run by the object's own field manager would remove it.
			o.installation = found.text("metadata", "labels", LabelInstallation)
			if fault.Is(err, fault.NotFound) {
				err = nil
			}
			return err
		}
		switch {
		case fault.Is(err, fault.NotFound):
			return hasOwner(call)
		case err != nil:
			return err
		case found.text("metadata", "deletionTimestamp") != "":
			return fault.New(fault.Conflict, "%s is being deleted", o.ref)
		}
		return r.limits.own(call, o.res, o.ref, found)
	})
}

// applyOne applies one object that was examined. If it has been replaced since, it is examined again. So is one that did not exist: others
// may have created it since, and an apply has no precondition that refuses an object that exists.
func (r *Runner) applyOne(ctx context.Context, call Call, want ApplyRequest, o *applied) error {
	again := o.uid == "" && !want.DryRun
	return r.persist(ctx, o.ref, func() error {
		if again {
			if err := r.examineOne(ctx, call, want, o); err != nil {
				return err
			}
		}
		again = true
		after, err := r.objects.Apply(ctx, o.ref, o.body(), manager(o.owner), want.DryRun)
		if fault.Is(err, fault.NotFound) && o.ref.Namespace != "" {
			if want.DryRun {
				o.action = "created"
				return nil
			}
			return r.namespaceFor(ctx, want, o.ref, err)
		}
		if err != nil {
			return err
		}
		if want.DryRun { // it answers the version of the object as it is, whatever it would change
			o.fields = changedFields(o.before, after)
		}
		switch {
		case o.version == "":
			o.action = "created"
		case want.DryRun && len(o.fields) == 0, !want.DryRun && after.resourceVersion() == o.version:
			o.action = "unchanged"
		default:
			o.action = "configured"
		}
		return nil
	})
}

// body is the object with its owner, and with the uid that it must have.
func (o *applied) body() Object {
	body, metadata, labels := Object{}, map[string]any{}, map[string]any{}
	for name, value := range o.object {
		body[name] = value
	}
	for name, value := range o.object.object("metadata") {
		metadata[name] = value
	}
	for name, value := range o.object.object("metadata", "labels") {
		labels[name] = value
	}
	labels[LabelOwner] = o.owner
	if o.installation != "" {
		labels[LabelInstallation] = o.installation
	}
	metadata["labels"] = labels
	delete(metadata, "namespace")
	if o.ref.Namespace != "" {
		metadata["namespace"] = o.ref.Namespace
	}
	if o.uid != "" {
		metadata["uid"] = o.uid
	}
	body["metadata"] = metadata
	return body
}

// namespaceFor creates the namespace of an object, if the call may. It has no owner: applications share it, and it is never pruned.
func (r *Runner) namespaceFor(ctx context.Context, want ApplyRequest, of Ref, cause error) error {
	ref := Ref{Kind: Kind{APIVersion: "v1", Kind: kindNamespace}, Name: of.Namespace}
	if !want.CreateNamespaces {
		return &Error{Code: CodeNotFound, Message: fmt.Sprintf("%s: namespace %s does not exist; create it, or have it created: create_namespace in a pipeline, create_namespaces of k8s.apply",
			of, of.Namespace)}
	}
	res := Resource{Kind: ref.Kind, Name: "namespaces"}
	if err := r.limits.permit("allow_apply", r.limits.Objects.Apply, res, ref); err != nil {
		return err
	}
	err := r.cluster.Create(ctx, ref, Object{"apiVersion": "v1", "kind": kindNamespace, "metadata": map[string]any{"name": ref.Name}})
	if err != nil && !fault.Is(err, fault.Conflict) {
		return err
	}
	return fault.Because(cause, fault.Conflict, "namespace %s did not exist", ref.Name) // apply again
}

// The kinds that others need, in the order in which they are applied; all others come after them.
func rank(kind string) int {
	switch kind {
	case kindNamespace:
		return 0
	case "CustomResourceDefinition":
		return 1
	case "ServiceAccount", "ConfigMap", "PersistentVolumeClaim", "Role", "ClusterRole", "PriorityClass", "StorageClass", "NetworkPolicy":
		return 2
	case "RoleBinding", "ClusterRoleBinding":
		return 3
	case "ValidatingWebhookConfiguration", "MutatingWebhookConfiguration", "APIService":
		return 5
	default:
		return 4
	}
}

// inOrder groups the objects, except for those that are applied later, by the order in which their kinds are applied.
func inOrder(objects []applied, later []int) [][]*applied {
	const ranks = 6
	groups := make([][]*applied, ranks)
	for i := range objects {
		if _, found := slices.BinarySearch(later, i); !found {
			of := rank(objects[i].ref.Kind.Kind)
			groups[of] = append(groups[of], &objects[i])
		}
	}
	return groups
}

// kindWait is how long k8s.apply waits for the cluster to serve a kind: its definition may have been applied a moment ago, or be installed
// by an operator that was.
const kindWait = time.Minute

// applyLater applies the objects whose kinds the cluster did not serve, as soon as it does.
func (r *Runner) applyLater(ctx context.Context, call Call, want ApplyRequest, later []int) error {
	if len(later) == 0 {
		return nil
	}
	until := r.clock.Now().Add(kindWait)
	for _, i := range later {
		o := &want.Objects[i]
		if want.DryRun {
			o.action = "created"
			continue
		}
		for {
			err := r.examineOne(ctx, call, want, o)
			if err == nil {
				err = r.applyOne(ctx, call, want, o)
			}
			e, isError := errors.AsType[*Error](err)
			if err == nil {
				break
			}
			if !isError || e.Code != CodeUnknownKind || !r.clock.Now().Before(until) || ctx.Err() != nil {
				return err
			}
			_ = clock.Sleep(ctx, r.clock, 10*firstPause)
		}
	}
	return nil
}
