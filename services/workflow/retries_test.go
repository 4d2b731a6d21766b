package workflow_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/lockstep-cd/lockstep/pkg/outbox"
	"github.com/lockstep-cd/lockstep/pkg/testkit/bustest"
	"github.com/lockstep-cd/lockstep/pkg/testkit/pgtest"
	"github.com/lockstep-cd/lockstep/pkg/testkit/s3test"
	"github.com/lockstep-cd/lockstep/pkg/worker"
	autoflowv1 "github.com/lockstep-cd/lockstep/proto/lockstep/autoflow/v1"
	"github.com/lockstep-cd/lockstep/services/workflow"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/activity"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/control"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/execution"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/history"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/events"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/script"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/store"
)

// TestAttemptsOfAWorkerAreInTheTimeline: what failed, when and why, while the call is open, after its answer or its timeout, and in the
// archive once the run is deleted. Texts that look like secrets are hidden.
func TestAttemptsOfAWorkerAreInTheTimeline(t *testing.T) {
	t.Parallel()
	s := startWith(t, func(c *workflow.Config) {
		withWorkers(time.Minute)(c)
		c.Archive = s3test.Start(t, func(h http.Handler) http.Handler { return h })
	})
	s.archives()
	proceed, hang := make(chan struct{}), make(chan struct{})
	flaky := func(calls *atomic.Int32, last func(context.Context) (any, error)) func(context.Context, worker.Call) (any, error) {
		return func(ctx context.Context, _ worker.Call) (any, error) {
			if n := calls.Add(1); n < 3 {
				return nil, &worker.Error{Code: "busy", Message: fmt.Sprintf("call %d: token=hunter22hunter22", n), Retryable: true}
			}
			return last(ctx)
		}
	}
	var first, second atomic.Int32
	works(t, worker.Config{Conn: dial(t, s.config.GRPCAddress, workToken), Name: "a", Functions: []worker.Function{
		{Name: "shop.flaky", Effect: worker.Reads, Retry: true, Do: flaky(&first, func(ctx context.Context) (any, error) {
			select {
			case <-proceed:
				return "done", nil
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		})},
		{Name: "shop.late", Effect: worker.Reads, Retry: true, Do: flaky(&second, func(context.Context) (any, error) {
			<-hang
			return nil, nil
		})},
	}})
	s.registered("shop.late", 1)
	s.submit("calls", `
run("shop.flaky", retry = {"initial": 1, "backoff": 1})
run("shop.late", timeout = 5, on_error = "return", retry = {"initial": 1, "backoff": 1})
`, `{}`)
	s.eventually("two attempts have failed", func(context.Context) bool { return first.Load() == 3 })
	check := func(at string, count int32, retries []*autoflowv1.CallRetry) {
		t.Helper()
		if count != 2 || len(retries) != 2 {
			t.Fatalf("%s: found %d failed attempts: %v", at, count, retries)
		}
		for i, r := range retries {
			if int(r.GetNumber()) != i+1 || r.GetCode() != "busy" || !strings.HasPrefix(r.GetMessage(), fmt.Sprintf("call %d", i+1)) {
				t.Errorf("%s: found %v", at, r)
			}
			began, ended, next := r.GetBeganAt().AsTime(), r.GetEndedAt().AsTime(), r.GetNextAt().AsTime()
			if r.GetBeganAt() == nil || ended.Before(began) || next.Sub(ended) < time.Second {
				t.Errorf("%s: began %s, ended %s, next %s", at, began, ended, next)
			}
			if strings.Contains(r.String(), "hunter22") {
				t.Errorf("%s: found a secret", at)
			}
		}
	}
	last := func() *autoflowv1.TimelineStep {
		steps := timeline(t, s, &autoflowv1.GetTimelineRequest{WorkflowId: "calls"}).GetSteps()
		return steps[len(steps)-1]
	}
	open := last()
	if open.GetEndedAt() != nil {
		t.Fatalf("found %v", open)
	}
	check("the open call", open.GetRetriesCount(), open.GetRetries())
	close(proceed)
	s.await("calls", autoflowv1.WorkflowState_WORKFLOW_STATE_COMPLETED)
	close(hang)
	steps := timeline(t, s, &autoflowv1.GetTimelineRequest{WorkflowId: "calls"}).GetSteps()
	if steps[1].GetCode() != "timeout" {
		t.Errorf("found %v", steps[1])
	}
	check("the answered call", steps[0].GetRetriesCount(), steps[0].GetRetries())
	check("the call without an answer", steps[1].GetRetriesCount(), steps[1].GetRetries())
	kept, err := s.GetHistory(t.Context(), &autoflowv1.GetHistoryRequest{OrganizationId: organization, WorkflowId: "calls"})
	if err != nil {
		t.Fatal(err)
	}
	check("the history", kept.GetEntries()[0].GetRetriesCount(), kept.GetEntries()[0].GetRetries())
	s.aDayLater()
	s.gone("calls")
	stream, err := s.ExportWorkflow(t.Context(), &autoflowv1.ExportWorkflowRequest{
		OrganizationId: organization, WorkflowId: "calls", Archived: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	var entries []*autoflowv1.ExportedEntry
	for part, err := stream.Recv(); err == nil; part, err = stream.Recv() {
		if e := part.GetEntry(); e != nil {
			entries = append(entries, e)
		}
	}
	if len(entries) < 2 {
		t.Fatalf("found %v in the archive", entries)
	}
	check("the archive", entries[0].GetRetriesCount(), entries[0].GetRetries())
}

// TestAttemptsAreStoredWithTheirResult: a call that succeeds at the first attempt takes the same statements as before, one of many attempts
// no statement more and no row more, and of these the first and the last are kept. Until then who asks the process sees them.
func TestAttemptsAreStoredWithTheirResult(t *testing.T) {
	t.Parallel()
	turns := map[string]string{}
	for name, failures := range map[string]int{"none": 0, "two": 2, "many": 40} {
		e := newEngines(t)
		counted := &asked{times: map[string]int{}}
		e.count(counted)
		waiting, proceed := make(chan struct{}), make(chan struct{})
		e.run("one", e.store, func(_ context.Context, c activity.Call) (any, error) {
			if c.Attempt <= failures {
				return nil, &history.FunctionError{Code: "unreachable", Message: strings.Repeat("away ", 100), Retryable: true}
			}
			close(waiting)
			<-proceed
			return c.Attempt, nil
		})
		e.start(`run("act", {}, retry = {"initial": 0.001, "backoff": 1})`)
		<-waiting
		w, err := e.store.Get(t.Context(), 1, "w")
		if err != nil {
			t.Fatal(err)
		}
		loaded, err := e.store.LoadAny(t.Context(), w.ID)
		if err != nil {
			t.Fatal(err)
		}
		call := history.ActivityID(loaded.Ref, history.OpRef{})
		if so := e.running[0].Tries(call); so.Failed() != failures {
			t.Errorf("%s: found %d failed attempts of the open call", name, so.Failed())
		}
		close(proceed)
		e.await(execution.Completed)
		if e.running[0].Tries(call) != nil {
			t.Errorf("%s: the attempts are still in memory", name)
		}
		entries, err := e.store.History(t.Context(), w.ID, 0, 10)
		if err != nil || len(entries) != 2 {
			t.Fatal(entries, err)
		}
		counts := map[string]int{}
		for _, of := range []string{"HoldTurns", "EndTurns", "AppendMany", "AppendTried", "OpenCalls", "OpenTimers", "CloseMany", "DropMany"} {
			if n := counted.of(of + " :exec"); n > 0 {
				counts[of] = n
			}
		}
		if n := counts["AppendMany"] + counts["AppendTried"]; n == 0 || (failures == 0) != (counts["AppendTried"] == 0) {
			t.Errorf("%s: found the statements %v", name, counts)
		}
		counts["AppendMany"] += counts["AppendTried"]
		delete(counts, "AppendTried")
		turns[name] = fmt.Sprint(counts)
		tries := entries[0].Tries
		switch {
		case failures == 0:
			if tries != nil {
				t.Errorf("found %+v", tries)
			}
			continue
		case tries.Failed() != failures || len(tries.List) != min(failures, 23):
			t.Fatalf("%s: found %+v", name, tries)
		}
		for i, one := range tries.List {
			want := i + 1
			if failures > 23 && i >= 3 {
				want = failures - 22 + i
			}
			if one.Number != want || one.Code != "unreachable" || len(one.Message) > 250 || one.Began.IsZero() || one.Next.Before(one.Ended) {
				t.Errorf("%s: attempt %d is %+v", name, want, one)
			}
		}
	}
	if turns["two"] != turns["none"] || turns["many"] != turns["none"] {
		t.Errorf("turns with failed attempts take other statements: %v", turns)
	}
}

// batched counts statements that travel together, too.
type batched struct{ *asked }

func (b batched) TraceBatchStart(ctx context.Context, conn *pgx.Conn, data pgx.TraceBatchStartData) context.Context {
	for _, q := range data.Batch.QueuedQueries {
		_ = b.TraceQueryStart(ctx, conn, pgx.TraceQueryStartData{SQL: q.SQL})
	}
	return ctx
}

func (batched) TraceBatchQuery(context.Context, *pgx.Conn, pgx.TraceBatchQueryData) {}

func (batched) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData) {}

// count has the statements of processes that are started from now on counted.
func (e *engines) count(a *asked) {
	e.t.Helper()
	owned, _ := pgtest.New(e.t, pgtest.Migration{Name: "outbox", FS: outbox.Migrations()}, pgtest.Migration{Name: "workflow", FS: store.Migrations()})
	config := owned.Config()
	config.ConnConfig.Tracer = batched{a}
	pool, err := pgxpool.NewWithConfig(e.t.Context(), config)
	if err != nil {
		e.t.Fatal(err)
	}
	e.t.Cleanup(pool.Close)
	e.store = store.New(store.Deps{
		Pool: pool, Encode: events.Encode, Add: outbox.AddNumbered, AddNew: outbox.AddNew, Committed: func() {}, Woken: e.Wake,
		Clock: e.clock, Log: bustest.Log(e.t),
	})
	e.service = control.NewService(e.store, script.New(script.Limits{}), e.clock, e)
}
