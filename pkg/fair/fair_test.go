package fair_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/lockstep-cd/lockstep/pkg/fair"
)

func TestTenantsTakeTurns(t *testing.T) {
	t.Parallel()
	var q fair.Queue[string]
	for _, item := range []string{"a1", "a2", "a3", "a4"} {
		q.Push(1, item)
	}
	q.Push(2, "b1")
	q.Push(3, "c1")
	gone := q.Push(3, "c2")
	q.Push(3, "c3")
	q.Remove(gone)
	q.Remove(gone)
	if q.Len() != 7 || q.Tenants() != 3 || q.Of(1) != 4 || q.Of(9) != 0 {
		t.Errorf("%d items of %d tenants, %d of the first", q.Len(), q.Tenants(), q.Of(1))
	}
	var order []string
	for item, ok := q.Pop(); ok; item, ok = q.Pop() {
		if order = append(order, item); item == "b1" {
			q.Push(2, "b2") // who comes back is last
		}
	}
	if want := []string{"a1", "b1", "c1", "a2", "b2", "c3", "a3", "a4"}; !slices.Equal(order, want) {
		t.Errorf("served %v, expected %v", order, want)
	}
	if q.Len() != 0 || q.Tenants() != 0 {
		t.Errorf("%d items of %d tenants are left", q.Len(), q.Tenants())
	}
}

// served fills the slots, has the tenants wait in their order, and answers in which order they are served by one slot.
func served(t *testing.T, s *fair.Slots, tenants []int64) []int64 {
	t.Helper()
	if err := s.Acquire(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var order []int64
	var group sync.WaitGroup
	for _, tenant := range tenants {
		group.Go(func() {
			s.Enter(tenant)
			mu.Lock()
			order = append(order, tenant)
			mu.Unlock()
			s.Release()
		})
		synctest.Wait() // they come one after the other
	}
	s.Release()
	group.Wait()
	return order
}

func TestAQueueOfOneTenantIsNotAheadOfTheOthers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		tenants := append(slices.Repeat([]int64{1}, 1000), 2, 3, 2)
		order := served(t, fair.NewSlots(1), tenants)
		if len(order) != len(tenants) {
			t.Fatalf("served %d of %d", len(order), len(tenants))
		}
		if want := []int64{1, 2, 3, 1, 2}; !slices.Equal(order[:5], want) {
			t.Errorf("served %v first, expected %v", order[:5], want)
		}
	})
}

func TestWhoLeavesTheQueueKeepsNoSlot(t *testing.T) {
	t.Parallel()
	s := fair.NewSlots(1)
	if err := s.Acquire(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	var group sync.WaitGroup
	for range 100 {
		ctx, cancel := context.WithCancel(t.Context())
		group.Go(func() {
			if err := s.Acquire(ctx, 2); err == nil {
				s.Release()
			} else if !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
		})
		group.Go(cancel)
	}
	s.Release()
	group.Wait()
	if !s.TryAcquire() || s.TryAcquire() || s.Waiting() != 0 {
		t.Errorf("afterwards there is not exactly one slot; %d wait", s.Waiting())
	}
}

// R4-27: what is less urgent has one slot at most, of those that nobody else waits for, and leaves one free if there are several.
func TestTheLastStandBehindEverybodyElse(t *testing.T) {
	t.Parallel()
	for _, slots := range []int{1, 2, 3} {
		synctest.Test(t, func(t *testing.T) {
			s := fair.NewSlots(slots)
			for range slots {
				s.Enter(1)
			}
			var mu sync.Mutex
			var order []int64
			var group sync.WaitGroup
			last := func(tenant int64) {
				group.Go(func() {
					if err := s.AcquireLast(context.WithoutCancel(t.Context()), tenant); err != nil {
						t.Error(err)
						return
					}
					mu.Lock()
					order = append(order, tenant)
					mu.Unlock()
				})
				synctest.Wait()
			}
			for _, tenant := range []int64{1, 1, 2} {
				last(tenant)
			}
			group.Go(func() { s.Enter(3); mu.Lock(); order = append(order, 3); mu.Unlock() })
			synctest.Wait()
			s.Release() // to 3, who came last
			synctest.Wait()
			for range slots - 1 {
				s.Release()
			}
			synctest.Wait()
			want := map[int][]int64{1: {3}, 2: {3}, 3: {3, 1}}[slots]
			if !slices.Equal(order, want) {
				t.Fatalf("of %d slots: served %v, expected %v", slots, order, want)
			}
			s.Release() // that of 3: now one may be served, and one only
			synctest.Wait()
			if want = []int64{3, 1}; !slices.Equal(order, want) {
				t.Errorf("of %d slots: served %v, expected %v", slots, order, want)
			}
			s.ReleaseLast()
			synctest.Wait()
			s.ReleaseLast()
			synctest.Wait()
			s.ReleaseLast()
			group.Wait()
			if want = []int64{3, 1, 2, 1}; !slices.Equal(order, want) || s.Free() != slots || s.Waiting() != 0 {
				t.Errorf("of %d slots: served %v, expected %v; %d free", slots, order, want, s.Free())
			}
			ctx, cancel := context.WithCancel(t.Context())
			for range slots {
				s.Enter(1)
			}
			group.Go(func() {
				if err := s.AcquireLast(ctx, 1); !errors.Is(err, context.Canceled) {
					t.Error(err)
				}
			})
			synctest.Wait()
			cancel()
			group.Wait()
			if s.Waiting() != 0 {
				t.Errorf("%d wait after they have left", s.Waiting())
			}
		})
	}
}

func BenchmarkOneTenant(b *testing.B) {
	s := fair.NewSlots(1)
	for b.Loop() {
		if err := s.Acquire(b.Context(), 1); err != nil {
			b.Fatal(err)
		}
		s.Release()
	}
}
