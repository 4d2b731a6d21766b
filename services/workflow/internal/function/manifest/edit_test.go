package manifest_test

import (
	"context"
	"errors"
	"slices"
	"strings"
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
			"# v\napi:\n  image: {tag: \"1.0\"}   # kept\n  replicas: 2\n",
			manifest.Edit{YAML: "api.image.tag", Value: "1.1"},
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
		got, err := manifest.EditFile(t.Context(), []byte(c.before), []manifest.Edit{c.edit})
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
		if got, err := manifest.EditFile(t.Context(), []byte(c.before), []manifest.Edit{c.edit}); !fault.Is(err, fault.Invalid) {
			t.Errorf("%s: found %q, %v; want an error", name, got.Content, err)
		}
	}
}

// R4-28: what an edit writes has the type of what it replaces, as every reader takes it; nothing else becomes a number or a truth value.
func TestAnEditKeepsTheType(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		value                     string
		number, float, truth, hcl string // what becomes of 1, 1.10 and true in YAML, and of 1 in HCL
	}{
		{"2", "2", "2", `"2"`, "2"},
		{"1.20", "1.20", "1.20", `"1.20"`, "1.20"},
		{"-3", "-3", "-3", `"-3"`, "-3"},
		{"1", "1", "1", `"1"`, "1"},
		{"007", `"007"`, `"007"`, `"007"`, `"007"`},
		{"+5", `"+5"`, `"+5"`, `"+5"`, `"+5"`},
		{"1e5", `"1e5"`, `"1e5"`, `"1e5"`, `"1e5"`},
		{"123456789012345678", `"123456789012345678"`, `"123456789012345678"`, `"123456789012345678"`, `"123456789012345678"`},
		{"false", `"false"`, `"false"`, "false", `"false"`},
		{"True", `"True"`, `"True"`, `"True"`, `"True"`},
		{"t", "t", "t", "t", `"t"`},
	} {
		for found, want := range map[string]string{"1": c.number, "1.10": c.float, "true": c.truth} {
			got, err := edited(t, "a: "+found+"\n", manifest.Edit{YAML: "a", Value: c.value})
			if err != nil || got != "a: "+want+"\n" {
				t.Errorf("%s for %s in YAML: found %q, %v; want %s", c.value, found, got, err, want)
			}
			if !strings.HasPrefix(want, `"`) && want == "t" {
				want = `"t"`
			}
			got, err = edited(t, `{"a":`+found+`}`, manifest.Edit{JSON: "a", Value: c.value})
			if err != nil || got != `{"a":`+want+`}` {
				t.Errorf("%s for %s in JSON: found %q, %v; want %s", c.value, found, got, err, want)
			}
		}
		if got, err := edited(t, "a = 1\n", manifest.Edit{HCL: "a", Value: c.value}); err != nil || got != "a = "+c.hcl+"\n" {
			t.Errorf("%s in HCL: found %q, %v; want %s", c.value, got, err, c.hcl)
		}
	}
	for _, before := range []string{`{"n":1,"n":2}`, `{"a":{"n":1},"a":{"n":2}}`, `{"n":1,"\u006e":2}`} {
		for _, path := range []string{"n", "a.n"} {
			if got, err := edited(t, before, manifest.Edit{JSON: path, Value: "3"}); !fault.Is(err, fault.Invalid) {
				t.Errorf("%s: found %q, %v; want an error about a member that occurs twice", before, got, err)
			}
		}
	}
}

