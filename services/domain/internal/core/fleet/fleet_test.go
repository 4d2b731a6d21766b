package fleet_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/fleet"
)

func parse(t *testing.T, text string) fleet.Spec {
	t.Helper()
	s, found := fleet.Parse(json.RawMessage(text))
	if len(found) > 0 {
		t.Fatalf("%s: %v", text, found)
	}
	return s
}

func agents(n int) []fleet.Target {
	all := make([]fleet.Target, n)
	for i := range all {
		all[i] = fleet.Target{
			AgentID: int64(i + 1), Name: fmt.Sprintf("c%04d", i+1),
			Labels: map[string]string{"region": []string{"eu", "us"}[i%2], "ring": fmt.Sprint(9 - i%3)},
		}
	}
	return all
}

// D61: targets are selected by label, sorted by label or hash, and deployed n or percent at a time.
func TestWavesArePlanned(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		spec   string
		agents int
		sizes  string
		first  string
	}{
		"one at a time":                 {`{"selector": {"region": "*"}, "waves": [{"targets": 1}]}`, 3, "[1 1 1]", "c0001"},
		"one, then the rest":            {`{"selector": {"region": "*"}, "waves": [{"targets": 1}, {"percent": 100}]}`, 5, "[1 4]", "c0001"},
		"percent is of all, rounded up": {`{"selector": {"region": "*"}, "waves": [{"percent": 10}, {"percent": 50}]}`, 7, "[1 4 2]", "c0001"},
		"by a value":                    {`{"selector": {"region": "us"}, "waves": [{"percent": 100}]}`, 5, "[2]", "c0002"},
		"by two labels":                 {`{"selector": {"region": ["eu", "us"], "ring": "7"}, "waves": [{"percent": 100}]}`, 6, "[2]", "c0003"},
		"by label": {
			`{"selector": {"region": "*"}, "order": {"label": "ring"}, "waves": [{"targets": 2}]}`, 6, "[2 2 2]", "c0003",
		},
		"500": {`{"selector": {"region": "*"}, "waves": [{"targets": 1}, {"percent": 5}, {"percent": 25}]}`, 500, "[1 25 125 125 125 99]", "c0001"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			waves, err := parse(t, c.spec).Plan("production", agents(c.agents))
			if err != nil {
				t.Fatal(err)
			}
			sizes := make([]int, len(waves))
			for i, w := range waves {
				sizes[i] = len(w)
			}
			if fmt.Sprint(sizes) != c.sizes || waves[0][0].Name != c.first {
				t.Errorf("sizes %v, first %s; expected %s, %s", sizes, waves[0][0].Name, c.sizes, c.first)
			}
		})
	}
}

func TestTheOrderByHashIsTheSameEachTime(t *testing.T) { // D61
	t.Parallel()
	s := parse(t, `{"selector": {"region": "*"}, "order": {"hash": true}, "waves": [{"percent": 100}]}`)
	one, _ := s.Plan("p", agents(20))
	turned := agents(20)
	slices.Reverse(turned)
	other, _ := s.Plan("p", turned)
	if fmt.Sprint(one) != fmt.Sprint(other) || one[0][0].Name == "c0001" && one[0][1].Name == "c0002" {
		t.Errorf("%v\n%v", one, other)
	}
}

// D61: a selector that selects nothing, or too much, begins no rollout.
func TestTooFewAndTooManyTargets(t *testing.T) {
	t.Parallel()
	none := parse(t, `{"selector": {"region": "mars"}, "waves": [{"percent": 100}]}`)
	if _, err := none.Plan("production", agents(5)); !fault.Is(err, fault.Refused) || !strings.Contains(err.Error(), "region=mars") {
		t.Errorf("none: %v", err)
	}
	all := parse(t, `{"selector": {"region": "*"}, "waves": [{"percent": 100}]}`)
	if _, err := all.Plan("production", agents(10_000)); !fault.Is(err, fault.Refused) || !strings.Contains(err.Error(), "10000 targets") {
		t.Errorf("many: %v", err)
	}
}

