package engine

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/history"
)

// A wake-up that comes late, or after another one, tells only a part of what has come: the run reads it all.
func TestOnlyTheNextArrivalIsTaken(t *testing.T) {
	t.Parallel()
	arrival := Arrival{Op: history.OpRef{Branch: 1, Index: 2}, Event: 7}
	for name, tt := range map[string]struct {
		came *Came
		all  bool
	}{
		"nothing was told":        {nil, false},
		"the next":                {&Came{Wakes: 4, Arrival: arrival}, true},
		"one that was read":       {&Came{Wakes: 3, Arrival: arrival}, false},
		"one came in between":     {&Came{Wakes: 5, Arrival: arrival}, false},
		"from before the counter": {&Came{Arrival: arrival}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := &run{loaded: Loaded{Wakes: 3}, came: tt.came}
			got, all := d.told()
			if all != tt.all {
				t.Fatalf("all is %t, expected %t", all, tt.all)
			}
			want, wakes := Arrival{}, int64(3)
			if tt.all {
				want, wakes = arrival, 4
			}
			if diff := cmp.Diff(want, got); diff != "" || d.loaded.Wakes != wakes || d.came != nil || d.touched != tt.all {
				t.Errorf("counter %d, touched %t, kept %v, arrival (-want +got):\n%s", d.loaded.Wakes, d.touched, d.came, diff)
			}
		})
	}
}