// R4-28: a brace in a string, in a comment or in an interpolation opens and closes nothing.
func TestBracesInTextsOfHCL(t *testing.T) {
	t.Parallel()
	const want = "module.a.image"
	for before, ok := range map[string]bool{
		"x = [\"{\"]\nmodule \"a\" {\n  image = \"b\"\n}\n":                               true,
		"module \"a\" {\n  x = [\"}\"]\n  image = \"b\" # }\n}\n":                         true,
		"module \"a\" {\n  x = [1] // }\n  y = [2] # {\n  image = \"b\"\r\n}\n":           true,
		"module \"a\" {\n  x = \"${f(\"}\", {a = 1})}\"\n  image = \"b\"\n}\n":            true,
		"module \"a\" {\n  x = \"$${\"\n  y = \"\\\"}\"\n  image = \"b\"\n}\n":            true,
		"module \"a\" {\n  x = \"<<E /* \"\n  image = \"b\"\n}\n":                         true,
		"module \"a\" {\n  x = [\"}\"]\n  y {\n    image = \"b\"\n  }\n}\n":               false, // module.a.y.image
		"module \"a\" {\n  x = f({\n    image = \"b\"\n  })\n}\n":                         false,
		"module \"a\" {\n  x = [{\n    image = \"b\"\n  }]\n}\n":                          false,
		"module \"a\" {\n  image = \"b\"\n":                                               false, // not closed
		"module \"a\" {\n  image = \"b\"\n}\n}\n":                                         false,
		"module \"a\" {\n  image = \"b\"\n]\n":                                            false,
		"module \"a\" {\n  image = \"b\"\n}\nx = \"\n":                                    false, // a string that does not end
		"module \"a\" {\n  image = \"b\"\n}\nx = \"${\n\"\"}\"\n":                         false,
		"module \"a\" {\n  image = \"b${1}\"\n}\n":                                        false,
		"module \"a\" {\n  image = \"b\"\n}\nx = <<E\n}\nE\n":                             false,
		"/* module \"b\" { */\nmodule \"a\" {\n  image = \"b\"\n}\n":                      false,
		"module \"a\" {\n  image = \"b\"\n}\nmodule a {\n  image = \"c\"\n}\n":            false, // twice
		"module \"a\" {\n  image = \"b\"\n}\nx = \"" + strings.Repeat(`${"`, 20) + "\"\n": false,
	} {
		got, err := edited(t, before, manifest.Edit{HCL: want, Value: "new"})
		switch {
		case ok && (err != nil || got != strings.Replace(before, `image = "b"`, `image = "new"`, 1)):
			t.Errorf("%s: found %q, %v; want another image", before, got, err)
		case !ok && !fault.Is(err, fault.Invalid):
			t.Errorf("%s: found %q, %v; want an error", before, got, err)
		}
	}
}

// R4-28: an expression matches the same places with the new value, so that a value says nothing beside it, and the same edit again changes
// nothing.
func TestAValueHasToFitItsExpression(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ before, regex, value, after string }{
		{"digest: x\n", `digest: (\S+)`, "y", "digest: y\n"},
		{"digest: x\n", `digest: (\S+)`, "a b", ""},
		{"c: {image: x, n: 1}\n", `image: ([^,]+),`, "y, privileged: true", ""},
		{"a: x\n", `a: (.+)`, "y\nb: 1", ""},
		{"a: x\n", `(?s)a: (.+)`, "y\nb: 1", ""},
		{"a: x\n", `a: (\S+)`, "y\u0085", ""},
		{"a: x\n", `a: (.+)`, "y\u2028b: 1", ""},
		{"a: x\n", `a: (x)`, "y", ""},      // it would not be found again
		{"a: x\n", `a:()`, "y", ""},        // it would be inserted again and again
		{"a: x\n", `()`, "y", ""},          // nothing is matched
		{"a: x\n", `a: (x)?|b`, "y", ""},   // with y there is no group
		{"ab", `(b)|a`, "b", "ab"},         // a match without the group stays
		{"a: x b: x", `: (x)`, "x: x", ""}, // the value would be matched as well
		{"a: 1, b: 2", `: (\d)`, "3", "a: 3, b: 3"},
		{"^a: x\na: x\n", `(?m)^a: (\w+)$`, "y", "^a: x\na: y\n"},
	} {
		got, err := edited(t, c.before, manifest.Edit{Regex: c.regex, Value: c.value})
		switch {
		case c.after == "" && !fault.Is(err, fault.Invalid):
			t.Errorf("%q by %q in %q: found %q, %v; want an error", c.value, c.regex, c.before, got, err)
		case c.after != "" && (err != nil || got != c.after):
			t.Errorf("%q by %q in %q: found %q, %v; want %q", c.value, c.regex, c.before, got, err, c.after)
		case c.after != "":
			if again, err := edited(t, got, manifest.Edit{Regex: c.regex, Value: c.value}); err != nil || again != got {
				t.Errorf("%q by %q a second time: found %q, %v; want no change", c.value, c.regex, again, err)
			}
		}
	}
}

