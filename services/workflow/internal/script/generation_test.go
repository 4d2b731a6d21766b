package script

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/history"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/program"
)

// generations runs a program until a generation is its last, each from the call that the one before has recorded, and answers
// what was printed.
func generations(t *testing.T, source, inputs string) (printed []string, failure error) {
	t.Helper()
	var call json.RawMessage
	for range 10 {
		m, err := New(Limits{}).Open(program.Program{Source: []byte(source)}, []byte(inputs), program.Environment{Ref: "ref", Continuation: call})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(m.Close)
		_ = m.Replay(nil) // the outcome has the failure
		entries, _ := m.Take()
		ended, failure := m.Outcome()
		if !ended {
			t.Fatalf("it waits for %v", m.Pending())
		}
		call = nil
		for _, e := range entries {
			switch e.Kind {
			case history.KindPrint:
				var line string
				if err := json.Unmarshal(e.Value, &line); err != nil {
					t.Fatal(err)
				}
				printed = append(printed, line)
			case history.KindContinue:
				call = e.Value
			default:
				t.Fatalf("recorded %v", e)
			}
		}
		if call == nil {
			return printed, failure
		}
	}
	t.Fatal("there is no end of generations")
	return nil, nil
}

// TestAGenerationBeginsWithTheCallOfTheOneBefore is what continue_with means: the top level again, then the call, with inputs for
// what is not given.
func TestAGenerationBeginsWithTheCallOfTheOneBefore(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, program, inputs string
		want                  []string
	}{
		{
			"main itself, counting", "print('top', shop)\ndef main(shop, n = 1):\n    print(shop, n)\n    if n < 3:\n        continue_with(main, n = n + 1)", `{"shop": "north"}`,
			[]string{"top north", "north 1", "top north", "north 2", "top north", "north 3"},
		},
		{
			"positions, names and the rest", "def f(a, *args, b = 0, **rest):\n    print(a, args, b, sorted(rest.items()))\ndef main():\n    continue_with(f, 1, 2.5, None, b = [True], c = {'d': 'e'})", "",
			[]string{`1 (2.5, None) [True] [("c", {"d": "e"})]`},
		},
		{
			"what is given goes before inputs", "def f(name, other):\n    print(name, other)\ndef main():\n    continue_with(f, other = 'given')",
			`{"name": "input", "other": "input"}`,
			[]string{"input given"},
		},
		{
			"members of what was handed over", "def f(state):\n    state.seen.append(3)\n    print(state.seen, state['n'])\ndef main():\n    continue_with(f, {'seen': [1, 2], 'n': 10000000000000000000000})", "",
			[]string{"[1, 2, 3] 10000000000000000000000"},
		},
		{
			"a handler of a flow", "def handle(event):\n    print(event.data.id)\n    continue_with(next, event, 1)\ndef next(event, n):\n    print(event.data.id, n)\non_event('t', handler = handle)",
			`{"on_event":{"handler":"handle","event":{"type":"t","data":{"id":5}}}}`,
			[]string{"5", "5 1"},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			printed, failure := generations(t, tt.program, tt.inputs)
			if failure != nil {
				t.Fatal(failure)
			}
			if diff := cmp.Diff(tt.want, printed); diff != "" {
				t.Errorf("printed (-want +got):\n%s", diff)
			}
		})
	}
}

// TestAGenerationWhoseFunctionIsGone cannot happen by a change of the program, which is pinned, but by what its top level does.
func TestAGenerationWhoseFunctionIsGone(t *testing.T) {
	t.Parallel()
	_, failure := generations(t, "def f():\n    pass\ng = f\nf = 1\ndef main():\n    continue_with(g)", "")
	if want := "f is no function any more"; failure == nil || failure.Error() != want {
		t.Errorf("failed with %v, expected %q", failure, want)
	}
}
