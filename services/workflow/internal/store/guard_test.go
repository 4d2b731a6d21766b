package store

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/lockstep-cd/lockstep/pkg/event"
	"github.com/lockstep-cd/lockstep/pkg/testkit/wait"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/activity"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/guard"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/history"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/store/query"
)

// report stores a report of the domain service as its event would.
func (b *testStore) report(id string, c guard.Change) {
	b.t.Helper()
	c.Organization = 1
	_, _, err := b.ReceiveChange(b.t.Context(), event.Event{}, history.Event{
		Organization: 1, Source: "/services/domain", ID: id, Type: event.TypeRolloutStarted, Data: []byte(`{}`), Time: c.At,
	}, c)
	if err != nil {
		b.t.Fatal(err)
	}
}

// Reports come twice and in any order; what a run may change is the same afterwards (D46).
func TestReportsOfPassagesInAnyOrder(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 3, 25, 12, 0, 0, 0, time.UTC)
	minute := func(n int) time.Time { return at.Add(time.Duration(n) * time.Minute) }
	places := []activity.Place{{Agent: 7, Namespace: "shop"}}
	grant := func(weight, n int) guard.Change {
		return guard.Change{
			Workflow: "rollout-1", At: minute(n),
			Granted: &guard.Passage{Environment: 5, Weight: weight, Places: places, Pinned: []int{50}},
		}
	}
	changes := []guard.Change{
		grant(0, 1), grant(50, 2),
		{Workflow: "rollout-1", At: minute(3), Aborted: true},
		{Workflow: "rollout-1", At: minute(4), Retried: true},
		grant(50, 5),
		{Workflow: "rollout-1", At: minute(6), Revoked: true},
	}
	open := guard.Run{AbortedAt: minute(3), RetriedAt: minute(4), Passages: []guard.Passage{
		{Environment: 5, Places: places, Pinned: []int{50}, At: minute(1)},
		{Environment: 5, Weight: 50, Places: places, Pinned: []int{50}, At: minute(5)},
	}}
	// A rollout that has ended has no passages, whatever arrives late.
	ended := guard.Run{Revoked: true, AbortedAt: minute(3), RetriedAt: minute(4)}
	backwards := slices.Clone(changes)
	slices.Reverse(backwards)
	for name, tt := range map[string]struct {
		order []guard.Change
		want  guard.Run
	}{
		"open":            {changes[:5], open},
		"open, backwards": {backwards[1:], open},
		"open, twice":     {slices.Concat(changes[:5], changes[:5]), open},
		"in order":        {changes, ended},
		"backwards":       {backwards, ended},
		"twice":           {slices.Concat(changes, changes), ended},
		"revoked first":   {slices.Concat(changes[5:], changes[:5]), ended},
	} {
		order, want := tt.order, tt.want
		b := newTestStore(t)
		for i, c := range order {
			b.report(fmt.Sprint(i), c)
		}
		got, err := b.Guarded(t.Context(), 1, "rollout-1")
		if err != nil {
			t.Fatal(err)
		}
		got.AbortedAt, got.RetriedAt = got.AbortedAt.UTC(), got.RetriedAt.UTC()
		for i := range got.Passages {
			got.Passages[i].At = got.Passages[i].At.UTC()
		}
		if diff := cmp.Diff(want, got); diff != "" || got.Suspended() {
			t.Errorf("%s: suspended %t (-want +got):\n%s", name, got.Suspended(), diff)
		}
		// Another rollout, and another organization's of the same number, have none of it.
		for _, other := range []struct {
			organization int64
			workflow     string
		}{{1, "rollout-2"}, {2, "rollout-1"}} {
			if got, err := b.Guarded(t.Context(), other.organization, other.workflow); err != nil || cmp.Diff(guard.Run{}, got) != "" {
				t.Errorf("%s: %+v has %+v, %v", name, other, got, err)
			}
		}
	}
}

