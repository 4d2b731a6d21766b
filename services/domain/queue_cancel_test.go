package domain

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/pkg/clock/clocktest"
	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/rollout"
)

// pending is what waits in the queue of the shop; the test ends without one.
func (s *shop) pending() core.QueuedRollout {
	s.t.Helper()
	all, err := s.view.WaitingRollouts(s.t.Context(), org, s.application.ID, 10)
	s.ok(err)
	if len(all) != 1 {
		s.t.Fatalf("%d rollouts wait; want one", len(all))
	}
	return all[0]
}

// left is the latest that has left the queue of the shop.
func (s *shop) left() core.QueuedRollout {
	s.t.Helper()
	all, err := s.view.LastQueuedRollouts(s.t.Context(), org, []int64{s.application.ID})
	s.ok(err)
	return all[s.application.ID]
}

// R4-05: who cancels a rollout while the drivers compare its manifests is heard, and named: it does not begin, what they compare is
// stopped, and what they answer later counts for nothing. Cancelling is idempotent.
func TestCancellingWhileTheDriversCompare(t *testing.T) {
	t.Parallel()
	w := comparing(t)
	w.people(3, 4)
	comparison := w.asks(rollout.NewRollout{VersionSetID: w.release(2).ID, Reason: "more of them"})
	w.handOver()
	q := w.pending()
	kind, why := q.WaitsFor(core.Rollout{})
	w.want(fmt.Sprint(kind, ": ", why, q.ComparesUntil != nil), "comparison: it waits for the drivers to compare its manifeststrue")

	viewer := person(4)
	viewer.Permissions = core.RoleViewer.Permissions()
	_, err := w.rollouts.CancelQueued(t.Context(), viewer, q.ID, "no")
	w.want(fault.ClassOf(err), fault.Denied)
	w.want(w.pending().ID, q.ID)

	ann := person(3)
	ann.Name = "Ann"
	for range 2 {
		ended, err := w.rollouts.CancelQueued(t.Context(), ann, q.ID, "wrong set")
		w.ok(err)
		w.want([]any{ended.State, ended.Outcome, ended.CancelledBy.ID}, []any{core.QueuedDropped, "cancelled by Ann: wrong set", int64(3)})
	}
	w.want(w.countOf(`SELECT count(*) FROM cd_handoffs WHERE kind = 'cancel' AND workflow_id = $1`, "preview-"+itoa(comparison)), 1)
	w.want(w.countOf(`SELECT count(*) FROM cd_changes WHERE action = 'cancelQueuedRollout' AND principal_id = 3 AND reason = 'wrong set'`), 1)
	w.lists(comparison, nothing())
	w.now.Advance(time.Hour)
	w.want(w.beginsQueued(), false)
	w.want(w.rolloutCount(), 1)
	last := w.left()
	w.want([]any{last.ID, last.Cancelled(), last.EndedAt != nil}, []any{q.ID, true, true})

	if _, err = w.rollouts.CancelQueued(t.Context(), ann, q.ID+1000, ""); !fault.Is(err, fault.NotFound) {
		t.Errorf("one that does not exist: found %v; want that it is not found", err)
	}
}

// R4-05: of a cancellation and the beginning of the same rollout, one happens: who is late reads that it has begun, and as what.
func TestCancellingAndBeginningAtOnce(t *testing.T) {
	t.Parallel()
	w := comparing(t)
	w.people(3)
	for n := range 6 {
		comparison := w.asks(rollout.NewRollout{VersionSetID: w.release(2 + n).ID})
		w.lists(comparison, nothing())
		q, before := w.pending(), w.rolloutCount()
		var both sync.WaitGroup
		var cancelled, begun error
		if n == 0 { // for certain
			_, _, begun = w.rollouts.BeginQueued(t.Context())
		} else {
			both.Go(func() { _, _, begun = w.rollouts.BeginQueued(t.Context()) })
		}
		both.Go(func() { _, cancelled = w.rollouts.CancelQueued(t.Context(), person(3), q.ID, "") })
		both.Wait()
		w.ok(begun)
		last := w.left()
		w.want(last.ID, q.ID)
		if cancelled == nil {
			w.want([]any{last.Cancelled(), w.rolloutCount()}, []any{true, before})
			continue
		}
		r := w.active()
		w.want([]any{fault.ClassOf(cancelled), fault.Public(cancelled)},
			[]any{fault.Refused, fmt.Sprintf("it waits no longer: it has begun as rollout_%d, which can be cancelled", r.ID)})
		w.want([]any{last.State, last.MadeRolloutID, w.rolloutCount()}, []any{core.QueuedStarted, r.ID, before + 1})
		w.succeed(r)
	}
}

