package rendering

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/Masterminds/sprig/v3"

	"github.com/lockstep-cd/lockstep/pkg/clock"
)

func data() map[string]any {
	return map[string]any{
		"deployment": map[string]any{"id": int64(11), "service": map[string]any{"name": "api"}},
		"version":    map[string]any{"tag": "v2.3.1", "labels": []any{"a", "b"}},
		"empty":      nil,
	}
}

// R2-10, R2-12, R2-13, R2-14, R2-15: both delimiters live in one file, the rule decides which are ours, and what is missing is empty.
func TestRender(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ name, template, want string }{
		{"ours beside Argo's", "name: {[ .deployment.service.name ]}-{{workflow.parameters.x}}", "name: api-{{workflow.parameters.x}}"},
		{"the other delimiters", "name: {{ .deployment.service.name }}", "name: api"},
		{"none at all", "kind: Workflow\n", "kind: Workflow\n"},
		{"a number", "{[ .deployment.id ]}", "11"},
		{"a missing key", "a{[ .nothing ]}b", "ab"},
		{"a missing member", "a{[ .version.nothing ]}b", "ab"},
		{"null", "a{[ .empty ]}b", "ab"},
		{"a default", `{[ .nothing | default "main" ]}`, "main"},
		{"what only looks like a missing value", `{[ "<no value>" ]}`, "<no value>"},
		{"a label of at most 63 characters (R2-19)", `{[ repeat 70 "x" | trunc 63 ]}`, strings.Repeat("x", 63)},
		{"a value of any characters", `{[ "a\n\"b" | toJson ]}`, `"a\n\"b"`},
		{"a loop", "{[ range .version.labels ]}<{[ . ]}>{[ end ]}", "<a><b>"},
		{"a template within", `{[ define "x" ]}[{[ . ]}]{[ end ]}{[ template "x" .version.tag ]}`, "[v2.3.1]"},
		{"a variable", `{[ $x := .version.tag ]}{[ $x ]}`, "v2.3.1"},
		{"a condition", `{[ if eq .version.tag "v2.3.1" ]}yes{[ else ]}no{[ end ]}`, "yes"},
		{"printf", `{[ printf "%s-%05d" .version.tag .deployment.id ]}`, "v2.3.1-00011"},
		{"indent", `{[ "a\nb" | nindent 2 ]}`, "\n  a\n  b"},
	} {
		got, err := Render(Request{Template: tc.template, Data: data()})
		if err != nil || got != tc.want {
			t.Errorf("%s: found %q, %v; expected %q", tc.name, got, err, tc.want)
		}
	}
	if got, err := Render(Request{Template: "{{x}} {[ .a ]}", Data: data(), Delimiters: Square}); err != nil || got != "{{x}} " {
		t.Errorf("square: %q, %v", got, err)
	}
	if got, err := Render(Request{Template: "{[ {{ .version.tag }}", Data: data(), Delimiters: Curly}); err != nil || got != "{[ v2.3.1" {
		t.Errorf("curly: %q, %v", got, err)
	}
}

// R2-17: a text that is no template, and one that does not fit the data, are different failures. R2-15: with strict, a missing key is one.
func TestStages(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		template string
		strict   bool
		stage    Stage
		want     string
	}{
		{"{[ .a", false, Parsing, "unclosed action"},
		{"{[ nothing ]}", false, Parsing, `function "nothing" not defined`},
		{"a: {{workflow.name}}", false, Parsing, "delimiters: square"},
		{"{[ .a.b.c ]}", true, Executing, `no entry for key "a"`},
		{"{[ .version.nothing ]}", true, Executing, `no entry for key "nothing"`},
		{`{[ fail "no version" ]}`, false, Executing, "no version"},
		{`{[ mustRegexMatch "(" "x" ]}`, false, Executing, "missing closing )"},
		{"{[ index .version.labels 7 ]}", false, Executing, "out of range"},
	} {
		_, err := Render(Request{Template: tc.template, Data: data(), Strict: tc.strict})
		failed, ok := errors.AsType[*Error](err)
		if !ok || failed.Stage != tc.stage || !strings.Contains(failed.Message, tc.want) {
			t.Errorf("%s: found %v, expected %s: %s", tc.template, err, tc.stage, tc.want)
		}
	}
}

