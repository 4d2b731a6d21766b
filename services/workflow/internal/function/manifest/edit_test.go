package manifest_test

import (
	"testing"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/function/manifest"
)

// R4-28: one value of a YAML, JSON or HCL file, or what a group of an expression matches, is replaced, and no other byte.
func TestAFileIsEdited(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		before string
		edit   manifest.Edit
		after  string
	}{
		"yaml": {
			"# v\napi:\n  image: {tag: \"1.0\"}   # kept\n  replicas: 2\n", manifest.Edit{YAML: "api.image.tag", Value: "1.1"},
			"# v\napi:\n  image: {tag: \"1.1\"}   # kept\n  replicas: 2\n",
		},
		"a number of yaml":  {"replicas: 2\nname: a\n", manifest.Edit{YAML: "replicas", Value: "3"}, "replicas: 3\nname: a\n"},
		"json":              {"{ \"a\": {\"tag\":  \"1\\\"0\"}, \"b\": [1] }", manifest.Edit{JSON: "a.tag", Value: "2\"0"}, "{ \"a\": {\"tag\":  \"2\\\"0\"}, \"b\": [1] }"},
		"a number of json":  {`{"b":[{"n":1}],"n":1}`, manifest.Edit{JSON: "n", Value: "22"}, `{"b":[{"n":1}],"n":22}`},
		"text for a number": {`{"n":1}`, manifest.Edit{JSON: "n", Value: "x"}, `{"n":"x"}`},
		"hcl": {
			"locals {\n  image = \"a\" # kept\n}\nmodule \"api\" {\n  tags = {\n    image = \"c\"\n  }\n  image = \"b\"\n}\n",
			manifest.Edit{HCL: "module.api.image", Value: "d:1.2"},
			"locals {\n  image = \"a\" # kept\n}\nmodule \"api\" {\n  tags = {\n    image = \"c\"\n  }\n  image = \"d:1.2\"\n}\n",
		},
		"a number of hcl": {"n = 1\nm = 2\n", manifest.Edit{HCL: "m", Value: "3"}, "n = 1\nm = 3\n"},
		"regex":           {"FROM a:1\nFROM b:1\nFROM a:2\n", manifest.Edit{Regex: `FROM a:(\S+)`, Value: "$1"}, "FROM a:$1\nFROM b:1\nFROM a:$1\n"},
		"the same":        {"a: 1\n", manifest.Edit{YAML: "a", Value: "1"}, "a: 1\n"},
	} {
		got, err := manifest.EditFile([]byte(c.before), []manifest.Edit{c.edit})
		if err != nil || string(got.Content) != c.after || got.Changed != (c.before != c.after) {
			t.Errorf("%s: found %q, %v, %v; want %q", name, got.Content, got.Changed, err, c.after)
		}
	}
	for name, c := range map[string]struct {
		before string
		edit   manifest.Edit
	}{
		"no place":           {"a: 1\n", manifest.Edit{Value: "1"}},
		"two places":         {"a: 1\n", manifest.Edit{YAML: "a", JSON: "a", Value: "1"}},
		"not there":          {"a: 1\n", manifest.Edit{YAML: "b", Value: "1"}},
		"a mapping":          {"a: {b: 1}\n", manifest.Edit{YAML: "a", Value: "1"}},
		"no JSON":            {"a: 1\n", manifest.Edit{JSON: "a", Value: "1"}},
		"an object":          {`{"a":{}}`, manifest.Edit{JSON: "a", Value: "1"}},
		"not in JSON":        {`{"b":{"a":1}}`, manifest.Edit{JSON: "a", Value: "1"}},
		"not in HCL":         {"b = 1\n", manifest.Edit{HCL: "a", Value: "1"}},
		"twice in HCL":       {"a = 1\na = 2\n", manifest.Edit{HCL: "a", Value: "1"}},
		"an interpolation":   {"a = \"x\"\n", manifest.Edit{HCL: "a", Value: "${file(1)}"}},
		"a heredoc":          {"b = <<E\na = 1\nE\na = 2\n", manifest.Edit{HCL: "a", Value: "1"}},
		"no group":           {"a", manifest.Edit{Regex: "a", Value: "1"}},
		"two groups":         {"ab", manifest.Edit{Regex: "(a)(b)", Value: "1"}},
		"nothing that fits":  {"b", manifest.Edit{Regex: "(a)", Value: "1"}},
		"no expression":      {"a", manifest.Edit{Regex: "(", Value: "1"}},
		"behind an alias":    {"x: &x {b: 1}\na: *x\n", manifest.Edit{YAML: "a.b", Value: "2"}},
		"a line break (HCL)": {"a = \"x\"\n", manifest.Edit{HCL: "a", Value: "1\nb = 2"}},
	} {
		if got, err := manifest.EditFile([]byte(c.before), []manifest.Edit{c.edit}); !fault.Is(err, fault.Invalid) {
			t.Errorf("%s: found %q, %v; want an error", name, got.Content, err)
		}
	}
}
