package core

import (
	"slices"
	"testing"
)

// idle is a machine that only counts how often it was closed.
type idle struct {
	Machine
	closed *int
}

func (i idle) Close() { *i.closed++ }

func parkedDriver(id int64, closed *int) *driver {
	return &driver{loaded: Loaded{Execution: Execution{ID: id}, Turn: id}, machine: idle{closed: closed}}
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
	p := newPlaces(1, 1<<20)
	if _, ok := p.reserve(); ok {
		t.Error("a place before the engine runs")
	}
	var driven []int64
	woken := map[int64]signal{}
	p.open(Lease{Instance: "one"}, func(j job, s signal) { driven, woken[j.id] = append(driven, j.id), s })
	if p.wake(Woken{ID: 1}) {
		t.Error("woke what nobody has")
	}
	p.wake(Woken{ID: 1, Ours: true})
	p.wake(Woken{ID: 1, Ours: true}) // found by the claim loop as well
	p.wake(Woken{ID: 2, Ours: true})
	p.wake(Woken{ID: 2, Ours: true})
	if here, free := p.here(); !slices.Equal(driven, []int64{1}) || len(here) != 2 || free >= 0 {
		t.Errorf("driven %v, here %v, %d free", driven, here, free)
	}
	if _, ok := p.reserve(); !ok {
		t.Error("no place for a start, where only others wait")
	}
	if _, ok := p.reserve(); ok {
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
		t.Error("kept what somebody else has moved on")
	}
	freed := false
	p.tellWhenFree(func() { freed = true })
	p.leave(2)
	p.shut()
	if p.wake(Woken{ID: 3, Ours: true}); !freed || len(driven) != 2 {
		t.Errorf("freed %t, driven %v after the end", freed, driven)
	}
}

// What a crash has left may be a great deal; who starts a run meanwhile does not wait for all of it.
func TestStartsTakeTurnsWithWhatACrashHasLeft(t *testing.T) {
	t.Parallel()
	p := newPlaces(1, 0)
	var driven []int64
	p.open(Lease{}, func(j job, _ signal) { driven = append(driven, j.id) })
	for id := range int64(5) {
		p.wake(Woken{ID: id, Ours: true})
	}
	if _, ok := p.reserve(); !ok {
		t.Fatal("no place for a start")
	}
	p.begin(Loaded{Execution: Execution{ID: 100}}, nil)
	for i := range 5 {
		p.leave(driven[i])
	}
	if !slices.Equal(driven, []int64{0, 100, 1, 2, 3, 4}) {
		t.Errorf("driven %v, expected the start, 100, right behind what was under way", driven)
	}
}
