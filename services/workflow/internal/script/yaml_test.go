package script

import (
	"regexp"
	"strings"
	"testing"

	goccy "github.com/goccy/go-yaml"
	"go.starlark.net/starlark"
	yaml2 "go.yaml.in/yaml/v2"
	yaml3 "go.yaml.in/yaml/v3"
	"pgregory.net/rapid"
)

// implicit are the types of scalars without quotes in YAML 1.1, as https://yaml.org/type/ has them, and what PyYAML and Psych add.
func implicit() []*regexp.Regexp {
	var all []*regexp.Regexp
	for _, pattern := range []string{
		`y|Y|yes|Yes|YES|n|N|no|No|NO|true|True|TRUE|false|False|FALSE|on|On|ON|off|Off|OFF`,
		`[-+]?0b[0-1_]+|[-+]?0[0-7_]+|[-+]?(0|[1-9][0-9_]*)|[-+]?0x[0-9a-fA-F_]+|[-+]?[1-9][0-9_]*(:[0-5]?[0-9])+`,
		`[-+]?([0-9][0-9_]*)\.[0-9_]*([eE][-+][0-9]+)?|[-+]?\.[0-9][0-9_]*([eE][-+][0-9]+)?|[-+]?[0-9][0-9_]*(:[0-5]?[0-9])+\.[0-9_]*|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)`,
		`~|null|Null|NULL|`, `<<`, `=`,
		`[0-9]{4}-[0-9]{2}-[0-9]{2}|[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}([Tt]|[ \t]+)[0-9]{1,2}:[0-9]{2}:[0-9]{2}(\.[0-9]*)?(([ \t]*)Z|[-+][0-9]{1,2}(:[0-9]{2})?)?`,
		`[-+]?[1-9]([0-9]|,[0-9]|_[0-9])*`, `:[A-Za-z].*`,
	} {
		all = append(all, regexp.MustCompile(`^(`+pattern+`)$`))
	}
	return all
}

// written is to_yaml of a value, by a program.
func written(t interface {
	Helper()
	Fatal(args ...any)
}, v starlark.Value,
) string {
	t.Helper()
	text, err := toYAML(nil, starlark.NewBuiltin("to_yaml", toYAML), starlark.Tuple{v}, nil)
	if err != nil {
		t.Fatal(err)
	}
	s, _ := starlark.AsString(text)
	return s
}

// TestEveryReaderReadsTheStringsThatWereWritten draws strings that look like something else, as values, in lists and as keys.
func TestEveryReaderReadsTheStringsThatWereWritten(t *testing.T) {
	t.Parallel()
	types := implicit()
	read := func(t rapid.TB, s string) {
		for _, place := range []struct {
			value starlark.Value
			want  any
		}{
			{newDict("k", starlark.String(s)), map[string]any{"k": s}},
			{starlark.NewList([]starlark.Value{starlark.String(s)}), []any{s}},
			{newDict(s, starlark.MakeInt(1)), nil},
		} {
			text := written(t, place.value)
			for name, unmarshal := range map[string]func([]byte, any) error{
				"go.yaml.in/yaml/v2": func(b []byte, v any) error { return yaml2.Unmarshal(b, v) }, "go.yaml.in/yaml/v3": yaml3.Unmarshal,
				"github.com/goccy/go-yaml": func(b []byte, v any) error { return goccy.Unmarshal(b, v) },
			} {
				if !sound(unmarshal, text, s, place.want) {
					t.Fatalf("%s reads another value of %q:\n%s", name, s, text)
				}
			}
			var node yaml3.Node
			if err := yaml3.Unmarshal([]byte(text), &node); err != nil {
				t.Fatal(err)
			}
			plainScalars(&node, func(plain string) {
				if plain == "k" || place.want == nil && plain == "1" {
					return
				}
				for _, implicit := range types {
					if implicit.MatchString(plain) {
						t.Fatalf("%q is written without quotes, and is not a string in YAML 1.1: %s\n%s", plain, implicit, text)
					}
				}
			})
		}
	}
	for _, s := range []string{
		"22:22", "1:30:00", "=", "<<", "0o17", "1_000", "1,000", "2001-12-14", "y", "null", "~", "", ".inf", "1e3",
		"0x1F", ":a", "- a", "a: b", "#", "a #b", "line\nbreak", "\t", "12e03", "1.e+1",
	} {
		read(t, s)
	}
	rapid.Check(t, func(t *rapid.T) {
		read(t, rapid.OneOf(
			rapid.StringOfN(rapid.SampledFrom([]rune("0123456789abcdefxobnyTZtEe.:+-_, ~=<")), 0, 12, -1),
			rapid.StringMatching(`[-+]?[0-9]{1,3}(:[0-9]{1,2}){0,3}(\.[0-9]{0,2})?`),
			rapid.StringMatching(`[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}([Tt ][0-9]{1,2}:[0-9]{2}:[0-9]{2}(\.[0-9])?( ?[-+Z][0-9]{0,2})?)?`),
			rapid.StringMatching(`(?i)(y|n|yes|no|on|off|true|false|null|\.?inf|\.?nan|~)`),
			rapid.StringMatching(`[-+]?(0[box]?)?[0-9a-fA-F_,]{1,6}(\.[0-9_]{0,3})?([eE][-+]?[0-9]{1,3})?`),
		).Draw(t, "text"))
	})
}

// TestNumbersAreNumbersToEveryReader covers what is written without quotes on purpose.
func TestNumbersAreNumbersToEveryReader(t *testing.T) {
	t.Parallel()
	floats := implicit()[2]
	rapid.Check(t, func(t *rapid.T) {
		f := rapid.Float64().Draw(t, "f")
		text := strings.TrimSpace(written(t, starlark.Float(f)))
		if !floats.MatchString(text) && !implicit()[1].MatchString(text) {
			t.Fatalf("%v is written as %s, which is a string in YAML 1.1", f, text)
		}
		for name, unmarshal := range map[string]func([]byte, any) error{
			"go.yaml.in/yaml/v2": func(b []byte, v any) error { return yaml2.Unmarshal(b, v) }, "go.yaml.in/yaml/v3": yaml3.Unmarshal,
			"github.com/goccy/go-yaml": func(b []byte, v any) error { return goccy.Unmarshal(b, v) },
		} {
			var got float64
			if err := unmarshal([]byte(text), &got); err != nil || got != f {
				t.Fatalf("%s reads %v of %s, expected %v (%v)", name, got, text, f, err)
			}
		}
	})
}

func newDict(key string, v starlark.Value) *starlark.Dict {
	d := starlark.NewDict(1)
	_ = d.SetKey(starlark.String(key), v) // a string is hashable
	return d
}

// sound reports whether a reader finds want in a text; nil is a mapping with the one key s, a string.
func sound(unmarshal func([]byte, any) error, text, s string, want any) bool {
	switch want := want.(type) {
	case map[string]any:
		var got map[string]any
		return unmarshal([]byte(text), &got) == nil && len(got) == 1 && got["k"] == want["k"]
	case []any:
		var got []any
		return unmarshal([]byte(text), &got) == nil && len(got) == 1 && got[0] == want[0]
	default:
		var got map[any]any
		if unmarshal([]byte(text), &got) != nil || len(got) != 1 {
			return false
		}
		_, found := got[s]
		return found
	}
}

// plainScalars visits the scalars without quotes.
func plainScalars(n *yaml3.Node, visit func(string)) {
	if n.Kind == yaml3.ScalarNode && n.Style == 0 {
		visit(n.Value)
	}
	for _, child := range n.Content {
		plainScalars(child, visit)
	}
}
