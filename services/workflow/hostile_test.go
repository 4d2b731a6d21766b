package workflow_test

import (
	"context"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/testkit/bustest"
	"github.com/lockstep-cd/lockstep/services/workflow"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/activity"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/execution"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/program"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/sandbox"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/script"
)

// sandboxed are scripts that trust no program, with children of this binary (TestMain).
func sandboxed(t *testing.T, limits sandbox.Limits) *sandbox.Scripts {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	s := sandbox.New(sandbox.Config{
		Command: []string{self, workflow.SandboxCommand}, Limits: limits,
		Trusted: func(program.Program) bool { return false }, Here: script.New(script.Limits{}),
		Clock: clock.System(), Log: bustest.Log(t),
	})
	t.Cleanup(s.Close)
	return s
}

// hostile are programs that would take a service down, or hold it up, and how each has to end (D45).
var hostile = map[string]struct{ program, want string }{
	"endless loop":            {"while True: pass", "more than 20000000 steps without waiting"},
	"4 GiB string":            {"x = 'x' * (4 << 30)", "repeat count 4294967296 too large"},
	"string that doubles":     {"x = 'x'\nfor _ in range(40): x += x", "took more memory than it may: 64 MiB"},
	"list that doubles":       {"x = [0]\nfor _ in range(40): x += x", "took more memory than it may: 64 MiB"},
	"dict that grows":         {"x = {}\nfor i in range(10000000): x[i] = str(i) * 1000", "took more memory than it may: 64 MiB"},
	"number that grows":       {"x = 3\nfor _ in range(60): x = x * x", "computed for longer than it may: 3s of CPU time"},
	"quadratic str":           {"x = ['y' * 1000]\nfor _ in range(24): x = [x, x]\nprint(len(str(x)))", "than it may"},
	"values nested too deep":  {"x = []\nfor _ in range(1000000): x = [x]\nstr(x)", "than it may"},
	"recursion":               {"def f(n): return f(n + 1)\nf(0)", "function f called recursively"},
	"mutual recursion":        {"def g(n): return f(n)\ndef f(n): return g(n + 1)\nf(0)", "called recursively"},
	"sorted with a slow key":  {"sorted(range(1000000), key = lambda x: str(list(range(x))))", "than it may"},
	"10,000 branches":         {"def f(): sleep(1)\nfor _ in range(10000): spawn(f)", "spawn: more than 1000 branches"},
	"a loop around now":       {"while True: now()", "more than 10000 operations without waiting"},
	"a large argument":        {"run('act', {'x': ['y' * 1000000] * 100})", "args: value is larger than 4194304 bytes"},
	"decoded JSON that grows": {"x = json.decode('[' + '[],' * 5000000 + '[]]')", "than it may"},
}

// TestHostileProgramsFailAlone runs all of them side by side with a well-behaved one of the same kind, which has to end
// as if it were alone.
func TestHostileProgramsFailAlone(t *testing.T) {
	t.Parallel()
	e := newEnginesWith(t, sandboxed(t, sandbox.Limits{Memory: 64 << 20, CPU: 3 * time.Second}))
	e.run("one", e.store, nil)
	submit := func(id, source string) {
		if _, err := e.service.Start(t.Context(), execution.Start{
			Organization: 1, Workflow: id,
			Program: program.Program{Source: []byte(source)},
		}); err != nil {
			t.Fatalf("%s: %v", id, err)
		}
	}
	ids := map[string]string{}
	for name, h := range hostile {
		id := strings.ReplaceAll(name, " ", "-")
		ids[name] = id
		submit(id, h.program)
	}
	submit("well-behaved", "x = 0\nfor i in range(20):\n    sleep(0.01)\n    x += i\nprint(x)")
	if w := e.ended("well-behaved"); w.State != execution.Completed {
		t.Errorf("the well-behaved program ended as %d: %s", w.State, w.Error)
	}
	for name, h := range hostile {
		if w := e.ended(ids[name]); w.State != execution.Failed || !strings.Contains(w.Error, h.want) {
			t.Errorf("%s: ended as %d with %q, expected a failure with %q", name, w.State, w.Error, h.want)
		}
	}
}

// TestHostileSourceIsRefused covers programs that hurt when they are read.
func TestHostileSourceIsRefused(t *testing.T) {
	t.Parallel()
	scripts := sandboxed(t, sandbox.Limits{Memory: 64 << 20, CPU: time.Second})
	for name, source := range map[string]string{
		"parentheses": "x = " + strings.Repeat("(", 1<<19) + "1" + strings.Repeat(")", 1<<19-10),
		"not not":     "x = " + strings.Repeat("not ", 1<<17) + "1",
	} {
		for i, err := range []error{
			scripts.Check(program.Program{Source: []byte(source)}, nil),
			func() error { _, err := scripts.Inspect(program.Program{Source: []byte(source)}); return err }(),
		} {
			if !fault.Is(err, fault.Invalid) {
				t.Errorf("%s, way %d: found %v, expected a refusal", name, i, err)
			}
		}
	}
	if err := scripts.Check(program.Program{Source: []byte("x = 1")}, nil); err != nil {
		t.Errorf("afterwards: %v", err)
	}
}

// TestAMillionPrints ends well: what is too much is not kept (D29).
func TestAMillionPrints(t *testing.T) {
	t.Parallel()
	e := newEnginesWith(t, sandboxed(t, sandbox.Limits{}))
	e.runWith("one", e.store, nil, 2000)
	e.start("for i in range(1000000): print(i)")
	e.await(execution.Completed)
	if h := e.history(); !strings.HasPrefix(h[0], "print") {
		t.Errorf("history begins with %q", h[0])
	}
}

// TestARunIsReplayedWhenItsProcessDies keeps one run in memory, waiting for its Function, while another run kills the sandbox process
// that both share. The first continues in another process, under the same key.
func TestARunIsReplayedWhenItsProcessDies(t *testing.T) {
	t.Parallel()
	scripts := sandboxed(t, sandbox.Limits{Memory: 64 << 20, CPU: time.Second})
	e := newEnginesWith(t, scripts)
	begun, release := make(chan string, 10), make(chan struct{})
	e.run("one", e.store, func(ctx context.Context, c activity.Call) (any, error) {
		begun <- c.ID
		select {
		case <-release:
			return 1, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	})
	e.start("print(1)\nrun('act', {})\nprint(2)")
	first := <-begun
	const bad = "bad"
	if _, err := e.service.Start(t.Context(), execution.Start{
		Organization: 1, Workflow: bad,
		Program: program.Program{Source: []byte("x = 'x'\nfor _ in range(40): x += x")},
	}); err != nil {
		t.Fatal(err)
	}
	if w := e.ended(bad); w.State != execution.Failed {
		t.Errorf("the hostile program ended as %d", w.State)
	}
	close(release)
	e.await(execution.Completed)
	if h := e.history(); len(h) != 4 {
		t.Errorf("history %q", h)
	}
	for len(begun) > 0 {
		if again := <-begun; again != first {
			t.Errorf("the function was called with %s and %s", first, again)
		}
	}
}
