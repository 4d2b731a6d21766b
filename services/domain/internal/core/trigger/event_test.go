package trigger

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
)

// D58: each member of an event is looked up, so there is a bound to how many it may have.
func TestAnEventOfManyMembersIsRefused(t *testing.T) {
	t.Parallel()
	e := Event{ID: "1", Source: "/ci", Type: "build.passed"}
	if _, details := e.keys(map[string]any{"a": map[string]any{"b": "c"}}); len(details) > maxLeaves {
		t.Errorf("%d keys of a small event", len(details))
	}
	small := map[string]any{}
	for i := range 5000 {
		small[fmt.Sprint("m", i)] = 1
	}
	var err error
	if e.Data, err = json.Marshal(small); err != nil {
		t.Fatal(err)
	}
	read, err := e.object()
	if err != nil {
		t.Fatal(err)
	}
	if _, details := e.keys(read); len(details) <= maxLeaves || len(details) > maxLeaves+10 {
		t.Errorf("%d keys of a large event", len(details))
	}
	a := core.Actor{Organization: 1, Type: core.PrincipalSystem}
	if _, err := (&UseCases{}).SendEvent(t.Context(), a, e); !fault.Is(err, fault.Invalid) {
		t.Errorf("found %v, want that it is refused", err)
	}
}
