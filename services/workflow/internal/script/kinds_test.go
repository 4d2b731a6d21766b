package script

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.starlark.net/starlark"

	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/history"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/program"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/script/scripttest"
)

// TestFunctionsReachEveryKindOfValueAfterAReplay covers a process that dies between any two entries: what a value was before, it is
// for whatever builtin calls a function that reaches it.
func TestFunctionsReachEveryKindOfValueAfterAReplay(t *testing.T) {
	t.Parallel()
	for _, use := range scripttest.Uses() {
		for _, kind := range scripttest.Kinds() {
			t.Run(use.Builtin+"/"+kind.Name, func(t *testing.T) {
				t.Parallel()
				source := scripttest.Program(use, []scripttest.Kind{kind})
				inputs := scripttest.Inputs
				if use.Builtin == "on_event" {
					inputs = strings.TrimSuffix(inputs, "}") + `, "` + program.HandlerInput + `": {"handler": "handle", "event": {"data": {"a": [1]}}}}`
				}
				start := func(recorded []history.Entry) program.Machine {
					m, err := New(Limits{}).Open(program.Program{Source: []byte(source), Modules: scripttest.Modules()}, []byte(inputs),
						testEnvironment(recorded))
					if err != nil {
						t.Fatal(err)
					}
					t.Cleanup(m.Close)
					return m
				}
				history, failure := carryOn(t, start(nil), nil)
				if failure != nil {
					t.Fatalf("%v in\n%s", failure, source)
				}
				for n := range history {
					again, failure := carryOn(t, start(history[:n]), history[:n])
					if failure != nil {
						t.Errorf("replayed from %d entries: %v", n, failure)
					}
					if diff := cmp.Diff(history, again); diff != "" {
						t.Errorf("replayed from %d entries, the history is another one (-first +again):\n%s", n, diff)
					}
				}
			})
		}
	}
}

// TestTheKindsAreAllThereAre fails when a builtin or a type of value is added that the tests above do not know.
func TestTheKindsAreAllThereAre(t *testing.T) {
	t.Parallel()
	var uses []string
	for _, use := range scripttest.Uses() {
		uses = append(uses, use.Builtin)
	}
	plain := []string{
		"run", "patched", "start_workflow", "await_workflow", "set_status", "sleep", "wait_for_event", "gather", "channel", "receive", "inbox", "reply", "history_length", "now", "uuid", "random", "parse_yaml", "to_yaml",
		"abs", "any", "all", "bool", "bytes", "chr", "dict", "dir", "enumerate", "fail", "float", "getattr", "hasattr", "hash", "int",
		"len", "list", "ord",
		"==", "in", ".index", // written as operators and methods
		"print", "range", "repr", "reversed", "set", "str", "struct", "tuple", "type", "zip",
	}
	for _, names := range []starlark.StringDict{ownNames(), starlark.Universe} {
		for name, value := range names {
			if _, callable := value.(starlark.Callable); callable && slices.Contains(uses, name) == slices.Contains(plain, name) {
				t.Errorf("%s: expected it either in scripttest.Uses, since it takes a function, or in the list here", name)
			}
		}
	}
	known := fmt.Sprint(scripttest.Kinds())
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile(`\) Type\(\) string\s*\{ return "(\w+)" \}`).FindAllStringSubmatch(string(text), -1) {
			if !strings.Contains(known, "{"+m[1]+" ") {
				t.Errorf("%s: a value of type %s is none of scripttest.Kinds", file, m[1])
			}
		}
	}
}
