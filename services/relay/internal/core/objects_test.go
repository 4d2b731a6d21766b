package core

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/pkg/fault"
)

// cupboard is a cluster with objects of a few kinds, which keeps the field manager of each label of an owner.
type cupboard struct {
	mu      sync.Mutex
	objects map[string]Object
	version int
	writes  []string
	// served are the resources; kinds may be added while a call waits.
	served map[string]Resource
	fail   map[string][]error
	log    string
	// applying is called before each apply, with the key of the object.
	applying func(key string)
	// deleting is called before each deletion, which fails with its error.
	deleting func(key string) error
}

func newCupboard() *cupboard {
	c := &cupboard{objects: map[string]Object{}, served: map[string]Resource{}, fail: map[string][]error{}}
	c.serve("v1", "Namespace", "namespaces", false)
	c.serve("v1", "ConfigMap", "configmaps", true)
	c.serve("v1", "Secret", "secrets", true)
	c.serve("apps/v1", "Deployment", "deployments.apps", true)
	c.serve("rbac.authorization.k8s.io/v1", "ClusterRole", "clusterroles.rbac.authorization.k8s.io", false)
	for _, namespace := range []string{"shop", "other", "kube-system"} {
		c.put("v1", "Namespace", "", namespace, "", "")
	}
	return c
}

func (c *cupboard) serve(version, kind, name string, namespaced bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.served[version+" "+kind] = Resource{Kind: Kind{version, kind}, Name: name, Namespaced: namespaced}
}

// put stores an object with the label of an owner, and the manager that has applied it.
func (c *cupboard) put(version, kind, namespace, name, owner, manager string) {
	c.version++
	metadata := map[string]any{
		"name": name, "namespace": namespace, "uid": fmt.Sprint("u", c.version),
		"resourceVersion": fmt.Sprint(c.version),
	}
	if owner != "" {
		metadata["labels"] = map[string]any{LabelOwner: owner}
	}
	if manager != "" {
		metadata["managedFields"] = []any{map[string]any{"manager": manager, "operation": "Apply"}}
	}
	c.objects[kind+" "+namespace+"/"+name] = Object{"apiVersion": version, "kind": kind, "metadata": metadata}
}

func key(ref Ref) string { return ref.Kind.Kind + " " + ref.Namespace + "/" + ref.Name }

func (c *cupboard) next(what string) error {
	if all := c.fail[what]; len(all) > 0 {
		c.fail[what] = all[1:]
		return all[0]
	}
	return nil
}

func (c *cupboard) Get(_ context.Context, ref Ref) (Object, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.next("get"); err != nil {
		return nil, err
	}
	if o := c.objects[key(ref)]; o != nil {
		return o, nil
	}
	return nil, fault.New(fault.NotFound, "%s does not exist", ref)
}

func (c *cupboard) List(_ context.Context, s Selection, limit int) (all []Object, more bool, err error) {
	all = c.selected(s)
	return all[:min(limit, len(all))], len(all) > limit, nil
}

func (c *cupboard) Pages(_ context.Context, s Selection, page func([]Object)) error {
	for i, some := range slices.Collect(slices.Chunk(c.selected(s), 2)) {
		c.mu.Lock()
		err := c.next(fmt.Sprintf("page %d", i+1))
		c.mu.Unlock()
		if err != nil {
			return err
		}
		page(some)
	}
	return nil
}

func (c *cupboard) selected(s Selection) (all []Object) {
	c.mu.Lock()
	defer c.mu.Unlock()
	label, value, _ := strings.Cut(s.Labels, "=")
	for _, k := range slices.Sorted(maps.Keys(c.objects)) {
		o := c.objects[k]
		if o.text("kind") == s.Kind.Kind && (s.Namespace == "" || o.text("metadata", "namespace") == s.Namespace) &&
			o.text("metadata", "labels", label) == value {
			all = append(all, o)
		}
	}
	return all
}

func (c *cupboard) Create(_ context.Context, ref Ref, o Object) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.writes = append(c.writes, "create "+key(ref))
	c.put(ref.APIVersion, ref.Kind.Kind, ref.Namespace, ref.Name, o.text("metadata", "labels", LabelOwner), "")
	return nil
}

func (c *cupboard) Patch(_ context.Context, ref Ref, patch Object, _ bool) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if patch.resourceVersion() != c.objects[key(ref)].resourceVersion() {
		return fault.New(fault.Conflict, "%s has changed", ref)
	}
	c.writes = append(c.writes, "patch "+key(ref))
	return nil
}

