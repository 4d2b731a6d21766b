package workflow_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/pkg/testkit/wait"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/activity"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/batch"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/control"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/engine"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/execution"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/history"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/limit"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/script"
	batchstore "github.com/lockstep-cd/lockstep/services/workflow/internal/store/batches"
)

// A Function is called once where its run waits for a rate behind it, and in other branches (issue 18, point 8).
func TestAWaitForARateCallsNoFunctionAgain(t *testing.T) {
	t.Parallel()
	b := newBounded(t, script.New(script.Limits{}), 1, limit.Limits{EventsPerSecond: 4})
	b.checkEmit = func(history.Emit) *history.FunctionError { return nil }
	b.service.Rests = func(execution int64) engine.Rest { return b.running[0].Rests(execution) }
	var calls atomic.Int64
	b.runWith("one", b.store, func(context.Context, activity.Call) (any, error) {
		calls.Add(1)
		return 1, nil
	}, 2000)
	b.submit(1, "w", `
def branch(n):
    run("act", {"n": n}, retry = None)
    for i in range(2):
        run("emit", {"type": "org.shop.tick", "data": {"n": i}})
    run("act", {"n": n}, retry = None)
gather([spawn(branch, n) for n in range(3)])
run("act", {}, retry = None)
`)
	wait.For(t, "it says what it waits for", func() bool {
		w, why, err := b.service.Get(t.Context(), 1, "w")
		if err == nil && w.State.Ended() {
			t.Fatalf("it has ended as %d (%s) without a wait", w.State, w.Error)
		}
		return err == nil && len(why) > 0 && strings.Contains(why[len(why)-1], "more than its organization may in a second")
	})
	b.await(execution.Completed)
	if calls.Load() != 7 {
		t.Errorf("the Function was called %d times, expected 7", calls.Load())
	}
}

// Many runs of an organization that wait for a rate take no place of another organization's, and continue as soon as the limit is removed
// or they are cancelled (issue 18, point 8).
func TestAHogIsNotInTheWay(t *testing.T) {
	t.Parallel()
	b := newBounded(t, script.New(script.Limits{}), 1, limit.Limits{EventsPerSecond: 1})
	b.checkEmit = func(history.Emit) *history.FunctionError { return nil }
	b.runWith("one", b.store, acts, 2000)
	for n := range 25 {
		b.submit(1, fmt.Sprint("hog-", n), `
run("act", {})
for i in range(40):
    run("emit", {"type": "org.shop.tick", "data": {"n": i}})
run("act", {})
`)
	}
	emitted := func() int { return b.number(`SELECT count(*) FROM event WHERE type = 'org.shop.tick'`) }
	wait.For(t, "all have a debt", func() bool { return emitted() == 25*40 })
	began := clock.System().Now()
	b.submit(2, "other", `run("act", {})`)
	wait.For(t, "the other organization's run ends", func() bool {
		return b.number(`SELECT count(*) FROM execution WHERE organization = 2 AND ended_at IS NOT NULL`) == 1
	})
	if took := clock.System().Now().Sub(began); took > 5*time.Second {
		t.Errorf("it took %s", took)
	}
	if n := b.number(`SELECT count(*) FROM execution WHERE organization = 1 AND ended_at IS NOT NULL`); n != 0 {
		t.Errorf("%d runs have ended that owe 40 events at 1 a second", n)
	}
	if err := b.service.Cancel(t.Context(), 1, "hog-0", "enough"); err != nil {
		t.Fatal(err)
	}
	b.ended("hog-0")
	b.set(1, limit.Limits{})
	wait.For(t, "the others end without the limit", func() bool {
		return b.number(`SELECT count(*) FROM execution WHERE organization = 1 AND ended_at IS NOT NULL`) == 25
	})
}

// A run that ends leaves its debt to the runs that begin behind it: a program that starts itself again and again is no faster than the
// rate (issue 18, point 8).
func TestAProgramThatStartsItselfKeepsTheRate(t *testing.T) {
	t.Parallel()
	b := newBounded(t, script.New(script.Limits{}), 1, limit.Limits{StartsPerSecond: 2})
	b.runWith("one", b.store, acts, 2000)
	began := clock.System().Now()
	b.submit(1, "w", `
def main(n = 0):
    if n < 7:
        start_workflow("main.star", {"n": n + 1}, detached = True)
`)
	wait.For(t, "all have run", func() bool {
		return b.number(`SELECT count(*) FROM execution WHERE organization = 1 AND ended_at IS NOT NULL`) == 8
	})
	if took := clock.System().Now().Sub(began); took < 2*time.Second { // 7 at 2 a second, one at once, and nothing waits for the last
		t.Errorf("7 children in a row took %s at 2 a second", took)
	}
}

