package graph_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/rollout"
)

var update = flag.Bool("update", false, "rewrite the answers in testdata/golden")

// story fills our organization with everything that the schema can show: a rollout that is over, one that waits at a
// gate, an environment that is not ready.
func (f *fixture) story() {
	f.t.Helper()
	staging := f.environment(ours, "staging", core.TierStaging)
	production := f.environment(ours, "production", core.TierProduction)
	broken := f.environment(ours, "broken", core.TierQA)
	f.apply(ours, rollout.EnvironmentReadiness{EnvironmentID: broken.ID, Reason: "argo-rollouts controller not found"})
	shop := f.application(ours, "shop", "api", "web")
	f.application(ours, "blog", "site")
	f.pipeline(ours, shop, staging, production)

	first := f.rollout(ours, shop)
	f.apply(ours, rollout.Moved{RolloutID: first.ID, Verb: core.VerbStart})
	f.apply(ours, rollout.Moved{RolloutID: first.ID, Verb: core.VerbFail, Reason: "staging: api is degraded at gate 25"})

	f.publish(ours, "shop/api", "1.1", 11)
	second := f.rollout(ours, shop)
	f.apply(ours, rollout.Moved{RolloutID: second.ID, Verb: core.VerbStart})
	f.apply(ours, rollout.EnvironmentMoved{RolloutID: second.ID, EnvironmentID: staging.ID, Verb: core.VerbStart})
	f.apply(ours, rollout.DeploymentMoved{DeploymentID: 5, Verb: core.VerbStart})
	f.apply(ours, rollout.DeploymentCommitted{
		DeploymentID: 5, CommitSHA: strings.Repeat("ab", 20), ManifestDigest: digest(99),
		Parameters: json.RawMessage(`{"path":"staging/api.yaml"}`),
	})
	f.apply(ours, rollout.ApprovalRequested{RolloutID: second.ID, GateID: "production", Reason: "production needs a release manager"})
}

// TestGolden asks every query in testdata/golden of the story and compares the answers with the files beside them.
func TestGolden(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.story()
	files, err := filepath.Glob(filepath.Join("testdata", "golden", "*.graphql"))
	if err != nil || len(files) == 0 {
		t.Fatalf("%d queries, %v", len(files), err)
	}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".graphql")
		query, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		a := f.ask(ours, string(query), nil)
		compare(t, filepath.Join("testdata", "golden", name+".json"), a)
	}
	if text := f.log.String(); strings.Contains(text, "level=ERROR") {
		t.Errorf("something went wrong inside:\n%s", text)
	}
}

var instant = regexp.MustCompile(`"\d{4}-\d\d-\d\dT[0-9:.]+(Z|[+-]\d\d:\d\d)"`)

// compare compares an answer with a file, instants aside.
func compare(t *testing.T, path string, a answer) {
	t.Helper()
	slices.SortFunc(a.Errors, func(a, b graphError) int { return strings.Compare(fmt.Sprint(a.Path), fmt.Sprint(b.Path)) })
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if err := e.Encode(a); err != nil {
		t.Fatal(err)
	}
	got := instant.ReplaceAllString(b.String(), `"<instant>"`)
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("%v (-update writes it)", err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (-file +got):\n%s", path, diff)
	}
}
