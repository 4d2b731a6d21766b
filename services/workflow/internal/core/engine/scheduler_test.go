package engine

import (
	"slices"
	"testing"
	"time"

	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/execution"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/program"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/wake"
)

// idle is a machine that only counts how often it was closed.
type idle struct {
	program.Machine
	closed *int
}

func (i idle) Close() { *i.closed++ }

func parkedDriver(id int64, closed *int) *run {
	return &run{loaded: Loaded{Execution: execution.Execution{ID: id}, Turn: id}, machine: idle{closed: closed}}
}

func TestTheCacheKeepsWhatWasUsedLast(t *testing.T) {
	t.Parallel()
	closed := 0
	size := parkedDriver(1, &closed).size()
	for name, c := range map[string]struct {
		bytes int64
		kept  []int64
	}{
		"three fit":      {3 * size, []int64{1, 3, 4}},
		"one fits":       {size, []int64{4}},
		"none fits":      {size - 1, nil},
		"nothing at all": {0, nil},
		"less than that": {-1, nil},
	} {
		kept := newCache(c.bytes)
		for _, id := range []int64{1, 2, 3} {
			kept.put(parkedDriver(id, &closed))
		}
		if d := kept.take(1); d != nil {
			kept.put(d) // used again
		}
		kept.put(parkedDriver(4, &closed))
		var got []int64
		for id := range int64(5) {
			if kept.take(id) != nil {
				got = append(got, id)
			}
		}
		if !slices.Equal(got, c.kept) || kept.bytes != 0 || kept.order.Len() != 0 {
			t.Errorf("%s: kept %v, expected %v; %d bytes are left", name, got, c.kept, kept.bytes)
		}
	}
}

func TestAnExecutionIsInOnePlace(t *testing.T) {
	t.Parallel()
	p := newScheduler(1, 1<<20)
	if _, ok := p.reserve(1); ok {
		t.Error("a place before the engine runs")
	}
	var driven []int64
	woken := map[int64]wake.Signal{}
	p.open(Lease{Instance: "one"}, func(j job, s wake.Signal) { driven, woken[j.id] = append(driven, j.id), s })
	if p.wake(Woken{ID: 1}) {
		t.Error("woke what nobody has")
	}
	p.wake(Woken{ID: 1, Ours: true})
	p.wake(Woken{ID: 1, Ours: true}) // found by the claim loop as well
	p.wake(Woken{ID: 2, Ours: true})
	p.wake(Woken{ID: 2, Ours: true})
	if here, free := p.here(time.Time{}); !slices.Equal(driven, []int64{1}) || len(here) != 2 || free >= 0 {
		t.Errorf("driven %v, here %v, %d free", driven, here, free)
	}
	if _, ok := p.reserve(1); !ok {
		t.Error("no place for a start, where only others wait")
	}
	if _, ok := p.reserve(1); ok {
		t.Error("a place beyond the queue")
	}
	closed := 0
	if p.park(parkedDriver(1, &closed), woken[1]) {
		t.Error("parked what was woken meanwhile")
	}
	if !p.park(parkedDriver(1, &closed), woken[1]) || !slices.Equal(driven, []int64{1, 2}) {
		t.Errorf("after parking: driven %v", driven)
	}
	if p.unpark(job{id: 1, turn: 7}) != nil || closed != 1 {
		t.Error("kept an execution that another owner has changed")
	}
	freed := false
	p.callWhenFree(func() { freed = true })
	p.leave(2)
	p.shut()
	if p.wake(Woken{ID: 3, Ours: true}); !freed || len(driven) != 2 {
		t.Errorf("freed %t, driven %v after the end", freed, driven)
	}
}

// What a crash has left may be a great deal; who starts a run meanwhile does not wait for all of it.
func TestStartsTakeTurnsWithWhatACrashHasLeft(t *testing.T) {
	t.Parallel()
	p := newScheduler(1, 0)
	var driven []int64
	p.open(Lease{}, func(j job, _ wake.Signal) { driven = append(driven, j.id) })
	for id := range int64(5) {
		p.wake(Woken{ID: id, Ours: true})
	}
	if _, ok := p.reserve(1); !ok {
		t.Fatal("no place for a start")
	}
	p.begin(Loaded{Execution: execution.Execution{ID: 100, Organization: 1}}, nil)
	for i := range 5 {
		p.leave(driven[i])
	}
	if !slices.Equal(driven, []int64{0, 100, 1, 2, 3, 4}) {
		t.Errorf("driven %v, expected the start, 100, right behind what was under way", driven)
	}
}

// One organization's queue, however long, is no reason for another's runs to wait, started here or woken; nor do they go before their turn.
func TestOrganizationsTakeTurnsForPlaces(t *testing.T) {
	t.Parallel()
	for name, queue := range map[string]func(p *scheduler, id, organization int64) bool{
		"woken": func(p *scheduler, id, organization int64) bool {
			return p.wake(Woken{ID: id, Organization: organization, Ours: true})
		},
		"started": func(p *scheduler, id, organization int64) bool {
			_, ok := p.reserve(organization)
			return ok && p.begin(Loaded{Execution: execution.Execution{ID: id, Organization: organization}}, nil)
		},
	} {
		p := newScheduler(10, 0)
		var driven []int64
		p.open(Lease{}, func(j job, _ wake.Signal) { driven = append(driven, j.id) })
		var accepted int
		for id := range int64(100) {
			if queue(p, id, 1) {
				accepted++
			}
		}
		for _, j := range []struct{ id, organization int64 }{{200, 2}, {300, 3}, {201, 2}} {
			if !queue(p, j.id, j.organization) {
				t.Fatalf("%s: no place for organization %d", name, j.organization)
			}
		}
		for i := 0; i < len(driven); i++ {
			p.leave(driven[i])
		}
		if want := []int64{10, 200, 300, 11, 201, 12}; !slices.Equal(driven[10:16], want) {
			t.Errorf("%s: driven %v behind what was under way, expected %v", name, driven[10:16], want)
		}
		if len(driven) != accepted+3 || p.reserved != 0 || len(p.reservedBy) != 0 {
			t.Errorf("%s: driven %d, %d accepted; %d reserved, by %v", name, len(driven), accepted+3, p.reserved, p.reservedBy)
		}
	}
}

// The share that keeps an organization from waiting behind another's starts is bounded: many organizations do not fill the memory.
func TestPlacesForStartsAreBounded(t *testing.T) {
	t.Parallel()
	p := newScheduler(10, 0)
	p.open(Lease{}, func(job, wake.Signal) {})
	taken := 0
	for id := range int64(1000) {
		organization := 1 + id%100
		if _, ok := p.reserve(organization); ok {
			taken++
			p.begin(Loaded{Execution: execution.Execution{ID: id, Organization: organization}}, nil)
		}
	}
	if taken != 30 {
		t.Errorf("%d places were kept, expected 30", taken)
	}
}
