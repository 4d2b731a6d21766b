package engine

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/history"
)

// A wake-up that is late, or follows another one, carries only a part of what has arrived: the run reads all of it.
func TestOnlyTheNextArrivalIsTaken(t *testing.T) {
	t.Parallel()
	arrival := Arrival{Op: history.OpRef{Branch: 1, Index: 2}, Event: 7}
	for name, tt := range map[string]struct {
		wakeup *Wakeup
		all    bool
	}{
		"no wake-up":              {nil, false},
		"the next":                {&Wakeup{Wakes: 4, Arrival: arrival}, true},
		"one that was read":       {&Wakeup{Wakes: 3, Arrival: arrival}, false},
		"one arrived in between":  {&Wakeup{Wakes: 5, Arrival: arrival}, false},
		"from before the counter": {&Wakeup{Arrival: arrival}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := &run{loaded: Loaded{Wakes: 3}, wakeup: tt.wakeup}
			got, all := d.fromWakeup()
			if all != tt.all {
				t.Fatalf("all is %t, expected %t", all, tt.all)
			}
			want, wakes := Arrival{}, int64(3)
			if tt.all {
				want, wakes = arrival, 4
			}
			if diff := cmp.Diff(want, got); diff != "" || d.loaded.Wakes != wakes || d.wakeup != nil || d.touched != tt.all {
				t.Errorf("counter %d, touched %t, kept %v, arrival (-want +got):\n%s", d.loaded.Wakes, d.touched, d.wakeup, diff)
			}
		})
	}
}