func (*cupboard) DryCreate(context.Context, Ref, Object) (Object, error) { return nil, nil }

func (*cupboard) AwaitChange(context.Context, Ref, string, time.Duration) {}

func (c *cupboard) Resource(_ context.Context, k Kind) (Resource, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if r, found := c.served[k.APIVersion+" "+k.Kind]; found {
		return r, nil
	}
	return Resource{}, &Error{Code: CodeUnknownKind, Message: "kind " + k.Kind + " is unknown"}
}

func (c *cupboard) Resources(context.Context) ([]Resource, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.SortedFunc(maps.Values(c.served), func(a, b Resource) int { return strings.Compare(a.Name, b.Name) }), nil
}

func (c *cupboard) Apply(_ context.Context, ref Ref, o Object, manager string, dryRun bool) (Object, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.applying != nil {
		c.applying(key(ref))
	}
	if err := c.next("apply"); err != nil {
		return nil, err
	}
	if ref.Namespace != "" && c.objects["Namespace /"+ref.Namespace] == nil {
		return nil, fault.New(fault.NotFound, "namespace %s does not exist", ref.Namespace)
	}
	before := c.objects[key(ref)]
	if uid := o.text("metadata", "uid"); uid != "" && before.text("metadata", "uid") != uid {
		return nil, fault.New(fault.Conflict, "another uid")
	}
	if dryRun {
		return merged(before, o, manager), nil
	}
	c.writes = append(c.writes, "apply "+key(ref))
	if _, again := appliedBy(before, manager); again {
		return before, nil
	}
	c.put(ref.APIVersion, ref.Kind.Kind, ref.Namespace, ref.Name, o.text("metadata", "labels", LabelOwner), manager)
	return c.objects[key(ref)], nil
}

// merged is what the API server answers to a dry run: the object with what is applied, at the version of the object as it is. Labels that
// the field manager has applied before and does not apply any more are removed.
func merged(before, o Object, manager string) Object {
	all := Object{}
	maps.Copy(all, before)
	maps.Copy(all, o)
	labels := map[string]any{}
	if _, again := appliedBy(before, manager); !again {
		maps.Copy(labels, before.object("metadata", "labels"))
	}
	maps.Copy(labels, o.object("metadata", "labels"))
	metadata := map[string]any{}
	maps.Copy(metadata, before.object("metadata"))
	maps.Copy(metadata, o.object("metadata"))
	metadata["labels"] = labels
	all["metadata"] = metadata
	return all
}

func (c *cupboard) Delete(_ context.Context, ref Ref, seen Seen, _ string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.deleting != nil {
		if err := c.deleting(key(ref)); err != nil {
			return err
		}
	}
	o := c.objects[key(ref)]
	switch {
	case o == nil:
		return fault.New(fault.NotFound, "%s does not exist", ref)
	case o.text("metadata", "uid") != seen.UID, seen.Version != "" && o.resourceVersion() != seen.Version:
		return fault.New(fault.Conflict, "another uid or version")
	}
	c.writes = append(c.writes, "delete "+key(ref))
	delete(c.objects, key(ref))
	return nil
}

func (c *cupboard) Logs(context.Context, LogRequest) (string, error) { return c.log, nil }

func (*cupboard) Health(o Object) (state, reason string) { return o.text("state"), "as it is" }

const shopOwner = "o7.e3.a5"

// objectLimits allow deployments and config maps.
func objectLimits() Limits {
	l := strict()
	all := []string{"deployments.apps", "configmaps", "*.example.com", "namespaces", "clusterroles.rbac.authorization.k8s.io", "secrets"}
	l.Objects = ObjectLimits{Apply: all, Patch: all, Delete: all, Logs: true, Others: []string{"configmaps/shop/legacy-*"}}
	return l
}

func (c *cupboard) run(t *testing.T, l Limits, function, args string, owners ...string) Answer {
	t.Helper()
	call := Call{
		ID: callID, Function: function, Args: json.RawMessage(args), Deadline: clock.System().Now().Add(5 * time.Minute),
		Organization: "7", Owner: shopOwner,
	}
	if len(owners) > 0 {
		call.Owner = owners[0]
	}
	return c.runner(l).Run(t.Context(), call)
}

func (c *cupboard) runner(l Limits) *Runner {
	return NewRunner(RunnerDeps{
		Cluster: c, Objects: c, Clock: clock.System(), Log: slog.New(slog.DiscardHandler), Poll: time.Second, Limits: l,
	})
}

