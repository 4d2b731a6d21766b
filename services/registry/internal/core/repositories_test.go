package core

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"golang.org/x/time/rate"

	"github.com/lockstep-cd/lockstep/pkg/clock/clocktest"
	"github.com/lockstep-cd/lockstep/pkg/fault"
)

// shelves are a queue of many sources.
type shelves struct {
	mu      sync.Mutex
	sources []Source
	due     []time.Time
	polled  [][]time.Time
	clock   *clocktest.Clock
}

func (s *shelves) ClaimSources(_ context.Context, now, until time.Time, most int) ([]Source, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var due []int
	for i := range s.sources {
		if !s.due[i].After(now) {
			due = append(due, i)
		}
	}
	slices.SortStableFunc(due, func(a, b int) int { return s.due[a].Compare(s.due[b]) })
	var claimed []Source
	for _, i := range due[:min(most, len(due))] {
		s.due[i] = until
		claimed = append(claimed, s.sources[i])
	}
	return claimed, nil
}

func (s *shelves) TakeSource(context.Context, int64, int64, time.Time) (Source, error) {
	return Source{}, fault.New(fault.NotFound, "nobody asks")
}

func (s *shelves) Postpone(_ context.Context, of Source, until time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.due[of.ID-1] = until
	return nil
}

func (s *shelves) SaveOutcome(_ context.Context, of Source, o Outcome) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.due[of.ID-1] = *o.Next
	s.polled[of.ID-1] = append(s.polled[of.ID-1], s.clock.Now())
	return nil
}

// R4-07, D58: 2,000 repositories of one installation are polled at their interval, and no host more often than its budget allows, also at
// the beginning, when all are due at once, and after a host was away.
func TestTwoThousandRepositoriesStayWithinTheBudgetOfTheirHosts(t *testing.T) {
	t.Parallel()
	const (
		repositories = 2000
		perSecond    = 10
		interval     = 5 * time.Minute
		lasts        = 30 * time.Minute
	)
	start := time.Date(2026, 3, 25, 10, 0, 0, 0, time.UTC)
	c := clocktest.New(start)
	s := &shelves{clock: c, polled: make([][]time.Time, repositories), due: make([]time.Time, repositories)}
	for i := range repositories {
		place := "git.example.com"
		if i%10 == 0 {
			place = "code.example.com"
		}
		s.sources = append(s.sources, Source{ID: int64(i + 1), Organization: 3, Ref: "test@1", Interval: interval, Place: place, Name: fmt.Sprint(i)})
		s.due[i] = start
	}
	var mu sync.Mutex
	budgets := map[string]*rate.Limiter{}
	away := findings{func() (Finding, error) {
		if at := c.Now().Sub(start); at > 10*time.Minute && at < 14*time.Minute {
			return Finding{}, fault.New(fault.Unavailable, "away")
		}
		return Finding{Found: &Notification{Image: "r.example.com/a", Tag: "1", Digest: someDigest}}, nil
	}}
	p := NewPoller(PollerDeps{
		Queue: s, Finders: map[string]Finder{"test@1": &away}, Clock: c, Log: slog.New(slog.DiscardHandler),
		Pace: func(place string, now time.Time) time.Duration {
			mu.Lock()
			defer mu.Unlock()
			if budgets[place] == nil {
				budgets[place] = rate.NewLimiter(perSecond, perSecond)
			}
			return budgets[place].ReserveN(now, 1).DelayFrom(now)
		},
		AskedOf: func(int64, int64, time.Time) time.Duration { return 0 }, AskedAt: func(int64, string, time.Time) time.Duration { return 0 },
	})
	for c.Now().Before(start.Add(lasts)) {
		for {
			n, err := settled(t, p, c.Now())
			if err != nil {
				t.Fatal(err)
			}
			if n == 0 {
				break
			}
		}
		c.Advance(pollIdle)
	}
	asked, longest := map[string]map[int64]int{}, time.Duration(0)
	for i, times := range s.polled {
		place := s.sources[i].Place
		if asked[place] == nil {
			asked[place] = map[int64]int{}
		}
		last := start
		for _, at := range append(times, c.Now()) {
			longest = max(longest, at.Sub(last))
			// Failures double the interval.
			if gap := at.Sub(last); gap > 2*interval+repositories/perSecond*time.Second {
				t.Fatalf("repository %d was not polled for %s", i, gap)
			}
			last = at
		}
		for _, at := range times {
			asked[place][at.Unix()]++
		}
	}
	for place, seconds := range asked {
		second, minute := 0, 0
		for at, n := range seconds {
			whole := 0
			for i := range int64(60) {
				whole += seconds[at+i]
			}
			second, minute = max(second, n), max(minute, whole)
			// A full bucket, and what comes into it meanwhile.
			if n > 2*perSecond || whole > 61*perSecond+perSecond {
				t.Fatalf("%s was asked %d times in a second and %d times in a minute; want at most %d and %d", place, n, whole, 2*perSecond, 62*perSecond)
			}
		}
		t.Logf("%s was asked %d times in a second and %d times in a minute at most, of a budget of %d a second", place, second, minute, perSecond)
	}
	t.Logf("no repository waited longer than %s for its next poll; its interval is %s, and one host was away for 4 minutes", longest, interval)
}
