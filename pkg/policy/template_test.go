package policy_test

import (
	"testing"

	"github.com/lockstep-cd/lockstep/pkg/policy"
)

// D51: each template is valid, says what it does, and decides its cases as they say; one of them at least is not allowed.
func TestTemplatesDecideTheirCases(t *testing.T) {
	t.Parallel()
	all, err := policy.Templates()
	if err != nil || len(all) < 20 {
		t.Fatalf("found %d templates, %v; expected at least 20", len(all), err)
	}
	for _, one := range all {
		cases, err := policy.TemplateCases(one.Name)
		if err != nil {
			t.Error(err)
			continue
		}
		outcomes, problems := cases.Run(one.Text)
		strict := false
		for _, o := range outcomes {
			if !o.Passed {
				t.Errorf("%s, %s: found %s (%s); expected %s", one.Name, o.Case.Name, o.Decision.Verdict, o.Decision.Sentence(), o.Expected())
			}
			strict = strict || o.Case.Verdict != policy.Allow
		}
		if len(problems) > 0 || one.Summary == "" || !strict && one.Name != "allow-everything" {
			t.Errorf("%s: problems %v, summary %q, a case that is not allowed: %v", one.Name, problems, one.Summary, strict)
		}
	}
}
