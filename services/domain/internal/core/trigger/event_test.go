package trigger

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/lockstep-cd/lockstep/pkg/fault"
)

// D58: each member of an event is looked up, so there is a bound to how many it may have.
func TestAnEventOfManyMembersIsRefused(t *testing.T) {
	t.Parallel()
	e := Event{ID: "1", Source: "/ci", Type: "build.passed"}
	if _, details := e.keys(map[string]any{"a": map[string]any{"b": "c"}}); checkKeys(details) != nil {
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
	if _, details := e.keys(read); len(details) > maxLeaves+10 || !fault.Is(checkKeys(details), fault.Invalid) {
		t.Errorf("%d keys of a large event, and it is not refused", len(details))
	}
}
