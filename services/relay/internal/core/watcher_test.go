package core

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/pkg/fault"
)

// followed is a cluster whose objects tests change by hand. It counts its followers.
type followed struct {
	mu      sync.Mutex
	reports map[Selection]func(Change)
	begun   int
	active  int
}

func (f *followed) Follow(ctx context.Context, s Selection, report func(Change)) {
	f.mu.Lock()
	f.begun++
	f.active++
	f.reports[s] = report
	f.mu.Unlock()
	<-ctx.Done()
	f.mu.Lock()
	f.active--
	f.mu.Unlock()
}

func (f *followed) change(s Selection, c Change) {
	f.mu.Lock()
	report := f.reports[s]
	f.mu.Unlock()
	report(c)
}

// heard collects the observations, and fails while it is away.
type heard struct {
	mu   sync.Mutex
	away bool
	all  []string
}

func (h *heard) Observe(_ context.Context, o Observation) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.away {
		return fault.New(fault.Unavailable, "away")
	}
	text := fmt.Sprintf("%s %s %v", o.Watch.ID, o.Name, map[string]any(o.Object))
	if o.Err != nil {
		text = fmt.Sprintf("%s %s %s", o.Watch.ID, o.Name, o.Err.Code)
	}
	h.all = append(h.all, text)
	return nil
}

func (h *heard) take() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	all := h.all
	h.all = nil
	slices.Sort(all)
	return all
}

type bench struct {
	*Watcher
	cluster *followed
	heard   *heard
}

// watcher runs a Watcher inside a synctest bubble until the test ends.
func watcher(t *testing.T) bench {
	t.Helper()
	w := bench{cluster: &followed{reports: map[Selection]func(Change){}}, heard: &heard{}}
	w.Watcher = NewWatcher(WatcherDeps{
		Follower: w.cluster, Observer: w.heard, Clock: clock.System(), Log: slog.New(slog.DiscardHandler), Interval: time.Second,
	})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = w.Run(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		<-ended
		if w.cluster.active != 0 {
			t.Errorf("%d selections are followed after the end", w.cluster.active)
		}
	})
	synctest.Wait()
	return w
}

func service(name string) Selection {
	return Selection{Kind: Kind{Kind: "Service"}, Namespace: "shop", Name: name}
}

func set(at int, watches ...Watch) WatchSet {
	return WatchSet{AsOf: time.Unix(int64(at), 0), Lease: time.Minute, Watches: watches}
}

func spec1(n int) Object {
	return Object{"metadata": map[string]any{"name": "api"}, "spec": map[string]any{"n": n, "other": "x"}}
}

func expectHeard(t *testing.T, w bench, want ...string) {
	t.Helper()
	synctest.Wait()
	if diff := cmp.Diff(want, w.heard.take()); diff != "" {
		t.Errorf("heard (-want +got):\n%s", diff)
	}
}

func TestAWatchReportsTheStateAndItsChanges(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := watcher(t)
		api := service("api")
		w.Replace(set(1, Watch{ID: "a", Selection: api, Fields: []string{"spec.n"}}))
		synctest.Wait()
		w.cluster.change(api, Change{Name: "api", Object: spec1(1)})
		w.cluster.change(api, Change{})
		expectHeard(t, w, "a api map[spec:map[n:1]]")

		changed := spec1(1)
		changed["spec"].(map[string]any)["other"] = "y"
		w.cluster.change(api, Change{Name: "api", Object: changed})
		time.Sleep(2 * time.Second)
		expectHeard(t, w) // that field was not requested

		for n := range 50 {
			w.cluster.change(api, Change{Name: "api", Object: spec1(n + 2)})
			time.Sleep(10 * time.Millisecond)
		}
		time.Sleep(2 * time.Second)
		expectHeard(t, w, "a api map[spec:map[n:2]]", "a api map[spec:map[n:51]]") // of many changes, the first and the last

		w.cluster.change(api, Change{Name: "api"})
		expectHeard(t, w, "a api map[]") // it was deleted
	})
}

func TestAMissingObjectIsReported(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := watcher(t)
		w.Replace(set(1, Watch{ID: "a", Selection: service("api"), Fields: []string{"spec.n"}}))
		synctest.Wait()
		expectHeard(t, w)
		w.cluster.change(service("api"), Change{})
		expectHeard(t, w, "a api map[]")
	})
}

