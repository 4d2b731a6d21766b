package reference

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
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
