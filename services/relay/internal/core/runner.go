package core

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/keylock"
)

// The Functions that a relay executes.
const (
	FunctionGet       = "k8s.get"
	FunctionList      = "k8s.list"
	FunctionCheck     = "argo.check"
	FunctionSync      = "argo.sync"
	FunctionTerminate = "argo.terminate"
	FunctionPromote   = "argo.promote"
	FunctionAbort     = "argo.abort"
	FunctionRetry     = "argo.retry"

	FunctionSubmitWorkflow    = "workflow.submit"
	FunctionStopWorkflow      = "workflow.stop"
	FunctionTerminateWorkflow = "workflow.terminate"
	FunctionWorkflowLogs      = "workflow.logs"
	FunctionRunJob            = "job.run"
	FunctionStopJob           = "job.stop"
	FunctionJobLogs           = "job.logs"
	FunctionAnalyze           = "argo.analyze"
	FunctionEndAnalysis       = "argo.end_analysis"
	FunctionApply             = "k8s.apply"
	FunctionPatch             = "k8s.patch"
	FunctionDelete            = "k8s.delete"
	FunctionLogs              = "k8s.logs"
	FunctionHealth            = "k8s.health"
	FunctionRequest           = "http.request"
)

// RunnerDeps are the dependencies of a Runner.
type RunnerDeps struct {
	Cluster Cluster
	// Objects is the same cluster, for objects that Lockstep applies itself.
	Objects Objects
	// Web sends requests from inside the cluster.
	Web   Web
	Clock clock.Clock
	Log   *slog.Logger
	// Poll is how often a wait reads the cluster if no watch reports a change.
	Poll time.Duration
	// Limits bound what the relay may touch; the zero value allows everything.
	Limits Limits
}

// Runner executes calls. It is safe for concurrent use.
type Runner struct {
	cluster Cluster
	objects Objects
	web     Web
	sent    *answers
	clock   clock.Clock
	log     *slog.Logger
	poll    time.Duration
	limits  Limits
	// syncing serializes the syncs of each Application.
	syncing keylock.Locks
}

// NewRunner returns a Runner.
func NewRunner(d RunnerDeps) *Runner {
	return &Runner{
		cluster: d.Cluster, objects: d.Objects, web: d.Web, sent: &answers{now: d.Clock.Now}, clock: d.Clock, log: d.Log, poll: d.Poll,
		limits: d.Limits,
	}
}

// Run executes one call, until its deadline at the latest. Every outcome is an Answer.
func (r *Runner) Run(ctx context.Context, call Call) Answer {
	answer := Answer{CallID: call.ID, Attempt: call.Attempt}
	ctx, cancel := context.WithTimeout(ctx, r.budget(call.Deadline))
	defer cancel()
	value, err := r.dispatch(ctx, call)
	if err != nil {
		answer.Err = asError(err)
		if answer.Err.Code == CodeInternal {
			r.log.ErrorContext(ctx, "function failed", "call_id", call.ID, "function", call.Function, "error", err)
		}
		return answer
	}
	answer.Value = value
	return answer
}

// budget ends a little before the deadline, so that the answer, which says what the call waited for, arrives in time: by a tenth of the
// remaining time, 2 s at most.
func (r *Runner) budget(deadline time.Time) time.Duration {
	left := deadline.Sub(r.clock.Now())
	return left - min(left/10, 2*time.Second)
}

// duty is a Function that a relay executes.
type duty struct {
	// guard describes what is checked against the relay's limits, for the reader; do checks it before it acts.
	guard string
	do    func(r *Runner, ctx context.Context, call Call) (map[string]any, error)
}

