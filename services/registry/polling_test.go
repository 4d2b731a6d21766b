package registry

import (
	"context"
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/clock/clocktest"
	"github.com/lockstep-cd/lockstep/services/registry/internal/core"
)

// crowd is a queue of many sources in memory, which also polls them: it counts the polls per second and host.
type crowd struct {
	clock *clocktest.Clock

	mu      sync.Mutex
	sources []core.Source
	due     []time.Time
	looked  []int
	// open is how many sources are claimed.
	open int
	// seconds counts the polls of each second by host, and overall those of all.
	seconds map[string]map[int64]int
	overall map[int64]int
}

func (c *crowd) ClaimSources(_ context.Context, now, until time.Time, most int) ([]core.Source, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var claimed []core.Source
	for i, at := range c.due {
		if len(claimed) < most && !at.After(now) {
			c.due[i] = until
			c.open++
			claimed = append(claimed, c.sources[i])
		}
	}
	return claimed, nil
}

func (c *crowd) TakeSource(context.Context, int64, int64, time.Time) (core.Source, error) {
	return core.Source{}, nil
}

func (c *crowd) Postpone(_ context.Context, s core.Source, until time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.due[s.ID] = until
	c.open--
	return nil
}

func (c *crowd) SaveOutcome(_ context.Context, s core.Source, o core.Outcome) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.due[s.ID] = *o.Next
	c.open--
	c.looked[s.ID]++
	return nil
}

// settle waits until everything that is due has been done, and the poller pauses.
func (c *crowd) settle() {
	for done := false; !done; runtime.Gosched() {
		c.clock.AwaitTimers(1)
		c.mu.Lock()
		done = c.open == 0 && !slices.ContainsFunc(c.due, func(at time.Time) bool { return !at.After(c.clock.Now()) })
		c.mu.Unlock()
	}
	c.clock.AwaitTimers(1)
}

func (c *crowd) Find(_ context.Context, s core.Source) (core.Finding, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	second := c.clock.Now().Unix()
	if c.seconds[s.Place] == nil {
		c.seconds[s.Place] = map[int64]int{}
	}
	c.seconds[s.Place][second]++
	c.overall[second]++
	return core.Finding{}, nil
}

// TestTenThousandSourcesWithoutBursts: sources that were all configured at the same time are polled by one process, each at its interval,
// no registry above its rate in any second, and all of them ever more evenly.
func TestTenThousandSourcesWithoutBursts(t *testing.T) { //nolint:paralleltest // it measures the memory of the process
	const (
		many     = 10_000
		places   = 20
		perPlace = 10
		interval = 10 * time.Minute
		rounds   = 3
	)
	start := time.Date(2026, 3, 25, 10, 0, 0, 0, time.UTC)
	c := &crowd{clock: clocktest.New(start), looked: make([]int, many), seconds: map[string]map[int64]int{}, overall: map[int64]int{}}
	for i := range many {
		c.sources = append(c.sources, core.Source{
			ID: int64(i), Organization: 1, Ref: "test@1", Place: fmt.Sprintf("r%d.example.com", i%places),
			Interval: interval,
		})
		c.due = append(c.due, start)
	}
	asked := newAsked(perPlace)
	poller := core.NewPoller(core.PollerDeps{
		Queue: c, Finders: map[string]core.Finder{"test@1": c}, Clock: c.clock, Log: slog.New(slog.DiscardHandler), Pace: newPace(perPlace),
		AskedOf: asked.of, AskedAt: asked.at,
	})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	var before runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	go func() { ended <- poller.Run(ctx) }()
	for range int(rounds * interval / time.Second) {
		c.settle()
		c.clock.Advance(time.Second)
	}
	c.settle()
	runtime.GC()
	var after runtime.MemStats
	runtime.ReadMemStats(&after)
	cancel()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}

	// A full token bucket of ten lets ten through at once, and ten more within the second; after that only its rate counts.
	for place, seconds := range c.seconds {
		for second, n := range seconds {
			if n > 2*perPlace {
				t.Errorf("%s was looked at %d times in second %d", place, n, second-start.Unix())
			}
		}
	}
	fewest, most := slices.Min(c.looked), slices.Max(c.looked)
	// Intervals are up to a quarter shorter than configured, and the first poll waits up to 50 seconds for its turn.
	if fewest < rounds-1 || most > rounds*4/3+1 {
		t.Errorf("in %d intervals a source was polled %d to %d times", rounds, fewest, most)
	}
	peak := func(from, to time.Duration) (n, busiest int) {
		for second := start.Add(from).Unix(); second < start.Add(to).Unix(); second++ {
			n += c.overall[second]
			busiest = max(busiest, c.overall[second])
		}
		return n, busiest
	}
	n1, peak1 := peak(0, interval*3/4)
	n3, peak3 := peak(2*interval, 3*interval)
	if peak1 > 2*places*perPlace || peak3 > peak1 {
		t.Errorf("the busiest second had %d polls at first and %d in the end", peak1, peak3)
	}
	held := int64(after.HeapAlloc) - int64(before.HeapAlloc)
	t.Logf("first %d looks, busiest second %d; last interval %d looks, mean %.1f a second, busiest %d; heap %+d KiB", n1, peak1,
		n3, float64(n3)/interval.Seconds(), peak3, held>>10)
	if held > 64<<20 {
		t.Errorf("%d sources hold %d MiB", many, held>>20)
	}
}