// R4-03, R4-29: how a person's request leaves the queue is kept and announced: dropped at its turn, replaced, or cancelled.
func TestTheOutcomeOfAQueuedRolloutIsKept(t *testing.T) {
	t.Parallel()
	now := clocktest.New(clock.System().Now().UTC().Truncate(time.Second))
	w := winter{shopOf(setupAt(t, now)), now}
	p := w.posting()
	p.queueing()
	p.people(5, 6)
	p.channel("team", core.NotifySlack, bot, 0)
	p.route("queue", "team", `{"events":["rollout_dropped"]}`)
	r := w.rollout(w.set)
	second, third := w.release(2), w.release(3)
	ask := func(set core.VersionSet) core.QueuedRollout {
		t.Helper()
		made, err := w.rollouts.CreateRollout(t.Context(), person(5), rollout.NewRollout{VersionSetID: set.ID, Reason: "ticket 81"})
		w.ok(err)
		return *made.Queued
	}
	first := ask(second)
	_, why := w.pending().WaitsFor(r)
	w.want(why, fmt.Sprintf("it waits for the end of rollout_%d, which is pending", r.ID))
	queued := ask(third)
	if first.ID == queued.ID {
		t.Errorf("both have number %d; want another one, so that none cancels what it does not mean", first.ID)
	}
	w.want(w.left().Outcome, "another rollout was asked for meanwhile, and took its place in the queue")
	_, err := w.rollouts.CancelQueued(t.Context(), person(3), first.ID, "")
	w.want([]any{fault.ClassOf(err), strings.Contains(fault.Public(err), "took its place in the queue")}, []any{fault.Refused, true})
	p.later(time.Minute)
	p.has("a rollout of shop to "+second.Name+" does not begin", "took its place in the queue", "asked for: ticket 81")

	w.succeed(r)
	_, err = w.access.RemoveMember(t.Context(), user(), 5)
	w.ok(err)
	q, worked, err := w.rollouts.BeginQueued(t.Context())
	w.ok(err)
	w.want([]any{worked, q.Outcome != ""}, []any{true, true})
	last := w.left()
	w.want([]any{last.ID, last.State, last.Outcome, last.Cancelled()}, []any{queued.ID, core.QueuedDropped, q.Outcome, false})
	p.later(time.Minute)
	p.has("a rollout of shop to "+third.Name+" does not begin", "was removed from the organization")
	p.want(p.steps(), []string{"rollout_dropped", "rollout_dropped"})
	_, err = w.rollouts.CancelQueued(t.Context(), person(3), queued.ID, "")
	w.want(fault.ClassOf(err), fault.Refused)
}

// R4-01: what is asked for beside an active rollout is pending; once it may begin, it is planned, with the reason for its strategy;
// then it runs.
func TestARolloutIsPendingThenPlannedThenRunning(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	postal{winter: winter{shop: s}}.queueing()
	s.people(5)
	first := s.rollout(s.set)
	s.want(first.Status(), core.StatusPlanned)
	s.begin(first, 0)
	made, err := s.rollouts.CreateRollout(t.Context(), person(5), rollout.NewRollout{VersionSetID: s.release(2).ID})
	s.ok(err)
	s.want([]any{made.Rollout == nil, made.Queued.State}, []any{true, core.QueuedPending})
	s.succeed(first)

	q, began, err := s.rollouts.BeginQueued(t.Context())
	s.ok(err)
	s.want(began, true)
	second := s.reload(core.Rollout{ID: q.MadeRolloutID})
	s.want([]any{second.State, second.Status(), second.Plan.Why != ""}, []any{core.RolloutPending, core.StatusPlanned, true})
	s.begin(second, 0)
	s.want(s.reload(second).Status(), core.RolloutStatus("in_progress"))
	s.succeed(second)
	s.want(s.reload(second).Status(), core.RolloutStatus("completed"))
}

// Of what has left the queue of an application and did not begin, the latest are kept: requests that replace one another do not grow
// for ever.
func TestTheLatestThatLeftTheQueueAreKept(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	postal{winter: winter{shop: s}}.queueing()
	s.people(5)
	s.begin(s.rollout(s.set), 0)
	next := s.release(2)
	for range 55 {
		_, err := s.rollouts.CreateRollout(t.Context(), person(5), rollout.NewRollout{VersionSetID: next.ID})
		s.ok(err)
	}
	var dropped, pending int
	s.ok(s.pool.QueryRow(t.Context(), `SELECT count(*) FILTER (WHERE state = 'dropped'), count(*) FILTER (WHERE state = 'pending')
		FROM cd_queued_rollouts`).Scan(&dropped, &pending))
	s.want([]int{dropped, pending}, []int{50, 1})
}
