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
