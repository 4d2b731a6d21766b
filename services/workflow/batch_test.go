package workflow_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/testkit/bustest"
	autoflowv1 "github.com/lockstep-cd/lockstep/proto/lockstep/autoflow/v1"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/batch"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/control"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/execution"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/program"
	batchstore "github.com/lockstep-cd/lockstep/services/workflow/internal/store/batches"
)

// doomedRuns are the operations of a process that may die.
type doomedRuns struct {
	batch.Runs
	life *doomed
}

func (r doomedRuns) Cancel(ctx context.Context, organization int64, workflow, reason string) error {
	return r.life.do(func() error { return r.Runs.Cancel(ctx, organization, workflow, reason) })
}

// batches are one of several processes with batches.
func (tt *timetable) batches(life *doomed) *batch.Batches {
	operator := control.NewOperator(tt.service, tt.runs, control.NewSubscriptions(tt.runs, tt.clock, bustest.Log(tt.t)))
	return batch.New(batch.Deps{Store: batchstore.New(tt.pool), Runs: doomedRuns{operator, life}, Clock: tt.clock, Log: bustest.Log(tt.t)})
}

func (tt *timetable) run(organization int64, workflow, label string) {
	tt.t.Helper()
	if _, err := tt.service.Start(tt.t.Context(), execution.Start{
		Organization: organization, Workflow: workflow, Program: program.Program{Source: []byte("sleep(seconds = 60)")},
		Labels: map[string]string{"kind": label},
	}); err != nil {
		tt.t.Fatal(err)
	}
}

// TestABatchContinuesAfterACrash kills the process at the seventh run of a batch: another one ends it at its rate. Runs that were started
// later, do not meet the condition, or belong to another organization are left alone.
func TestABatchContinuesAfterACrash(t *testing.T) {
	t.Parallel()
	tt := newTimetable(t)
	const n = 25
	for i := range n {
		tt.run(organization, fmt.Sprintf("old-%d", i), "old")
		tt.run(organization, fmt.Sprintf("kept-%d", i), "kept")
	}
	tt.run(2, "old-1", "old")
	first, second := tt.batches(&doomed{at: 7}), tt.batches(&doomed{})
	b := batch.Batch{
		Organization: organization, Action: batch.Cancel, Rate: 10, Reason: "cleaned up", StartedBy: "alice",
		Filter: control.ListQuery{Organization: organization, Labels: map[string]string{"kind": "old"}},
	}
	p, err := first.Preview(t.Context(), b)
	if err != nil || p.Count != n || len(p.Sample) != 10 || p.AtLeast {
		t.Errorf("found %+v, error %v, expected %d runs", p, err, n)
	}
	if b, err = first.Start(t.Context(), b); err != nil {
		t.Fatal(err)
	}
	tt.run(organization, "old-later", "old")
	if err := first.Round(t.Context()); err == nil {
		t.Error("the process has not died")
	}
	if err := second.Round(t.Context()); err != nil { // nothing is due
		t.Fatal(err)
	}
	tt.clock.Advance(31 * time.Second)
	rounds := 0
	for ; rounds < 20; rounds++ {
		if err := second.Round(t.Context()); err != nil {
			t.Fatal(err)
		}
		if b, err = second.Get(t.Context(), organization, b.ID); err != nil {
			t.Fatal(err)
		}
		if b.State == batch.Done {
			break
		}
		tt.clock.Advance(time.Second)
	}
	if b.Finished != n || b.Refused != 0 || rounds != 2 || b.StartedBy != "alice" {
		t.Errorf("found %+v after %d rounds, expected %d cancelled in 3 rounds of 10", b, rounds+1, n)
	}
	cancelled := control.ListQuery{Organization: organization, States: []execution.State{execution.Cancelled}, Limit: 100}
	if list, _, err := tt.runs.List(t.Context(), cancelled); err != nil || len(list) != n {
		t.Errorf("%d runs are cancelled, error %v, expected %d", len(list), err, n)
	}
	cancelled.Organization = 2
	if list, _, err := tt.runs.List(t.Context(), cancelled); err != nil || len(list) != 0 {
		t.Errorf("%d runs of another organization are cancelled, error %v", len(list), err)
	}
}

