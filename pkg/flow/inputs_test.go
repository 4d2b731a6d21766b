package flow_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/flow"
)

const oneStep = `"steps":[{"type":"deploy","environment":"production","config":{}}]`

// withInputs is a pipeline with inputs.
func withInputs(inputs string) []byte { return []byte(`{"inputs":` + inputs + `,` + oneStep + `}`) }

// problems are the findings of an error, as "name: problem".
func problems(err error) string {
	var all []string
	for _, f := range fault.FieldsOf(err) {
		all = append(all, f.Name+": "+f.Problem)
	}
	return strings.Join(all, "\n")
}

// A pipeline declares inputs that can be checked and shown, and no others (R4-09).
func TestDeclaredInputs(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ inputs, at, problem string }{
		"an unknown type":                        {`{"properties":{"region":{"type":"object"}}}`, "/inputs/properties/region/type", `found "object"; expected one of`},
		"no type":                                {`{"properties":{"region":{}}}`, "/inputs/properties/region/type", "found nothing"},
		"no inputs":                              {`{"properties":{}}`, "/inputs/properties", "minProperties"},
		"a name that is malformed":               {`{"properties":{"Region":{"type":"string"}}}`, "/inputs/properties/Region", `found "Region"; expected lower-case`},
		"a reference":                            {`{"properties":{"region":{"$ref":"https://example.com/region.json"}}}`, "/inputs/properties/region/$ref", "does not exist"},
		"a combination":                          {`{"properties":{"region":{"type":"string","allOf":[]}}}`, "/inputs/properties/region/allOf", "does not exist"},
		"a pattern that is malformed":            {`{"properties":{"region":{"type":"string","pattern":"("}}}`, "/inputs/properties/region/pattern", `found "("`},
		"a pattern that costs too much":          {`{"properties":{"region":{"type":"string","pattern":"a{1,999}b{1,999}c{1,999}"}}}`, "/inputs/properties/region/pattern", "shorten its repetitions"},
		"a pattern of items that costs too much": {`{"properties":{"regions":{"type":"array","items":{"type":"string","pattern":"a{1,999}b{1,999}c{1,999}"}}}}`, "/inputs/properties/regions/items/pattern", "shorten its repetitions"},
		"a default that does not fit":            {`{"properties":{"count":{"type":"integer","maximum":3,"default":4}}}`, "/inputs/properties/count/default", "expected at most 3"},
		"a default with a line break":            {`{"properties":{"region":{"type":"string","default":"a\nb"}}}`, "/inputs/properties/region/default", "found a control character or a line break"},
		"a required one that is not":             {`{"properties":{"count":{"type":"integer"}},"required":["region"]}`, "/inputs/required/0", `found "region"; expected an input`},
		"a list of lists": {
			`{"properties":{"hosts":{"type":"array","items":{"type":"array","items":{"type":"string"}}}}}`,
			"/inputs/properties/hosts/items/type", `found "array"`,
		},
		"a list of anything": {`{"properties":{"hosts":{"type":"array"}}}`, "/inputs/properties/hosts/items", "found nothing"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := flow.Parse(withInputs(c.inputs))
			if got := problems(err); !strings.Contains(got, c.at+": ") || !strings.Contains(got, c.problem) {
				t.Errorf("parse: found %q; expected %s: …%s", got, c.at, c.problem)
			}
		})
	}
}

const declared = `{
	"required": ["region", "dry_run"],
	"properties": {
		"region": {"type": "string", "enum": ["eu", "us"]},
		"count": {"type": "integer", "minimum": 1, "maximum": 10, "default": 2},
		"dry_run": {"type": "boolean", "default": true},
		"hosts": {"type": "array", "maxItems": 2, "items": {"type": "string", "pattern": "^[a-z]+$"}}
	}
}`

func inputsOf(t *testing.T, declared string) flow.Inputs {
	t.Helper()
	def, err := flow.Parse(withInputs(declared))
	if err != nil {
		t.Fatal(err)
	}
	in, err := def.ReadInputs()
	if err != nil {
		t.Fatal(err)
	}
	return in
}

