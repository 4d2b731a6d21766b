package trigger

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/lockstep-cd/lockstep/tools/lockstep/client"
)

// D58: each kind is shown with its settings as its schema has them, those that are required first and those within others by their path. A
// schema that cannot be read, or has no end, breaks nothing.
func TestKindsHaveTheirSettings(t *testing.T) {
	t.Parallel()
	deep := strings.Repeat(`{"properties":{"a":`, 100) + `{}` + strings.Repeat(`}}`, 100)
	var out strings.Builder
	kindTable(&out, []client.TriggerKind{
		{Kind: "EVENT", Description: "An event arrives.", Schema: json.RawMessage(`{"required":["types"],"properties":{
			"data":{"type":"object","additionalProperties":{"type":"string"},"description":"What it has."},
			"edit":{"type":"object","description":"Files.","required":["files"],"properties":{
				"files":{"type":"array","items":{"type":"object","properties":{"path":{"type":"string","description":"A file."}}}},
				"pull_request":{"type":"boolean","default":false}}},
			"formats":{"type":"array","items":{"enum":["A","B"]}},
			"inputs":{"type":"object"},
			"types":{"type":"array","items":{"type":"string"},"description":"Which\nevents."}}}`)},
		{Kind: "MANUAL", Default: true, Description: "On request.", Schema: json.RawMessage(`{"additionalProperties":false}`)},
		{Kind: "NEW", Schema: json.RawMessage(`[]`)},
		{Kind: "DEEP", Schema: json.RawMessage(deep)},
	})
	if diff := cmp.Diff(strings.Join([]string{
		"KIND|SETTING|TYPE|DEFAULT|DESCRIPTION",
		"event|-|-|off|An event arrives.",
		`-|types|list of string|required|Which\nevents.`,
		"-|data|object of string|-|What it has.",
		"-|edit|object|-|Files.",
		"-|edit.files|list of object|required|-",
		"-|edit.files[].path|string|-|A file.",
		"-|edit.pull_request|boolean|false|-",
		`-|formats|list of one of ["A","B"]|-|-`,
		"-|inputs|object|-|-",
		"manual|-|-|on|On request.",
		"new|-|-|off|-",
		"deep|-|-|off|-",
		"-|a|-|-|-", "-|a.a|-|-|-", "-|a.a.a|-|-|-", "-|a.a.a.a|-|-|-", "-|a.a.a.a.a|-|-|-", "",
	}, "\n"), strings.ReplaceAll(out.String(), "\t", "|")); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
