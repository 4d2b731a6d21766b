package domain

import (
	"context"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/pkg/event"
	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/id"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/handoff"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/reconcile"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/rollout"
)

// remembers is a workflow service that was not restored: it has kept what its runs have reported and been granted.
type remembers struct {
	*shop

	runs     map[string]handoff.WorkflowRun
	reported []event.Event
	granted  map[string][]rollout.GrantedPassage
	branches []reconcile.Branch
}

func (k *remembers) WorkflowByID(_ context.Context, _ int64, id string) (handoff.WorkflowRun, error) {
	run, known := k.runs[id]
	if !known {
		return run, fault.New(fault.NotFound, "workflow %q does not exist", id)
	}
	return run, nil
}

func (k *remembers) ListWorkflows(
	context.Context, int64, handoff.WorkflowFilter, core.Page,
) (s core.Slice[handoff.WorkflowRun], err error) {
	for _, run := range k.runs {
		if run.FinishedAt == nil {
			s.Nodes = append(s.Nodes, run)
		}
	}
	return s, nil
}

func (k *remembers) Cancel(ctx context.Context, organization int64, id, reason string) error {
	run, now := k.runs[id], time.Now()
	run.State, run.FinishedAt = handoff.WorkflowCancelled, &now
	k.runs[id] = run
	return k.engine.Cancel(ctx, organization, id, reason)
}

// Reports answers two reports a page, so that there are several.
func (k *remembers) Reports(
	_ context.Context, _ int64, _ time.Time, workflow, after string,
) (all []reconcile.Report, next string, err error) {
	for _, e := range k.reported {
		if e.ID() > after && (workflow == "" || event.Extension(e, event.ExtensionCorrelation) == workflow) {
			all = append(all, reconcile.Report{
				ID: e.ID(), Source: e.Source(), Workflow: event.Extension(e, event.ExtensionCorrelation), Time: time.Now().Add(-time.Hour),
			})
		}
	}
	slices.SortFunc(all, func(a, b reconcile.Report) int { return strings.Compare(a.ID, b.ID) })
	if len(all) > 2 {
		return all[:2], all[1].ID, nil
	}
	return all, "", nil
}

func (k *remembers) RepeatReports(_ context.Context, _ int64, ids []string) error {
	for _, e := range k.reported {
		if slices.Contains(ids, e.ID()) {
			k.deliver(e)
		}
	}
	return nil
}

func (k *remembers) Passages(context.Context, int64, []string, time.Time) (map[string][]rollout.GrantedPassage, error) {
	return k.granted, nil
}

func (k *remembers) Commits(context.Context, int64, string) ([]reconcile.Branch, string, error) {
	return k.branches, "", nil
}

// publishes is an event of a run, which the workflow service keeps.
func (k *remembers) publishes(all ...event.Data) {
	k.t.Helper()
	for _, data := range all {
		e := k.emit(data, "")
		k.reported = append(k.reported, e)
		k.deliver(e)
	}
}

// later is a clock that is ahead: what was sent is no longer on its way.
type later struct{ clock.Clock }

func (l later) Now() time.Time { return l.Clock.Now().Add(time.Hour) }

// backup dumps the tables, and answers what restores them.
func (s *shop) backup() (restore func()) {
	s.t.Helper()
	for _, program := range []string{"pg_dump", "psql"} {
		if _, err := exec.LookPath(program); err != nil {
			s.t.Skipf("%s, which makes or reads a backup, is not installed", program)
		}
	}
	command := func(name string, args ...string) {
		s.t.Helper()
		if out, err := exec.CommandContext(s.t.Context(), name, args...).CombinedOutput(); err != nil {
			s.t.Fatalf("%s: %v: %.2000s", name, err, out)
		}
	}
	dump := filepath.Join(s.t.TempDir(), "dump.sql")
	command("pg_dump", "--schema="+s.db.Schema, "--file="+dump, s.db.URL)
	return func() {
		s.t.Helper()
		_, err := s.pool.Exec(s.t.Context(), "DROP SCHEMA "+pgx.Identifier{s.db.Schema}.Sanitize()+" CASCADE")
		s.ok(err)
		command("psql", "--quiet", "--set=ON_ERROR_STOP=1", "--file="+dump, s.db.URL)
		s.pool.Reset()
		s.service.pool.Reset() // plans of statements name tables that no longer exist
	}
}

// reconciled compares, and settles everything that can be, until nothing is left; it answers what was found, in the order of pages.
func (k *remembers) reconciled(u *reconcile.UseCases, since time.Time) (found []reconcile.Difference) {
	k.t.Helper()
	for after := ""; ; {
		p, err := u.Differences(k.t.Context(), user(), since, after)
		k.ok(err)
		for _, d := range p.Differences {
			if !slices.ContainsFunc(found, func(f reconcile.Difference) bool { return f.Kind == d.Kind && f.Subject == d.Subject }) {
				found = append(found, d)
			}
		}
		if after = p.Next; after == "" {
			break
		}
	}
	for _, d := range found {
		for _, want := range []bool{true, false} { // idempotent
			settled, err := u.Settle(k.t.Context(), user(), reconcile.Request{
				Since: since, Kind: d.Kind, Subject: d.Subject, Reason: "restored",
			})
			k.ok(err)
			if settled != want {
				k.t.Errorf("%s %s: settled %t, expected %t", d.Kind, d.Subject, settled, want)
			}
		}
	}
	return found
}

