package core

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"strings"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/pattern"
)

// The phases of a task. Those of an Argo Workflow are Argo's own; a Job has all but PhaseError.
const (
	PhasePending   = "Pending"
	PhaseRunning   = "Running"
	PhaseSucceeded = "Succeeded"
	PhaseFailed    = "Failed"
	PhaseError     = "Error"
	// PhaseNone is the phase of a task that does not exist.
	PhaseNone = "None"
)

// The labels that identify a task of ours, beside labelManagedBy.
const (
	labelOrganization = "lockstep.dev/organization"
	labelOperation    = "lockstep.dev/operation"
)

// maxTaskName bounds the name of a task: its pods carry it as a label.
const maxTaskName = 63

// taskKind is a kind of object that runs to its end: what Lockstep creates, looks at and stops, and no more (D54).
type taskKind struct {
	kind Kind
	// argument is the argument of the Function that has the object.
	argument string
	// setting is the key of the relay's configuration with the namespaces that the kind may be created in.
	setting string
	// podLabel is the label by which pods name their task, and container the one with the output; "" for the first.
	podLabel, container string
	// state returns the phase of an object, and why.
	state func(Object) (phase, message string)
	// stop returns the part of a patch that stops the object, or nil if that has been asked for.
	stop func(o Object, how string) Object
	// bound adds what the object lacks: a deadline in seconds (0 for none), and when the cluster removes it after its end.
	bound func(spec map[string]any, deadline int64)
	// problem says why an object cannot be created; "" if it can.
	problem func(Object) string
	// detail is what an answer has beside the state; nil for nothing.
	detail func(Object) map[string]any
}

// How a task is stopped.
const (
	stopGently = "Stop"
	terminated = "Terminate"
)

// workflowTask returns the kind of Argo Workflows.
func workflowTask() taskKind {
	return taskKind{
		kind: Kind{APIVersion: "argoproj.io/v1alpha1", Kind: "Workflow"}, argument: "workflow", setting: "allow_workflow_namespaces",
		podLabel: "workflows.argoproj.io/workflow", container: "main",
		state: func(o Object) (string, string) {
			phase := o.text("status", "phase")
			if phase == "" {
				phase = PhasePending
			}
			return phase, o.text("status", "message")
		},
		stop: func(o Object, how string) Object {
			if now := o.text("spec", "shutdown"); now == terminated || now == how {
				return nil
			}
			return Object{"spec": map[string]any{"shutdown": how}}
		},
		bound: func(spec map[string]any, deadline int64) {
			keepDeadline(spec, deadline)
			// A template that is referred to has a strategy of its own, which one in the Workflow would replace.
			if spec["ttlStrategy"] == nil && spec["workflowTemplateRef"] == nil {
				spec["ttlStrategy"] = map[string]any{"secondsAfterCompletion": int64(keptAfterEnd)}
			}
			if own := maps.Clone(Object(spec).object("ttlStrategy")); own != nil {
				for name := range own {
					keepLonger(own, name)
				}
				spec["ttlStrategy"] = map[string]any(own)
			}
		},
		problem: func(Object) string { return "" },
	}
}

// keptAfterEnd is how many seconds a task is kept after its end if its author does not say it.
const keptAfterEnd = 24 * 3600

// leastKept is how many seconds a task is kept after its end at least. The object is the only memory of the call that created it, so
// this is longer than any repeat of the call: a repeat after it would start the task a second time.
const leastKept = 600

// keepLonger raises a number of seconds to leastKept.
func keepLonger(of Object, name string) {
	if seconds, isNumber := of.number(name); isNumber && seconds < leastKept {
		of[name] = int64(leastKept)
	}
}

// keepDeadline sets a deadline, unless the author has set an earlier one.
func keepDeadline(spec map[string]any, deadline int64) {
	const field = "activeDeadlineSeconds"
	if own, given := Object(spec).number(field); deadline > 0 && (!given || own > deadline) {
		spec[field] = deadline
	}
}

// annotationStopped is on a Job that was asked to stop.
const annotationStopped = "lockstep.dev/stopped"

