package main

import (
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// TestPairsHaveNumbers has every number be that of one pair, and the pairs of a moment and of an event lie together.
func TestPairsHaveNumbers(t *testing.T) {
	t.Parallel()
	const cohorts = 3
	seen := map[pair]bool{}
	through := [2]int{}
	for number := range cohorts * raceRounds * racePairs {
		p := paired(number, cohorts)
		if p.number(cohorts) != number || seen[p] || p.cohort >= cohorts || p.round >= raceRounds || p.place >= racePlaces ||
			p.member >= raceRuns {
			t.Fatalf("number %d is the pair %+v, which has the number %d", number, p, p.number(cohorts))
		}
		seen[p] = true
		through[p.through()]++
		first := paired(number-number%racePairs, cohorts)
		if first.cohort != p.cohort || first.round != p.round {
			t.Fatalf("pair %+v is not of the moment of %+v", p, first)
		}
		if one := paired(number-number%raceRuns, cohorts); one.spread(cohorts) != p.spread(cohorts) || one.place != p.place {
			t.Fatalf("pair %+v is not of the event of %+v", p, one)
		}
		if later := p.spread(cohorts); later < raceShift-raceSpread/2 || later >= raceShift+raceSpread/2 {
			t.Fatalf("the event of pair %d is to be %s behind its wait", number, later)
		}
	}
	if through[0] != through[1] {
		t.Errorf("%d pairs through one process and %d through the other, expected as many", through[0], through[1])
	}
}

// machine has a latency for each path, from the beginning of a moment to the wait, and from the sending of an event to its way into the
// store; one in twenty takes much longer, and the others vary a little.
type machine struct {
	wait, event [racePaths]time.Duration
	chance      *rand.Rand
}

func (m *machine) noise() time.Duration {
	if m.chance.IntN(20) == 0 {
		return time.Duration(m.chance.Int64N(int64(20 * time.Millisecond)))
	}
	return time.Duration(m.chance.Int64N(int64(200 * time.Microsecond)))
}

// meet is by how much later than the wait the event was on a path.
func (m *machine) meet(path int, after time.Duration) time.Duration {
	return after + m.event[path] + m.noise() - m.wait[path] - m.noise()
}

// TestAimFindsTheMoment aims on paths of different lengths, with a machine that is elsewhere now and then, and has all of them become
// slower on the way.
func TestAimFindsTheMoment(t *testing.T) {
	t.Parallel()
	m := &machine{chance: rand.New(rand.NewPCG(1, 2))} //nolint:gosec // the same in every run
	for path := range racePaths {
		m.wait[path], m.event[path] = time.Duration(4+path)*time.Millisecond, time.Duration(1+path/2)*time.Millisecond
	}
	a := newAim(0)
	for phase := range 2 {
		near, all := 0, 0
		for moment := range 400 {
			for path := range racePaths {
				later := time.Duration(moment%5-2) * 100 * time.Microsecond
				met := m.meet(path, a.after(path, later))
				if moment >= 100 { // it has to find them first
					all++
					if (met - later).Abs() <= 500*time.Microsecond {
						near++
					}
				}
				a.learn(path, []time.Duration{met - later, met - later + 50*time.Microsecond, met - later - 50*time.Microsecond})
			}
		}
		if near < all*8/10 {
			t.Errorf("phase %d: %d of %d events were within half a millisecond of where they were to be, expected eight of ten", phase, near, all)
		}
		for path := range racePaths {
			m.wait[path] *= 2
		}
	}
}

// TestAimIsNotSpoiledByOneMoment has a single miss move it by little, no events leave it as it is, and no path be aimed at before its
// moment begins.
func TestAimIsNotSpoiledByOneMoment(t *testing.T) {
	t.Parallel()
	a := newAim(3 * time.Millisecond)
	a.learn(0, nil)
	a.learn(1, []time.Duration{time.Second})
	a.learn(2, []time.Duration{400 * time.Microsecond, -time.Hour, time.Hour})
	for range 10 {
		a.learn(3, []time.Duration{time.Second})
	}
	got := [racePaths]time.Duration{a.after(0, 0), a.after(1, 0), a.after(2, 0), a.after(3, 0)}
	want := [racePaths]time.Duration{3 * time.Millisecond, 2500 * time.Microsecond, 2900 * time.Microsecond, 0}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if got := a.after(2, -time.Minute); got != 0 {
		t.Errorf("an event is to be sent %s after the beginning, expected at once", got)
	}
	seen := map[int]bool{}
	for _, p := range []pair{{}, {place: 1}, {cohort: 1}, {cohort: 1, place: 1}} {
		seen[pathOf(p.through(), p.in())] = true
	}
	if len(seen) != racePaths {
		t.Errorf("the four ways have the paths %v, expected one each", seen)
	}
}

func TestTallyCountsEachPairOnce(t *testing.T) {
	t.Parallel()
	var got tally
	for _, m := range []met{
		{later: -time.Millisecond},
		{later: 0, second: true},
		{later: time.Millisecond, second: true},
		{later: 1001 * time.Microsecond, together: true},
		{later: -5 * time.Millisecond},
		{later: 6 * time.Millisecond, second: true},
		{later: -300 * time.Microsecond, together: true, second: true},
	} {
		got.add(m)
	}
	want := tally{first: 2, second: 3, together: 2, before: 2, after: 2, near: 6}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(tally{})); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if got.stored() != 7 {
		t.Errorf("%d pairs are stored, expected 7", got.stored())
	}
	if note := got.note(9, 8); !strings.HasPrefix(note,
		"1 lost; committed before the wait 2, after it 3, in one transaction with it 2; within a millisecond") {
		t.Error(note)
	}
}
