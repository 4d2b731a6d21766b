package execution

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/history"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/program"
)

// The error about malformed inputs names the byte at which they stop being JSON.
func TestInputsThatAreNoJSON(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`{"a": 1`:    "byte 7: unexpected EOF",
		`{"a": 1,}`:  "byte 9: invalid character '}'",
		`nonsense`:   "byte 2: invalid character 'o'",
		`{"a":1} {}`: "something follows the value at byte 8",
	} {
		if _, err := history.Canonical([]byte(text)); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%s: found %v, expected %q", text, err, want)
		}
	}
}

// Names with invisible or control characters are refused, all in one error, which shows them escaped. A flow that was stored with such
// names before they were refused still starts its runs.
func TestNamesOfModulesAndSecrets(t *testing.T) {
	t.Parallel()
	s := Start{
		Organization: 1, Workflow: "w",
		Program: program.Program{Source: []byte("x = 1"), Modules: map[string][]byte{
			"lib/ü.star": nil, strings.Repeat("m", 255): nil, "": nil, "a\nb": nil, "\x7f": nil, "\xff": nil, strings.Repeat("m", 256): nil,
		}},
		Secrets: map[string]string{"": "env:A", "git": "env:B", "\x00": "env:C"},
	}
	want := []string{
		`modules: found the name "" of 0 bytes`, `modules: found the name "a\nb" of 3 bytes`,
		`modules: found the name "` + strings.Repeat("m", 80) + `" of 256 bytes`,
		`modules: found the name "\x7f" of 1 bytes`, `modules: found the name "\xff" of 1 bytes`,
		`secrets: found the name "" of 0 bytes`, `secrets: found the name "\x00" of 1 bytes`,
	}
	const expected = ", expected 1 to 255 bytes of text without control characters"
	var found []string
	for _, f := range fault.FieldsOf(s.Admit()) {
		found = append(found, strings.TrimSuffix(f.Name+": "+f.Problem, expected))
	}
	if diff := cmp.Diff(want, found); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if err := s.Validate(); err != nil {
		t.Errorf("the run of a flow is refused: %v", err)
	}
}

// A Function is given the numbers of its program: as a float a long whole number would be its neighbour.
func TestArgumentsKeepNumbers(t *testing.T) {
	t.Parallel()
	for _, number := range []string{
		"0", "-9223372036854775808", "9223372036854775807", "9223372036854775808", "18446744073709551615",
		"1" + strings.Repeat("0", 40) + "1", "1.5", "-0.25", "1e+300",
	} {
		args, err := history.Arguments([]byte(`{"n": [` + number + `]}`))
		if err != nil {
			t.Fatal(err)
		}
		if text, err := json.Marshal(args["n"]); err != nil || string(text) != "["+number+"]" {
			t.Errorf("%s became %s, error %v", number, text, err)
		}
	}
}
