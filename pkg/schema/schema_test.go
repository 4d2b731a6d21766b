package schema_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/schema"
)

// TestAnUnknownMemberIsReportedWithTheKnownOnes: with those of the same object, the nearest first, wherever the schema lists them.
func TestAnUnknownMemberIsReportedWithTheKnownOnes(t *testing.T) {
	t.Parallel()
	s, err := schema.Compile([]byte(`{
	  "properties": {"git": {"$ref": "#/$defs/a~1b c"}, "nothing": {"additionalProperties": false}, "one": {"additionalProperties": false, "properties": {"only": {}}},
	    "many": {"additionalProperties": false, "properties": {"a":{},"b":{},"c":{},"d":{},"e":{},"f":{},"g":{},"h":{},"iii":{},"jjj":{}}},
	    "list": {"prefixItems": [{}, {"additionalProperties": false, "properties": {"second": {}, "third": {}}}]}},
	  "$defs": {"a/b c": {"additionalProperties": false, "properties": {"branch": {}, "path": {}, "repository": {}}}}
	}`))
	if err != nil {
		t.Fatal(err)
	}
	for value, want := range map[string]string{
		`{"git":{"brunch":"main"}}`:    `/git/brunch: found a field that does not exist; expected one of branch, path, repository`,
		`{"git":{"repo":"x"}}`:         `/git/repo: found a field that does not exist; expected one of path, branch, repository`,
		`{"nothing":{"x":1}}`:          `/nothing/x: found a field that does not exist; expected none of this name`,
		`{"one":{"x":1}}`:              `/one/x: found a field that does not exist; expected only`,
		`{"many":{"i":1}}`:             `/many/i: found a field that does not exist; expected one of a, b, c, d, e, f, g, h and 2 more`,
		`{"list":[1,{"secnd":1}]}`:     `/list/1/secnd: found a field that does not exist; expected one of second, third`,
		`{"git":{"brunch":1,"pth":1}}`: `/git/brunch: found a field that does not exist; expected one of branch, path, repository; /git/pth: found a field that does not exist; expected one of path, branch, repository`,
	} {
		if err := s.Validate([]byte(value)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v; want %s", value, err, want)
		}
	}
}

func TestFindingsAreLocated(t *testing.T) {
	t.Parallel()
	s, err := schema.Compile([]byte(`{
	  "type": "object", "required": ["name", "kind"], "additionalProperties": false,
	  "properties": {
	    "name": {"type": "string", "minLength": 2, "not": {"const": "no"}},
	    "kind": {"enum": ["canary", "blue_green"]},
	    "share": {"type": "integer", "minimum": 1, "maximum": 100},
	    "list": {"type": "array", "maxItems": 1, "items": {"type": "string", "pattern": "^[a-z]+$"}},
	    "secret": {"type": "string"}, "vault": {"type": "string"}
	  },
	  "if": {"properties": {"kind": {"const": "canary"}}, "required": ["kind"]},
	  "then": {"required": ["share"]}, "else": {"properties": {"share": false}}
	}`))
	if err != nil {
		t.Fatal(err)
	}
	tests := []struct{ name, value, want string }{
		{"a missing member is named itself", `{"kind":"blue_green"}`, `/name: found nothing; expected a value`},
		{"a conditional member is missing", `{"name":"ab","kind":"canary"}`, `/share: found nothing; expected a value`},
		{
			"a conditional member is superfluous", `{"name":"ab","kind":"blue_green","share":7}`,
			`/share: found 7; expected nothing: not allowed here`,
		},
		{"not of the type", `{"name":7,"kind":"blue_green"}`, `/name: found 7; expected a string`},
		{
			"unknown token", `{"name":"ab","kind":"red","share":1}`,
			`/kind: found "red"; expected one of "canary", "blue_green"; /share: found 1; expected nothing: not allowed here`,
		},
		{"too small", `{"name":"ab","kind":"canary","share":0}`, `/share: found 0; expected at least 1`},
		{"too large", `{"name":"ab","kind":"canary","share":101}`, `/share: found 101; expected at most 100`},
		{"not a whole number", `{"name":"ab","kind":"canary","share":1.5}`, `/share: found 1.5; expected a whole number`},
		{
			"unknown member", `{"name":"ab","kind":"blue_green","a/b":1}`,
			`/a~1b: found a field that does not exist; expected one of name, kind, list, share, vault, secret`,
		},
		{"inside a list", `{"name":"ab","kind":"blue_green","list":["A"]}`, `/list/0: found "A"; expected text that matches ^[a-z]+$`},
		{"an excluded value", `{"name":"no","kind":"blue_green"}`, `/name: found "no"; expected anything else: that is not allowed here`},
		{"long list", `{"name":"ab","kind":"blue_green","list":["a","b"]}`, `/list: found 2 items; expected at most 1`},
		{"the whole value", `[]`, `: found a list; expected an object`},
		{
			"several at once", `{"name":"a","kind":"canary","share":1,"secret":{}}`,
			`/name: found "a"; expected at least 2 characters; /secret: found an object; expected a string`,
		},
		{"not JSON", "{\n  \"name\": ab}", `line 2, column 11: found text that is not JSON (invalid character 'a' looking for beginning of value); expected one JSON value`},
		{"cut off", "{\n", `line 2, column 1: found text that is not JSON (unexpected EOF); expected one JSON value`},
		{"two values", "{} {}", `line 1, column 5: found text that is not JSON (invalid character after top-level value); expected one JSON value`},
		{"nothing", " ", `: found nothing; expected JSON`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			err := s.Validate([]byte(tt.value))
			if !fault.Is(err, fault.Invalid) {
				t.Fatalf("error %v is not of class invalid", err)
			}
			if diff := cmp.Diff(tt.want, err.Error()); diff != "" {
				t.Errorf("error (-want +got):\n%s", diff)
			}
		})
	}
}

