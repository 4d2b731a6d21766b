package engine

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/activity"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/history"
)

// shared is slow with two calls of one organization at a time.
type shared struct{ slow }

func (*shared) Name() string { return "shared" }

func (*shared) Share() (string, int) { return "servers", 2 }

// also is another Function with the same share.
type also struct{ slow }

func (*also) Name() string { return "also" }

func (*also) Share() (string, int) { return "servers", 2 }

// away is a Function that is never there.
type away struct{ slow }

func (*away) Name() string { return "away" }

func (*away) Call(context.Context, activity.Call) (any, error) {
	return nil, &history.FunctionError{Code: history.CodeUnreachable, Message: "away", Retryable: true, After: time.Hour}
}

// slow is a Function that answers when it may, and notes for whom it was begun.
type slow struct {
	mu    sync.Mutex
	begun []int64
	may   chan struct{}
}

func (*slow) Name() string { return "slow" }

func (*slow) Location() activity.Location { return activity.InProcess }

func (*slow) Effect() activity.Effect { return activity.Reads }

func (s *slow) Call(_ context.Context, c activity.Call) (any, error) {
	s.mu.Lock()
	s.begun = append(s.begun, c.Organization)
	s.mu.Unlock()
	<-s.may
	return nil, nil //nolint:nilnil // it answers nothing
}

// One organization may have thousands of Functions to be carried out, which take all the places there are; another one's is next but one.
func TestOrganizationsTakeTurnsForFunctions(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := &slow{may: make(chan struct{})}
		functions, err := activity.NewFunctions(f)
		if err != nil {
			t.Fatal(err)
		}
		const places, queued = 3, 2000
		e := New(Deps{
			Functions: functions, Clock: clock.System(), Log: slog.New(slog.DiscardHandler),
			Settings: Settings{Activities: places, Live: 1},
		})
		var group sync.WaitGroup
		carryOut := func(organization int64) {
			group.Go(func() {
				call := activity.Call{Organization: organization, Function: "slow", Deadline: e.Clock.Now().Add(time.Hour)}
				if c, finished := e.carryOut(t.Context(), history.Op{Kind: history.KindRun, Name: "slow", Args: []byte("{}")}, call); !finished ||
					c.Error != nil {
					t.Errorf("organization %d: %+v, finished %t", organization, c, finished)
				}
			})
		}
		for range queued {
			carryOut(1)
		}
		synctest.Wait()
		carryOut(2)
		carryOut(2)
		synctest.Wait()
		for range 4 {
			f.may <- struct{}{}
			synctest.Wait()
		}
		if want := []int64{1, 1, 1, 1, 2, 1, 2}; !slices.Equal(f.begun, want) {
			t.Errorf("begun for %v, expected %v", f.begun, want)
		}
		close(f.may)
		group.Wait()
		if len(f.begun) != queued+2 {
			t.Errorf("%d were carried out", len(f.begun))
		}
	})
}

// Calls that wait for others of their own organization, or for the next attempt, take no place that another Function needs: however many
// servers never answer, the organization's other Functions are called, and so are those of others.
func TestACallThatWaitsTakesNoPlace(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		hangs, gone, f := &shared{slow{may: make(chan struct{})}}, &away{}, &slow{may: make(chan struct{})}
		functions, err := activity.NewFunctions(hangs, gone, f)
		if err != nil {
			t.Fatal(err)
		}
		e := New(Deps{
			Functions: functions, Clock: clock.System(), Log: slog.New(slog.DiscardHandler), Settings: Settings{Activities: 3, Live: 1},
		})
		ctx, cancel := context.WithCancel(t.Context())
		var group sync.WaitGroup
		call := func(organization int64, function string) {
			group.Go(func() {
				c := activity.Call{Organization: organization, Function: function, Deadline: e.Clock.Now().Add(24 * time.Hour)}
				op := history.Op{Kind: history.KindRun, Name: function, Args: []byte("{}")}
				e.carryOut(ctx, op, c)
			})
		}
		for range 10 {
			call(1, "shared")
			call(1, "away")
		}
		synctest.Wait()
		if want := []int64{1, 1}; !slices.Equal(hangs.begun, want) {
			t.Errorf("begun of the one that hangs: %v, expected %v", hangs.begun, want)
		}
		call(1, "slow")
		synctest.Wait()
		f.may <- struct{}{}
		synctest.Wait()
		call(2, "shared")
		synctest.Wait()
		if !slices.Equal(f.begun, []int64{1}) || !slices.Equal(hangs.begun, []int64{1, 1, 2}) {
			t.Errorf("begun of another Function: %v, and for another organization: %v", f.begun, hangs.begun)
		}
		cancel()
		close(hangs.may)
		group.Wait()
		if e.activities.Free() != 3 {
			t.Errorf("found %d free places at the end, expected 3", e.activities.Free())
		}
	})
}

