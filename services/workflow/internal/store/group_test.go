package store

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/engine"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/history"
)

// together has a group commit items at the same time: the first holds the group up until all others wait.
func together(t *testing.T, n int, commit func(items []*int) error) []error {
	t.Helper()
	held, release := make(chan struct{}), make(chan struct{})
	first := true
	g := &group[int]{commit: func(_ context.Context, items []*int) error {
		if first {
			first = false
			close(held)
			<-release
			return nil
		}
		return commit(items)
	}}
	errs := make([]error, n)
	var callers sync.WaitGroup
	callers.Go(func() { _ = g.do(t.Context(), new(int)) })
	<-held
	for i := range n {
		callers.Go(func() { errs[i] = g.do(t.Context(), &i) })
	}
	for waiting := 0; waiting < n; {
		g.mu.Lock()
		waiting = len(g.waiting)
		g.mu.Unlock()
	}
	close(release)
	callers.Wait()
	return errs
}

func TestAGroupCommitsTogether(t *testing.T) {
	t.Parallel()
	sizes := []int{}
	for i, err := range together(t, 5, func(items []*int) error { sizes = append(sizes, len(items)); return nil }) {
		if err != nil {
			t.Errorf("item %d: %v", i, err)
		}
	}
	same(t, "transactions", []int{5}, sizes)
}

func TestOneThatIsRefusedDoesNotHarmTheOthers(t *testing.T) {
	t.Parallel()
	refusal := fault.New(fault.Invalid, "three is refused")
	errs := together(t, 5, func(items []*int) error {
		for _, item := range items {
			if *item == 3 {
				return refusal
			}
		}
		return nil
	})
	same(t, "refused", []bool{false, false, false, true, false},
		[]bool{errs[0] != nil, errs[1] != nil, errs[2] != nil, errors.Is(errs[3], refusal), errs[4] != nil})
}

// A commit whose answer was lost may have been applied. It is not repeated: each caller continues from what is stored.
func TestACommitOfUnknownOutcomeIsNotRepeated(t *testing.T) {
	t.Parallel()
	commits := 0
	for i, err := range together(t, 4, func([]*int) error { commits++; return fault.New(fault.Unavailable, "the connection broke") }) {
		if !fault.Is(err, fault.Unavailable) {
			t.Errorf("item %d: %v", i, err)
		}
	}
	same(t, "commits", 1, commits)
}

func TestACallerThatGoesAwayLeavesTheCommitAlone(t *testing.T) {
	t.Parallel()
	begun, release, done := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	g := &group[int]{commit: func(ctx context.Context, _ []*int) error {
		close(begun)
		<-release
		done <- ctx.Err()
		return nil
	}}
	ctx, cancel := context.WithCancel(t.Context())
	left := make(chan error, 1)
	go func() { left <- g.do(ctx, new(int)) }()
	<-begun
	cancel()
	if err := <-left; !fault.Is(err, fault.Unavailable) {
		t.Errorf("the caller got %v", err)
	}
	close(release)
	if err := <-done; err != nil {
		t.Errorf("the commit was cancelled: %v", err)
	}
}

// TestAFencedTurnIsLeftOutOfItsTransaction commits a former owner's turn with two good ones.
func TestAFencedTurnIsLeftOutOfItsTransaction(t *testing.T) {
	t.Parallel()
	b := newTestStore(t)
	var items []*item
	var loaded []engine.Loaded
	for i := range 3 {
		l := b.startRun(1)
		c := b.parking(l)
		c.LastSeq = 1
		c.Entries = []history.Entry{b.entry(1, history.OpRef{}, history.KindNow, "1")}
		if i == 1 {
			c.Lease.Epoch--
		}
		loaded, items = append(loaded, l), append(items, &item{commit: &commit{Commit: c}})
	}
	if err := b.commitAll(t.Context(), items); err != nil {
		t.Fatal(err)
	}
	for i, want := range []bool{false, true, false} {
		if got := items[i].commit.fenced; got != want {
			t.Errorf("turn %d fenced: %t", i, got)
		}
		entries, err := b.History(t.Context(), loaded[i].ID, 0, 10)
		if err != nil || (len(entries) == 0) != want {
			t.Errorf("turn %d has left %d entries, error %v", i, len(entries), err)
		}
	}
}

// Many starts of one id, with different inputs, in one transaction or in several, make one run (E19, D5).
func TestManyStartsOfOneID(t *testing.T) {
	t.Parallel()
	b := newTestStore(t)
	n := b.start(1)
	var mu sync.Mutex
	refs, created := map[string]int{}, 0
	var starts sync.WaitGroup
	for i := range 40 {
		mine := n
		mine.Ref, mine.At = n.Ref+"-"+string(rune('a'+i)), n.At.Add(time.Duration(i))
		starts.Go(func() {
			c, err := b.Create(t.Context(), mine)
			if err != nil {
				t.Error(err)
			}
			mu.Lock()
			defer mu.Unlock()
			if refs[c.Ref]++; c.Created {
				created++
			}
		})
	}
	starts.Wait()
	if len(refs) != 1 || created != 1 {
		t.Errorf("%d were created, handles %v", created, refs)
	}
}

// What one organization has queued beyond a transaction is not in front of what another has.
func TestOrganizationsTakeTurnsForATransaction(t *testing.T) {
	t.Parallel()
	g := &group[int]{most: 4, tenants: new(tenants), tenant: func(item *int) int64 { return int64(*item / 100) }}
	for _, item := range []int{101, 102, 103, 104, 105, 106, 201, 301, 202} {
		g.waiting = append(g.waiting, &member[int]{item: &item})
	}
	var taken [][]int
	for len(g.waiting) > 0 {
		var items []int
		for _, m := range g.take() {
			items = append(items, *m.item)
		}
		taken = append(taken, items)
	}
	same(t, "transactions", [][]int{{101, 102, 201, 301}, {103, 104, 105, 202}, {106}}, taken)
}

// Transactions of one organization are long. They are short for a while after another organization has an item, in whichever group.
func TestTransactionsAreShortForSeveralOrganizations(t *testing.T) {
	t.Parallel()
	shared := new(tenants)
	organization := func(item *int) int64 { return int64(*item) }
	busy, quiet := &group[int]{tenants: shared, tenant: organization}, &group[int]{tenants: shared, tenant: organization}
	next := func(g *group[int], organization, n int) int {
		g.waiting = nil
		for range n {
			g.waiting = append(g.waiting, &member[int]{item: &organization})
		}
		return len(g.take())
	}
	sizes := []int{next(busy, 1, 1000), next(quiet, 2, 1), next(busy, 1, 1000)}
	same(t, "transactions", []int{groupMost, 1, groupShared}, sizes)
	for range tenantsLately {
		next(busy, 1, 1000)
	}
	same(t, "when the other one has gone", groupMost, next(busy, 1, 1000))
}