// R4-28, D41: what an edit costs is bounded, whatever tenants write.
func TestEditsAreBounded(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("v", 1000)
	edits := func(n int, e manifest.Edit) []manifest.Edit { return slices.Repeat([]manifest.Edit{e}, n) }
	for name, c := range map[string]struct {
		content string
		edits   []manifest.Edit
	}{
		"a small value many times": {strings.Repeat("a", 900_000), edits(1, manifest.Edit{Regex: "(a)", Value: long})},
		"many matches":             {strings.Repeat("a ", 1001), edits(1, manifest.Edit{Regex: `(\w+)`, Value: "b"})},
		"too long a file":          {strings.Repeat("a ", 900) + strings.Repeat("x", 900_000), edits(1, manifest.Edit{Regex: "^(a)", Value: strings.Repeat("a", 200_000)})},
		"too long YAML":            {"a: x\nb: " + strings.Repeat("x", 900_000), edits(1, manifest.Edit{YAML: "a", Value: strings.Repeat("y", 200_000)})},
		"a large expression":       {strings.Repeat("a", 900_000), edits(1, manifest.Edit{Regex: "((?:a{0,30}){0,30}b)", Value: "x"})},
		"a huge expression":        {"a", edits(1, manifest.Edit{Regex: "((?:[a-z]{100}){10})", Value: "x"})},
		"nested repetitions":       {"a", edits(1, manifest.Edit{Regex: "((((a{9}){9}){9}){9})", Value: "x"})},
		"a long expression":        {"a", edits(1, manifest.Edit{Regex: "(" + long + ")", Value: "x"})},
		"many expressions":         {strings.Repeat("c", 200_000) + strings.Repeat("a", 50) + "b", edits(100, manifest.Edit{Regex: "a{50}(b)", Value: "b"})},
		"many edits":               {"a: 1\n", edits(101, manifest.Edit{YAML: "a", Value: "2"})},
		"no text":                  {"a: 1\n", edits(1, manifest.Edit{YAML: "a", Value: "\xff"})},
	} {
		if got, err := manifest.EditFile(t.Context(), []byte(c.content), c.edits); !fault.Is(err, fault.Invalid) {
			t.Errorf("%s: found %d bytes, %v; want an error", name, len(got.Content), err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := manifest.EditFile(ctx, []byte("a"), edits(1, manifest.Edit{Regex: "(a)", Value: "a"})); !errors.Is(err, context.Canceled) {
		t.Errorf("found %v; want that it is not begun", err)
	}
	// An ordinary file of a repository, and an ordinary expression.
	plain := strings.Repeat("# a line of text that says nothing\n", 5000) + "image: registry.example.com/shop/api:1.2\n"
	e := manifest.Edit{Regex: `image: registry\.example\.com/shop/api:(\S+)`, Value: "1.3"}
	if got, err := edited(t, plain, e); err != nil || !strings.HasSuffix(got, "api:1.3\n") {
		t.Errorf("an ordinary edit: %v", err)
	}
}

func edited(t *testing.T, before string, e manifest.Edit) (string, error) {
	t.Helper()
	got, err := manifest.EditFile(t.Context(), []byte(before), []manifest.Edit{e})
	return string(got.Content), err
}
