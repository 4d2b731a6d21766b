package main

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestScenariosAreChosenByTheBeginningsOfTheirNames also has each of them be there once, under a name that begins with its number.
func TestScenariosAreChosenByTheBeginningsOfTheirNames(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		only []string
		want string
	}{
		{[]string{"B1-"}, "B1-start"},
		{[]string{"B1"}, "B1-start, B14-peers, B10-duplicates, B11-kill, B12-noisy, B12-hogs, B13-canary, B15-records, B16-workers, B17-schedules, B18-replicas, B19-children"},
		{[]string{"B2-s", "B6"}, "B2-steps, B6-race"},
		{[]string{"B6", "B6-race"}, "B6-race"},
		{nil, names(scenarios())},
	} {
		chosen, err := choose(scenarios(), c.only)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(c.want, names(chosen)); diff != "" {
			t.Errorf("%q (-want +got):\n%s", c.only, diff)
		}
	}
	if chosen, err := choose(scenarios(), []string{"B2", "B99"}); err == nil || !strings.Contains(err.Error(), `"B99": there are B1-start, `) {
		t.Errorf("a name that chooses nothing: %s, %v", names(chosen), err)
	}
	seen := map[string]bool{}
	for _, s := range scenarios() {
		if number, _, found := strings.Cut(s.name, "-"); !found || !strings.HasPrefix(number, "B") || seen[s.name] || s.run == nil {
			t.Errorf("scenario %q: twice, without a number or without anything to run", s.name)
		}
		seen[s.name] = true
	}
}

func TestAScaleLeavesSomethingToDo(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		scale   float64
		n, want int
	}{{1, 500, 500}, {0.1, 500, 50}, {0.001, 500, 1}, {2, 3, 6}} {
		if got := (&world{options: options{scale: c.scale}}).scaled(c.n); got != c.want {
			t.Errorf("%d at %g is %d, expected %d", c.n, c.scale, got, c.want)
		}
	}
}

func TestParkedRunsAreBounded(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		o    options
		want int
	}{
		{options{scale: 1}, 1_000_000},
		{options{scale: 0.1}, 100_000},
		{options{scale: 0.0001}, 1_000},
		{options{scale: 1, most: 1_000}, 1_000},
	} {
		if got := c.o.parkedMost(); got != c.want {
			t.Errorf("%+v: beside at most %d, expected %d", c.o, got, c.want)
		}
	}
}