// A template is a tenant's: whatever it does, it ends soon, and with little memory.
func TestHostileTemplatesEnd(t *testing.T) {
	t.Parallel()
	for _, template := range []string{
		`{[ repeat 1000000000 "x" ]}`,
		`{[ repeat -1 "x" ]}{[ repeat 100000 (repeat 1000 "x") ]}`,
		`{[ range until 1000000000 ]}{[ end ]}`,
		`{[ range untilStep 0 1000000000 1 ]}{[ end ]}`,
		`{[ seq 1 1000000000 ]}`,
		`{[ $l := until 10000 ]}{[ range $l ]}{[ range $l ]}{[ range $l ]}{[ end ]}{[ end ]}{[ end ]}`,
		`{[ $x := "xxxxxxxxxx" ]}{[ range until 100 ]}{[ $x = printf "%s%s" $x $x ]}{[ end ]}`,
		`{[ $x := "xxxxxxxxxx" ]}{[ range until 100 ]}{[ $x = print $x $x ]}{[ end ]}`,
		`{[ $x := "xxxxxxxxxx" ]}{[ range until 100 ]}{[ $x = list $x $x $x ]}{[ end ]}`,
		`{[ $x := list ]}{[ range until 1000 ]}{[ $x = list $x ]}{[ end ]}{[ $x ]}`,
		`{[ printf "%1000000000d" 1 ]}`,
		`{[ printf "%*d" 1000000 1 ]}`,
		`{[ $x := repeat 100000 "x" ]}{[ printf "%[1]s%[1]s%[1]s%[1]s%[1]s%[1]s%[1]s%[1]s%[1]s%[1]s%[1]s" $x ]}`,
		`{[ $x := repeat 1000 "x" ]}{[ replace "x" $x $x | replace "x" $x ]}`,
		`{[ $x := repeat 10000 "x" ]}{[ regexReplaceAll "x" $x $x ]}`,
		`{[ $x := repeat 10000 "a\n" ]}{[ indent 10000 $x ]}`,
		`{[ $x := repeat 10000 "x" ]}{[ join $x (until 10000) ]}`,
		`{[ define "x" ]}{[ template "x" . ]}{[ template "x" . ]}{[ end ]}{[ template "x" . ]}`,
		`{[ $x := repeat 100000 "x" ]}{[ range until 100 ]}{[ $x ]}{[ end ]}`,
	} {
		out, err := Render(Request{Template: template, Data: data()})
		if failed, ok := errors.AsType[*Error](err); !ok || failed.Stage != Executing {
			t.Errorf("%s: found %d bytes and %v, expected a refusal", template, len(out), err)
		}
	}
	if _, err := Render(Request{Template: strings.Repeat("x", maxTemplate+1)}); err == nil {
		t.Error("a template that is too long was accepted")
	}
}

// A caller may permit less work than one template may make otherwise, never more.
func TestLessWorkIsPermitted(t *testing.T) {
	t.Parallel()
	loop := `{{ range until 5000 }}{{ end }}`
	for work, permitted := range map[int]bool{0: true, maxWork: true, maxWork * 2: true, 1000: false, 1: false} {
		if _, err := Render(Request{Template: loop, Work: work}); (err == nil) != permitted {
			t.Errorf("%d: found %v; want it permitted: %t", work, err, permitted)
		}
	}
}

