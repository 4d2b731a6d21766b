package sandbox

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/clock"
)

// machineOf is a child in virtual time: it makes progress only while it is not stopped.
type machineOf struct {
	mu      sync.Mutex
	left    time.Duration
	since   time.Time
	stopped bool
	timer   *time.Timer
	done    chan struct{}
	yields  bool
}

func (m *machineOf) start() {
	m.since, m.done = time.Now(), make(chan struct{})
	m.timer = time.AfterFunc(m.left, func() { close(m.done) })
}

func (m *machineOf) pause() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.stopped = m.timer.Stop()
	m.left -= time.Since(m.since)
}

func (m *machineOf) yield(on bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.yields = on
}

func (m *machineOf) resume() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.stopped {
		m.stopped, m.since = false, time.Now()
		m.timer.Reset(m.left)
	}
}

// compute has an organization compute for a time, and answers how long it took.
func compute(c *cpu, organization int64, length time.Duration) time.Duration {
	m := &machineOf{left: length}
	began := time.Now()
	m.mu.Lock()
	m.start()
	m.timer.Stop()
	m.mu.Unlock()
	t := c.enter(organization, m)
	m.mu.Lock()
	m.since = time.Now()
	m.timer.Reset(m.left)
	m.mu.Unlock()
	<-m.done
	c.leave(t)
	return time.Since(began)
}

// TestHogsTakeNobodysTurn has organizations compute without end in all slots, and more of them than there are slots. One that computes for
// a moment now and then is as fast as if it were alone, but for a slice.
func TestHogsTakeNobodysTurn(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ slots, hogging, each int }{{1, 1, 2}, {2, 1, 40}, {2, 3, 10}, {4, 8, 4}} {
		t.Run(fmt.Sprintf("%d slots, %d organizations, %d hogs of each", tt.slots, tt.hogging, tt.each), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c := newCPU(tt.slots, max(1, tt.slots-1), clock.System())
				var group sync.WaitGroup
				hogged := make([][]time.Duration, tt.hogging)
				var mu sync.Mutex
				for o := range tt.hogging {
					for range tt.each {
						group.Go(func() {
							took := compute(c, int64(100+o), 2*time.Second)
							mu.Lock()
							hogged[o] = append(hogged[o], took)
							mu.Unlock()
						})
					}
				}
				const quick = 3 * time.Millisecond
				var took []time.Duration
				for range 10 {
					<-time.After(200 * time.Millisecond)
					took = append(took, compute(c, 1, quick))
				}
				group.Wait()
				<-time.After(2 * slice) // the last tick
				if worst := slices.Max(took); worst > quick+slice {
					t.Errorf("%s of computing took %v, expected at most a slice of %s more", quick, took, slice)
				}
				for o, all := range hogged {
					if len(all) != tt.each {
						t.Errorf("organization %d has had %d of %d programs", o, len(all), tt.each)
					}
				}
			})
		})
	}
}

// TestNoSlotIsEmptyWhileAnybodyWaits has one organization alone: it gets everything, and the whole takes no longer than the work.
func TestNoSlotIsEmptyWhileAnybodyWaits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCPU(2, 2, clock.System())
		began := time.Now()
		var group sync.WaitGroup
		for i := range 40 {
			group.Go(func() { compute(c, int64(i%3), time.Second) })
		}
		group.Wait()
		<-time.After(2 * slice) // the last tick
		if took := time.Since(began); took > 21*time.Second {
			t.Errorf("40 s of work in two slots took %s", took)
		}
		if len(c.running)+len(c.waiting) > 0 {
			t.Errorf("afterwards %d run and %d wait", len(c.running), len(c.waiting))
		}
	})
}

// TestHogsLeaveAProcessorFree has three organizations compute without end where two programs may: once they have computed a lot, they share
// one slot alike, and the other one is for organizations that compute little.
func TestHogsLeaveAProcessorFree(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCPU(2, 1, clock.System())
		began := time.Now()
		var group sync.WaitGroup
		ended := make([]time.Duration, 3)
		for o := range ended {
			group.Go(func() {
				compute(c, int64(100+o), 4*time.Second)
				ended[o] = time.Since(began)
			})
		}
		<-time.After(time.Second)
		for range 10 {
			<-time.After(200 * time.Millisecond)
			if took := compute(c, 1, 3*time.Millisecond); took != 3*time.Millisecond {
				t.Errorf("3 ms of computing took %s beside hogs, expected a free slot", took)
			}
		}
		group.Wait()
		<-time.After(2 * slice) // the last tick
		for o, after := range ended {
			if after < 11*time.Second || after > 12*time.Second {
				t.Errorf("hog %d ended after %s, expected about 12 s", o+1, after)
			}
		}
	})
}

// TestTwoHogsShareAlike has two organizations with as much to do in one slot: they end at about the same time, whatever the number of their
// programs.
func TestTwoHogsShareAlike(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCPU(1, 1, clock.System())
		began := time.Now()
		var group sync.WaitGroup
		ended := make([]time.Duration, 2)
		group.Go(func() { compute(c, 1, 4*time.Second); ended[0] = time.Since(began) })
		var many sync.WaitGroup
		for range 10 {
			many.Go(func() { compute(c, 2, 400*time.Millisecond) })
		}
		many.Wait()
		ended[1] = time.Since(began)
		group.Wait()
		<-time.After(2 * slice) // the last tick
		for organization, after := range ended {
			if after < 7*time.Second || after > 8*time.Second+credit {
				t.Errorf("organization %d ended after %s, expected about 8 s", organization+1, after)
			}
		}
	})
}

// TestWhoComputesALotYields has an organization compute in many short programs, none of which takes long by itself, beside one that
// computes a little now and then: the children of the first make room for everything else, soon and until it has been idle for a while,
// those of the other never do.
func TestWhoComputesALotYields(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCPU(2, 1, clock.System())
		turn := func(organization int64, length time.Duration) bool {
			m := &machineOf{left: length}
			m.start()
			task := c.enter(organization, m)
			<-m.done
			c.leave(task)
			m.mu.Lock()
			defer m.mu.Unlock()
			return m.yields
		}
		for i := range 20 {
			if got, want := turn(1, 30*time.Millisecond), i >= 3; got != want {
				t.Errorf("after %d short programs: yields %t, expected %t", i+1, got, want)
			}
			if turn(2, 500*time.Microsecond) {
				t.Errorf("an organization that computes little yields after %d programs", i+1)
			}
		}
		<-time.After(2 * thrift * patience)
		if turn(1, time.Millisecond) {
			t.Error("an organization that was idle still yields")
		}
	})
}