func kinds(all []reconcile.Difference) (found []string) {
	for _, d := range all {
		found = append(found, string(d.Kind)+" "+d.Subject)
	}
	return found
}

// D66: the database is restored to before a rollout was let into its first environment, while its run has come to its end, and to before
// another one was made. The first ends as it did; the second, which is not in the record, is cancelled; its commit is kept in the journal.
func TestARestoredRecordFollowsTheRunsThatAreAhead(t *testing.T) {
	long(t)
	t.Parallel()
	s := guarded(t)
	k := &remembers{shop: s, runs: map[string]handoff.WorkflowRun{}, granted: map[string][]rollout.GrantedPassage{}}
	u := reconcile.New(reconcile.Deps{
		Store: s.store.ForReconcile(), Engine: k, Rollouts: s.rollouts, Received: s.inbox.Received, Wake: func() {}, Clock: later{clock.System()},
	})
	since := time.Now().Add(-time.Minute)
	r := s.rollout(s.set)
	s.handOver()
	run := func(id string) {
		k.runs[id] = handoff.WorkflowRun{ID: id, State: handoff.WorkflowParked, CreatedAt: time.Now().Add(-time.Minute)}
	}
	run(id.RolloutRun(r.ID))
	if found := k.reconciled(u, since); len(found) > 0 {
		t.Fatalf("before the restore: %v", kinds(found))
	}
	restore := s.backup()

	for _, e := range s.stops(r) {
		name := map[int64]string{s.staging.ID: "staging", s.production.ID: "production"}[e.EnvironmentID]
		k.publishes(event.RolloutPassageRequested{RolloutID: r.ID, GateID: name, SkipsWeights: []int{25}})
		for gate, open := range s.gates(r) {
			for n := range open.Quorum {
				s.ok(s.approve(person(int64(90+n)), r, gate))
			}
		}
		k.granted[id.RolloutRun(r.ID)] = append(k.granted[id.RolloutRun(r.ID)], rollout.GrantedPassage{GateID: name})
		k.publishes(event.RolloutEnvironmentStarted{RolloutID: r.ID, EnvironmentID: e.EnvironmentID})
		for _, d := range s.deployments(e) {
			k.publishes(event.DeploymentStarted{DeploymentID: d.ID}, event.DeploymentHealthy{DeploymentID: d.ID})
		}
		k.publishes(event.RolloutEnvironmentHealthy{RolloutID: r.ID, EnvironmentID: e.EnvironmentID})
	}
	k.publishes(event.RolloutHealthy{RolloutID: r.ID})
	s.want(s.reload(r).State, core.RolloutCompleted)
	ended, now := k.runs[id.RolloutRun(r.ID)], time.Now()
	ended.State, ended.FinishedAt = handoff.WorkflowCompleted, &now
	k.runs[id.RolloutRun(r.ID)] = ended
	second := s.rollout(s.release(2))
	s.handOver()
	run(id.RolloutRun(second.ID))
	sha := strings.Repeat("a", 40)
	k.branches = []reconcile.Branch{{Repository: "https://git.test/shop", Name: "main", Commits: []reconcile.Commit{
		{SHA: sha, Trailers: map[string]string{"Lockstep-Rollout": itoa(second.ID)}},
		{SHA: strings.Repeat("b", 40), Trailers: map[string]string{"Lockstep-Rollout": "none"}},
		{SHA: strings.Repeat("c", 40), Trailers: map[string]string{"Lockstep-Activity": "x"}},
	}}}

	restore()
	s.want(s.reload(r).State, core.RolloutPending)
	before := len(s.engine.cancels)
	found := k.reconciled(u, since)
	s.want(kinds(found), []string{
		"record_behind rollout_" + itoa(r.ID), "run_unknown " + id.RolloutRun(second.ID), "commit_unknown " + sha,
	})
	s.want(s.reload(r).State, core.RolloutCompleted)
	s.want(s.engine.cancels[before:], []string{id.RolloutRun(second.ID)})
	if again := k.reconciled(u, since); len(again) > 0 {
		t.Errorf("after it was settled: %v", kinds(again))
	}
	check, err := s.rollouts.CheckJournal(t.Context(), user(), core.Page{First: 50})
	s.ok(err)
	for _, d := range check.Differences { // the approvals that were lost are named, and nothing else differs
		if !d.Breach || !strings.Contains(d.Problem, "was missing") {
			t.Errorf("journal: %+v", d)
		}
	}
	var rows int
	s.ok(s.pool.QueryRow(t.Context(), `SELECT count(*) FROM cd_changes WHERE action = 'reconcileRecord' AND reason = 'restored'`).Scan(&rows))
	s.want(rows, len(found))
}