// D53: the run that stops what a cancelled rollout has left behind has the passages that the rollout had, also of a grant that arrives
// behind the end, and of children. They are deleted with a later cancellation, hours after; the end stays known.
func TestACancelledRolloutKeepsItsPassagesForAWhile(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 3, 25, 12, 0, 0, 0, time.UTC)
	granted := guard.Change{Workflow: "rollout-1", At: at, Granted: &guard.Passage{
		Environment: 5, Places: []activity.Place{{Agent: 7, Namespace: "shop"}}, Pinned: []int{},
	}}
	end := guard.Change{Workflow: "rollout-1", At: at.Add(time.Minute), Revoked: true, Cancelled: true, Left: []int64{5}}
	for name, order := range map[string][]guard.Change{
		"in order": {granted, end}, "backwards": {end, granted}, "twice": {granted, end, granted, end},
	} {
		b := newTestStore(t)
		for i, c := range order {
			b.report(fmt.Sprint(i), c)
		}
		check := func(workflow, root string, passages int) {
			t.Helper()
			got, err := b.Guarded(t.Context(), 1, workflow)
			if err != nil || got.Root != root || !got.Revoked || !got.CancelledAt.Equal(end.At) || len(got.Passages) != passages {
				t.Errorf("%s: %s has %+v, %v; expected %d passages", name, workflow, got, err, passages)
			}
		}
		check("rollout-1-cancelled", "rollout-1-cancelled", 1)
		check("rollout-1", "", 1)
		b.report("soon", guard.Change{Workflow: "rollout-2", At: end.At.Add(guard.TakesBackFor), Revoked: true, Cancelled: true})
		check("rollout-1-cancelled", "rollout-1-cancelled", 1)
		b.report("late", guard.Change{Workflow: "rollout-3", At: end.At.Add(3 * guard.TakesBackFor), Revoked: true, Cancelled: true})
		check("rollout-1-cancelled", "rollout-1-cancelled", 0)
		b.report("again, too late", granted)
		check("rollout-1-cancelled", "rollout-1-cancelled", 0)
	}
}

// D53: of a cancelled rollout only the passages of environments are left that it has not completed, and a grant to another rollout of the
// application marks them, in any order. The periodic sweep deletes them, too.
func TestWhatIsLeftOfPassagesAfterACancellation(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 3, 25, 12, 0, 0, 0, time.UTC)
	grant := func(run string, environment, application int64, at time.Time) guard.Change {
		return guard.Change{Workflow: run, At: at, Granted: &guard.Passage{
			Environment: environment, Application: application, Places: []activity.Place{{Agent: 7}}, Pinned: []int{}, At: at,
		}}
	}
	end := guard.Change{Workflow: "rollout-1", At: at.Add(time.Minute), Revoked: true, Cancelled: true, Left: []int64{5}}
	completed, own, next := grant("rollout-1", 4, 2, at), grant("rollout-1", 5, 2, at), grant("rollout-2", 5, 2, at.Add(2*time.Minute))
	other, over := grant("rollout-3", 5, 9, at.Add(2*time.Minute)), guard.Change{Workflow: "rollout-2", At: at.Add(3 * time.Minute), Revoked: true}
	for name, tt := range map[string]struct {
		order     []guard.Change
		overtaken bool
	}{
		"alone":                {[]guard.Change{completed, own, end}, false},
		"another application":  {[]guard.Change{completed, own, end, other}, false},
		"the next rollout":     {[]guard.Change{completed, own, end, next}, true},
		"the next one is over": {[]guard.Change{completed, own, end, next, over}, true},
		"backwards":            {[]guard.Change{over, next, end, own, completed}, true},
	} {
		b := newTestStore(t)
		for i, c := range tt.order {
			b.report(fmt.Sprint(i), c)
		}
		got, err := b.Guarded(t.Context(), 1, "rollout-1-cancelled")
		if err != nil || len(got.Passages) != 1 || got.Passages[0].Environment != 5 || got.Passages[0].Overtaken != tt.overtaken {
			t.Errorf("%s: found %+v, %v; expected that of environment 5, overtaken %t", name, got.Passages, err, tt.overtaken)
		}
		if err := b.Forget(t.Context(), end.At.Add(time.Second)); err != nil {
			t.Fatal(err)
		}
		if got, err := b.Guarded(t.Context(), 1, "rollout-1-cancelled"); err != nil || len(got.Passages) != 0 || !got.Revoked {
			t.Errorf("%s: found %+v, %v after the sweep", name, got, err)
		}
	}
}

