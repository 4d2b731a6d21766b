package engine

import (
	"fmt"
	"testing"
	"time"
)

func TestTheSameTroubleIsLoggedOnceAMinute(t *testing.T) {
	t.Parallel()
	var all troubles
	now := time.Date(2026, 3, 25, 10, 0, 0, 0, time.UTC)
	logged, counted := 0, 0
	for range 121 { // each second of two minutes
		if times, log := all.add("agent ownership is not known yet", now); log {
			logged, counted = logged+1, counted+times
		}
		now = now.Add(time.Second)
	}
	if logged != 3 || counted != 121 {
		t.Errorf("logged %d times of %d, expected 3 of all 121: at once, after one minute and after two", logged, counted)
	}
	if _, log := all.add("another", now); !log {
		t.Error("another error is not logged at once")
	}
	for i := range 2 * troubleMost {
		all.add(fmt.Sprint(i), now)
	}
	if len(all.logged) > troubleMost {
		t.Errorf("%d are remembered, expected at most %d", len(all.logged), troubleMost)
	}
}