func TestALongValueIsNotRepeatedInFull(t *testing.T) {
	t.Parallel()
	s, err := schema.Compile([]byte(`{"type": "integer"}`))
	if err != nil {
		t.Fatal(err)
	}
	if got := s.Validate([]byte(`"` + strings.Repeat("é", 5000) + `"`)).Error(); len(got) > 300 {
		t.Errorf("%d bytes of error", len(got))
	}
}

func TestBadSchemasAreRefused(t *testing.T) {
	t.Parallel()
	ui := schema.Vocabulary{
		Keyword: "gitlabUi",
		Schema:  `{"type":"object","properties":{"widget":{"type":"string"}},"additionalProperties":false}`,
	}
	tests := []struct{ name, text, want string }{
		{"reads no file", `{"$ref": "file:///etc/passwd"}`, `references to other documents are not allowed`},
		{"reads no URL", `{"$ref": "https://example.com/x.json"}`, `references to other documents are not allowed`},
		{"unknown type", "{\"properties\": {\"a\": {\n\"type\": \"strin\"}}}", `/properties/a/type: `},
		{"bad pattern", `{"pattern": "("}`, `/pattern: `},
		{"not JSON", "{\n\"type\": }", `line 2, column 9: `},
		{"widget of the wrong type", `{"properties": {"a": {"gitlabUi": {"widget": 7}}}}`, `/properties/a/gitlabUi/widget: `},
		{
			"more than a widget", `{"then": {"properties": {"a": {"gitlabUi": {"label": "A"}}}}}`,
			`/then/properties/a/gitlabUi/label: found a field that does not exist`,
		},
		{"not an object", `{"gitlabUi": "text"}`, `/gitlabUi: `},
		{"too large", `{"description": "` + strings.Repeat("x", schema.MaxBytes) + `"}`, `expected a schema of at most 262144`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			_, err := schema.Compile([]byte(tt.text), ui)
			if !fault.Is(err, fault.Invalid) {
				t.Fatalf("error %v is not of class invalid", err)
			}
			if !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %q does not contain %q", err, tt.want)
			}
		})
	}
}

func TestUnknownWidgetsAndFieldsOfThatNameAreLegal(t *testing.T) {
	t.Parallel()
	ui := schema.Vocabulary{
		Keyword: "gitlabUi",
		Schema:  `{"type":"object","properties":{"widget":{"type":"string"}},"additionalProperties":false}`,
	}
	text := `{"properties": {"gitlabUi": {"type": "string", "gitlabUi": {"widget": "colour_wheel"}}}, "default": {"gitlabUi": 7}}`
	if _, err := schema.Compile([]byte(text), ui); err != nil {
		t.Error(err)
	}
}

