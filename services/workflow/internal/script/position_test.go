package script

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/history"
)

// stackOf is the stack of a failure, one "branch function position" for each call.
func stackOf(failure error) (all []string) {
	var traced interface{ CallStack() []history.Frame }
	if errors.As(failure, &traced) {
		for _, f := range traced.CallStack() {
			all = append(all, fmt.Sprintf("%d %s %s", f.Branch, f.Function, f.Position))
		}
	}
	return all
}

func TestAFailureNamesTheCallsThatLedToIt(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		program string
		stack   []string
	}{
		"at the top level the error says it all": {`fail("no")`, nil},
		"in functions": {`
def inner(x):
    return x.missing
def outer(x):
    return inner(x)
outer({})`, []string{"0 inner main.star:3:13", "0 outer main.star:5:17", "0 <toplevel> main.star:6:6"}},
		"in main": {`
def main():
    helper()
def helper():
    run("refuse", {"code": "no", "message": "no"})`, []string{"0 helper main.star:5:8", "0 main main.star:3:11"}},
		"in a module's function": {`
load("fails.star", "call")
def main():
    call(lambda: 1 // 0)`, []string{"0 lambda main.star:4:20", "0 call fails.star:2:13", "0 main main.star:4:9"}},
		"at a module's top level": {
			`load("broken.star", "x")`,
			[]string{"0 deep broken.star:2:9", "0 <toplevel> broken.star:3:9", "0 <toplevel> main.star:1:1"},
		},
		"in the condition of a poll": {`
def until(v):
    return look(v)
def look(v):
    return v.missing
poll("echo", {}, until = until)`, []string{"0 look main.star:5:13", "0 until main.star:3:16", "0 <toplevel> main.star:6:5"}},
		"in a branch of a branch": {`
def leaf():
    fail("no")
def node():
    sleep(1)
    gather(spawn(leaf))
def main():
    gather([spawn(node)])`, []string{"2 leaf main.star:3:9", "1 node main.star:6:17", "0 main main.star:8:18"}},
		"arguments that do not fit": {`
def takes(one):
    pass
def main():
    takes()`, nil},
		"arguments that do not fit a branch": {`
def takes(one):
    pass
def main():
    gather(spawn(takes))`, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, failure := execute(t, c.program, nil)
			if failure == nil {
				t.Fatal("it ended well")
			}
			if diff := cmp.Diff(c.stack, stackOf(failure)); diff != "" {
				t.Errorf("of %v (-expected +found):\n%s", failure, diff)
			}
		})
	}
}

// A line is cut where it is too long and mended where it is no text, and neither costs the rest of it.
func TestAPrintedLineIsCutAndMended(t *testing.T) {
	t.Parallel()
	for program, expected := range map[string]string{
		`print("é" * 20)`:        `"ééééé` + history.Cut + `"`,
		`print("x" + "é" * 20)`:  `"xéééé�` + history.Cut + `"`,
		`print("a", "é"[:1], 1)`: `"a � 1"`,
	} {
		history, failure := execute(t, program, nil)
		if failure != nil || len(history) != 1 || string(history[0].Value) != expected {
			t.Errorf("%s: recorded %v with %v, expected %s", program, history, failure, expected)
		}
	}
	// The fingerprint is the one of all histories in which such a line stands.
	a, _ := execute(t, `print("é"[:1])`, nil)
	b, _ := execute(t, `print("è"[:1], 2)`, nil)
	if a[0].Hash != b[0].Hash {
		t.Errorf("the fingerprints are %x and %x, expected one", a[0].Hash, b[0].Hash)
	}
	if !strings.Contains(string(b[0].Value), "2") {
		t.Errorf("recorded %s", b[0].Value)
	}
}