func manifest(version, kind, namespace, name string) string {
	return fmt.Sprintf(`{"apiVersion":%q,"kind":%q,"metadata":{"name":%q,"namespace":%q,"creationTimestamp":null},"status":{}}`, version,
		kind, name, namespace)
}

func applyArgs(more string, objects ...string) string {
	return `{"agent_id":42,"namespace":"shop"` + more + `,"objects":[` + strings.Join(objects, ",") + `]}`
}

// Two calls with the same objects change the cluster once, and what the owner no longer has is pruned; what belongs to others,
// what others have copied the label to, and what asks to be kept stays.
func TestApplyAndPrune(t *testing.T) {
	t.Parallel()
	c := newCupboard()
	c.put("v1", "ConfigMap", "shop", "foreign", "o7.e3.a6", manager("o7.e3.a6"))
	c.put("v1", "ConfigMap", "shop", "copied", shopOwner, "endpoint-controller")
	c.put("v1", "ConfigMap", "other", "elsewhere", shopOwner, manager(shopOwner))
	c.put("v1", "ConfigMap", "shop", "old", shopOwner, manager(shopOwner))
	c.put("v1", "ConfigMap", "shop", "precious", shopOwner, manager(shopOwner))
	c.objects["ConfigMap shop/precious"].object("metadata")["annotations"] = map[string]any{annotationPrune: "false"}
	c.put("v1", "ConfigMap", "shop", "of-helm", shopOwner, manager(shopOwner))
	c.objects["ConfigMap shop/of-helm"].object("metadata")["annotations"] = map[string]any{annotationHelm: "keep"}
	c.put("v1", "ConfigMap", "shop", "chunk", shopOwner, manager(shopOwner))
	args := applyArgs(`,"prune":true,"keep":[{"api_version":"v1","kind":"ConfigMap","name":"chunk"}]`,
		manifest("apps/v1", "Deployment", "", "api"), manifest("v1", "ConfigMap", "shop", "settings"))
	answer := c.run(t, objectLimits(), FunctionApply, args)
	if answer.Err != nil || answer.Value["created"] != 2 || answer.Value["owner"] != shopOwner {
		t.Fatalf("answer %+v", answer)
	}
	want := []string{"apply ConfigMap shop/settings", "apply Deployment shop/api", "delete ConfigMap shop/old"}
	if !slices.Equal(c.writes, want) {
		t.Errorf("writes %v, want %v", c.writes, want)
	}
	if kept, _ := answer.Value["not_pruned"].([]any); len(kept) != 2 {
		t.Errorf("kept %v, want precious and of-helm", kept)
	}
	if got := c.objects["Deployment shop/api"].text("metadata", "labels", LabelOwner); got != shopOwner {
		t.Errorf("label %q", got)
	}
	again := c.run(t, objectLimits(), FunctionApply, args)
	if again.Err != nil || again.Value["unchanged"] != 2 || len(c.objects) != 11 {
		t.Errorf("again: %+v, %d objects", again, len(c.objects))
	}
}