// D20: the set replaces the previous one; watches of the same objects query the cluster once; a dropped watch leaves nothing behind.
func TestASetReplacesThePreviousOne(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := watcher(t)
		api := service("api")
		a, b := Watch{ID: "a", Selection: api, Fields: []string{"spec.n"}}, Watch{ID: "b", Selection: api, Fields: []string{"spec.other"}}
		w.Replace(set(1, a))
		synctest.Wait()
		w.cluster.change(api, Change{Name: "api", Object: spec1(1)})
		w.cluster.change(api, Change{})
		expectHeard(t, w, "a api map[spec:map[n:1]]")
		w.Replace(set(2, a, b))
		expectHeard(t, w, "b api map[spec:map[other:x]]") // the known state is reported at once
		if w.cluster.begun != 1 {
			t.Errorf("the cluster was asked %d times for the same objects", w.cluster.begun)
		}
		w.Replace(set(1)) // an older set that arrives late
		if ids, _ := w.Held(); !slices.Equal(ids, []string{"a", "b"}) {
			t.Errorf("held %v after an older set", ids)
		}
		w.Replace(set(3, b))
		time.Sleep(2 * time.Second)
		w.cluster.change(api, Change{Name: "api", Object: spec1(2)})
		expectHeard(t, w)
		w.Replace(set(4))
		synctest.Wait()
		if ids, until := w.Held(); len(ids) != 0 || !until.IsZero() || w.cluster.active != 0 {
			t.Errorf("held %v until %v, %d followed, after an empty set", ids, until, w.cluster.active)
		}
	})
}

func TestAnExpiredSetIsDropped(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := watcher(t)
		a := Watch{ID: "a", Selection: service("api"), Fields: []string{"spec.n"}}
		w.Replace(set(1, a))
		time.Sleep(50 * time.Second)
		w.Replace(set(2, a))
		time.Sleep(50 * time.Second)
		if ids, _ := w.Held(); len(ids) != 1 {
			t.Error("dropped although it was renewed")
		}
		time.Sleep(11 * time.Second)
		synctest.Wait()
		if ids, _ := w.Held(); len(ids) != 0 || w.cluster.active != 0 {
			t.Errorf("held %v, %d followed, after the lease", ids, w.cluster.active)
		}
		w.Replace(set(3, a))
		synctest.Wait()
		if w.cluster.active != 1 {
			t.Error("a new set is not followed")
		}
	})
}

func TestAFailedReportIsRetriedWithTheLatestState(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := watcher(t)
		api := service("api")
		w.heard.away = true
		w.Replace(set(1, Watch{ID: "a", Selection: api, Fields: []string{"spec.n"}}))
		synctest.Wait()
		w.cluster.change(api, Change{Name: "api", Object: spec1(1)})
		time.Sleep(10 * time.Second)
		w.cluster.change(api, Change{Name: "api", Object: spec1(2)})
		time.Sleep(10 * time.Second)
		w.heard.mu.Lock()
		w.heard.away = false
		w.heard.mu.Unlock()
		time.Sleep(2 * time.Second)
		expectHeard(t, w, "a api map[spec:map[n:2]]")
	})
}

func TestAFailingWatchReportsWhy(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := watcher(t)
		api := service("api")
		w.Replace(set(1, Watch{ID: "a", Selection: api, Fields: []string{"spec.n"}},
			Watch{ID: "s", Selection: Selection{Kind: Kind{Kind: "Secret"}, Namespace: "shop", Name: "x"}, Fields: []string{"data"}}))
		synctest.Wait()
		w.cluster.change(api, Change{Err: fault.New(fault.Unavailable, "away")}) // heartbeats report it
		w.cluster.change(api, Change{Err: fault.New(fault.Denied, "no rights")})
		expectHeard(t, w, "a api forbidden", "s x invalid")
		w.cluster.change(api, Change{Reached: true})
		w.cluster.change(api, Change{Name: "api", Object: spec1(1)})
		time.Sleep(time.Second)
		expectHeard(t, w, "a api map[spec:map[n:1]]")
	})
}

func TestProject(t *testing.T) {
	t.Parallel()
	o := object(t, `{"metadata":{"name":"api","generation":3},"status":{"phase":"Paused","pauseConditions":[{"reason":"CanaryPauseStep"}],"canary":{"weights":{"a":1,"b":2}}}}`)
	for _, tc := range []struct {
		fields []string
		want   string
	}{
		{[]string{"status.phase", "status.nothing", "none.at.all"}, `{"status":{"phase":"Paused"}}`},
		{
			[]string{"status.pauseConditions", "metadata.generation"},
			`{"metadata":{"generation":3},"status":{"pauseConditions":[{"reason":"CanaryPauseStep"}]}}`,
		},
		{[]string{"status.canary", "status.canary.weights.a"}, `{"status":{"canary":{"weights":{"a":1,"b":2}}}}`},
		{[]string{"status.canary.weights.a", "status.canary"}, `{"status":{"canary":{"weights":{"a":1,"b":2}}}}`},
		{[]string{"status.phase.deeper"}, `{}`},
	} {
		before := fmt.Sprint(o)
		if diff := cmp.Diff(object(t, tc.want), Project(o, tc.fields)); diff != "" {
			t.Errorf("%v (-want +got):\n%s", tc.fields, diff)
		}
		if fmt.Sprint(o) != before {
			t.Fatalf("%v changed the object", tc.fields)
		}
	}
}