// The domain service's runs have children also where their organization has reached its limits (issue 18, point 8).
func TestChildrenOfRolloutsAreNotRefused(t *testing.T) {
	t.Parallel()
	b := newBounded(t, script.New(script.Limits{}), 1, limit.Limits{OpenRuns: 1, StorageBytes: 1})
	b.runWith("one", b.store, acts, 2000)
	for range 2 { // known at the next measurement
		if err := b.limiter.Refresh(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	b.submit(1, "rollout-7", `
def main(leaf = False):
    if not leaf:
        await_workflow(start_workflow("main.star", {"leaf": True}))
`)
	if w := b.ended("rollout-7"); w.State != execution.Completed {
		t.Errorf("it ended as %d: %s", w.State, w.Error)
	}
}

// A batch of retries comes to its end at a limit of starts: it does not begin anew with what it has done, and what begins no run takes
// nothing from the limit (issue 18, point 8).
func TestABatchOfRetriesEndsAtALimit(t *testing.T) {
	t.Parallel()
	b := newBounded(t, script.New(script.Limits{}), 1, limit.Limits{})
	b.runWith("one", b.store, acts, 2000)
	var all []string
	for n := range 8 {
		all = append(all, fmt.Sprint("w-", n))
		b.submit(1, all[n], `fail("no")`)
		b.ended(all[n])
	}
	b.submit(1, "runs", `sleep(3600)`)
	b.set(1, limit.Limits{StartsPerSecond: 4})
	log := slog.New(slog.DiscardHandler)
	operator := control.NewOperator(b.service, b.store, control.NewSubscriptions(b.store, b.clock, log))
	batches := batch.New(batch.Deps{Store: batchstore.New(b.store.Pool), Runs: operator, Clock: b.clock, Log: log})
	started, err := batches.Start(t.Context(), batch.Batch{
		Organization: 1, Action: batch.Retry, Reason: "again", StartedBy: "alice", Workflows: append([]string{"runs", "none"}, all...), Rate: 1000,
	})
	if err != nil {
		t.Fatal(err)
	}
	wait.For(t, "the batch has ended", func() bool {
		if err := batches.Round(t.Context()); err != nil {
			t.Fatal(err)
		}
		started, err = batches.Get(t.Context(), 1, started.ID)
		return err == nil && started.State != batch.Running
	})
	if started.Finished != 8 || started.Refused != 2 {
		t.Errorf("found %+v, expected that 8 were retried and 2 refused", started)
	}
	if n := b.number(`SELECT count(*) FROM execution WHERE attempt <> 2 AND workflow LIKE 'w-%'`); n != 0 {
		t.Errorf("%d runs were not retried once", n)
	}
}

// A run that works in a later generation does not say that it waits for storage; behind that generation it waits, and says so, until there
// is room (issue 18, point 8).
func TestOnlyWhatWaitsForStorageReportsIt(t *testing.T) {
	t.Parallel()
	b := newBounded(t, script.New(script.Limits{}), 1, limit.Limits{StorageBytes: 1 << 40})
	b.service.Full = func(organization int64) bool { return b.limiter.Full(limit.Program{Organization: organization}) }
	b.service.Rests = func(execution int64) engine.Rest { return b.running[0].Rests(execution) }
	works, goes := make(chan struct{}), make(chan struct{})
	b.runWith("one", b.store, func(context.Context, activity.Call) (any, error) {
		works <- struct{}{}
		<-goes
		return 1, nil
	}, 2000)
	b.submit(1, "w", `
def last():
    print("last")

def again():
    run("act", {})
    continue_with(last)

def main():
    continue_with(again)
`)
	<-works
	b.set(1, limit.Limits{StorageBytes: 1})
	reported := func() string {
		_, why, err := b.service.Get(t.Context(), 1, "w")
		if err != nil {
			t.Fatal(err)
		}
		return strings.Join(why, "; ")
	}
	if why := reported(); strings.Contains(why, "storage") {
		t.Errorf("while it works it says %q", why)
	}
	close(goes)
	wait.For(t, "it waits for storage", func() bool { return strings.Contains(reported(), "waits until the storage") })
	b.set(1, limit.Limits{})
	b.await(execution.Completed)
}
