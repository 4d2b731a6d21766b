package flow

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/lockstep-cd/lockstep/pkg/fault"
)

// R4-26: what is left out is left out only if everything that is new fits, by message or by path.
func TestWhatIsSkipped(t *testing.T) {
	t.Parallel()
	rule := &SkipOn{CommitMessagePrefixes: []string{"docs:", "chore:"}, Paths: []string{"docs/**", "*.md"}}
	for name, c := range map[string]struct {
		rule *SkipOn
		news News
		want string
	}{
		"no rule":           {nil, News{Messages: []string{"docs: a"}, Files: []string{"docs/a"}}, ""},
		"nothing is known":  {rule, News{}, ""},
		"messages":          {rule, News{Messages: []string{"docs: a", "chore: b"}}, "the messages of all new commits begin with docs: or chore:"},
		"one message":       {rule, News{Messages: []string{"docs: a", "feat: b"}}, ""},
		"in the middle":     {rule, News{Messages: []string{"a docs: b"}}, ""},
		"files":             {rule, News{Files: []string{"docs/a/b", "README.md"}}, "all changed files match docs/** or *.md"},
		"one file":          {rule, News{Files: []string{"docs/a/b", "deploy/api.yaml"}}, ""},
		"one of both":       {rule, News{Messages: []string{"feat: a"}, Files: []string{"docs/a"}}, "all changed files match docs/** or *.md"},
		"no rule for files": {&SkipOn{CommitMessagePrefixes: []string{"docs:"}}, News{Files: []string{"docs/a"}}, ""},
	} {
		if got := c.rule.Because(c.news); got != c.want {
			t.Errorf("%s: found %q; want %q", name, got, c.want)
		}
	}
}

// R4-26: pauses, analyses and jobs may be left out; approvals, jobs after a failure and those of a runbook may not.
func TestWhatMayBeSkipped(t *testing.T) {
	t.Parallel()
	const rule = `"skip_on":{"paths":["docs/**"]}`
	deploy := func(more string) string {
		return `{"type":"deploy","environment":"staging","config":{}` + more + `}`
	}
	for name, c := range map[string]struct{ steps, at string }{
		"a pause":         {deploy("") + `,{"type":"pause","duration":5,` + rule + `}`, ""},
		"an analysis":     {deploy("") + `,{"type":"analysis",` + rule + `}`, ""},
		"jobs":            {deploy(`,"before":[{"name":"a","template":"x",` + rule + `}],"after":[{"name":"b","template":"x",` + rule + `}]`), ""},
		"a job":           {deploy("") + `,{"type":"job","environment":"staging","job":{"name":"a","template":"x",` + rule + `}}`, ""},
		"after a failure": {deploy(`,"on_failure":[{"name":"a","template":"x",` + rule + `}]`), "/steps/0/on_failure/0/skip_on"},
		"an approval":     {`{"type":"approval",` + rule + `},` + deploy(""), "/steps/0/skip_on"},
		"a deployment":    {deploy("," + rule), "/steps/0/skip_on"},
		"a runbook": {
			`{"type":"job","environment":"staging","job":{"name":"a","namespace":"n","template":"x",` + rule + `}}`, "/steps/0/job/skip_on",
		},
		"an empty rule":   {deploy("") + `,{"type":"pause","duration":5,"skip_on":{}}`, "/steps/1/skip_on"},
		"another pattern": {deploy("") + `,{"type":"pause","duration":5,"skip_on":{"paths":["/docs"]}}`, "/steps/1/skip_on/paths/0"},
	} {
		def, err := Parse([]byte(`{"steps":[` + c.steps + `]}`))
		switch {
		case c.at == "" && (err != nil || !def.Skips()):
			t.Errorf("%s: found %v, skips %v", name, err, def.Skips())
		case c.at != "" && (!fault.Is(err, fault.Invalid) || !strings.HasPrefix(fault.FieldsOf(err)[0].Name, c.at)):
			t.Errorf("%s: found %v %+v; want a finding at %s", name, err, fault.FieldsOf(err), c.at)
		}
	}
	if left, err := LeftOf(json.RawMessage(`{"type":"pause","duration":5}`)); err != nil || left.What != "the pause of 5 seconds" || left.SkipOn != nil {
		t.Errorf("found %+v, %v", left, err)
	}
}
