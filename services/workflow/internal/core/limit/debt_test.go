package limit

import (
	"testing"
	"time"
)

// step is a time of a test.
func step(seconds float64) time.Time {
	return time.Unix(1_000_000, 0).Add(time.Duration(seconds * float64(time.Second)))
}

// A run that has made one waits for about as long as two take, whatever another one has made; together they are no faster than the rate.
func TestASmallDebtDoesNotWaitForALargeOne(t *testing.T) {
	t.Parallel()
	var r rate
	large := r.owe(1005, 0, 10, step(0)) // five are free
	small := r.owe(1, 0, 10, step(0))
	if wait := r.until(small, 10, step(0)); wait != 200*time.Millisecond {
		t.Errorf("the small debt takes %s, expected 200ms", wait)
	}
	if wait := r.until(small, 10, step(0.3)); wait != 0 {
		t.Errorf("after 0.3 s the small debt takes %s", wait)
	}
	for at, paid := range map[float64]bool{99: false, 100.2: true} {
		other := r
		other.marks = append(marks{}, r.marks...)
		if wait := other.until(large, 10, step(at)); (wait == 0) != paid {
			t.Errorf("after %g s the large debt takes %s", at, wait)
		}
	}
}

// Callers come first: while they send as often as they may, debts are not paid, and with debts callers may send as often as without.
// Together there is no more than the rate and a burst.
func TestCallersComeBeforeDebts(t *testing.T) {
	t.Parallel()
	for _, perSecond := range []float64{0.5, 1, 10} {
		var r rate
		mark := r.owe(1000, 0, perSecond, step(0))
		begun := r.paid
		callers, seconds := 0, 40.0
		for n := range 4000 {
			if ok, _ := r.take(perSecond, step(float64(n)*seconds/4000)); ok {
				callers++
			}
		}
		if most := perSecond*seconds + max(1, perSecond); float64(callers) > most || float64(callers) < perSecond*seconds-1 {
			t.Errorf("at %g a second callers had %d in %g s", perSecond, callers, seconds)
		}
		if r.paid-begun > 1 {
			t.Errorf("at %g a second %g of a debt were paid meanwhile", perSecond, r.paid-begun)
		}
		if r.until(mark, perSecond, step(seconds+1001/perSecond)) != 0 {
			t.Errorf("at %g a second the debt is not paid when nobody calls", perSecond)
		}
	}
}
