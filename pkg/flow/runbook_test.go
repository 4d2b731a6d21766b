package flow_test

import (
	"strings"
	"testing"

	"github.com/lockstep-cd/lockstep/pkg/flow"
)

// job is a job step.
func job(environment, name, namespace string) string {
	if namespace != "" {
		namespace = `,"namespace":"` + namespace + `"`
	}
	return `{"type":"job","environment":"` + environment + `","job":{"name":"` + name + `","template":"x"` + namespace + `}}`
}

// A pipeline of jobs, approvals and pauses is a runbook (R4-09).
func TestRunbooks(t *testing.T) {
	t.Parallel()
	approval, known := `{"type":"approval","name":"sure"}`, flow.Known{Steps: []string{"deploy", "approval", "job"}, Environments: []string{"staging", "production"}}
	for name, c := range map[string]struct {
		steps   []string
		problem string
	}{
		"one job":            {steps: []string{job("production", "restart", "shop")}},
		"an approval":        {steps: []string{approval, job("staging", "drain", "shop"), job("staging", "restart", "shop"), `{"type":"approval","name":"later"}`, job("production", "restart", "shop")}},
		"an approval within": {steps: []string{job("staging", "drain", "shop"), approval, job("staging", "restart", "shop")}, problem: "/steps/1: found an approval between jobs in \"staging\""},
		"no job":             {steps: []string{approval}, problem: "/steps: found no deploy step; expected at least one, or a job"},
		"no namespace":       {steps: []string{job("production", "restart", "")}, problem: "/steps/0/job/namespace: found nothing; expected a namespace"},
		"back and forth":     {steps: []string{job("staging", "a", "shop"), job("production", "b", "shop"), job("staging", "c", "shop")}, problem: `/steps/2/environment: found "staging", which the runbook has left for "production"`},
		"two of a name":      {steps: []string{job("staging", "a", "shop"), job("staging", "a", "shop")}, problem: `/steps/1/job/name: found "a"`},
		"an unknown place":   {steps: []string{job("mars", "a", "shop")}, problem: `/steps/0/environment: found "mars"; expected an environment that exists`},
		"a reserved name":    {steps: []string{`{"type":"approval","name":"staging"}`, job("staging", "a", "shop")}, problem: "/steps/0/name: found gate id"},
		"beside a deploy":    {steps: []string{`{"type":"deploy","environment":"staging","config":{}}`, job("production", "a", "shop")}, problem: "expected an environment that an earlier step deploys to"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			def, err := flow.Parse([]byte(`{"steps":[` + strings.Join(c.steps, ",") + `]}`))
			if err == nil {
				err = flow.Check(def, known)
			}
			if got := problems(err); (err != nil) != (c.problem != "") || !strings.Contains(got, c.problem) {
				t.Errorf("runbook: found %q (%v); expected %q", got, err, c.problem)
			}
			if c.problem == "" && !def.Runbook() {
				t.Error("it is no runbook")
			}
		})
	}
}
