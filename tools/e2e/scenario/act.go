package scenario

import (
	"context"
	"encoding/json"
	"strings"

	"github.com/lockstep-cd/lockstep/tools/lockstep/client"
)

// fields returns the names of the things that an act does.
func (a Act) fields() []string {
	var names []string
	add := func(set bool, name string) {
		if set {
			names = append(names, name)
		}
	}
	add(a.Setup != nil, "setup")
	add(a.Register != "", "register")
	add(a.Push != nil, "push")
	add(a.Chart != nil, "chart")
	add(a.Rollout != nil, "rollout")
	add(a.Start != nil, "start")
	add(a.Finish != nil, "finish")
	add(a.Apply != "", "apply")
	add(a.Kill != "", "kill")
	add(a.Restart != "", "restart")
	add(a.Freeze != "", "freeze")
	add(a.Thaw != "", "thaw")
	add(a.Synced != "", "synced")
	add(a.Delete != nil, "delete")
	add(a.Available != nil, "available")
	add(a.Present != nil, "present")
	add(a.Absent != nil, "absent")
	add(a.Commits != nil, "commits")
	add(a.Commit != nil, "commit")
	add(a.Syncing != "", "syncing")
	add(a.InPhase != "", "in_phase")
	add(a.Remember != "", "remember")
	add(a.Same != "", "same")
	add(a.Abort != "", "abort")
	add(a.Retry != "", "retry")
	add(a.Cancel != "", "cancel")
	add(a.Disconnect != "", "disconnect")
	add(a.Connect != "", "connect")
	add(a.Offline != "", "offline")
	add(a.Online != "", "online")
	add(a.Mark != nil, "mark")
	add(a.OnFailure != "", "on_failure")
	add(a.RollBackAfter != nil, "roll_back_after")
	add(a.RolledBack != nil, "rolled_back")
	add(a.Trigger != nil, "trigger")
	add(a.Begun != nil, "begun")
	add(a.Stays != nil, "stays")
	add(a.Jobs != nil, "jobs")
	add(a.Report != "", "report")
	add(a.Workflows != nil, "workflows")
	add(a.StopWorkflows != "", "stop_workflows")
	add(a.Preview != nil, "preview")
	add(a.Printed != nil, "printed")
	add(a.Metric != nil, "metric")
	add(a.Check != nil, "check")
	add(a.Passed != "", "passed")
	add(a.Decide != nil, "decide")
	return names
}

func (r *run) act(ctx context.Context, a Act) error {
	switch {
	case a.Setup != nil:
		return r.setup(ctx, *a.Setup)
	case a.Register != "":
		return r.register(ctx, a.Register)
	case a.Push != nil:
		return r.push(ctx, *a.Push)
	case a.Rollout != nil:
		return r.rollout(ctx, *a.Rollout)
	case a.Start != nil:
		return r.start(ctx, *a.Start)
	case a.Finish != nil:
		return r.finish(ctx, *a.Finish)
	case a.Abort != "":
		return r.abort(ctx, a.Abort)
	case a.Retry != "":
		_, err := r.world.API.RetryRollout(ctx, r.started.ID, a.Retry)
		return err
	case a.Cancel != "":
		_, err := r.world.API.CancelRollout(ctx, r.started.ID, a.Cancel)
		return err
	case a.RollBackAfter != nil:
		policy := client.RollbackPolicy{OnFailed: true, OnDegraded: true, DegradedAfterSeconds: *a.RollBackAfter}
		_, err := r.world.API.SetRollbackPolicy(ctx, r.scenario.Name, policy)
		return err
	case a.OnFailure != "":
		return r.onFailure(ctx, a.OnFailure)
	case a.RolledBack != nil:
		back := *a.RolledBack
		back.Rollback = true
		return r.begun(ctx, "the application to roll back by itself", back)
	case a.Begun != nil:
		return r.begun(ctx, "a trigger to begin a rollout", *a.Begun)
	case a.Trigger != nil:
		t := client.Trigger{Name: a.Trigger.Name, Kind: a.Trigger.Kind, Config: json.RawMessage(r.expand(ctx, a.Trigger.Config)), Enabled: true}
		_, err := r.world.API.PutTrigger(ctx, r.scenario.Name, t, "end-to-end test")
		return err
	case a.Stays != nil:
		return r.stays(ctx, *a.Stays)
	case a.Commit != nil:
		return r.commit(ctx, a.Commit)
	case a.Commits != nil:
		return r.commits(ctx, *a.Commits)
	default:
		return r.onCheck(ctx, a)
	}
}