// jobTask returns the kind of Kubernetes Jobs.
func jobTask() taskKind {
	return taskKind{
		kind: Kind{APIVersion: "batch/v1", Kind: "Job"}, argument: "job", setting: "allow_job_namespaces",
		podLabel: "batch.kubernetes.io/job-name",
		state:    jobState,
		// A deadline that has passed ends the Job and its pods, and leaves the Job with a result; to delete it would leave none.
		stop: func(o Object, _ string) Object {
			if annotation(o, annotationStopped) != "" {
				return nil
			}
			return Object{
				"metadata": map[string]any{"annotations": map[string]any{annotationStopped: "true"}},
				"spec":     map[string]any{"activeDeadlineSeconds": int64(1)},
			}
		},
		bound: func(spec map[string]any, deadline int64) {
			keepDeadline(spec, deadline)
			if spec["ttlSecondsAfterFinished"] == nil {
				spec["ttlSecondsAfterFinished"] = int64(keptAfterEnd)
			}
			keepLonger(spec, "ttlSecondsAfterFinished")
		},
		problem: func(o Object) string {
			if o.flag("spec", "suspend") {
				return "found spec.suspend, expected a Job that starts by itself"
			}
			return ""
		},
	}
}

// jobState returns the phase of a Job: the pods of one that has failed may still be running while it is only about to fail.
func jobState(o Object) (phase, message string) {
	for _, each := range o.list("status", "conditions") {
		m, _ := each.(map[string]any)
		c := Object(m)
		if c.text("status") != "True" {
			continue
		}
		switch c.text("type") {
		case "Complete":
			return PhaseSucceeded, c.text("message")
		case "Failed":
			message = strings.TrimPrefix(c.text("reason")+": "+c.text("message"), ": ")
			if annotation(o, annotationStopped) != "" {
				message = "stopped"
			}
			return PhaseFailed, message
		}
	}
	if active, _ := o.number("status", "active"); active > 0 {
		return PhaseRunning, ""
	}
	return PhasePending, ""
}

// hasEnded reports whether a phase is final.
func hasEnded(phase string) bool {
	switch phase {
	case PhaseSucceeded, PhaseFailed, PhaseError, PhaseSuccessful, PhaseInconclusive:
		return true
	default:
		return false
	}
}

// TaskRequest holds the arguments of workflow.submit and job.run.
type TaskRequest struct {
	Ref Ref
	// Object is what to create, with our labels.
	Object Object
	// Operation is the label value that all calls about one task have.
	Operation string
	// DryRun validates the object at the API server and creates nothing.
	DryRun bool
}

// generated is the form of metadata.generateName.
var generated = regexp.MustCompile(`^[a-z0-9][-a-z0-9]*$`)

// parseTask parses the arguments of workflow.submit and job.run.
func (k taskKind) parseTask(call Call) (TaskRequest, error) {
	a, err := readArgs(call.Args)
	if err != nil {
		return TaskRequest{}, err
	}
	a.known["agent_id"] = true
	namespace := a.name("namespace", true)
	operation := a.text("operation", false)
	if operation == "" {
		operation = call.ID
	}
	want := TaskRequest{Operation: digestOf(call.Organization, operation), DryRun: a.flag("dry_run")}
	deadline := int64(0)
	if a.values["deadline"] != nil {
		deadline = a.number("deadline", 1)
	}
	a.known["deadline"] = true
	given, ok := a.object(k.argument)
	if !ok && len(*a.wrong) == 0 {
		a.problem(k.argument, "missing, expected the %s to create", k.kind.Kind)
	}
	a.rest()
	if !ok {
		return TaskRequest{}, a.err()
	}
	o := Object(maps.Clone(given.values))
	name := k.checkObject(given, o, namespace, want.Operation)
	if err := a.err(); err != nil {
		return TaskRequest{}, err
	}
	want.Ref = Ref{Kind: k.kind, Namespace: namespace, Name: name}
	want.Object = k.labelled(o, want, call.Organization)
	spec := maps.Clone(o.object("spec"))
	if spec == nil {
		spec = Object{}
	}
	k.bound(spec, deadline)
	want.Object["spec"] = map[string]any(spec)
	return want, nil
}