// Of two reports about an environment the later one counts. What is reported again changes no version, so nothing is read again.
func TestReportsOfPlaces(t *testing.T) {
	t.Parallel()
	b := newTestStore(t)
	territory := func(sequence int64, protected bool, places ...activity.Place) guard.Change {
		return guard.Change{Territory: &guard.Territory{
			Environment: 5, Name: "production", Sequence: sequence,
			Protected: protected, Places: places,
		}}
	}
	for i, step := range []struct {
		change    guard.Change
		version   int64
		protected bool
	}{
		{territory(10, true, activity.Place{Agent: 7}), 1, true},
		{territory(10, true, activity.Place{Agent: 7}), 1, true},
		{territory(9, false), 1, true},
		{territory(11, true, activity.Place{Agent: 7}), 1, true},
		{territory(12, false, activity.Place{Agent: 7}), 2, false},
		{territory(13, false, activity.Place{Agent: 7}, activity.Place{Repository: "https://git.example.com/a"}), 3, false},
	} {
		b.report(fmt.Sprint(i), step.change)
		version, all, err := b.Territories(t.Context(), 1)
		if err != nil || version != step.version || len(all) != 1 || all[0].Protected != step.protected {
			t.Errorf("step %d: found version %d, %+v, %v", i, version, all, err)
		}
	}
	// The places of its applications are the environment's, until it is archived without protection.
	b.report("application", guard.Change{Territory: &guard.Territory{
		Environment: 5, Application: 2, Name: "production", Sequence: 1,
		Places: []activity.Place{{Agent: 8}},
	}})
	if _, all, err := b.Territories(t.Context(), 1); err != nil || len(all) != 1 || len(all[0].Places) != 3 {
		t.Errorf("with an application: %+v, %v", all, err)
	}
	b.report("archived", guard.Change{Territory: &guard.Territory{Environment: 5, Name: "production", Sequence: 14, Archived: true}})
	if version, all, err := b.Territories(t.Context(), 1); err != nil || len(all) != 0 || version != 5 {
		t.Errorf("archived: version %d, %+v, %v", version, all, err)
	}
	// What is deployed in an archived environment keeps running there, so its protection stays.
	b.report("protected", guard.Change{Territory: &guard.Territory{Environment: 5, Name: "production", Sequence: 15, Archived: true, Protected: true}})
	if _, all, err := b.Territories(t.Context(), 1); err != nil || len(all) != 1 || !all[0].Archived || len(all[0].Places) != 1 {
		t.Errorf("archived and protected: %+v, %v", all, err)
	}
	// D61: that other agents are targets of its fleet is a change, too.
	fleet := func(sequence int64, targets ...int64) guard.Change {
		return guard.Change{Territory: &guard.Territory{
			Environment: 6, Name: "edge", Sequence: sequence, Fleet: &guard.Fleet{Agents: []int64{7}, Targets: targets},
		}}
	}
	for i, step := range []struct {
		change  guard.Change
		version int64
		targets int
	}{{fleet(1, 51), 7, 1}, {fleet(2, 51), 7, 1}, {fleet(3, 51, 52), 8, 2}} {
		b.report(fmt.Sprint("fleet", i), step.change)
		version, all, err := b.Territories(t.Context(), 1)
		if err != nil || version != step.version || len(all) != 2 || len(all[1].Fleet.Targets) != step.targets {
			t.Errorf("fleet %d: found version %d, %+v, %v", i, version, all, err)
		}
	}
	if run, err := b.Guarded(t.Context(), 2, "rollout-1"); err != nil || run.Version != 0 {
		t.Errorf("another organization: %+v, %v", run, err)
	}
}

// Rollouts that a domain service of an earlier release has created end under the former protocol (issue 16, item 8): the inputs of their
// runs say nothing of passages.
func TestRolloutsOfEarlierReleasesAreExempt(t *testing.T) {
	t.Parallel()
	b := newTestStore(t)
	b.report("1", guard.Change{Territory: &guard.Territory{Environment: 5, Name: "production", Sequence: 1, Protected: true}})
	for _, tt := range []struct {
		workflow, inputs string
		want             bool
	}{
		{"rollout-1", `{"rollout":{"id":1}}`, true},
		{"rollout-2", `{"rollout":{"id":2,"passages":true}}`, false},
		{"rollout-3", `{"rollout":{"id":3,"passages":false}}`, true},
		{"rollout-4", `{}`, true},
		{"nightly", `{"rollout":{"id":1}}`, false},
	} {
		n := b.start(1)
		n.Workflow, n.Inputs = tt.workflow, []byte(tt.inputs)
		if _, err := b.Create(t.Context(), n); err != nil {
			t.Fatal(err)
		}
		if run, err := b.Guarded(t.Context(), 1, tt.workflow); err != nil || run.Exempt != tt.want {
			t.Errorf("%s: exempt %t, %v; want %t", tt.workflow, run.Exempt, err, tt.want)
		}
	}
	if run, err := b.Guarded(t.Context(), 1, "rollout-5"); err != nil || run.Exempt {
		t.Errorf("a run that does not exist: exempt %t, %v; want false", run.Exempt, err)
	}
}