// abort aborts the started rollout. What the cluster shows to be deployed, the domain service knows a moment later, and refuses an abort
// until then.
func (r *run) abort(ctx context.Context, reason string) error {
	ctx, cancel := context.WithTimeout(ctx, seenWithin)
	defer cancel()
	return r.world.Await(ctx, "the rollout to be aborted", func() (string, bool, error) {
		_, err := r.world.API.AbortRollout(ctx, r.started.ID, reason)
		if err != nil && strings.Contains(err.Error(), "nothing is being deployed") {
			return err.Error(), false, nil
		}
		return "", err == nil, err
	})
}

// onCheck executes acts about checks, and about charts.
func (r *run) onCheck(ctx context.Context, a Act) error {
	switch {
	case a.Chart != nil:
		return r.chart(ctx, *a.Chart)
	case a.Metric != nil:
		return r.metric(*a.Metric)
	case a.Check != nil:
		return r.check(ctx, *a.Check)
	case a.Passed != "":
		return r.passed(ctx, a.Passed)
	case a.Decide != nil:
		in := r.scenario.full(a.Decide.Environment)
		_, err := r.world.API.DecideCheck(ctx, r.started.ID, in, a.Decide.Key, a.Decide.Phase, "end-to-end test")
		return err
	default:
		return r.onWorkflows(ctx, a)
	}
}

// onWorkflows executes acts about Argo Workflows, and about what runs show.
func (r *run) onWorkflows(ctx context.Context, a Act) error {
	switch {
	case a.Jobs != nil:
		return r.jobs(ctx, *a.Jobs)
	case a.Report != "":
		return r.report(ctx, a.Report)
	case a.Workflows != nil:
		return r.workflows(ctx, *a.Workflows)
	case a.StopWorkflows != "":
		return r.stopWorkflows(ctx, a.StopWorkflows)
	case a.Preview != nil:
		return r.preview(ctx, *a.Preview)
	case a.Printed != nil:
		return r.printed(ctx, a.Printed)
	default:
		return r.onCluster(ctx, a)
	}
}

// onCluster executes acts on the cluster, or on a part of Lockstep.
func (r *run) onCluster(ctx context.Context, a Act) error {
	switch {
	case a.Apply != "":
		return r.Cluster.Apply(ctx, []byte(r.expand(ctx, a.Apply)))
	case a.Delete != nil:
		return r.remove(ctx, *a.Delete)
	case a.Available != nil:
		return r.available(ctx, *a.Available)
	case a.Present != nil:
		return r.present(ctx, *a.Present, true)
	case a.Absent != nil:
		return r.present(ctx, *a.Absent, false)
	case a.Kill != "":
		starts, err := r.Stack.Kill(a.Kill)
		if err != nil {
			return err
		}
		return r.Stack.AwaitRestart(ctx, a.Kill, starts)
	case a.Disconnect != "":
		r.away = append(r.away, a.Disconnect)
		return r.Stack.Disconnect(a.Disconnect)
	case a.Connect != "":
		return r.Stack.Connect(ctx, a.Connect)
	case a.Offline != "":
		return r.contact(ctx, a.Offline, false)
	case a.Online != "":
		return r.contact(ctx, a.Online, true)
	case a.Mark != nil:
		return r.mark(ctx, *a.Mark)
	case a.Restart != "":
		return r.Cluster.Restart(ctx, a.Restart)
	case a.Freeze != "":
		r.frozen = append(r.frozen, a.Freeze)
		return r.Cluster.Freeze(ctx, a.Freeze)
	case a.Thaw != "":
		return r.Cluster.Thaw(ctx, a.Thaw)
	case a.Synced != "":
		return r.synced(ctx, a.Synced)
	case a.Syncing != "":
		return r.syncing(ctx, a.Syncing)
	case a.InPhase != "":
		return r.inPhase(ctx, a.InPhase)
	case a.Remember != "":
		var err error
		r.pods, err = r.podsOf(ctx, a.Remember)
		return err
	default:
		return r.same(ctx, a.Same)
	}
}
