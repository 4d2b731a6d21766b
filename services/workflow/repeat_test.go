package workflow_test

import (
	"testing"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/execution"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/program"
)

// TestAStartThatIsRefusedNowAndWasAcceptedBefore gets the handle of the first run, as the API promises for a repeat; with other content, or
// under another id, it is refused (issue 17).
func TestAStartThatIsRefusedNowAndWasAcceptedBefore(t *testing.T) {
	t.Parallel()
	tt := newTimetable(t)
	start := execution.Start{
		Organization: organization, Workflow: "w",
		Program: program.Program{Source: []byte("x = 1"), Modules: map[string][]byte{"a\nb": []byte("y = 1")}}, // a name that is refused today
	}
	first, err := tt.service.StartOfFlow(t.Context(), start) // which accepts what was accepted
	if err != nil {
		t.Fatal(err)
	}
	again, err := tt.service.Start(t.Context(), start)
	if err != nil || again.Created || again.Ref != first.Ref {
		t.Errorf("found %+v, error %v, expected the first run %s", again, err, first.Ref)
	}
	other := start
	other.Workflow = "other"
	if _, err := tt.service.Start(t.Context(), other); !fault.Is(err, fault.Invalid) {
		t.Errorf("found %v, expected a refusal", err)
	}
	other = start
	other.Inputs = []byte(`{"a": 1}`)
	if _, err := tt.service.Start(t.Context(), other); !fault.Is(err, fault.Invalid) {
		t.Errorf("found %v, expected a refusal", err)
	}
	other = start
	other.Organization = 2
	if _, err := tt.service.Start(t.Context(), other); !fault.Is(err, fault.Invalid) {
		t.Errorf("found %v, expected a refusal", err)
	}
}
