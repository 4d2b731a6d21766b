package engine

import (
	"fmt"
	"testing"
	"time"
)

func TestTheSameTroubleIsToldOnceAMinute(t *testing.T) {
	t.Parallel()
	var all troubles
	now := time.Date(2026, 3, 25, 10, 0, 0, 0, time.UTC)
	told, counted := 0, 0
	for range 121 { // each second of two minutes
		if times, tell := all.tell("nobody has said whose agents are", now); tell {
			told, counted = told+1, counted+times
		}
		now = now.Add(time.Second)
	}
	if told != 3 || counted != 121 {
		t.Errorf("told %d times of %d, expected 3 of all 121: at once, after one minute and after two", told, counted)
	}
	if _, tell := all.tell("another", now); !tell {
		t.Error("other trouble is not told at once")
	}
	for i := range 2 * troubleMost {
		all.tell(fmt.Sprint(i), now)
	}
	if len(all.told) > troubleMost {
		t.Errorf("%d are remembered, expected at most %d", len(all.told), troubleMost)
	}
}