// Values are checked against the declaration, and an error names the input, what was found and what was expected (R4-09).
func TestResolvedInputs(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ given, want, at, problem string }{
		"defaults":         {given: `{"region":"eu"}`, want: `{"count":2,"dry_run":true,"region":"eu"}`},
		"given ones":       {given: `{"region":"us","count":7,"dry_run":false,"hosts":["a","b"]}`, want: `{"count":7,"dry_run":false,"hosts":["a","b"],"region":"us"}`},
		"null is no value": {given: `{"region":"us","count":null}`, want: `{"count":2,"dry_run":true,"region":"us"}`},
		// A policy that forbids count=3 must see it, however it is written.
		"numbers are written in one way": {given: `{"region":"eu","count":3.0}`, want: `{"count":3,"dry_run":true,"region":"eu"}`},
		"missing":                        {given: `{}`, at: "/inputs/region", problem: "found nothing; expected a value"},
		"another type":                   {given: `{"region":"eu","count":"7"}`, at: "/inputs/count", problem: `found "7"; expected a whole number`},
		"out of bounds":                  {given: `{"region":"eu","count":11}`, at: "/inputs/count", problem: "found 11; expected at most 10"},
		"not among the values":           {given: `{"region":"mars"}`, at: "/inputs/region", problem: `found "mars"; expected one of "eu", "us"`},
		"unknown":                        {given: `{"region":"eu","regoin":"us"}`, at: "/inputs/regoin", problem: "does not have; expected region"},
		"an item":                        {given: `{"region":"eu","hosts":["A"]}`, at: "/inputs/hosts/0", problem: "expected text that matches"},
		"no object":                      {given: `[]`, at: "/inputs", problem: "expected an object of inputs by name"},
		"an exponent":                    {given: `{"region":"eu","count":1e2}`, at: "/inputs/count", problem: "without an exponent"},
		"a character that is malformed":  {given: `{"region":"\u0000"}`, at: "/inputs/region", problem: "found a control character or a line break"},
		"a line break":                   {given: `{"region":"eu","hosts":["a\nb"]}`, at: "/inputs/hosts/0", problem: "found a control character or a line break"},
		"an escape":                      {given: `{"region":"\u001b[2J"}`, at: "/inputs/region", problem: "found a control character or a line break"},
		"a control character of Latin 1": {given: `{"region":"a\u0085b"}`, at: "/inputs/region", problem: "found a control character or a line break"},
		"a separator of lines":           {given: `{"region":"a\u2028b"}`, at: "/inputs/region", problem: "found a control character or a line break"},
		"a separator of paragraphs":      {given: `{"region":"a\u2029b"}`, at: "/inputs/region", problem: "found a control character or a line break"},
		"too long":                       {given: `{"region":"` + strings.Repeat("x", 3000) + `"}`, at: "/inputs/region", problem: "found 3000 bytes; expected at most 2048"},
		"too large":                      {given: `{"region":"` + strings.Repeat("x", 9000) + `"}`, at: "/inputs", problem: "expected at most 8192"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := inputsOf(t, declared).Resolve(json.RawMessage(c.given))
			if string(got) != c.want {
				t.Errorf("inputs: found %s (%v); expected %s", got, err, c.want)
			}
			if found := problems(err); c.at != "" && (!strings.Contains(found, c.at+": ") || !strings.Contains(found, c.problem)) {
				t.Errorf("inputs: found %q; expected %s: …%s", found, c.at, c.problem)
			}
		})
	}
}

// A pipeline without inputs takes none, and a rollout of it has none.
func TestNoInputs(t *testing.T) {
	t.Parallel()
	got, err := flow.Inputs{}.Resolve(nil)
	if err != nil || string(got) != `{}` {
		t.Errorf("inputs: found %s (%v); expected {}", got, err)
	}
	_, err = flow.Inputs{}.Resolve(json.RawMessage(`{"region":"eu"}`))
	if got := problems(err); got != "/inputs/region: found an input, and the pipeline has none; expected no inputs" {
		t.Errorf("inputs: found %q", got)
	}
}

// A rollback keeps what was recorded, also what the pipeline would refuse today: nothing keeps it from beginning.
func TestKeptInputs(t *testing.T) {
	t.Parallel()
	got, err := inputsOf(t, declared).Keep(json.RawMessage(`{"region":"mars","old":1}`))
	if want := `{"count":2,"dry_run":true,"old":1,"region":"mars"}`; err != nil || string(got) != want {
		t.Errorf("inputs: found %s (%v); expected %s", got, err, want)
	}
}

// A rollout has as many values as policies see in any case, also when a rollback adds the defaults of a later pipeline to recorded ones.
func TestTheNumberOfInputValues(t *testing.T) {
	t.Parallel()
	list := func(n int) string { return "[" + strings.TrimSuffix(strings.Repeat("1,", n), ",") + "]" }
	const lists = `{"properties":{"a":{"type":"array","items":{"type":"integer"}},"b":{"type":"array","items":{"type":"integer"},"default":[1,2]}}}`
	if _, err := inputsOf(t, lists).Resolve(json.RawMessage(`{"a":` + list(498) + `}`)); err != nil {
		t.Errorf("500 values: found %v", err)
	}
	_, err := inputsOf(t, lists).Resolve(json.RawMessage(`{"a":` + list(499) + `}`))
	if got := problems(err); got != "/inputs: found 501 values with the defaults; expected at most 500" {
		t.Errorf("501 values: found %q", got)
	}
	_, err = flow.Parse(withInputs(strings.Replace(lists, "[1,2]", list(501), 1)))
	if got := problems(err); got != "/inputs/properties: found 501 values in the defaults; expected at most 500" {
		t.Errorf("501 values of defaults: found %q", got)
	}
}