func TestWhatIsWrongWithAFleetIsLocated(t *testing.T) { // D61
	t.Parallel()
	for text, at := range map[string]string{
		`[]`:                          "",
		`{"selectors": {}}`:           "",
		`{"waves": [{"targets": 1}]}`: "/selector",
		`{"selector": {"a": []}, "waves": [{"targets": 1}]}`:                                                 "/selector/a",
		`{"selector": {"a": "x y"}, "waves": [{"targets": 1}]}`:                                              "/selector/a",
		`{"selector": {"a": "b"}, "waves": []}`:                                                              "/waves",
		`{"selector": {"a": "b"}, "waves": [{"targets": 1}, {"targets": 1, "percent": 5}]}`:                  "/waves/1",
		`{"selector": {"a": "b"}, "waves": [{"percent": 101}]}`:                                              "/waves/0",
		`{"selector": {"a": "b"}, "waves": [{"percent": 1}], "order": {}}`:                                   "/order",
		`{"selector": {"a": "b"}, "waves": [{"percent": 1}], "interval_seconds": -1}`:                        "/interval_seconds",
		`{"selector": {"a": "b"}, "waves": [{"percent": 1}], "interval_seconds": 9, "freshness_seconds": 9}`: "/freshness_seconds",
		`{"selector": {"a": "b"}, "waves": [{"percent": 1}], "success": {"wave": {}}}`:                       "/success/wave",
		`{"selector": {"a": "b"}, "waves": [{"percent": 1}], "success": {"overall": {"max_failed": -1}}}`:    "/success/overall/max_failed",
		`{"selector": {"a": "b"}, "waves": [{"percent": 1}], "at_end": true}`:                                "/at_end",
		`{"selector": {"a": "b"}, "waves": "all"}`:                                                           "/waves",
	} {
		if _, found := fleet.Parse(json.RawMessage(text)); len(found) != 1 || found[0].Name != at {
			t.Errorf("%s: %v, expected one finding at %q", text, found, at)
		}
	}
}

// D61: a wave begins once the one before has ended, met the thresholds, and is neither paused nor too long ago.
func TestWavesAreDecided(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_774_432_800, 0)
	ago := func(d time.Duration) *time.Time { at := now.Add(-d); return &at }
	const base = `"selector": {"a": "b"}, "waves": [{"targets": 10}]`
	ended := func(healthy, failed int, at *time.Time) fleet.Wave {
		return fleet.Wave{Number: 1, Targets: healthy + failed, Healthy: healthy, Failed: failed, FinishedAt: at}
	}
	second := fleet.Wave{Number: 2, Targets: 10}
	for name, c := range map[string]struct {
		spec  string
		waves []fleet.Wave
		next  int
		want  string
	}{
		"the first":                   {`{` + base + `}`, []fleet.Wave{{Number: 1, Targets: 10}}, 1, "begins: wave 1 of 1 begins"},
		"the first, paused":           {`{` + base + `}`, []fleet.Wave{{Number: 1, Targets: 10, Paused: true}}, 1, "waits: wave 1 is paused"},
		"not ended":                   {`{` + base + `}`, []fleet.Wave{{Number: 1, Targets: 10, Healthy: 7, Failed: 1}, second}, 2, "waits: 2 of 10 targets of wave 1 have not ended"},
		"all healthy":                 {`{` + base + `}`, []fleet.Wave{ended(10, 0, ago(0)), second}, 2, "begins: wave 1: 10 of 10 targets healthy"},
		"by default all are needed":   {`{` + base + `}`, []fleet.Wave{ended(9, 1, ago(0)), second}, 2, "stops: wave 1: 1 of 10 targets failed; expected at least 100 % healthy"},
		"the share of a wave":         {`{` + base + `, "success": {"wave": {"min_healthy_percent": 90}}}`, []fleet.Wave{ended(9, 1, ago(0)), second}, 2, "begins: wave 1: 9 of 10 targets healthy"},
		"the share of a wave, missed": {`{` + base + `, "success": {"wave": {"min_healthy_percent": 91}}}`, []fleet.Wave{ended(9, 1, ago(0)), second}, 2, "stops: wave 1: 1 of 10 targets failed; expected at least 91 % healthy"},
		"failures of a wave":          {`{` + base + `, "success": {"wave": {"max_failed": 1}}}`, []fleet.Wave{ended(8, 2, ago(0)), second}, 2, "stops: wave 1: 2 of 10 targets failed; expected at most 1"},
		"overall, of all targets":     {`{` + base + `, "success": {"overall": {"min_healthy_percent": 90}}}`, []fleet.Wave{ended(8, 2, ago(0)), second}, 2, "begins: wave 1: 8 of 10 targets healthy"},
		"overall, out of reach":       {`{` + base + `, "success": {"overall": {"min_healthy_percent": 91}}}`, []fleet.Wave{ended(8, 2, ago(0)), second}, 2, "stops: overall: 2 of 20 targets failed; expected at least 91 % healthy"},
		"the interval":                {`{` + base + `, "interval_seconds": 60}`, []fleet.Wave{ended(10, 0, ago(59*time.Second)), second}, 2, "waits: the interval after wave 1 until 1s"},
		"after the interval":          {`{` + base + `, "interval_seconds": 60}`, []fleet.Wave{ended(10, 0, ago(time.Minute)), second}, 2, "begins: wave 1: 10 of 10 targets healthy"},
		"not fresh":                   {`{` + base + `, "freshness_seconds": 60}`, []fleet.Wave{ended(10, 0, ago(61*time.Second)), second}, 2, "stops: freshness: wave 1 ended at " + ago(61*time.Second).UTC().Format(time.RFC3339) + ", and wave 2 had to begin within 1m0s"},
		"paused, and stops all the same": {
			`{` + base + `}`,
			[]fleet.Wave{ended(9, 1, ago(0)), {Number: 2, Targets: 10, Paused: true}},
			2,
			"stops: wave 1: 1 of 10 targets failed; expected at least 100 % healthy",
		},
		"the end": {`{` + base + `, "freshness_seconds": 60, "interval_seconds": 50}`, []fleet.Wave{ended(10, 0, ago(time.Hour))}, 2, "begins: wave 1: 10 of 10 targets healthy"},
		"begun before, retried": {
			`{` + base + `, "freshness_seconds": 60, "interval_seconds": 50}`,
			[]fleet.Wave{ended(10, 0, ago(time.Hour)), {Number: 2, Targets: 10, Begun: true}},
			2, "begins: wave 1: 10 of 10 targets healthy",
		},
		"begun before, retried at once": {
			`{` + base + `, "interval_seconds": 50}`,
			[]fleet.Wave{ended(10, 0, ago(0)), {Number: 2, Targets: 10, Begun: true}},
			2,
			"begins: wave 1: 10 of 10 targets healthy",
		},
		"the end of a failure": {`{` + base + `}`, []fleet.Wave{ended(0, 10, ago(0))}, 2, "stops: wave 1: 10 of 10 targets failed; expected at least 100 % healthy"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			v := parse(t, c.spec).Decide(c.waves, c.next, now)
			got := "waits: " + v.Waits
			switch {
			case v.Begins:
				got = "begins: " + v.Why
			case v.Stops != "":
				got = "stops: " + v.Stops
			case v.Until != nil:
				got += " until " + v.Until.Sub(now).String()
			}
			if got != c.want {
				t.Errorf("found %q, expected %q", got, c.want)
			}
		})
	}
}

