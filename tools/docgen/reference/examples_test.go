package reference

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/flow"
	"github.com/lockstep-cd/lockstep/pkg/rendering"
)

// TestExampleOfAPipeline: the pipeline in docs/examples can be set as it is; one with a mistake is refused.
func TestExampleOfAPipeline(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join(root, "docs", "examples", "pipeline.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	for name, mistake := range map[string]struct{ was, is string }{
		"none": {}, "weights that fall": {"weight: 25", "weight: 3"},
		"an unknown strategy": {"rollout_strategy: canary", "rollout_strategy: bird"},
	} {
		definition, err := asJSON(bytes.Replace(text, []byte(mistake.was), []byte(mistake.is), 1))
		if err != nil {
			t.Fatal(err)
		}
		if err := checkPipeline(definition); (err == nil) != (name == "none") {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

// TestExampleOfARunbook: the runbook in docs/examples can be set as it is, and takes the inputs that its comment gives.
func TestExampleOfARunbook(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join(root, "docs", "examples", "runbook.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	definition, err := asJSON(text)
	if err != nil {
		t.Fatal(err)
	}
	def, err := flow.Parse(definition)
	if err != nil || !def.Runbook() {
		t.Fatalf("found %v (%+v); expected a runbook", err, fault.FieldsOf(err))
	}
	inputs, err := def.ReadInputs()
	if err != nil {
		t.Fatal(err)
	}
	given, err := inputs.Resolve([]byte(`{"workload":"api"}`))
	if want := `{"drain_seconds":30,"workload":"api"}`; err != nil || string(given) != want {
		t.Errorf("inputs: found %s (%v); expected %s", given, err, want)
	}
	// Whatever an input says, it is one argument.
	hostile := `x", --all, "y: {z`
	job, err := rendering.Render(rendering.Request{Template: def.Steps[0].Job.Template, Data: map[string]any{
		"versions": map[string]any{"tool": map[string]any{"reference": "registry.example.com/ops/tool"}},
		"inputs":   map[string]any{"workload": hostile, "drain_seconds": 30},
	}, Strict: true})
	if err != nil {
		t.Fatal(err)
	}
	if encoded, err := asJSON([]byte(job)); err != nil || !bytes.Contains(encoded, []byte(`["restart","deployment/x\", --all, \"y: {z","--drain=30s"]`)) {
		t.Errorf("the job: found %s (%v); expected three arguments", encoded, err)
	}
}

// R2-42: the example of a deployment between hooks can be set as it is, and its one template makes three jobs: one that drains, with a time
// that ends before the job's, and two that take that back.
func TestExampleOfHooks(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join(root, "docs", "examples", "drain.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	definition, err := asJSON(text)
	if err != nil {
		t.Fatal(err)
	}
	def, err := flow.Parse(definition)
	if err != nil || len(def.Steps) != 1 {
		t.Fatalf("found %v (%+v); expected one step", err, fault.FieldsOf(err))
	}
	step := def.Steps[0]
	for _, hook := range []struct {
		jobs []flow.Job
		want string
	}{
		{step.Before, `"args":["drain","worker-3","--ignore-daemonsets","--delete-emptydir-data","--timeout=840s"]`},
		{step.After, `"args":["uncordon","worker-3"]`},
		{step.OnFailure, `"args":["uncordon","worker-3"]`},
	} {
		if len(hook.jobs) != 1 {
			t.Fatalf("found %d jobs, expected one", len(hook.jobs))
		}
		job := hook.jobs[0]
		made, err := rendering.Render(rendering.Request{Template: job.Template, Data: map[string]any{
			"versions": map[string]any{"tool": map[string]any{"reference": "registry.example.com/ops/kubectl"}},
			"inputs":   map[string]any{"node": "worker-3"}, "job": map[string]any{"name": job.Name},
		}, Strict: true})
		if err != nil {
			t.Fatal(err)
		}
		if encoded, err := asJSON([]byte(made)); err != nil || !bytes.Contains(encoded, []byte(hook.want)) {
			t.Errorf("%s: found %s (%v); expected %s", job.Name, encoded, err, hook.want)
		}
	}
	if step.Before[0].Deadline <= 840 {
		t.Errorf("found the deadline %v, expected more than --timeout", step.Before[0].Deadline)
	}
	inputs, err := def.ReadInputs()
	if err != nil {
		t.Fatal(err)
	}
	if given, err := inputs.Resolve([]byte(`{"node":"worker-3 --all"}`)); err == nil {
		t.Errorf("inputs: found %s, expected a refusal of what is not the name of a node", given)
	}
}