// checkObject checks the object of a call, and returns its name: the one that its author gave it, or the same one for each call about it.
func (k taskKind) checkObject(a args, o Object, namespace, operation string) (name string) {
	if found := o.text("apiVersion"); found != k.kind.APIVersion {
		a.problem("apiVersion", "found %q, expected %s", found, k.kind.APIVersion)
	}
	if found := o.text("kind"); found != k.kind.Kind {
		a.problem("kind", "found %q, expected %s", found, k.kind.Kind)
	}
	if found := o.text("metadata", "namespace"); found != "" && found != namespace {
		a.problem("metadata.namespace", "found %q, expected none or that of the call, %s", found, namespace)
	}
	if problem := k.problem(o); problem != "" {
		a.problem("spec", "%s", problem)
	}
	for key, v := range o.object("metadata", "labels") {
		if _, isText := v.(string); !isText {
			a.problem("metadata.labels."+key, "found %s, expected a string", describe(v))
		}
	}
	for _, member := range []string{"labels", "annotations"} {
		for _, key := range []string{LabelOwner, annotationAuthorized, annotationStopped} {
			if _, found := o.object("metadata", member)[key]; found {
				a.problem("metadata."+member, "found %q, which only Lockstep sets", key)
			}
		}
	}
	name, prefix := o.text("metadata", "name"), o.text("metadata", "generateName")
	switch {
	case name != "" && (len(name) > maxTaskName || !dnsName.MatchString(name)):
		a.problem("metadata.name", "found %q, expected a Kubernetes name of at most %d characters", name, maxTaskName)
	case name == "" && !generated.MatchString(prefix):
		a.problem("metadata.name", "found none, and generateName %q; expected a name, or the beginning of one (lower-case letters, digits, '-')",
			prefix)
	case name == "":
		const suffix = 10
		name = prefix[:min(len(prefix), maxTaskName-suffix)] + operation[:suffix]
	}
	return name
}

// labelled returns the object as it is created: with its name, and with labels that say whose it is beside the author's own.
func (k taskKind) labelled(o Object, want TaskRequest, organization string) Object {
	meta := maps.Clone(o.object("metadata"))
	labels := maps.Clone(o.object("metadata", "labels"))
	if labels == nil {
		labels = Object{}
	}
	labels[labelManagedBy], labels[labelOrganization], labels[labelOperation] = managedBy, organization, want.Operation
	meta["name"], meta["namespace"], meta["labels"] = want.Ref.Name, want.Ref.Namespace, map[string]any(labels)
	for _, theirs := range []string{"generateName", "uid", "resourceVersion", "ownerReferences", "finalizers", "managedFields"} {
		delete(meta, theirs)
	}
	o["metadata"] = map[string]any(meta)
	delete(o, "status")
	return o
}

// digestOf is a label value for an operation of an organization.
func digestOf(organization, operation string) string {
	sum := sha256.Sum256([]byte(organization + "\n" + operation))
	return hex.EncodeToString(sum[:])[:40]
}

// checkTask refuses a namespace in which the relay's configuration does not allow the kind. No list allows none: a Workflow or a Job runs
// with whatever its namespace lets pods do.
func (l Limits) checkTask(k taskKind, ref Ref) error {
	list := l.WorkflowNamespaces
	switch k.setting {
	case jobTask().setting:
		list = l.JobNamespaces
	case analysisTask().setting:
		list = l.AnalysisNamespaces
	}
	if pattern.Allows(list, ref.Namespace) {
		return nil
	}
	if len(list) == 0 {
		return &Error{Code: CodeForbidden, Message: fmt.Sprintf("%s: this relay runs no %s; its configuration names the namespaces for them: %s",
			ref, k.kind.Kind+"s", k.setting)}
	}
	return l.refusal(ref.String()+": namespace", ref.Namespace, k.setting, list)
}

// start creates a task, or finds the one that an earlier attempt has created.
func (k taskKind) start(ctx context.Context, r *Runner, call Call) (map[string]any, error) {
	want, err := k.parseTask(call)
	if err != nil {
		return nil, err
	}
	if err := r.limits.checkTask(k, want.Ref); err != nil {
		return nil, err
	}
	if want.DryRun {
		o, err := r.cluster.DryCreate(ctx, want.Ref, want.Object)
		switch {
		case fault.Is(err, fault.Conflict):
			return nil, exists(want.Ref)
		case fault.Is(err, fault.NotFound):
			return nil, noNamespace(want.Ref)
		case err != nil:
			return nil, err
		}
		value := map[string]any{"name": want.Ref.Name, "namespace": want.Ref.Namespace, k.argument: presentable(o)}
		if b, err := json.Marshal(value); err != nil || len(b) > maxValue {
			return nil, &Error{Code: CodeTooLarge, Message: fmt.Sprintf("%s is larger than %d bytes", want.Ref, maxValue)}
		}
		return value, nil
	}
	value, err := r.drive(ctx, want.Ref, func(observed Object) (Decision, error) { return k.nextStart(want, observed, call.Organization) })
	if fault.Is(err, fault.NotFound) { // the answer to a create
		return nil, noNamespace(want.Ref)
	}
	return value, err
}