// duties returns the Functions that internal/function of the workflow service declares with the location Cluster. A test has a call of each
// that its guard refuses.
func duties() map[string]duty {
	return map[string]duty{
		FunctionGet:       {"the kind: never Secrets", (*Runner).get},
		FunctionList:      {"the kind: never Secrets", (*Runner).list},
		FunctionCheck:     {"the Application, what it deploys and where, its project", (*Runner).check},
		FunctionSync:      {"the Application, what it deploys and where, its project", (*Runner).sync},
		FunctionTerminate: {"the Application's namespace; the operation is one of Lockstep's", (*Runner).terminate},
		FunctionPromote: {"the Rollout's namespace", func(r *Runner, ctx context.Context, call Call) (map[string]any, error) {
			return r.rollout(ctx, call, true, NextPromotion)
		}},
		FunctionAbort: {"the Rollout's namespace", func(r *Runner, ctx context.Context, call Call) (map[string]any, error) {
			return r.rollout(ctx, call, false, NextAbort)
		}},
		FunctionRetry: {"the Rollout's namespace", func(r *Runner, ctx context.Context, call Call) (map[string]any, error) {
			return r.rollout(ctx, call, false, NextRetry)
		}},
		FunctionSubmitWorkflow:    {"the Workflow's namespace; the object is ours or new", ofTask(workflowTask().start)},
		FunctionStopWorkflow:      {"the Workflow's namespace; the object is ours", workflowTask().end(stopGently)},
		FunctionTerminateWorkflow: {"the Workflow's namespace; the object is ours", workflowTask().end(terminated)},
		FunctionWorkflowLogs:      {"the Workflow's namespace; the object is ours", ofTask(workflowTask().logs)},
		FunctionRunJob:            {"the Job's namespace; the object is ours or new", ofTask(jobTask().start)},
		FunctionStopJob:           {"the Job's namespace; the object is ours", jobTask().end(terminated)},
		FunctionJobLogs:           {"the Job's namespace; the object is ours", ofTask(jobTask().logs)},
		FunctionAnalyze:           {"the AnalysisRun's namespace, those of the templates; the object is ours or new", (*Runner).analyze},
		FunctionEndAnalysis:       {"the AnalysisRun's namespace; the object is ours", analysisTask().end(terminated)},
		FunctionApply:             {"the resource, the namespace, the scope, the owner of the object; never Secrets", (*Runner).apply},
		FunctionPatch:             {"the resource, the namespace, the owner of the object; never Secrets", (*Runner).patch},
		FunctionDelete:            {"the resource, the namespace, the owner of the object; never namespaces", (*Runner).remove},
		FunctionLogs:              {"whether logs may be read, the namespace", (*Runner).logs},
		FunctionHealth:            {"the kind: never Secrets", (*Runner).health},
		FunctionRequest:           {"the method and the URL, where the credential may go", (*Runner).request},
	}
}

// ofTask is a duty of the Functions on tasks.
func ofTask(do func(context.Context, *Runner, Call) (map[string]any, error)) func(*Runner, context.Context, Call) (map[string]any, error) {
	return func(r *Runner, ctx context.Context, call Call) (map[string]any, error) { return do(ctx, r, call) }
}

// dispatch executes the called Function.
func (r *Runner) dispatch(ctx context.Context, call Call) (map[string]any, error) {
	d, known := duties()[call.Function]
	if !known {
		return nil, fault.InvalidFields(fault.Field{Name: "function", Problem: fmt.Sprintf(
			"found %q, expected one of %s", call.Function, strings.Join(slices.Sorted(maps.Keys(duties())), ", "))})
	}
	return d.do(r, ctx, call)
}

// check reports whether argo.sync would accept an Application, by the same decisions. It changes nothing.
func (r *Runner) check(ctx context.Context, call Call) (map[string]any, error) {
	want, err := parseSync(call, true)
	if err != nil {
		return nil, err
	}
	return r.driveSync(ctx, want)
}

// sync brings an Application to a revision, one call at a time: a second call for the same Application could otherwise overwrite the first
// one's outcome before that call has seen it. A call that does not wait for the end of the sync is not serialized.
func (r *Runner) sync(ctx context.Context, call Call) (map[string]any, error) {
	want, err := parseSync(call, false)
	if err != nil {
		return nil, err
	}
	if !want.Start {
		release, err := r.syncing.Lock(ctx, want.Ref.String())
		if err != nil {
			return nil, &Error{Code: CodeTimeout, Message: want.Ref.String() + ": waited for an earlier sync of it to end"}
		}
		defer release()
	}
	return r.driveSync(ctx, want)
}

// driveSync drives a sync, or the check of one, within the limits.
func (r *Runner) driveSync(ctx context.Context, want SyncRequest) (map[string]any, error) {
	known := map[string]string{}
	return r.drive(ctx, want.Ref, func(observed Object) (Decision, error) {
		if err := r.within(want, observed, ""); err != nil {
			return Decision{}, err
		}
		project, controller := targetOf(want, observed).project, observed.text("status", "controllerNamespace")
		home, found := known[project+" "+controller]
		if !found {
			var err error
			if home, err = r.confine(ctx, project, []string{controller, want.Ref.Namespace, r.limits.Home}); err != nil {
				return Decision{}, err
			}
			known[project+" "+controller] = home
		}
		if err := r.within(want, observed, home); err != nil {
			return Decision{}, err
		}
		want.Now = r.clock.Now()
		// Reasons why nobody could sync the Application are reported before a missing authorization.
		d, err := NextSync(want, observed)
		if err == nil {
			err = r.limits.checkAuthorization(want, observed)
		}
		return d, err
	})
}

// within checks an Application against the relay's limits, and those of the environment. home is Argo CD's own namespace; "" if not yet
// known.
func (r *Runner) within(want SyncRequest, app Object, home string) error {
	for _, l := range []Limits{r.limits, want.Allowed} {
		if err := l.checkApplication(want, app, home); err != nil {
			return err
		}
	}
	return nil
}

