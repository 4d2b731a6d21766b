package gitfetch_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/gitfetch"
)

const mib = 1 << 20

// metric returns the value of a metric; with labels, that of the first label.
func metric(t *testing.T, b *gitfetch.Budget, name string) float64 {
	t.Helper()
	r := prometheus.NewRegistry()
	r.MustRegister(b.Metrics()...)
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == name {
			sum := 0.0
			for _, m := range f.GetMetric() {
				sum += m.GetCounter().GetValue() + m.GetGauge().GetValue()
			}
			return sum
		}
	}
	t.Fatalf("no metric %s", name)
	return 0
}

// TestAFetchThatNeedsMoreBeginsAgainWithALargeShare, and is refused if that is too small as well. No memory stays in use.
func TestAFetchThatNeedsMoreBeginsAgainWithALargeShare(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name     string
		need     int64
		attempts int
		refused  bool
	}{
		{"little", 3 * mib, 1, false},
		{"more", 60 * mib, 2, false},
		{"too much", 65 * mib, 2, true},
		{"a size that cannot be", -1, 2, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			b := gitfetch.NewBudget(gitfetch.Limits{})
			attempts := 0
			err := b.Do(t.Context(), 1, func(_ context.Context, s *gitfetch.Share) error {
				attempts++
				if err := s.Use(tt.need); err != nil {
					return errors.New("what a library makes of it") // it does not always wrap
				}
				return nil
			})
			limit, refused := errors.AsType[*gitfetch.LimitError](err)
			if attempts != tt.attempts || refused != tt.refused || (err != nil) != tt.refused {
				t.Errorf("found %d attempts and %v, expected %d, refused %v", attempts, err, tt.attempts, tt.refused)
			}
			if refused && (limit.Limit != "memory" || !strings.Contains(limit.Error(), "git_limits.memory_bytes")) {
				t.Errorf("found %q, expected the limit to be named", limit)
			}
			if n := metric(t, b, "lockstep_git_memory_bytes"); n != 0 {
				t.Errorf("%v bytes are in use at the end", n)
			}
			if n := metric(t, b, "lockstep_git_refusals_total"); (n == 1) != tt.refused {
				t.Errorf("%v refusals were counted", n)
			}
		})
	}
}

// TestTheBudgetHolds: however many organizations fetch large repositories at once, they never exceed the budget, all of them finish, and
// none waits for all fetches of another.
func TestTheBudgetHolds(t *testing.T) {
	t.Parallel()
	b := gitfetch.NewBudget(gitfetch.Limits{MemoryBytes: 64 * mib})
	var inUse atomic.Int64
	var mu sync.Mutex
	var most int64
	fetch := func(organization, need int64) error {
		return b.Do(t.Context(), organization, func(_ context.Context, s *gitfetch.Share) error {
			if err := s.Use(need); err != nil {
				return err
			}
			now := inUse.Add(need)
			defer inUse.Add(-need)
			mu.Lock()
			most = max(most, now)
			mu.Unlock()
			return nil
		})
	}
	var wg sync.WaitGroup
	for organization := range int64(20) {
		for i := range 10 {
			wg.Go(func() {
				need := int64(512 << 10)
				if i%2 == 0 {
					need = 15 * mib
				}
				if err := fetch(organization, need); err != nil {
					t.Error(err)
				}
			})
		}
	}
	wg.Wait()
	if most > 64*mib || most < 15*mib {
		t.Errorf("found %d bytes in use at once, expected 15 to 64 MiB", most)
	}
}

// TestAnOrganizationLeavesRoom: an organization whose servers never answer does not keep others from fetching small or large repositories.
func TestAnOrganizationLeavesRoom(t *testing.T) {
	t.Parallel()
	b := gitfetch.NewBudget(gitfetch.Limits{})
	ctx, cancel := context.WithCancel(t.Context())
	var holding sync.WaitGroup
	var reached atomic.Int32
	full := make(chan struct{})
	for i := range 100 {
		holding.Go(func() {
			err := b.Do(ctx, 1, func(ctx context.Context, s *gitfetch.Share) error {
				if i < 50 {
					if err := s.Use(20 * mib); err != nil {
						return err
					}
				}
				if reached.Add(1) == 25 { // 24 small shares and a large one
					close(full)
				}
				<-ctx.Done()
				return ctx.Err()
			})
			if err == nil {
				t.Error("a fetch without an end has ended")
			}
		})
	}
	<-full
	for _, need := range []int64{mib, 20 * mib} {
		if err := b.Do(t.Context(), 2, func(_ context.Context, s *gitfetch.Share) error { return s.Use(need) }); err != nil {
			t.Errorf("%d bytes: %v", need, err)
		}
	}
	cancel()
	holding.Wait()
	if err := b.Do(t.Context(), 1, func(_ context.Context, s *gitfetch.Share) error { return s.Use(60 * mib) }); err != nil {
		t.Errorf("afterwards: %v", err)
	}
}

// TestAWaiterThatGivesUpHoldsNothing, also one that waits beyond its organization's own slots.
func TestAWaiterThatGivesUpHoldsNothing(t *testing.T) {
	t.Parallel()
	b := gitfetch.NewBudget(gitfetch.Limits{})
	large := func(ctx context.Context, organization int64, f func() error) error {
		return b.Do(ctx, organization, func(_ context.Context, s *gitfetch.Share) error {
			if err := s.Use(20 * mib); err != nil {
				return err
			}
			return f()
		})
	}
	err := large(t.Context(), 1, func() error {
		return large(t.Context(), 2, func() error {
			for organization := range int64(3) {
				ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
				err := large(ctx, organization+1, func() error { return nil })
				cancel()
				if !fault.Is(err, fault.Unavailable) || !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("organization %d: found %v, expected that it waited without success", organization+1, err)
				}
			}
			return nil
		})
	})
	if err != nil {
		t.Fatal(err)
	}
	for organization := range int64(3) {
		if err := large(t.Context(), organization+1, func() error { return nil }); err != nil {
			t.Errorf("organization %d afterwards: %v", organization+1, err)
		}
	}
}

func TestImpossibleLimitsAreRefused(t *testing.T) {
	t.Parallel()
	if wrong := (gitfetch.Limits{}).Check("git_limits"); len(wrong) > 0 {
		t.Errorf("the zero value is the defaults, found %v", wrong)
	}
	wrong := gitfetch.Limits{MemoryBytes: 1, TransferBytes: -1, InflatedBytes: 5, Objects: -5}.Check("git_limits")
	if len(wrong) != 4 || wrong[0].Name != "git_limits.memory_bytes" || wrong[0].Problem != "found 1, expected at least 67108864" {
		t.Errorf("found %v, expected all four named", wrong)
	}
}