// Who could fail to cooperate: a program that names what belongs to another application, to another environment on the same agent, to the
// system or to the whole cluster, or that says itself whose an object is. Nothing is written.
func TestObjectsOfOthersAreRefused(t *testing.T) {
	t.Parallel()
	role := manifest("rbac.authorization.k8s.io/v1", "ClusterRole", "", "admin")
	named := func(kind, namespace, name string) string {
		return fmt.Sprintf(`{"agent_id":42,"api_version":"v1","kind":%q,"namespace":%q,"name":%q`, kind, namespace, name)
	}
	labelled := func(key string) string {
		return `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","namespace":"shop","labels":{"` + key + `":"x"}}}`
	}
	for _, tt := range []struct {
		name, function, args, code, want string
		owner                            string
		limits                           func(*Limits)
	}{
		{
			name: "another application's", function: FunctionApply, args: applyArgs("", manifest("v1", "ConfigMap", "shop", "theirs")),
			code: CodeOwned, want: `found "o7.e3.a6"`,
		},
		{
			name: "another environment's", function: FunctionApply, args: applyArgs("", manifest("v1", "ConfigMap", "shop", "stage")),
			code: CodeOwned, want: `found "o7.e2.a5"`,
		},
		{
			name: "without an owner", function: FunctionApply, args: applyArgs("", manifest("v1", "ConfigMap", "shop", "made-by-hand")),
			code: CodeOwned, want: "kubectl -n shop annotate --overwrite configmaps made-by-hand lockstep.dev/authorized=7",
		},
		{
			name: "one good, one bad", function: FunctionApply,
			args: applyArgs("", manifest("v1", "ConfigMap", "shop", "new"), manifest("v1", "ConfigMap", "shop", "theirs")), code: CodeOwned,
		},
		{
			name: "kube-system", function: FunctionApply, args: applyArgs("", manifest("v1", "ConfigMap", "kube-system", "x")), code: CodeForbidden,
			want: "allow_destination_namespaces",
		},
		{
			name: "the namespace kube-system", function: FunctionApply, args: applyArgs("", manifest("v1", "Namespace", "", "kube-system")),
			code: CodeForbidden, want: "allow_destination_namespaces",
		},
		{name: "pruning kube-system", function: FunctionApply, args: applyArgs(`,"prune":true,"namespaces":["kube-system"]`,
			manifest("v1", "ConfigMap", "shop", "mine")), code: CodeForbidden, want: "allow_destination_namespaces"},
		{name: "cluster-scoped", function: FunctionApply, args: applyArgs("", role), code: CodeForbidden, want: "is cluster-scoped"},
		{name: "a kind that only resembles a namespace", function: FunctionApply, args: `{"agent_id":42,"objects":[` +
			manifest("example.com/v1", "Namespace", "", "shop") + `]}`, code: CodeInvalid, want: "no namespace"},
		{
			name: "namespaced in the scope of the cluster", function: FunctionApply,
			args: applyArgs(`,"scope":"cluster"`, manifest("v1", "ConfigMap", "shop", "new")), code: CodeInvalid, want: "is namespaced",
		},
		{
			name: "a Secret", function: FunctionApply, args: applyArgs("", manifest("v1", "Secret", "shop", "x")),
			code: CodeInvalid, want: "Secret",
		},
		{
			name: "an owner of its own", function: FunctionApply, args: applyArgs("", labelled(LabelOwner)), code: CodeInvalid,
			want: "which only Lockstep sets",
		},
		{
			name: "owner references", function: FunctionApply,
			args: applyArgs("", `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","namespace":"shop","ownerReferences":[]}}`),
			code: CodeInvalid, want: "ownerReferences",
		},
		{name: "twice", function: FunctionApply, args: applyArgs("", manifest("v1", "ConfigMap", "shop", "a"),
			manifest("v1", "ConfigMap", "", "a")), code: CodeInvalid, want: "a second time"},
		{name: "no object", function: FunctionApply, args: applyArgs(`,"prune":true`), code: CodeInvalid, want: "at least one object"},
		{
			name: "a resource that is not allowed", function: FunctionApply, args: applyArgs("", manifest("apps/v1", "Deployment", "shop", "new")),
			code: CodeForbidden, want: "allow_apply", limits: func(l *Limits) { l.Objects.Apply = []string{"configmaps"} },
		},
		{
			name: "nothing is allowed", function: FunctionApply, args: applyArgs("", manifest("apps/v1", "Deployment", "shop", "new")),
			code: CodeForbidden, want: "allows no resource", limits: func(l *Limits) { l.Objects = ObjectLimits{} },
		},
		{
			name: "no owner is known", function: FunctionApply, args: applyArgs("", manifest("v1", "ConfigMap", "shop", "new")),
			code: CodeForbidden, want: "upgrade it", owner: "none",
		},
		{
			name: "a patch of another application's", function: FunctionPatch,
			args: named("ConfigMap", "shop", "theirs") + `,"patch":{"data":{"a":"b"}}}`, code: CodeOwned,
		},
		{name: "a patch of the owner", function: FunctionPatch, args: named("ConfigMap", "shop", "mine") +
			`,"patch":{"metadata":{"labels":{"lockstep.dev/owner":null}}}}`, code: CodeInvalid, want: "which only Lockstep sets"},
		{
			name: "a patch of all labels", function: FunctionPatch,
			args: named("ConfigMap", "shop", "mine") + `,"patch":{"metadata":{"labels":null}}}`, code: CodeInvalid,
		},
		{
			name: "a patch of owner references", function: FunctionPatch,
			args: named("ConfigMap", "shop", "mine") + `,"patch":{"metadata":{"ownerReferences":[]}}}`, code: CodeInvalid,
		},
		{
			name: "a patch of a Secret", function: FunctionPatch, args: named("Secret", "shop", "x") + `,"patch":{"data":{"a":"b"}}}`,
			code: CodeInvalid, want: "history",
		},
		{name: "deleting another application's", function: FunctionDelete, args: named("ConfigMap", "shop", "theirs") + `}`, code: CodeOwned},
		{name: "deleting in kube-system", function: FunctionDelete, args: named("ConfigMap", "kube-system", "x") + `}`, code: CodeForbidden},
		{
			name: "deleting a namespace", function: FunctionDelete, args: `{"agent_id":42,"api_version":"v1","kind":"Namespace","name":"shop"}`,
			code: CodeForbidden,
		},
		{
			name: "a namespace on a cluster-scoped kind", function: FunctionDelete,
			args: `{"agent_id":42,"api_version":"rbac.authorization.k8s.io/v1","kind":"ClusterRole","namespace":"shop","name":"admin"}`,
			code: CodeInvalid, want: "is cluster-scoped",
		},
		{name: "logs of the system", function: FunctionLogs, args: `{"agent_id":42,"namespace":"kube-system","pod":"x"}`, code: CodeForbidden},
		{
			name: "logs", function: FunctionLogs, args: `{"agent_id":42,"namespace":"shop","pod":"x"}`, code: CodeForbidden, want: "allow_logs",
			limits: func(l *Limits) { l.Objects.Logs = false },
		},
	} {
		c := newCupboard()
		c.put("v1", "ConfigMap", "shop", "theirs", "o7.e3.a6", manager("o7.e3.a6"))
		c.put("v1", "ConfigMap", "shop", "stage", "o7.e2.a5", manager("o7.e2.a5"))
		c.put("v1", "ConfigMap", "shop", "mine", shopOwner, manager(shopOwner))
		c.put("v1", "ConfigMap", "shop", "made-by-hand", "", "")
		c.put("rbac.authorization.k8s.io/v1", "ClusterRole", "", "admin", shopOwner, "")
		c.serve("example.com/v1", "Namespace", "namespaces.example.com", true)
		limits := objectLimits()
		if tt.limits != nil {
			tt.limits(&limits)
		}
		by := shopOwner
		if tt.owner == "none" {
			by = ""
		}
		answer := c.run(t, limits, tt.function, tt.args, by)
		if answer.Err == nil || answer.Err.Code != tt.code || !strings.Contains(answer.Err.Message, tt.want) {
			t.Errorf("%s: answer %+v (%v), want %s: %s", tt.name, answer, answer.Err, tt.code, tt.want)
		}
		if allowed := tt.name == "pruning kube-system"; len(c.writes) > 0 && !allowed {
			t.Errorf("%s: writes %v", tt.name, c.writes)
		}
	}
}

