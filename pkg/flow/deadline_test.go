package flow_test

import (
	"strings"
	"testing"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/flow"
)

func TestDeadlines(t *testing.T) { // R4-25
	t.Parallel()
	def, err := flow.Parse([]byte(`{"deadline":{"after":3600,"counts_waiting":true},"rollback_deadline":{"after":60},
		"steps":[{"type":"deploy","environment":"staging","deadline":{"after":600,"on_expiry":"abort"},"config":{}}]}`))
	if err != nil {
		t.Fatal(err)
	}
	if d := def.Deadline; d == nil || d.After != 3600 || !d.CountsWaiting || d.OnExpiry != "" {
		t.Errorf("found %+v", d)
	}
	if d := def.RollbackDeadline; d == nil || d.After != 60 {
		t.Errorf("found %+v", d)
	}
	if d := def.Steps[0].Deadline; d == nil || d.After != 600 || d.OnExpiry != "abort" {
		t.Errorf("found %+v", d)
	}
	if def, err = flow.Parse([]byte(`{"work_deadline":0,"steps":[{"type":"deploy","environment":"staging","config":{"deadline":60},"gates":[{"weight":50}],
		"before":[{"name":"a","template":"x","retries":1}],"after":[{"name":"b","template":"x","deadline":10}]}]}`)); err != nil {
		t.Fatal(err)
	}
	if given := def.Given(0).Seconds(); def.WorkDeadline == nil || *def.WorkDeadline != 0 || given != 2*3600+10+2*60 {
		t.Errorf("found %v, and %v s that the pipeline gives; want 7330", def.WorkDeadline, given)
	}
	for wrong, at := range map[string]string{
		`"work_deadline":-1,`:                            "/work_deadline",
		`"work_deadline":2592001,`:                       "/work_deadline",
		`"deadline":{"after":0},`:                        "/deadline/after",
		`"deadline":{"on_expiry":"fail"},`:               "/deadline",
		`"deadline":{"after":1,"on_expiry":"cancel"},`:   "/deadline/on_expiry",
		`"rollback_deadline":{"after":9,"unit":"hour"},`: "/rollback_deadline",
	} {
		_, err := flow.Parse([]byte(`{` + wrong + `"steps":[{"type":"deploy","environment":"staging","config":{}}]}`))
		fields := fault.FieldsOf(err)
		if len(fields) == 0 || !strings.HasPrefix(fields[0].Name, at) {
			t.Errorf("%s: found %+v; want a finding at %s", wrong, fields, at)
		}
	}
}
