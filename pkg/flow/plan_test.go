package flow_test

import (
	"strings"
	"testing"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/flow"
)

func TestWhatDecidesAboutTheStrategy(t *testing.T) { // R4-15, R4-16
	t.Parallel()
	steps := `"steps":[{"type":"deploy","environment":"staging","config":{}}]}`
	def, err := flow.Parse([]byte(`{"commitMatcher":{"quickSync":"^(docs|fix)","pipeline":"(?i)risky"},"alwaysUsePipeline":true,` + steps))
	if err != nil || def.CommitMatcher != (flow.CommitMatcher{QuickSync: "^(docs|fix)", Pipeline: "(?i)risky"}) || !def.AlwaysUsePipeline {
		t.Errorf("found %+v, %v", def, err)
	}
	costly := `"commitMatcher":{"pipeline":"(?:` + strings.Repeat("a?", 240) + `){1000}b$"},` // seconds for one message
	for wrong, at := range map[string]string{
		`"commitMatcher":{},`:                    "/commitMatcher",
		`"commitMatcher":{"quick":"x"},`:         "/commitMatcher",
		`"commitMatcher":{"quickSync":""},`:      "/commitMatcher/quickSync",
		`"commitMatcher":{"quickSync":"(a"},`:    "/commitMatcher/quickSync",
		`"commitMatcher":{"pipeline":"a(?=b)"},`: "/commitMatcher/pipeline",
		costly:                                   "/commitMatcher/pipeline",
		`"alwaysUsePipeline":"yes",`:             "/alwaysUsePipeline",
	} {
		_, err := flow.Parse([]byte(`{` + wrong + steps))
		fields := fault.FieldsOf(err)
		if len(fields) != 1 || !strings.HasPrefix(fields[0].Name, at) {
			t.Errorf("%s: found %+v; want a finding at %s", wrong, fields, at)
		}
	}
}