// An object that was handed over, or that the relay's configuration names, is taken over, patched and deleted.
func TestObjectsThatAreHandedOver(t *testing.T) {
	t.Parallel()
	c := newCupboard()
	c.put("v1", "ConfigMap", "shop", "legacy-a", "", "")
	c.put("v1", "ConfigMap", "shop", "given", "", "")
	c.objects["ConfigMap shop/given"].object("metadata")["annotations"] = map[string]any{annotationAuthorized: "3, 7"}
	answer := c.run(t, objectLimits(), FunctionApply, applyArgs("", manifest("v1", "ConfigMap", "", "given")))
	if answer.Err != nil || answer.Value["configured"] != 1 {
		t.Errorf("apply: %+v %v", answer, answer.Err)
	}
	legacy := `{"agent_id":42,"environment_id":3,"api_version":"v1","kind":"ConfigMap","namespace":"shop","name":"legacy-a"`
	if answer := c.run(t, objectLimits(), FunctionPatch, legacy+`,"patch":{"data":{"a":null}}}`); answer.Err != nil {
		t.Errorf("patch: %v", answer.Err)
	}
	for _, want := range []bool{true, false} {
		if answer := c.run(t, objectLimits(), FunctionDelete, legacy+`}`); answer.Err != nil || answer.Value["deleted"] != want {
			t.Errorf("delete: %+v, want %v", answer, want)
		}
	}
}