// lameRuns cannot cancel one run.
type lameRuns struct {
	batch.Runs
	lame string
}

func (r lameRuns) Cancel(ctx context.Context, organization int64, workflow, reason string) error {
	if workflow == r.lame {
		return fault.New(fault.Unavailable, "no answer about %s", workflow)
	}
	return r.Runs.Cancel(ctx, organization, workflow, reason)
}

// TestABatchThatFailsDelaysNoOther: the batch of one organization fails again and again, and that of another is done in the same round.
func TestABatchThatFailsDelaysNoOther(t *testing.T) {
	t.Parallel()
	tt := newTimetable(t)
	tt.run(organization, "lame", "old")
	tt.run(2, "sound", "old")
	b := tt.batches(&doomed{})
	b.Runs = lameRuns{b.Runs, "lame"}
	numbers := map[int64]int64{}
	for _, o := range []struct {
		organization int64
		workflow     string
	}{{organization, "lame"}, {2, "sound"}} {
		started, err := b.Start(t.Context(), batch.Batch{
			Organization: o.organization, Action: batch.Cancel, Reason: "cleaned up", StartedBy: "alice", Workflows: []string{o.workflow},
		})
		if err != nil {
			t.Fatal(err)
		}
		numbers[o.organization] = started.ID
	}
	if err := b.Round(t.Context()); !fault.Is(err, fault.Unavailable) {
		t.Errorf("found %v, expected the failure to be reported", err)
	}
	for o, want := range map[int64]batch.State{organization: batch.Running, 2: batch.Done} {
		if found, err := b.Get(t.Context(), o, numbers[o]); err != nil || found.State != want {
			t.Errorf("organization %d: found %+v, error %v, expected it to be %s", o, found, err, want)
		}
	}
}