// D66: the workflow service alone was restored. A run that it does not have is handed over again under its id, and what the record has
// granted is announced again; a run whose rollout is over is cancelled.
func TestARestoredEngineIsBroughtToTheRecord(t *testing.T) {
	t.Parallel()
	s := guarded(t)
	k := &remembers{shop: s, runs: map[string]handoff.WorkflowRun{}, granted: map[string][]rollout.GrantedPassage{}}
	u := reconcile.New(reconcile.Deps{
		Store: s.store.ForReconcile(), Engine: k, Rollouts: s.rollouts, Received: s.inbox.Received, Wake: func() {}, Clock: later{clock.System()},
	})
	since := time.Now().Add(-time.Minute)
	r := s.rollout(s.set)
	s.handOver()
	s.enter(r, "staging")
	s.want(s.granted(), []string{"staging"})
	started := len(s.engine.started)

	s.want(kinds(k.reconciled(u, since)), []string{"run_missing rollout_" + itoa(r.ID)})
	_, err := s.pool.Exec(t.Context(), `UPDATE cd_handoffs SET due_at = now() WHERE state = 'pending'`) // the clock of the dispatcher is behind
	s.ok(err)
	s.handOver()
	s.want(s.engine.started[started:][0].ID, id.RolloutRun(r.ID))

	k.runs[id.RolloutRun(r.ID)] = handoff.WorkflowRun{ID: id.RolloutRun(r.ID), State: handoff.WorkflowParked, CreatedAt: time.Now()}
	p, err := u.Differences(t.Context(), user(), since, "")
	s.ok(err)
	s.want(kinds(p.Differences), []string{"engine_behind rollout_" + itoa(r.ID)})
	settled, err := u.Settle(t.Context(), user(),
		reconcile.Request{Since: since, Kind: reconcile.EngineBehind, Subject: p.Differences[0].Subject})
	s.ok(err)
	s.want(settled, true)
	s.want(s.granted(), []string{"staging", "staging"})
	k.granted[id.RolloutRun(r.ID)] = []rollout.GrantedPassage{{GateID: "staging"}}

	_, err = s.rollouts.CancelRollout(t.Context(), user(), r.ID, "enough")
	s.ok(err)
	s.want(kinds(k.reconciled(u, since)), []string{"run_outlives " + id.RolloutRun(r.ID)})
}

// D66: only owners compare and settle, within the time for which events are kept, and only what is a difference.
func TestReconcilingIsForOwnersAndBounded(t *testing.T) {
	t.Parallel()
	s := guarded(t)
	k := &remembers{shop: s, runs: map[string]handoff.WorkflowRun{}}
	u := reconcile.New(reconcile.Deps{
		Store: s.store.ForReconcile(), Engine: k, Rollouts: s.rollouts, Received: s.inbox.Received, Wake: func() {}, Clock: clock.System(),
	})
	ctx, since := t.Context(), time.Now().Add(-time.Hour)
	maintainer := user()
	maintainer.Permissions = core.RoleMaintainer.Permissions()
	_, err := u.Differences(ctx, maintainer, since, "")
	s.want(fault.ClassOf(err), fault.Denied)
	_, err = u.Settle(ctx, maintainer, reconcile.Request{Since: since, Kind: reconcile.RunUnknown, Subject: "rollout-7"})
	s.want(fault.ClassOf(err), fault.Denied)
	for _, at := range []time.Time{time.Now().Add(time.Hour), time.Now().Add(-15 * 24 * time.Hour)} {
		_, err = u.Differences(ctx, user(), at, "")
		s.want(fault.ClassOf(err), fault.Invalid)
	}
	_, err = u.Differences(ctx, user(), since, "elsewhere:")
	s.want(fault.ClassOf(err), fault.Invalid)
	for _, bad := range []reconcile.Request{
		{Kind: "other", Subject: "x"}, {Kind: reconcile.RunMissing, Subject: "rollout-7"}, {Kind: reconcile.CommitUnknown, Subject: "main"},
	} {
		bad.Since = since
		_, err = u.Settle(ctx, user(), bad)
		s.want(fault.ClassOf(err), fault.Invalid)
	}
	_, err = u.Settle(ctx, user(), reconcile.Request{Since: since, Kind: reconcile.BranchUnread, Subject: "x"})
	s.want(fault.ClassOf(err), fault.Refused)
	// A run that belongs to a caller's own program is never touched.
	k.runs["nightly"] = handoff.WorkflowRun{ID: "nightly", State: handoff.WorkflowRunning}
	settled, err := u.Settle(ctx, user(), reconcile.Request{Since: since, Kind: reconcile.RunUnknown, Subject: "nightly"})
	s.ok(err)
	s.want(settled, false)
	s.want(len(s.engine.cancels), 0)
}