// Two installations whose owners have the same names neither change nor prune each other's objects. Objects of earlier releases, without
// the label, stay their owner's, and get it with the next apply; a control plane of an earlier release is not refused.
func TestInstallationsLeaveEachOthersObjectsAlone(t *testing.T) {
	t.Parallel()
	c := newCupboard()
	mine := func(name, installation string) {
		c.put("v1", "ConfigMap", "shop", name, shopOwner, manager(shopOwner))
		if installation != "" {
			c.objects["ConfigMap shop/"+name].object("metadata", "labels")[LabelInstallation] = installation
		}
	}
	mine("former", "")
	mine("ours", "here")
	mine("theirs", "there")
	run := func(installation, function, args string) Answer {
		r := NewRunner(RunnerDeps{
			Cluster: c, Objects: c, Clock: clock.System(), Log: slog.New(slog.DiscardHandler), Poll: time.Second, Limits: objectLimits(),
		})
		return r.Run(t.Context(), Call{
			ID: callID, Function: function, Args: json.RawMessage(args), Deadline: clock.System().Now().Add(time.Minute),
			Organization: "7", Owner: shopOwner, Installation: installation,
		})
	}
	answer := run("here", FunctionApply, applyArgs(`,"prune":true`, manifest("v1", "ConfigMap", "", "new")))
	if answer.Err != nil {
		t.Fatal(answer.Err)
	}
	if want := []string{"apply ConfigMap shop/new", "delete ConfigMap shop/former", "delete ConfigMap shop/ours"}; !slices.Equal(
		slices.Sorted(slices.Values(c.writes)), want) {
		t.Errorf("writes %v, want %v", c.writes, want)
	}
	named := `{"agent_id":42,"environment_id":3,"api_version":"v1","kind":"ConfigMap","namespace":"shop","name":"theirs"`
	for function, args := range map[string]string{
		FunctionApply: applyArgs("", manifest("v1", "ConfigMap", "", "theirs")), FunctionDelete: named + `}`,
		FunctionPatch: named + `,"patch":{"data":{"a":"b"}}}`,
	} {
		answer := run("here", function, args)
		if answer.Err == nil || answer.Err.Code != CodeOwned || !strings.Contains(answer.Err.Message, `found "there", expected "here"`) {
			t.Errorf("%s: %+v %v, expected %s", function, answer, answer.Err, CodeOwned)
		}
	}
	if answer := run("", FunctionDelete, named+`}`); answer.Err != nil {
		t.Errorf("a control plane of an earlier release: %v", answer.Err)
	}
	body := (&applied{object: Object{}, owner: shopOwner, installation: "here"}).body()
	if body.text("metadata", "labels", LabelInstallation) != "here" {
		t.Errorf("found %v, expected the label of the installation", body)
	}
}

// An object that others create after the examination, while another object is applied, is not taken over.
func TestAnObjectCreatedMeanwhileIsNotTakenOver(t *testing.T) {
	t.Parallel()
	for _, owner := range []string{"", "o7.e3.a6"} {
		c := newCupboard()
		c.applying = func(key string) {
			if key == "ConfigMap shop/settings" {
				c.put("apps/v1", "Deployment", "shop", "api", owner, "kubectl")
			}
		}
		args := applyArgs("", manifest("apps/v1", "Deployment", "", "api"), manifest("v1", "ConfigMap", "", "settings"))
		answer := c.run(t, objectLimits(), FunctionApply, args)
		if answer.Err == nil || answer.Err.Code != CodeOwned {
			t.Errorf("created by %q: %+v %v, expected %s", owner, answer, answer.Err, CodeOwned)
		}
		if want := []string{"apply ConfigMap shop/settings"}; !slices.Equal(c.writes, want) {
			t.Errorf("created by %q: writes %v, expected %v", owner, c.writes, want)
		}
	}
}

// A dry run stores nothing and needs no owner; it answers what would happen.
func TestADryRunStoresNothing(t *testing.T) {
	t.Parallel()
	c := newCupboard()
	c.put("v1", "ConfigMap", "shop", "mine", shopOwner, manager(shopOwner))
	answer := c.run(t, objectLimits(), FunctionApply, applyArgs(`,"dry_run":true,"prune":true`, manifest("v1", "ConfigMap", "", "new"),
		manifest("v1", "ConfigMap", "nowhere", "new")), "")
	if answer.Err != nil || answer.Value["created"] != 2 || len(c.writes) > 0 {
		t.Errorf("answer %+v %v, writes %v", answer, answer.Err, c.writes)
	}
}

// R4-11, R4-19: a dry run answers the version of the object as it is, so what it would change shows in the fields; and the label of the
// installation, which a plan does not know, stays.
func TestADryRunReportsWhatItWouldChange(t *testing.T) {
	t.Parallel()
	c := newCupboard()
	deployed := func(name string) Object {
		c.put("apps/v1", "Deployment", "shop", name, shopOwner, manager(shopOwner))
		o := c.objects["Deployment shop/"+name]
		o.object("metadata", "labels")[LabelInstallation] = "0123456789abcdef"
		o["spec"] = map[string]any{"replicas": json.Number("2")}
		return o
	}
	deployed("same")
	deployed("scaled")["spec"] = map[string]any{"replicas": json.Number("9")}
	wanted := func(name string) string {
		return `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"` + name + `"},"spec":{"replicas":2}}`
	}
	answer := c.run(t, objectLimits(), FunctionApply, applyArgs(`,"dry_run":true`, wanted("same"), wanted("scaled"), wanted("new")), "")
	if answer.Err != nil || len(c.writes) > 0 {
		t.Fatalf("answer %v, writes %v", answer.Err, c.writes)
	}
	if diff := cmp.Diff([]any{1, 1, 1}, []any{answer.Value["created"], answer.Value["configured"], answer.Value["unchanged"]}); diff != "" {
		t.Errorf("created, configured, unchanged (-want +got):\n%s", diff)
	}
	changed, _ := answer.Value["changed"].([]any)
	if len(changed) != 2 || !strings.Contains(fmt.Sprint(changed[0]), "path:spec.replicas") {
		t.Errorf("changed %v", changed)
	}
}