// Work that grows with the square of a list, or with pattern and text, is counted before it is done.
func TestCostlyFunctionsAreCounted(t *testing.T) {
	t.Parallel()
	for _, template := range []string{
		`{{ $u := uniq (until 131000) }}`,
		`{{ $l := until 10000 }}{{ $w := without $l 1 }}{{ range until 1000 }}{{ $w = without $l 1 2 3 4 }}{{ end }}`,
		`{{ $p := repeat 10000 "(a|b)" }}{{ regexMatch $p (repeat 100000 "a") }}`,
		`{{ regexMatch "(a{100}){10}b" (repeat 100000 "a") }}`,
		`{{ regexFindAll "a.*b|a" (repeat 100000 "a") -1 }}`,
		`{{ $a := repeat 500000 "x" }}{{ $b := print $a "" }}{{ range until 100000 }}{{ if eq $a $b }}{{ end }}{{ end }}`,
		`{{ $a := repeat 500000 "x" }}{{ $b := print $a "" }}{{ range until 100000 }}{{ with $a | ne $b }}{{ end }}{{ end }}`,
		`{{ $a := repeat 500000 "x" }}{{ $b := print $a "" }}{{ range until 100000 }}{{ $c := and (le $a $b) (gt $b $a) }}{{ end }}`,
		`{{ $a := repeat 500000 "x" }}{{ $m := dict "x" 1 }}{{ range until 100000 }}{{ $c := index $m $a }}{{ end }}`,
	} {
		start := clock.System().Now()
		_, err := Render(Request{Template: template, Data: data()})
		if took := clock.System().Now().Sub(start); err == nil || !strings.Contains(err.Error(), errWork.Error()) || took > 5*time.Second {
			t.Errorf("%s: found %v after %s, expected a refusal at once", template, err, took)
		}
	}
	out, err := Render(Request{
		Template: `{{ list 1 2 1 | uniq }} {{ without (list 1 2 3) 2 }} ` +
			`{{ regexReplaceAll "[0-9]{1,3}" "v12" "x" }} {{ regexMatch "^v" "v1" }}`,
		Data: data(),
	})
	if err != nil || out != "[1 2] [1 3] vx true" {
		t.Errorf("found %q and %v", out, err)
	}
	// What is counted is compared as text/template compares it.
	out, err = Render(Request{
		Template: `{{ eq .n 1 2 }} {{ .n | lt 1 }} {{ if and (ne .s "b") (ge .s "a") }}{{ (index .l 1).x }}{{ end }} {{ eq .none .none }} ` +
			`{{ with eq (len .l) 2 }}{{ . }}{{ end }} {{ 0 | index .l }} {{ eq .s (print "a") }} {{ not (eq .n 3) | eq true }}`,
		Data: map[string]any{"n": 2, "s": "a", "l": []any{"first", map[string]any{"x": "second"}}},
	})
	if want := "true true second true true first true true"; err != nil || out != want {
		t.Errorf("found %q and %v, expected %q", out, err, want)
	}
	if _, err := Render(Request{Template: `{{ eq 1 "a" }}`}); err == nil || !strings.Contains(err.Error(), "incompatible types for comparison") {
		t.Errorf("found %v, expected that a number is not compared with a text", err)
	}
}

// What a template makes depends on nothing but its data (D33), and no value can contain itself.
func TestNoFunctionReachesTheWorld(t *testing.T) {
	t.Parallel()
	for _, name := range strings.Fields(`env expandenv getHostByName now date ago randAlphaNum randInt randBytes uuidv4 shuffle genPrivateKey genCA
		derivePassword bcrypt htpasswd encryptAES osBase set unset merge mergeOverwrite deepCopy call`) {
		if _, err := Render(Request{Template: "{[ " + name + " ]}", Data: data()}); err == nil {
			t.Errorf("%s is a function, expected none", name)
		}
	}
	known := sprig.TxtFuncMap()
	for _, name := range Functions() {
		if known[name] == nil {
			t.Errorf("%s is not a function of Sprig", name)
		}
	}
}

func FuzzRender(f *testing.F) {
	for _, seed := range []string{"{[ .a ]}", "{{ range .version.labels }}{{ . }}{{ end }}", `{[ printf "%v" . ]}`, `{[ list 1 2 | join "-" ]}`} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if out, _ := Render(Request{Template: text, Data: data()}); len(out) > maxOutput {
			t.Errorf("%d bytes", len(out))
		}
	})
}
