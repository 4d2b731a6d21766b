package flow_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/lockstep-cd/lockstep/pkg/flow"
)

// TestSchedulesAreBounded (R3-27): whether windows ever open is searched for when a pipeline is saved, so a pipeline has few schedules of
// its own; one for every environment counts once. What was accepted earlier is not searched again.
func TestSchedulesAreBounded(t *testing.T) {
	t.Parallel()
	pipeline := func(own bool) flow.Definition {
		const check = `{"proposed":[{"key":"hours","kind":"schedule","schedule":{"allow":[{"cron":"0 9 * * *","duration":3600}]}}]}`
		var steps []string
		for i := range 51 {
			checks := ""
			if own {
				checks = `"checks":` + check + `,`
			}
			steps = append(steps, fmt.Sprintf(`{"type":"deploy","environment":"e%d",%s"config":{}}`, i, checks))
		}
		def, err := flow.Parse([]byte(`{"checks":` + check + `,"steps":[` + strings.Join(steps, ",") + `]}`))
		if err != nil {
			t.Fatal(err)
		}
		return def
	}
	known := flow.Known{Steps: []string{"deploy"}}
	for i := range 51 {
		known.Environments = append(known.Environments, fmt.Sprintf("e%d", i))
	}
	if err := flow.Check(pipeline(false), known); err != nil {
		t.Errorf("one schedule for 51 environments: %v", err)
	}
	if err := flow.Check(pipeline(true), known); err == nil || !strings.Contains(err.Error(), "found more than 50 schedules") {
		t.Errorf("51 schedules: found %v", err)
	}
	known.Stored = true
	if err := flow.Check(pipeline(true), known); err != nil {
		t.Errorf("accepted earlier: %v", err)
	}
}