// D61: between the waves of a rollback nothing holds it, and all of its waves are judged at the end.
func TestARollbackIsJudgedAtItsEnd(t *testing.T) {
	t.Parallel()
	s := parse(t, `{"selector": {"a": "b"}, "waves": [{"targets": 10}], "interval_seconds": 50, "freshness_seconds": 60}`).ForRollback()
	now := time.Unix(1_774_432_800, 0)
	long := now.Add(-time.Hour)
	waves := []fleet.Wave{{Number: 1, Targets: 10, Failed: 10, FinishedAt: &now}, {Number: 2, Targets: 10}}
	if v := s.Decide(waves, 2, now); !v.Begins {
		t.Errorf("at once, after failures: %+v", v)
	}
	waves[0].FinishedAt = &long
	if v := s.Decide(waves, 2, now); !v.Begins {
		t.Errorf("after an hour: %+v", v)
	}
	waves[1] = fleet.Wave{Number: 2, Targets: 10, Healthy: 10, FinishedAt: &now}
	if v := s.Decide(waves, 3, now); v.Stops != "wave 1: 10 of 10 targets failed; expected at least 100 % healthy" {
		t.Errorf("the end: %+v", v)
	}
}

func TestGatesOfWaves(t *testing.T) { // D61
	t.Parallel()
	for gate, want := range map[string]int{
		"production/wave-1": 1, "production/wave-3": 3, "production/waves": 4, "production/wave-4": 0, "production/wave-01": 0, "production/25": 0,
		"production": 0, "staging/wave-1": 0, "production/wave-0": 0, "production/wave-1x": 0,
	} {
		if got := fleet.WaveOf("production", gate, 3); got != want {
			t.Errorf("%s: found %d, expected %d", gate, got, want)
		}
	}
}

func TestLabelsAreChecked(t *testing.T) { // D61
	t.Parallel()
	if found := fleet.CheckLabels("/set", map[string]string{"region": "eu-west-1", "lockstep.io/ring": "2"}); len(found) > 0 {
		t.Errorf("found %v", found)
	}
	for key, value := range map[string]string{"": "x", "a b": "x", "a": "", "b": "*", "c": strings.Repeat("x", 64)} {
		if found := fleet.CheckLabels("/set", map[string]string{key: value}); len(found) != 1 {
			t.Errorf("%q=%q: %v", key, value, found)
		}
	}
}
