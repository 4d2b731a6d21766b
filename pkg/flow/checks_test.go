package flow_test

import (
	"testing"

	"github.com/lockstep-cd/lockstep/pkg/flow"
	"github.com/lockstep-cd/lockstep/pkg/schema"
)

// The schema of which forms are made is that of what is accepted (D48).
func TestTheSchemaOfChecksIsThatOfWhatIsAccepted(t *testing.T) {
	t.Parallel()
	text, err := flow.ChecksSchema(nil)
	if err != nil {
		t.Fatal(err)
	}
	s, err := schema.Compile(text)
	if err != nil {
		t.Fatal(err)
	}
	for checks, good := range map[string]bool{
		`{}`: true, `{"active":[{"kind":"health"}]}`: true, `{"active":[{"kind":"status"}]}`: false, `{"proposed":[{"key":"a"}]}`: true, `[]`: false,
		`{"steps":[]}`: false,
	} {
		_, err := flow.ParseChecks([]byte(checks))
		if byForm := s.Validate([]byte(checks)); (byForm == nil) != good || (err == nil) != good {
			t.Errorf("%s: the schema has %v, the parser %v; expected %t", checks, byForm, err, good)
		}
	}
}