// noNamespace is what a create that finds nothing means.
func noNamespace(ref Ref) error {
	return &Error{Code: CodeNotFound, Message: fmt.Sprintf("%s: namespace %s does not exist, expected it before", ref, ref.Namespace)}
}

// nextStart decides how to start a task: observed is the present object of its name, nil if there is none. An object that another call has
// created, or a person, is a conflict: its result says nothing about ours.
func (k taskKind) nextStart(want TaskRequest, observed Object, organization string) (Decision, error) {
	switch {
	case observed == nil:
		return Decision{Action: Create, Body: want.Object}, nil
	case !owns(observed, organization) || observed.object("metadata", "labels")[labelOperation] != want.Operation:
		return Decision{}, exists(want.Ref)
	default:
		return Decision{Action: Done, Value: k.report(observed)}, nil
	}
}

func exists(ref Ref) error {
	return &Error{Code: CodeConflict, Message: ref.String() + " exists already, and was not created by this call; expected a name that nothing else has"}
}

// report is what is answered about a task.
func (k taskKind) report(o Object) map[string]any {
	phase, message := k.state(o)
	value := map[string]any{
		"name": o.text("metadata", "name"), "namespace": o.text("metadata", "namespace"), "uid": o.text("metadata", "uid"),
		"phase": phase, "message": shortened(message), "ended": hasEnded(phase),
	}
	if k.detail != nil {
		maps.Copy(value, k.detail(o))
	}
	return value
}

// owns reports whether Lockstep has created the object for the organization.
func owns(o Object, organization string) bool {
	return isManaged(o) && organization != "" && o.object("metadata", "labels")[labelOrganization] == organization
}

// parseNamed parses the arguments of the Functions on an existing task.
func (k taskKind) parseNamed(a args) Ref {
	a.known["agent_id"] = true
	return Ref{Kind: k.kind, Namespace: a.name("namespace", true), Name: a.name("name", true)}
}

// end stops a task that Lockstep has created for the organization, and no other.
func (k taskKind) end(how string) func(r *Runner, ctx context.Context, call Call) (map[string]any, error) {
	return func(r *Runner, ctx context.Context, call Call) (map[string]any, error) {
		a, err := readArgs(call.Args)
		if err != nil {
			return nil, err
		}
		ref, operation := k.parseNamed(a), a.text("operation", false)
		a.rest()
		if err := a.err(); err != nil {
			return nil, err
		}
		if err := r.limits.checkTask(k, ref); err != nil {
			return nil, err
		}
		if operation != "" {
			operation = digestOf(call.Organization, operation)
		}
		return r.drive(ctx, ref, func(observed Object) (Decision, error) {
			if operation != "" && observed != nil && observed.object("metadata", "labels")[labelOperation] != operation {
				return Decision{}, &Error{Code: CodeConflict, Message: ref.String() + " was not created by this operation"}
			}
			return k.nextEnd(how, ref, observed, call.Organization)
		})
	}
}

// nextEnd decides how to stop a task. The answer does not wait for its end: exit handlers may take long.
func (k taskKind) nextEnd(how string, ref Ref, observed Object, organization string) (Decision, error) {
	if observed == nil {
		return Decision{Action: Done, Value: map[string]any{
			"name": ref.Name, "namespace": ref.Namespace, "uid": "", "phase": PhaseNone, "message": "", "ended": true,
		}}, nil
	}
	if !owns(observed, organization) {
		return Decision{}, notOurs(ref)
	}
	value := k.report(observed)
	patch := k.stop(observed, how)
	if patch == nil || value["ended"] == true {
		return Decision{Action: Done, Value: value}, nil
	}
	meta := observed.precondition()
	maps.Copy(meta, patch.object("metadata"))
	patch["metadata"] = meta
	return Decision{Action: Patch, Body: patch, Value: value}, nil
}

func notOurs(ref Ref) error {
	return &Error{Code: CodeForbidden, Message: fmt.Sprintf(
		"%s was not created by Lockstep for this organization (labels %s, %s); expected one that was", ref, labelManagedBy, labelOrganization)}
}
