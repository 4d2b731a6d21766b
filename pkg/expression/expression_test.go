package expression_test

import (
	"context"
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/lockstep-cd/lockstep/pkg/expression"
)

// D37, R3-32: expressions are CEL over values as JSON has them.
func TestValues(t *testing.T) {
	t.Parallel()
	values := map[string]any{
		"Response": map[string]any{
			"StatusCode": int64(200), "Body": map[string]any{"approved": true, "rate": 0.25, "list": []any{int64(1), int64(2)}},
			"Headers": map[string]any{"Etag": []any{"a"}},
		},
		"Phase": "pending", "TriggerOutput": nil, "Nothing": map[string]any{},
	}
	for text, want := range map[string]any{
		`Response.StatusCode == 200 && Response.Body.approved`:               true,
		`Response.Body.rate < 1`:                                             true,
		`Response.Body.list[0] + 1`:                                          int64(2),
		`TriggerOutput == null`:                                              true,
		`Nothing.?count.orValue(0) + 1`:                                      int64(1),
		`{"phase": Phase, "n": [1, 2]}`:                                      map[string]any{"phase": "pending", "n": []any{int64(1), int64(2)}},
		`Response.Body.list.map(n, n * 2)`:                                   []any{int64(2), int64(4)},
		`cel.bind(x, Response.StatusCode, x >= 500 ? "failure" : "success")`: "success",
		`Nothing.?x`: nil,
		`Phase.startsWith("pend") ? Phase.upperAscii() : ""`: "PENDING",
		`base64.encode(b"hi")`:                               "aGk=",
		`Response.Headers["Etag"][0]`:                        "a",
		`[1, 2.5, "x"]`:                                      []any{int64(1), 2.5, "x"},
		`{"a": 1, "b": "two"}`:                               map[string]any{"a": int64(1), "b": "two"},
		`timestamp("2026-01-02T03:04:05Z") > timestamp("2025-01-02T03:04:05Z")`: true,
	} {
		p, err := expression.Compile(text, "Response", "Phase", "TriggerOutput", "Nothing")
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		got, err := p.Evaluate(t.Context(), values)
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: found %#v, %v; expected %#v", text, got, err, want)
		}
	}
}

// D37: what is wrong with an expression is reported with its column when it is written.
func TestProblemsHavePlaces(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`Respons.StatusCode == 200`:      "line 1, column 1: undeclared reference to 'Respons'",
		"Phase == 'a' &&\n  Fase == 'b'": "line 2, column 3: undeclared reference to 'Fase'",
		`Phase == `:                      "line 1, column 10: ",
		`ööö == Phase`:                   "line 1, column 1: ",
		`Phase.frobnicate()`:             "line 1, column 17: undeclared reference to 'frobnicate'",
		` `:                              "found nothing",
		strings.Repeat("x", 17000):       "expected at most 16384",
		"Phase == '\xff'":                "expected UTF-8",
		`now()`:                          "undeclared reference to 'now'",
	} {
		_, err := expression.Compile(text, "Phase")
		if e, is := errors.AsType[*expression.Error](err); !is || e.Evaluated || !strings.Contains(err.Error(), want) {
			t.Errorf("%.40q: found %v, expected %q", text, err, want)
		}
	}
	for text, kind := range map[string]expression.Kind{`"yes"`: expression.Bool, `1`: expression.Map, `[true]`: expression.Bool} {
		p, err := expression.Compile(text)
		if err != nil || p.Expect(kind) == nil {
			t.Errorf("%s as a %s: %v", text, kind, err)
		}
	}
	for text, kind := range map[string]expression.Kind{`Phase == "x"`: expression.Bool, `{"a": 1}`: expression.Map, `Phase`: expression.Bool} {
		p, err := expression.Compile(text, "Phase")
		if err != nil || p.Expect(kind) != nil {
			t.Errorf("%s as a %s: %v", text, kind, err)
		}
	}
}

// D37: an expression of a tenant ends, and makes nothing that is large.
func TestRunawayExpressions(t *testing.T) {
	t.Parallel()
	list := make([]any, 1000)
	for i := range list {
		list[i] = int64(i)
	}
	values := map[string]any{"list": list, "text": strings.Repeat("x", 60_000)}
	for text, want := range map[string]string{
		`list.all(a, list.all(b, list.all(c, list.all(d, a + b + c + d >= 0))))`: "costs more than",
		`list.map(a, list.map(b, text + text))`:                                  "",
		`list.map(a, text)`:                                                      "",
		`text + text + text + text + text + text + text`:                         "costs more than",
		`text.matches("(x+x+)+y")`:                                               "",
		`list[2000]`:                                                             "index out of bounds",
		doubled("[list, list]", "[a, a]", 25):                                    "of more than 10000 values",
		doubled("list", "a + a", 30):                                             "costs more than",
		doubled("text", "a + a", 20):                                             "costs more than",
		`text.replace("", text)`:                                                 "replace makes a text of more than 262144 bytes",
		`text.split("")`:                                                         "split makes more than 10000 parts",
		`list.map(a, text).join(text)`:                                           "costs more than",
		`list.map(a, text.matches("(x+x+)+y"))`:                                  "costs more than",
		`list.map(a, list) == list.map(a, list)`:                                 "costs more than",
		`1 / 0`:                                                                  "division by zero",
		`list.missing`:                                                           "",
	} {
		p, err := expression.Compile(text, "list", "text")
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		got, err := p.Evaluate(t.Context(), values)
		if _, is := errors.AsType[*expression.Error](err); got != false && (!is || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: found %.40v, %v; expected %q", text, got, err, want)
		}
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	p, err := expression.Compile(`list.all(a, list.all(b, a + b >= 0))`, "list")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.Evaluate(ended, values); !errors.Is(err, context.Canceled) {
		t.Errorf("found %v", err)
	}
}

// doubled compares a value with itself that was doubled so often.
func doubled(first, twice string, times int) string {
	return "cel.bind(a, " + first + ", " + strings.Repeat("cel.bind(a, "+twice+", ", times) + "a == a" + strings.Repeat(")", times+1)
}