// R24, D53: an unknown widget compiles, and its author is notified; one that edits another type is reported, too.
func TestUnknownWidgetsAreReportedToAuthors(t *testing.T) {
	t.Parallel()
	text := `{"type": "object", "default": {"gitlabUi": {"widget": "in_a_value"}}, "properties": {
		"a": {"type": "string", "gitlabUi": {"widget": "agent_pciker"}}, "b": {"type": "string", "gitlabUi": {"widget": "agent_picker"}},
		"default": {"type": ["string", "null"], "gitlabUi": {"widget": "number"}}, "f": {"type": ["integer", "null"], "gitlabUi": {"widget": "number"}},
		"c": {"items": {"type": "string", "gitlabUi": {"widget": "code"}}}, "d": {"$ref": "#/$defs/x", "gitlabUi": {"widget": "credential_picker"}}},
		"then": {"properties": {"e": {"type": "integer", "gitlabUi": {"widget": "code"}}}}, "$defs": {"x": {"type": "string"}}}`
	if _, err := schema.Compile([]byte(text), schema.UI()); err != nil {
		t.Fatal(err)
	}
	got, err := schema.UnknownWidgets([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{
		"/properties/a/gitlabUi/widget": `found "agent_pciker"; expected one of agent_picker, checkbox, code, credential_picker, number, ` +
			`secret_reference, select, text`,
		"/properties/b/gitlabUi/widget":       `found "agent_picker" for the type string; it edits integer`,
		"/properties/default/gitlabUi/widget": `found "number" for the type string or null; it edits integer, number`,
		"/then/properties/e/gitlabUi/widget":  `found "code" for the type integer; it edits string`,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// D53: where a secret is referred to, anything else is refused, and never repeated: it may be the secret.
func TestASecretReferenceIsNoSecret(t *testing.T) {
	t.Parallel()
	s, err := schema.Compile([]byte(`{"properties": {"key": {"type": "string", "gitlabUi": {"widget": "secret_reference"}}, "n": {"gitlabUi": {"widget": "text"}}}}`),
		schema.UI())
	if err != nil {
		t.Fatal(err)
	}
	for _, ok := range []string{`{"key": "vault:secret/data/shop#key"}`, `{"key": "env:TOKEN"}`, `{"n": "hunter2"}`} {
		if err := s.Validate([]byte(ok)); err != nil {
			t.Errorf("%s: %v", ok, err)
		}
	}
	for _, bad := range []string{`{"key": "hunter2"}`, `{"key": "aws:hunter2"}`, `{"key": "env:TOKEN=hunter2"}`, `{"key": ""}`} {
		err := s.Validate([]byte(bad))
		if !fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), "expected a reference: env:NAME") || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: %v", bad, err)
		}
	}
	for _, more := range []string{
		`"type": "string", "pattern": "^env:"`, `"type": "string", "enum": ["env:A"]`, `"const": "env:A"`, `"format": "uri"`, `"type": "string"`, `"minLength": 99`,
		`"items": {"pattern": "^env:"}`, `"additionalProperties": {"pattern": "^env:"}`, `"x": 1`, `"allOf": [{"pattern": "^env:"}]`,
	} {
		s, err := schema.Compile([]byte(`{"properties": {"key": {"gitlabUi": {"widget": "secret_reference"}, `+more+`}}}`), schema.UI())
		if err != nil {
			t.Fatal(err)
		}
		for _, bad := range []string{`{"key": "hunter2 424242"}`, `{"key": 424242}`, `{"key": ["hunter2"]}`, `{"key": {"a": "hunter2"}}`, `{"key": true}`} {
			err := s.Validate([]byte(bad))
			if !fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), "expected a reference: env:NAME") ||
				strings.Contains(err.Error(), "hunter2") || strings.Contains(err.Error(), "424242") {
				t.Errorf("%s with %s: %v", bad, more, err)
			}
		}
	}
}

// TestNumbersCostNoMoreThanTheirText: a few characters are no number of a megabyte, in schemas and in values.
func TestNumbersCostNoMoreThanTheirText(t *testing.T) {
	t.Parallel()
	for text, at := range map[string]string{
		`{"properties":{"n":{"type":"number","minimum":1e1000000}}}`:           "/properties/n/minimum",
		`{"properties":{"n":{"type":"number","multipleOf":1E+1000001}}}`:       "/properties/n/multipleOf",
		`{"properties":{"n":{"type":"number","maximum":1e-401}}}`:              "/properties/n/maximum",
		`{"items":{"enum":[1,` + strings.Repeat("9", 401) + `]}}`:              "/items/enum/1",
		`{"properties":{"n":{"type":"number","minimum":1e99999999999999999}}}`: "/properties/n/minimum",
	} {
		_, err := schema.Compile([]byte(text))
		fields := fault.FieldsOf(err)
		if len(fields) != 1 || fields[0].Name != at || !strings.Contains(fields[0].Problem, "expected at most 400 digits") {
			t.Errorf("%.60s: found %v; expected a refusal at %s", text, err, at)
		}
	}
	s, err := schema.Compile([]byte(`{"type":"number","minimum":1e-400,"maximum":1.5e400}`))
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Validate([]byte("3.25")); err != nil {
		t.Error(err)
	}
	if err := s.Validate([]byte("1e1000000")); !fault.Is(err, fault.Invalid) {
		t.Errorf("found %v; expected a refusal of the value", err)
	}
}
