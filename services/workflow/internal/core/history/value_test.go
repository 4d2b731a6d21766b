package history

import (
	"strings"
	"testing"
)

// nested is a JSON value of so many lists in each other.
func nested(depth int) string { return strings.Repeat("[", depth) + strings.Repeat("]", depth) }

func TestEveryDoorHasItsLimits(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, value, want string
		doors             []Door
	}{
		{"nothing unusual", `{"a": [1, -2.5e3, "x", null, true, {"b": {}}], "c": "[[[[ 1e999 \" {"}`, "", nil},
		{"as deep as may be", nested(200), "", nil},
		{"too deep", nested(201), "nested more than 200 deep at byte 201, expected at most 200", nil},
		{"deeper than encoding/json reads", nested(100_000), "nested more than 200 deep", nil},
		{"too deep in objects", strings.Repeat(`{"a":`, 201) + "1" + strings.Repeat("}", 201), "nested more than 200 deep", nil},
		{"many beside each other", "[" + strings.Repeat("[],", 1000) + "[]]", "", nil},
		{"the largest float", `{"n": 1.7976931348623157e308}`, "", nil},
		{"a number beyond it", `{"a": "1e400", "n": 1e400}`, "found the number 1e400 at byte 21, expected one from -1.8e308 to 1.8e308", nil},
		{"a number below all", `[-1e400]`, "found the number -1e400 at byte 2", nil},
		{"a number next to nothing", `1e-400`, "", nil},
		{"a whole number of any length", "1" + strings.Repeat("0", 5000), "", nil},
		{
			"a number that takes long to read", "1" + strings.Repeat("0", 100_000),
			"found a number of 100001 characters at byte 1, expected at most 100000", nil,
		},
		{"no JSON", `{"a": }`, "not JSON: byte", nil},
		{"two values", `{} {}`, "not JSON: something follows", nil},
		{"no UTF-8", "\"\xff\"", "not UTF-8", nil},
		{"an unfinished string", `"\`, "not JSON", nil},
		{
			"a member twice", `{"a": 1, "b": {"c": [{"d": 1, "d": 2}]}}`, `found the member "d" twice, at byte 33, expected each once`,
			[]Door{InputsDoor},
		},
		{"a member twice, written differently", `{"a": 1, "\u0061": 2}`, `found the member "a" twice`, []Door{InputsDoor}},
		{"one name in several objects", `{"a": {"a": 1}, "b": [{"a": 1}, {"a": 2}], "c": "a"}`, "", nil},
		{"a text in a list twice", `["a", "a", {"a": ["a", "a", "a"], "b": "a"}]`, "", nil},
		{"names and texts with brackets and commas", `{"a{": "},\"a{\": 1", "b,": ["[", ",", "a{"], "\\\"": "\\", "c": {}}`, "", nil},
		{"a member twice behind such", `{"a,": "}", "b": [",{"], "\"": 1, "a,": 2}`, `found the member "a," twice`, []Door{InputsDoor}},
		{
			"a member twice behind an object", `{"a": {"b": {}}, "b": [[], {}], "a": null}`, `found the member "a" twice, at byte 35`,
			[]Door{InputsDoor},
		},
	} {
		for _, door := range []Door{EventDoor, MessageDoor, InputsDoor, AnswerDoor} {
			want := tt.want
			if tt.doors != nil && door != tt.doors[0] {
				want = ""
			}
			if got := door.Check([]byte(tt.value)); (want == "") != (got == "") || !strings.Contains(got, want) {
				t.Errorf("%s at door %d: found %.200q, expected %q", tt.name, door, got, want)
			}
		}
	}
	for door, most := range map[Door]int{EventDoor: 1 << 20, MessageDoor: 1 << 20, InputsDoor: 4 << 20, AnswerDoor: 4 << 20} {
		text := `"` + strings.Repeat("x", most-2) + `"`
		if problem := door.Check([]byte(text)); problem != "" {
			t.Errorf("door %d refuses %d bytes: %s", door, len(text), problem)
		}
		if problem := door.Check([]byte(text + " ")); !strings.Contains(problem, "expected at most") {
			t.Errorf("door %d says of %d bytes: %q", door, len(text)+1, problem)
		}
	}
}