// confine finds an Application's project, and refuses one that allows what the relay may not touch. Projects are in Argo CD's own
// namespace: the first of the candidates with this project, which is returned.
func (r *Runner) confine(ctx context.Context, name string, candidates []string) (home string, err error) {
	if !r.limits.wantsConfinement() || name == "" {
		return "", nil
	}
	for _, namespace := range candidates {
		ref := Ref{Kind: projectKind, Namespace: namespace, Name: name}
		if namespace == "" {
			continue
		}
		project, err := r.cluster.Get(ctx, ref)
		switch {
		case fault.Is(err, fault.NotFound):
			continue
		case fault.Is(err, fault.Denied):
			return "", &Error{Code: CodeForbidden, Message: ref.String() + " cannot be read, which says what its Applications may deploy: " +
				"grant the relay get on appprojects.argoproj.io there (" + fault.Public(err) + ")"}
		case err != nil:
			return "", err
		}
		return namespace, r.limits.checkProject(project, namespace)
	}
	return "", &Error{Code: CodeForbidden, Message: fmt.Sprintf(
		"AppProject %q, which says what its Applications may deploy, is in none of the namespaces %s; expected it in Argo CD's own, which is this relay's argocd_namespace",
		name, strings.Join(slices.DeleteFunc(slices.Compact(candidates), func(n string) bool { return n == "" }), ", "))}
}

// terminate ends one sync of ours.
func (r *Runner) terminate(ctx context.Context, call Call) (map[string]any, error) {
	want, err := parseTerminate(call.Args)
	if err != nil {
		return nil, err
	}
	if err := r.limits.checkNamespace(want.Ref); err != nil {
		return nil, err
	}
	return r.drive(ctx, want.Ref, func(observed Object) (Decision, error) { return NextTerminate(want, observed) })
}

// rollout drives one of the three Functions on a Rollout. Each is one patch, so they need not be serialized.
func (r *Runner) rollout(
	ctx context.Context, call Call, withStep bool, next func(RolloutRequest, Object) (Decision, error),
) (map[string]any, error) {
	want, err := parseRollout(call.Args, withStep)
	if err != nil {
		return nil, err
	}
	want.Held = call.HeldWeights
	if err := r.limits.checkRollout(want.Ref); err != nil {
		return nil, err
	}
	return r.drive(ctx, want.Ref, func(observed Object) (Decision, error) { return next(want, observed) })
}

// drive reads the object, decides and acts, until nothing is left to do. An unreachable cluster, or an object that changed in between, only
// costs another round; the call's deadline ends the rounds.
func (r *Runner) drive(ctx context.Context, ref Ref, next func(Object) (Decision, error)) (map[string]any, error) {
	waiting, pause := "the cluster to answer", firstPause
	for ctx.Err() == nil {
		observed, err := r.cluster.Get(ctx, ref)
		// An absent object is nil for the decision, which knows whether that is an error.
		if err == nil || fault.Is(err, fault.NotFound) {
			var d Decision
			if d, err = next(observed); err != nil && !fault.Is(err, fault.Unavailable) {
				return nil, err
			}
			if err == nil && d.Action == Wait {
				waiting = d.Waiting
				r.cluster.AwaitChange(ctx, ref, observed.resourceVersion(), r.poll)
				continue
			}
			if err == nil {
				err = r.do(ctx, ref, d)
			}
			// A patch with a value ends the call; after one without, the object is read again.
			if err == nil && d.Value != nil {
				return d.Value, nil
			}
		}
		switch {
		case err == nil:
			pause = firstPause
			continue
		case fault.Is(err, fault.Unavailable):
			waiting = "the cluster to answer: " + err.Error()
		case fault.Is(err, fault.Conflict):
			waiting = "others to stop changing it: " + err.Error()
		default:
			return nil, err
		}
		_ = clock.Sleep(ctx, r.clock, pause) // the loop's condition checks ctx
		pause = min(2*pause, longestPause)
	}
	return nil, &Error{Code: CodeTimeout, Message: fmt.Sprintf("%s: waited until the deadline for %s", ref, waiting)}
}

// The pauses between attempts that the cluster refused.
const (
	firstPause   = 50 * time.Millisecond
	longestPause = 3 * time.Second
)

// do executes a decision.
func (r *Runner) do(ctx context.Context, ref Ref, d Decision) error {
	switch d.Action {
	case Create:
		return r.cluster.Create(ctx, ref, d.Body)
	case Patch:
		return r.cluster.Patch(ctx, ref, d.Body, d.Status)
	case Wait, Done:
	}
	return nil
}
