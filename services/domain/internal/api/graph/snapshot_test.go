package graph_test

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/lockstep-cd/lockstep/pkg/driver"
)

// D15: what was deployed says by which bundle, which is the one that the rollout has pinned (D7).
func TestASnapshotNamesTheBundleThatDeployedIt(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.story()
	embedded, err := driver.Embedded()
	if err != nil {
		t.Fatal(err)
	}
	installed, err := embedded.Get("argo-rollouts@1")
	if err != nil {
		t.Fatal(err)
	}
	var got any
	if err := json.Unmarshal(f.ask(ours, `{ node(id: "deployment_5") { ... on Deployment { snapshot { driverDigest } } } }`, nil).Data,
		&got); err != nil {
		t.Fatal(err)
	}
	if want := fmt.Sprint(map[string]any{"node": map[string]any{"snapshot": map[string]any{"driverDigest": installed.Digest()}}}); fmt.Sprint(got) != want {
		t.Errorf("snapshot: got %v, want %s", got, want)
	}
}
