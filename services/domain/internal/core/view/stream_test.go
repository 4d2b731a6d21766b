package view

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
)

// journals are those of organizations: how many rows each has, which all belong to rollout 3 of application 5.
type journals struct {
	Reads
	mu    sync.Mutex
	rows  map[int64]int64
	reads int
}

func (j *journals) JournalHorizon(_ context.Context, organization int64) (core.Horizon, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return core.Horizon{Position: j.rows[organization]}, nil
}

func (j *journals) JournalBetween(_ context.Context, organization int64, r core.Range) (rows []core.JournalEntry, err error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.reads++
	for id := r.Above + 1; id < r.Below && id <= j.rows[organization] && len(rows) < r.Most; id++ {
		rows = append(rows, core.JournalEntry{RolloutID: 3, Transition: core.Transition{ID: id}})
	}
	return rows, nil
}

func (*journals) RolloutsByID(context.Context, int64, []int64) (map[int64]core.Rollout, error) {
	return map[int64]core.Rollout{3: {ID: 3, ApplicationID: 5}}, nil
}

func (*journals) ApplicationsByID(_ context.Context, organization int64, _ []int64) (map[int64]core.Application, error) {
	return map[int64]core.Application{5: {ID: 5, Name: fmt.Sprint(organization)}}, nil
}

func (j *journals) add(organization, rows int64) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.rows[organization] += rows
}

// Many followers of an organization cost as many reads as one, whatever position they begin at; each gets every row once, in order, and
// none of another organization (D65).
func TestFollowersShareWhatIsRead(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		reads := &journals{rows: map[int64]int64{1: 10, 2: 10}}
		u := New(Deps{Reads: reads, Clock: clock.System()})
		ctx, stop := context.WithCancel(t.Context())
		var following sync.WaitGroup
		defer func() { stop(); following.Wait() }()
		var mu sync.Mutex
		got := make([][]int64, 101)
		for i := range got {
			actor, after := core.Actor{Organization: 1, Permissions: core.PermissionsOf(core.MayRead)}, int64(i%3-1)
			if i == 100 {
				actor.Organization = 2
			}
			following.Go(func() {
				if err := u.Follow(ctx, actor, after, 0, func(f Followed) bool {
					mu.Lock()
					defer mu.Unlock()
					if f.Rollout.ID != f.RolloutID || f.Application.Name != fmt.Sprint(actor.Organization) {
						t.Errorf("follower %d: row %d belongs to %+v of %+v", i, f.ID, f.Rollout, f.Application)
					}
					got[i] = append(got[i], f.ID)
					return true
				}); err != nil {
					t.Error(err)
				}
			})
		}
		time.Sleep(5 * time.Second)
		reads.mu.Lock()
		reads.reads = 0
		reads.mu.Unlock()
		const more = 3*followPage + 7
		reads.add(1, more)
		time.Sleep(5 * time.Second)
		reads.mu.Lock()
		if reads.reads > 4 {
			t.Errorf("found %d reads for 100 followers, expected those of one, which are 4", reads.reads)
		}
		reads.mu.Unlock()
		mu.Lock()
		defer mu.Unlock()
		for i, rows := range got {
			first, last := int64(11), int64(10+more)
			if after := int64(i%3 - 1); after >= 0 {
				first = after + 1
			}
			if i == 100 {
				last = 10
			}
			var want []int64
			for id := first; id <= last; id++ {
				want = append(want, id)
			}
			if !slices.Equal(rows, want) {
				t.Errorf("follower %d found %d rows, expected %d to %d", i, len(rows), first, last)
			}
		}
	})
}