// Timers of one length fire together, never early, and later by at most a 240th of their length; those of shorter ones at instants among
// which those of longer ones are (D48: a thousand checks once a minute).
func TestTimersOfOneLengthFireTogether(t *testing.T) {
	t.Parallel()
	begin := time.Date(2026, 3, 25, 10, 0, 0, 0, time.UTC)
	instants := map[time.Time]bool{}
	for i := range 1000 {
		at := begin.Add(time.Duration(i) * time.Millisecond)
		for _, after := range []time.Duration{0, time.Millisecond, time.Second, 5 * time.Second, 30 * time.Second, time.Minute, 24 * time.Hour} {
			asked := at.Add(after)
			late := together(asked, after).Sub(asked)
			if late < 0 || late > after/240 || late > mostSlack || after < 3*time.Second && late != 0 {
				t.Fatalf("after %s at %s: late by %s", after, asked, late)
			}
			if after == time.Minute {
				instants[together(asked, after)] = true
			}
		}
	}
	if len(instants) > 5 {
		t.Errorf("timers that were set within a second fire at %d instants, expected at most 5", len(instants))
	}
	if got := together(begin, -time.Second); !got.Equal(begin) {
		t.Errorf("a timer of the past: %s", got)
	}
}

// Functions with one share wait in one queue, in the order of their calls, and a call that has not begun before its deadline is not made:
// the error says so, and not that a server has not answered.
func TestFunctionsOfOneShareWaitInOrder(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		first, second := &shared{slow{may: make(chan struct{})}}, &also{slow{may: make(chan struct{})}}
		functions, err := activity.NewFunctions(first, second)
		if err != nil {
			t.Fatal(err)
		}
		e := New(Deps{
			Functions: functions, Clock: clock.System(), Log: slog.New(slog.DiscardHandler), Settings: Settings{Activities: 10, Live: 1},
		})
		var group sync.WaitGroup
		call := func(function string, within time.Duration, check func(history.Completion)) {
			group.Go(func() {
				c := activity.Call{Organization: 1, Function: function, Deadline: e.Clock.Now().Add(within)}
				answered, finished := e.carryOut(t.Context(), history.Op{Kind: history.KindRun, Name: function, Args: []byte("{}")}, c)
				if !finished {
					t.Errorf("%s is not finished", function)
				}
				check(answered)
			})
			synctest.Wait()
		}
		well := func(c history.Completion) {
			if c.Error != nil {
				t.Errorf("found %v", c.Error)
			}
		}
		late := func(c history.Completion) {
			if c.Error == nil || c.Error.Code != history.CodeTimeout || !strings.Contains(c.Error.Message, "was not called before its deadline") {
				t.Errorf("found %v, expected that it was not called", c.Error)
			}
		}
		call("shared", time.Hour, well)
		call("shared", time.Hour, well)
		call("also", time.Minute, late)
		call("also", time.Hour, well)
		call("shared", time.Hour, well)
		if e.Usage().QueuedFunctions != 3 || e.Usage().Functions != 2 {
			t.Errorf("found %+v, expected 3 that wait and 2 in progress", e.Usage())
		}
		time.Sleep(2 * time.Minute)
		first.may <- struct{}{}
		synctest.Wait()
		if len(first.begun) != 2 || len(second.begun) != 1 {
			t.Errorf("found %d and %d begun, expected 2 and 1", len(first.begun), len(second.begun))
		}
		close(first.may)
		close(second.may)
		group.Wait()
		if e.Usage().QueuedFunctions != 0 || e.Usage().Functions != 0 {
			t.Errorf("found %+v at the end", e.Usage())
		}
	})
}