// A grant and the end of its rollout that are stored at the same time leave no passage, whichever is first.
func TestAGrantBesideTheEndOfItsRolloutIsOver(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 3, 25, 12, 0, 0, 0, time.UTC)
	granted := guard.Change{Organization: 1, Workflow: "rollout-1", At: at, Granted: &guard.Passage{Environment: 5}}
	ended := guard.Change{Organization: 1, Workflow: "rollout-1", At: at, Revoked: true}
	for name, order := range map[string][2]guard.Change{"granted first": {granted, ended}, "ended first": {ended, granted}} {
		b := newTestStore(t)
		first := b.begin()
		if err := saveChange(t.Context(), b.queries.WithTx(first), order[0]); err != nil {
			t.Fatal(err)
		}
		stored := make(chan error, 1)
		go func() {
			stored <- b.tx(t.Context(), func(_ pgx.Tx, q *query.Queries) error { return saveChange(t.Context(), q, order[1]) })
		}()
		wait.For(t, "the second report waits for the first", func() bool { return b.blocked() == 1 })
		if err := first.Commit(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := <-stored; err != nil {
			t.Fatal(err)
		}
		if n := b.count(`SELECT count(*) FROM passage`); n != 0 {
			t.Errorf("%s: found %d passages, expected none", name, n)
		}
	}
}

// apply is a Function that changes what its arguments name.
type apply struct{}

func (apply) Name() string                                     { return "apply" }
func (apply) Location() activity.Location                      { return activity.Cluster }
func (apply) Effect() activity.Effect                          { return activity.Changes }
func (apply) Call(context.Context, activity.Call) (any, error) { return nil, nil }

func (apply) Touches(args map[string]any) []activity.Place {
	return []activity.Place{{Agent: args["agent"].(int64), Namespace: "shop", Name: "api"}}
}

// D61, D46: the run of a rollout changes the targets of the waves that were let begin, in an environment that it has entered, and no
// others, in whatever order the reports come. A call reads what is about its own cluster, however many targets there are.
func TestTargetsAreOpenWithTheirWave(t *testing.T) {
	t.Parallel()
	b := newTestStore(t)
	at := b.clock.Now()
	grant := func(wave, from, to int) guard.Change {
		p := guard.Passage{Environment: 9, Wave: wave}
		for agent := from; agent <= to; agent++ {
			p.Places = append(p.Places, activity.Place{Agent: int64(agent), Namespace: "shop"},
				activity.Place{Agent: int64(agent), Application: "argocd/shop"})
		}
		return guard.Change{Workflow: "rollout-1", At: at, Granted: &p}
	}
	g := guard.New(b, nil, b.clock, slog.New(slog.DiscardHandler))
	open := func() (agents []int64) {
		for _, agent := range []int64{7, 100, 101, 600, 1099} {
			err := g.Check(t.Context(), apply{}, activity.Call{
				Organization: 1, Workflow: "rollout-1", Function: "apply", Args: map[string]any{"agent": agent},
			})
			if err == nil {
				agents = append(agents, agent)
			}
		}
		return agents
	}
	for i, step := range []struct {
		change guard.Change
		want   []int64
	}{
		{grant(1, 100, 100), nil}, // ahead of the entrance
		{grant(0, 7, 7), []int64{7, 100}},
		{grant(2, 101, 599), []int64{7, 100, 101}},
		{grant(0, 7, 7), []int64{7, 100, 101}},
		{grant(3, 600, 1099), []int64{7, 100, 101, 600, 1099}},
		{grant(1, 100, 100), []int64{7, 100, 101, 600, 1099}},
	} {
		b.report(fmt.Sprint(i), step.change)
		if got := open(); !slices.Equal(got, step.want) {
			t.Errorf("step %d: agents %v are open, expected %v", i, got, step.want)
		}
	}
	run, err := b.Guarded(t.Context(), 1, "rollout-1", 600)
	if err != nil || len(run.Passages) != 1 || len(run.Passages[0].Places) != 4 {
		t.Errorf("a call in one of 1000 targets reads %+v, %v; expected the 2 places of the environment and the 2 of the target", run, err)
	}
	b.report("end", guard.Change{Workflow: "rollout-1", At: at, Revoked: true})
	b.report("late", grant(4, 2000, 2000))
	if n := b.count(`SELECT count(*) FROM passage_target`); n != 0 || len(open()) != 0 {
		t.Errorf("found %d targets and %v open after the end, expected none", n, open())
	}
}