// A kind that appears after its definition was applied is waited for, a namespace is created if the call may, and what the cluster refuses
// for the moment is repeated.
func TestKindsThatAppearLater(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCupboard()
		c.fail["get"] = []error{fault.New(fault.Unavailable, "away")}
		c.fail["apply"] = []error{fault.New(fault.Unavailable, "away"), fault.New(fault.Conflict, "changed")}
		go func() {
			_ = clock.Sleep(t.Context(), clock.System(), 20*time.Second)
			c.serve("example.com/v1", "Widget", "widgets.example.com", true)
		}()
		args := applyArgs(`,"create_namespaces":true`, manifest("example.com/v1", "Widget", "shop-new", "w"))
		if answer := c.run(t, objectLimits(), FunctionApply, args); answer.Err != nil || answer.Value["created"] != 1 {
			t.Errorf("answer %+v %v", answer, answer.Err)
		}
		if want := []string{"create Namespace /shop-new", "apply Widget shop-new/w"}; !slices.Equal(c.writes, want) {
			t.Errorf("writes %v, want %v", c.writes, want)
		}
		start := clock.System().Now()
		answer := c.run(t, objectLimits(), FunctionApply, applyArgs("", manifest("example.com/v1", "Gadget", "", "g")))
		if waited := clock.System().Now().Sub(start); answer.Err == nil || answer.Err.Code != CodeUnknownKind || waited < kindWait ||
			waited > 2*kindWait {
			t.Errorf("answer %v after %s", answer.Err, waited)
		}
		answer = c.run(t, objectLimits(), FunctionApply, applyArgs("", manifest("v1", "ConfigMap", "nowhere", "g")))
		if answer.Err == nil || answer.Err.Code != CodeNotFound || !strings.Contains(answer.Err.Message, "create_namespaces") {
			t.Errorf("without the namespace: %v", answer.Err)
		}
	})
}

func TestHealth(t *testing.T) {
	t.Parallel()
	c := newCupboard()
	refs := []string{}
	for _, state := range []string{"Current", "InProgress", "Failed"} {
		name := strings.ToLower(state)
		c.put("v1", "ConfigMap", "shop", name, shopOwner, "")
		c.objects["ConfigMap shop/"+name]["state"] = state
		refs = append(refs, `{"api_version":"v1","kind":"ConfigMap","name":"`+name+`"}`)
	}
	refs = append(refs, `{"api_version":"v1","kind":"ConfigMap","name":"gone"}`, `{"api_version":"v1","kind":"Namespace","name":"shop"}`)
	c.objects["Namespace /shop"]["state"] = "Current"
	for want, list := range map[string][]string{
		"Current": {refs[0], refs[4]}, "InProgress": {refs[0], refs[1], refs[3]}, "Failed": refs,
	} {
		answer := c.run(t, objectLimits(), FunctionHealth, `{"namespace":"shop","objects":[`+strings.Join(list, ",")+`]}`, "")
		if answer.Err != nil || answer.Value["state"] != want {
			t.Errorf("%v: %+v %v, want %s", list, answer.Value, answer.Err, want)
		}
	}
}

