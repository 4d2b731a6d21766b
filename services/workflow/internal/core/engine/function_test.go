package engine

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/activity"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/history"
)

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