// TestBatchesEnd: those that have ended are forgotten after 30 days, and behind the last thousand. Those of others, and running ones, stay.
func TestBatchesEnd(t *testing.T) {
	t.Parallel()
	tt := newTimetable(t)
	b := tt.batches(&doomed{})
	_, err := tt.pool.Exec(t.Context(), `
		INSERT INTO batch (organization, action, state, filter, reason, started_by, rate, position, created_at, ended_at, next_at)
		SELECT o, 'cancel', CASE WHEN n = 1 THEN 'running' ELSE 'done' END, '{}', 'flood', 'mallory', 1, 0, $1,
			CASE WHEN n > 1 THEN $1::timestamptz - make_interval(days => CASE WHEN n > 1195 THEN 31 ELSE 0 END) END,
			CASE WHEN n = 1 THEN $1::timestamptz END
		FROM generate_series(1, 1200) AS n, unnest(ARRAY[$2::bigint, 2]) AS o ORDER BY n`, tt.clock.Now(), organization)
	if err != nil {
		t.Fatal(err)
	}
	_, err = b.Start(t.Context(), batch.Batch{
		Organization: organization, Action: batch.Cancel, Rate: 10, Reason: "one more", StartedBy: "alice",
		Filter: control.ListQuery{Organization: organization, Labels: map[string]string{"kind": "old"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	var ended, old, others int
	err = tt.pool.QueryRow(t.Context(), `SELECT count(*) FILTER (WHERE organization = $1 AND state = 'done'),
		count(*) FILTER (WHERE organization = $1 AND ended_at < created_at), count(*) FILTER (WHERE organization = 2) FROM batch`, organization).
		Scan(&ended, &old, &others)
	if err != nil || ended > 1000 || ended < 990 || old != 0 || others != 1200 {
		t.Errorf("%d ended batches are kept, %d of them for more than 30 days, %d of another organization; error %v", ended, old, others, err)
	}
}

// TestBatchesOverTheAPI covers refusals, ids, runs that do not allow the action, a stop, and what another organization sees.
func TestBatchesOverTheAPI(t *testing.T) {
	t.Parallel()
	s := start(t)
	s.submit("parked", "sleep(seconds = 3600)", "")
	s.submit("failed", `fail("no")`, "")
	s.await("failed", autoflowv1.WorkflowState_WORKFLOW_STATE_FAILED)
	filter := &autoflowv1.ListWorkflowsRequest{OrganizationId: organization}
	started, err := s.StartBatch(t.Context(), &autoflowv1.StartBatchRequest{
		Action: autoflowv1.BatchAction_BATCH_ACTION_RETRY, Filter: filter, WorkflowIds: []string{"parked", "failed", "none"},
	})
	if err != nil {
		t.Fatal(err)
	}
	var found *autoflowv1.Batch
	s.eventually("the batch has ended", func(ctx context.Context) bool {
		got, err := s.GetBatch(ctx, &autoflowv1.GetBatchRequest{OrganizationId: organization, Id: started.GetBatch().GetId()})
		if err != nil {
			t.Fatal(err)
		}
		found = got.GetBatch()
		return found.GetState() == autoflowv1.BatchState_BATCH_STATE_DONE
	})
	if found.GetDone() != 1 || found.GetRefused() != 2 || found.GetLastRefusal() == "" || found.GetFinishedAt() == nil {
		t.Errorf("found %v, expected one retry and two refusals", found)
	}
	if _, err := s.GetBatch(t.Context(), &autoflowv1.GetBatchRequest{OrganizationId: 2, Id: found.GetId()}); !fault.Is(err, fault.NotFound) {
		t.Errorf("another organization gets %v, expected nothing", err)
	}
	for field, bad := range map[string]*autoflowv1.StartBatchRequest{
		"filter":       {Action: autoflowv1.BatchAction_BATCH_ACTION_CANCEL},
		"action":       {WorkflowIds: []string{"a"}},
		"reason":       {Action: autoflowv1.BatchAction_BATCH_ACTION_TERMINATE, WorkflowIds: []string{"a"}},
		"rate":         {Action: autoflowv1.BatchAction_BATCH_ACTION_CANCEL, WorkflowIds: []string{"a"}, Rate: 1001},
		"workflow_ids": {Action: autoflowv1.BatchAction_BATCH_ACTION_CANCEL, WorkflowIds: []string{"a b"}},
	} {
		bad.Filter = filter
		_, err := s.StartBatch(t.Context(), bad)
		if fields := fault.FieldsOf(err); !fault.Is(err, fault.Invalid) || len(fields) != 1 || fields[0].Name != field {
			t.Errorf("%s: found %v, expected a refusal of it", field, err)
		}
	}
	list, err := s.ListBatches(t.Context(), &autoflowv1.ListBatchesRequest{OrganizationId: organization})
	if err != nil || len(list.GetBatches()) != 1 {
		t.Errorf("found %v, error %v, expected one batch", list, err)
	}
}

// doomedOperations are the operations of a process that may die at each of them, and doomedBatches its store of batches.
type doomedOperations struct {
	batch.Runs
	life *doomed
}

func (r doomedOperations) List(ctx context.Context, q control.ListQuery) (list []execution.Execution, rest int64, err error) {
	err = r.life.do(func() (err error) { list, rest, err = r.Runs.List(ctx, q); return err })
	return list, rest, err
}

func (r doomedOperations) Cancel(ctx context.Context, organization int64, workflow, reason string) error {
	return r.life.do(func() error { return r.Runs.Cancel(ctx, organization, workflow, reason) })
}

func (r doomedOperations) Terminate(ctx context.Context, organization int64, workflow, reason string) (v control.View, err error) {
	err = r.life.do(func() (err error) { v, err = r.Runs.Terminate(ctx, organization, workflow, reason); return err })
	return v, err
}

func (r doomedOperations) Retry(ctx context.Context, request control.RetryRequest) (v control.View, err error) {
	err = r.life.do(func() (err error) { v, err = r.Runs.Retry(ctx, request); return err })
	return v, err
}

func (r doomedOperations) Reset(ctx context.Context, request control.ResetRequest) (v control.View, created bool, err error) {
	err = r.life.do(func() (err error) { v, created, err = r.Runs.Reset(ctx, request); return err })
	return v, created, err
}

type doomedBatches struct {
	batch.Store
	life *doomed
}

func (s doomedBatches) TakeBatches(ctx context.Context, now, again time.Time, limit int) (due []batch.Batch, err error) {
	err = s.life.do(func() (err error) { due, err = s.Store.TakeBatches(ctx, now, again, limit); return err })
	return due, err
}

func (s doomedBatches) AdvanceBatch(ctx context.Context, b batch.Batch, p batch.Progress) error {
	return s.life.do(func() error { return s.Store.AdvanceBatch(ctx, b, p) })
}

// batchOnce starts a batch of three runs, which are done in two parts, in a process that dies as life says, and has another process end it.
func (tt *timetable) batchOnce(n int, action batch.Action, life *doomed) (b batch.Batch, label string) {
	tt.t.Helper()
	label = fmt.Sprintf("%s-%d", action, n)
	for i := range 3 {
		tt.run(organization, fmt.Sprintf("%s-%d", label, i), label)
	}
	if action == batch.Retry || action == batch.Reset { // which are for runs that have failed
		if _, err := tt.pool.Exec(tt.t.Context(), `WITH failed AS (
	UPDATE execution SET state = 'failed', ended_at = $2, owner = NULL, owner_epoch = NULL, last_seq = 1
	WHERE labels ->> 'kind' = $1 RETURNING id
), step AS (
	INSERT INTO entry (execution, seq, branch, op, kind, name, hash, value, recorded_at)
	SELECT id, 1, 0, 0, 'sleep', '', 0, 'null', $2 FROM failed
) DELETE FROM runnable USING failed WHERE execution = failed.id`, label, tt.clock.Now()); err != nil {
			tt.t.Fatal(err)
		}
	}
	sound, dies := tt.batches(&doomed{}), tt.batches(&doomed{})
	dies.Store, dies.Runs = doomedBatches{dies.Store, life}, doomedOperations{dies.Runs, life}
	b, err := sound.Start(tt.t.Context(), batch.Batch{
		Organization: organization, Action: action, Rate: 2, Reason: "cleaned up", StartedBy: "alice",
		Filter: control.ListQuery{Organization: organization, Labels: map[string]string{"kind": label}},
	})
	if err != nil || b.Total != 3 || b.AtLeast {
		tt.t.Fatalf("%s: started %+v, error %v, expected a batch of 3", label, b, err)
	}
	for range 20 {
		if b, err = sound.Get(tt.t.Context(), organization, b.ID); err != nil {
			tt.t.Fatal(err)
		}
		if b.State == batch.Done {
			return b, label
		}
		by := dies
		if life.dead {
			by = sound
			tt.clock.Advance(31 * time.Second) // the part that was taken comes again
		}
		if err := by.Round(tt.t.Context()); err != nil && !errors.Is(err, errKilled) {
			tt.t.Fatal(err)
		}
		tt.clock.Advance(time.Second)
	}
	tt.t.Fatalf("%s does not end: %+v", label, b)
	return b, label
}

// TestKilledAtEveryStepOfABatch kills a process before and after each step of a batch, for each action: taking the batch, reading a part of
// it, each run, and the note of progress. Another process ends it, and every run has been changed once (C22).
func TestKilledAtEveryStepOfABatch(t *testing.T) { // issue 18
	t.Parallel()
	for _, action := range []batch.Action{batch.Cancel, batch.Terminate, batch.Retry, batch.Reset} {
		t.Run(string(action), func(t *testing.T) {
			t.Parallel()
			tt := newTimetable(t)
			undisturbed := &doomed{}
			b, label := tt.batchOnce(0, action, undisturbed)
			tt.changedOnce(b, label, action)
			if undisturbed.n != 9 { // two parts, each of which is taken, read and noted, and three runs
				t.Errorf("found %d steps, expected 9", undisturbed.n)
			}
			n := 0
			for at := 1; at <= undisturbed.n; at++ {
				for _, applied := range []bool{false, true} {
					n++
					life := &doomed{at: at, applied: applied}
					b, label := tt.batchOnce(n, action, life)
					tt.changedOnce(b, label, action)
					if !life.dead && at < undisturbed.n {
						t.Errorf("the process was not killed at step %d", at)
					}
				}
			}
		})
	}
}

// changedOnce compares what a batch has led to.
func (tt *timetable) changedOnce(b batch.Batch, label string, action batch.Action) {
	tt.t.Helper()
	// A repeat finds a run that was retried running, and what was cancelled, terminated or reset as it was left.
	if b.Finished+b.Refused != 3 || b.Refused > 0 && action != batch.Retry || b.Total != 3 {
		tt.t.Errorf("%s: %d done and %d refused (%s) of %d", label, b.Finished, b.Refused, b.LastRefusal, b.Total)
	}
	counts := map[string]int{}
	rows, err := tt.pool.Query(tt.t.Context(), `SELECT state || ' ' || attempt, count(*) FROM execution WHERE labels ->> 'kind' = $1 GROUP BY 1`, label)
	if err != nil {
		tt.t.Fatal(err)
	}
	var what string
	var n int
	if _, err := pgx.ForEachRow(rows, []any{&what, &n}, func() error { counts[what] = n; return nil }); err != nil {
		tt.t.Fatal(err)
	}
	want := map[batch.Action]map[string]int{
		batch.Cancel: {"cancelled 1": 3}, batch.Terminate: {"terminated 1": 3}, batch.Retry: {"running 2": 3},
		batch.Reset: {"failed 1": 3, "running 1": 3},
	}[action]
	if diff := cmp.Diff(want, counts); diff != "" {
		tt.t.Errorf("%s (-want +got):\n%s", label, diff)
	}
}

// TestABatchResetsToAnEntry: many runs are reset to one entry; one whose history does not reach it is refused, and an entry is for
// resets only.
func TestABatchResetsToAnEntry(t *testing.T) { // issue 18
	t.Parallel()
	s := start(t)
	for id, source := range map[string]string{
		"a": "x = uuid()\ny = uuid()\nprint(x, y)\nfail(x)", "b": "x = uuid()\ny = uuid()\nprint(x, y)\nfail(x)", "short": "fail(\"at once\")",
	} {
		s.submit(id, source, "")
		s.await(id, autoflowv1.WorkflowState_WORKFLOW_STATE_FAILED)
	}
	filter := &autoflowv1.ListWorkflowsRequest{OrganizationId: organization}
	started, err := s.StartBatch(t.Context(), &autoflowv1.StartBatchRequest{
		Action: autoflowv1.BatchAction_BATCH_ACTION_RESET, Filter: filter, WorkflowIds: []string{"a", "b", "short"}, ToSequence: 2,
	})
	if err != nil || started.GetBatch().GetTotal() != 3 || started.GetBatch().GetToSequence() != 2 {
		t.Fatalf("started %v, error %v", started, err)
	}
	number := started.GetBatch().GetId()
	s.eventually("the batch has ended", func(ctx context.Context) bool {
		got, err := s.GetBatch(ctx, &autoflowv1.GetBatchRequest{OrganizationId: organization, Id: number})
		if err != nil {
			t.Fatal(err)
		}
		b := got.GetBatch()
		if b.GetState() != autoflowv1.BatchState_BATCH_STATE_DONE {
			return false
		}
		if b.GetDone() != 2 || b.GetRefused() != 1 || !strings.Contains(b.GetLastRefusal(), "short") ||
			b.GetAction() != autoflowv1.BatchAction_BATCH_ACTION_RESET {
			t.Errorf("found %v, expected two resets and a refusal", b)
		}
		return true
	})
	for _, id := range []string{"a", "b"} {
		again := fmt.Sprintf("%s.reset-%d", id, number)
		s.await(again, autoflowv1.WorkflowState_WORKFLOW_STATE_FAILED)
		was, is := strings.Fields(s.lines(id)[0]), strings.Fields(s.lines(again)[0])
		if was[0] != is[0] || was[1] == is[1] {
			t.Errorf("%s: printed %v, and %v before; expected the first value to be kept, and the second one not", again, is, was)
		}
	}
	for action, sequence := range map[autoflowv1.BatchAction]int64{
		autoflowv1.BatchAction_BATCH_ACTION_RETRY: 2, autoflowv1.BatchAction_BATCH_ACTION_RESET: -1,
	} {
		_, err := s.StartBatch(t.Context(), &autoflowv1.StartBatchRequest{
			Action: action, Filter: filter, WorkflowIds: []string{"a"}, ToSequence: sequence,
		})
		if fields := fault.FieldsOf(err); !fault.Is(err, fault.Invalid) || len(fields) != 1 || fields[0].Name != "to_sequence" {
			t.Errorf("%s to %d: %v", action, sequence, err)
		}
	}
}
