package bundle

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
)

// R4-26: jobs and pauses that are left out are not in the program; whatever stays is as its author wrote it, and approvals keep their
// gates.
func TestJobsAreSkipped(t *testing.T) {
	t.Parallel()
	const rule = `"skip_on":{"paths":["docs/**"]}`
	f, err := Flows{}.Read(json.RawMessage(`{"steps":[
		{"type":"deploy","environment":"a","config":{"x":1.50},"before":[{"name":"migrate","template":"x"},{"name":"smoke","template":"x",` + rule + `}],
			"after":[{"name":"probe","template":"x",` + rule + `}]},
		{"type":"job","environment":"a","job":{"name":"report","template":"x",` + rule + `}},{"type":"approval"}]}`))
	if err != nil || f.Skip == nil {
		t.Fatal(err)
	}
	whole, err := f.Keep([]bool{true, true, true})
	if err != nil {
		t.Fatal(err)
	}
	left, skipped, err := f.Skip(whole, core.News{Files: []string{"docs/a"}})
	if err != nil || len(skipped) != 3 || skipped[0] == "" {
		t.Errorf("found %q, %v", skipped, err)
	}
	const want = `{"steps":[{"before":[{"name":"migrate","template":"x"}],"config":{"x":1.50},"environment":"a","type":"deploy"},` +
		`{"name":"step-2","type":"approval"}]}`
	if string(left) != want {
		t.Errorf("found %s; want %s", left, want)
	}
	same, skipped, err := f.Skip(whole, core.News{Files: []string{"deploy/a"}})
	if err != nil || len(skipped) != 0 || strings.Count(string(same), "skip_on") != 3 {
		t.Errorf("found %s, %q, %v", same, skipped, err)
	}
}
