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

// The schema of which forms are made is that of what is accepted, and names the check kinds that are installed.
func TestTheSchemaOfDefinitionsIsThatOfWhatIsAccepted(t *testing.T) {
	t.Parallel()
	ticket := flow.Kind{Name: "ticket", Targets: []string{"proposed"}, Schema: []byte(`{"type":"object","required":["project"]}`)}
	text, err := flow.DefinitionSchema([]flow.Kind{ticket})
	if err != nil {
		t.Fatal(err)
	}
	s, err := schema.Compile(text)
	if err != nil {
		t.Fatal(err)
	}
	for checks, good := range map[string]bool{
		`{}`: true, `{"proposed":[{"key":"a","kind":"ticket","with":{"project":"x"}}]}`: true, `{"proposed":[{"key":"a","kind":"ticket","with":{}}]}`: false,
		`{"active":[{"key":"a","kind":"ticket"}]}`: false, `{"proposed":[{"key":"a","kind":"dance"}]}`: false,
	} {
		if err := s.Validate([]byte(`{"checks":` + checks + `,"steps":[{"type":"pause","duration":1}]}`)); (err == nil) != good {
			t.Errorf("%s: the schema has %v; expected %t", checks, err, good)
		}
	}
	if err := s.Validate([]byte(`{"steps":[],"dance":1}`)); err == nil {
		t.Error("the schema accepts a pipeline without steps")
	}
}

// R3-05, R3-17: a check of health waits for what differs if the pipeline or the step says so: a step takes nothing back.
func TestHealthInSyncIsTheStricterOfBoth(t *testing.T) {
	t.Parallel()
	of := func(inSync bool) []flow.Condition {
		return []flow.Condition{{Key: "argocd-health", Kind: "health", InSync: inSync}}
	}
	for _, both := range [][2]bool{{true, false}, {false, true}, {true, true}, {false, false}} {
		merged := flow.Merge(of(both[0]), of(both[1]))
		if len(merged) != 1 || merged[0].InSync != (both[0] || both[1]) {
			t.Errorf("of %v: %+v", both, merged)
		}
	}
}