// The end of a log, within the bound, without what looks like a secret.
func TestLogs(t *testing.T) {
	t.Parallel()
	c := newCupboard()
	c.log = "connecting to postgres://app:hunter2@db/shop\npassword=hunter2 user=app\nAuthorization: Bearer abcdefghijklmnop\n" +
		"eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.abc\n-----BEGIN RSA PRIVATE KEY-----\nhunter2\n-----END RSA PRIVATE KEY-----\nready\n"
	answer := c.run(t, objectLimits(), FunctionLogs, `{"namespace":"shop","pod":"api"}`, "")
	text, _ := answer.Value["text"].(string)
	for _, secret := range []string{"hunter2", "abcdefghijklmnop", "eyJ"} {
		if strings.Contains(text, secret) {
			t.Errorf("%q is in %q", secret, text)
		}
	}
	if answer.Err != nil || answer.Value["truncated"] != false || !strings.Contains(text, "user=app") ||
		!strings.HasSuffix(text, "ready\n") {
		t.Errorf("answer %+v", answer)
	}
	c.log = strings.Repeat("0123456789\n", 20)
	answer = c.run(t, objectLimits(), FunctionLogs, `{"namespace":"shop","pod":"api","max_bytes":25}`, "")
	if answer.Value["text"] != "0123456789\n0123456789\n" || answer.Value["truncated"] != true {
		t.Errorf("answer %+v", answer)
	}
	c.log = strings.Repeat("x", 40) // one line without an end
	answer = c.run(t, objectLimits(), FunctionLogs, `{"namespace":"shop","pod":"api","max_bytes":25}`, "")
	if answer.Value["text"] != strings.Repeat("x", 25) || answer.Value["truncated"] != true {
		t.Errorf("answer %+v", answer)
	}
}

// While passages for weights have not been granted, a Rollout is only changed by argo.promote: every other way to change it is refused.
func TestHeldWeightsHoldObjects(t *testing.T) {
	t.Parallel()
	const version, kind = "argoproj.io/v1alpha1", "Rollout"
	one := `{"agent_id":42,"api_version":"` + version + `","kind":"Rollout","namespace":"shop","name":"api"`
	for name, tt := range map[string]struct{ function, args string }{
		"patch":  {FunctionPatch, one + `,"patch":{"spec":{"paused":false}}}`},
		"delete": {FunctionDelete, one + `}`},
		"apply":  {FunctionApply, applyArgs("", manifest(version, kind, "shop", "api"))},
		"prune":  {FunctionApply, applyArgs(`,"prune":true`, manifest("v1", "ConfigMap", "shop", "mine"))},
	} {
		for _, held := range [][]int{{50}, nil} {
			c := newCupboard()
			c.serve(version, kind, "rollouts.argoproj.io", true)
			c.put(version, kind, "shop", "api", shopOwner, manager(shopOwner))
			c.put("v1", "ConfigMap", "shop", "mine", shopOwner, manager(shopOwner))
			limits := objectLimits()
			all := []string{"rollouts.argoproj.io", "configmaps"}
			limits.Objects.Apply, limits.Objects.Patch, limits.Objects.Delete = all, all, all
			r := NewRunner(RunnerDeps{
				Cluster: c, Objects: c, Clock: clock.System(), Log: slog.New(slog.DiscardHandler), Poll: time.Second, Limits: limits,
			})
			answer := r.Run(t.Context(), Call{
				ID: callID, Function: tt.function, Args: json.RawMessage(tt.args), Deadline: clock.System().Now().Add(time.Minute),
				Organization: "7", Owner: shopOwner, HeldWeights: held,
			})
			changed := slices.ContainsFunc(c.writes, func(w string) bool { return strings.Contains(w, kind) })
			switch {
			case held == nil && (answer.Err != nil || !changed):
				t.Errorf("%s without held weights: %+v %v, writes %v", name, answer, answer.Err, c.writes)
			case held != nil && (answer.Err == nil || answer.Err.Code != CodeForbidden || changed ||
				!strings.Contains(answer.Err.Message, "Rollout shop/api: passages for weights have not been granted")):
				t.Errorf("%s: %+v %v, writes %v, expected a refusal", name, answer, answer.Err, c.writes)
			}
		}
	}
}

// Reasons are texts of others: an answer keeps the beginning of each, as text.
func TestReasonsAreBounded(t *testing.T) {
	t.Parallel()
	ref := Ref{Kind: Kind{APIVersion: "v1", Kind: "ConfigMap"}, Namespace: "shop", Name: "a"}
	long := "x" + strings.Repeat("\u00e9", 4000) + "\xff"
	value := healthOf([]Ref{ref}, []string{"Failed"}, []string{long})
	pending, _ := value["pending"].([]any)
	first, _ := pending[0].(map[string]any)
	message := workflowTask().report(Object{"status": map[string]any{"phase": "Failed", "message": long}})["message"]
	for _, got := range []any{first["reason"], message} {
		text, _ := got.(string)
		if len(text) != maxReason-1 || !utf8.ValidString(text) {
			t.Errorf("found %d bytes, valid %t; expected %d", len(text), utf8.ValidString(text), maxReason-1)
		}
	}
}
