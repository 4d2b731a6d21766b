package domain

import (
	"encoding/json"
	"os"
	"testing"

	"github.com/lockstep-cd/lockstep/pkg/schema"
)

// TestTheConsolesFormsAgreeWithTheServer holds the validator against what the console's renderer says of the same values: generated
// ones, by the schemas of three made-up drivers and of all that ship (R29). The console's unit tests make sure that the file is what
// the renderer says; here is the other half.
func TestTheConsolesFormsAgreeWithTheServer(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("internal/console/ui/test/agreement.json")
	if err != nil {
		t.Fatal(err)
	}
	var all []struct {
		Name   string
		Schema json.RawMessage
		Cases  []struct {
			Value json.RawMessage
			Valid bool
		}
	}
	if err := json.Unmarshal(text, &all); err != nil {
		t.Fatal(err)
	}
	if len(all) < 7 {
		t.Fatalf("found %d schemas", len(all))
	}
	for _, one := range all {
		t.Run(one.Name, func(t *testing.T) {
			t.Parallel()
			compiled, err := schema.Compile(one.Schema, schema.UI())
			if err != nil {
				t.Fatal(err)
			}
			for _, c := range one.Cases {
				if err := compiled.Validate(c.Value); (err == nil) != c.Valid {
					t.Errorf("%s: the server says %v; the console says that it is valid: %v", c.Value, err, c.Valid)
				}
			}
		})
	}
}
