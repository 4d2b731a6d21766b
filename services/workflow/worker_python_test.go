package workflow_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	autoflowv1 "github.com/lockstep-cd/lockstep/proto/lockstep/autoflow/v1"
)

// TestTheWorkerInPython: the worker in docs/examples, with a client that is generated here, carries out calls and drains. What it needs is
// at generatePython.
func TestTheWorkerInPython(t *testing.T) {
	t.Parallel()
	python, folder := generatePython(t)
	s := startWith(t, withWorkers(3*time.Second))
	worker := exec.CommandContext(context.WithoutCancel(t.Context()), python, absolute(t, "../../docs/examples/worker/worker.py"), s.config.GRPCAddress, "--plain")
	worker.Env = append(os.Environ(), "PYTHONPATH="+folder, "WORKER_TOKEN="+workToken, "WAREHOUSE="+filepath.Join(t.TempDir(), "warehouse.db"))
	worker.Stderr = os.Stderr
	if err := worker.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = worker.Process.Kill() }) // it has ended by then
	s.registered("shop.reserve", 1)
	s.submit("w", `
receipt = run("shop.reserve", {"item": "sku-1", "count": 2})
if receipt.number != "R-1":
    fail("found %s" % receipt)
if run("shop.reserve", {"item": "sku-1", "count": 200}, on_error = "return").code != "sold_out":
    fail("expected sold_out")
if run("shop.reserve", {"item": "sku-1"}, on_error = "return").code != "invalid":
    fail("expected invalid")
`, `{}`)
	s.await("w", autoflowv1.WorkflowState_WORKFLOW_STATE_COMPLETED)
	if err := worker.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := worker.Wait(); err != nil {
		t.Errorf("the worker ended with %v, expected that it drains", err)
	}
}

// dyingWorker is the worker in docs/examples, which kills itself with signal 9 before the first effect, between the
// first effect and its answer,
// or as its second call is answered. What the third argument names is written before: each of them happens once.
const dyingWorker = `
import os, signal, sys
import worker

when, marker = sys.argv.pop(), sys.argv.pop()
original = worker.reserve

def die():
    with open(marker, "w") as file:
        file.write("dead")
    os.kill(os.getpid(), signal.SIGKILL)

def reserve(call_id, arguments, secrets):
    if when == "before":
        die()
    answer = original(call_id, arguments, secrets)
    if when == "between" or when == "second" and answer.value == b'{"number": "R-2"}':
        die()
    return answer

worker.reserve = reserve
worker.main()
`

// TestTheWorkerInPythonIsKilled: a call whose worker is killed (signal 9) before its effect, or between the effect and the answer, is
// given to the next worker under the same id, which finds what was reserved: nothing is reserved twice (issue 18, item 1).
func TestTheWorkerInPythonIsKilled(t *testing.T) {
	t.Parallel()
	python, folder := generatePython(t)
	for _, when := range []string{"before", "between", "second"} {
		t.Run(when, func(t *testing.T) {
			t.Parallel()
			s := startWith(t, withWorkers(time.Second))
			own := t.TempDir()
			warehouse, marker := filepath.Join(own, "warehouse.db"), filepath.Join(own, "dead")
			environment := append(os.Environ(), "PYTHONPATH="+folder+":"+absolute(t, "../../docs/examples/worker"), "PYTHONDONTWRITEBYTECODE=1",
				"WORKER_TOKEN="+workToken, "WAREHOUSE="+warehouse)
			begin := func(arguments ...string) *exec.Cmd {
				t.Helper()
				worker := exec.CommandContext(context.WithoutCancel(t.Context()), python, arguments...)
				worker.Env = environment
				if err := worker.Start(); err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { _ = worker.Process.Kill() })
				return worker
			}
			dying := begin("-c", dyingWorker, s.config.GRPCAddress, "--plain", marker, when)
			s.registered("shop.reserve", 1)
			s.submit("w", `
print([run("shop.reserve", {"item": "sku-%d" % n, "count": n}).number for n in range(1, 4)])
`, `{}`)
			if err := dying.Wait(); err == nil || !strings.Contains(err.Error(), "killed") {
				t.Fatalf("the worker ended with %v, expected that it was killed", err)
			}
			if _, err := os.Stat(marker); err != nil {
				t.Fatal(err)
			}
			next := begin(absolute(t, "../../docs/examples/worker/worker.py"), s.config.GRPCAddress, "--plain")
			s.await("w", autoflowv1.WorkflowState_WORKFLOW_STATE_COMPLETED)
			if lines := s.lines("w"); len(lines) != 1 || lines[0] != `["R-1", "R-2", "R-3"]` {
				t.Errorf("printed %q, expected three numbers", lines)
			}
			const count = `import sqlite3, sys; print(sqlite3.connect(sys.argv[1]).execute("SELECT count(*), sum(count) FROM reservation").fetchone())`
			found, err := exec.CommandContext(t.Context(), python, "-c", count, warehouse).Output()
			if err != nil || strings.TrimSpace(string(found)) != "(3, 6)" {
				t.Errorf("reserved %s, error %v; expected 3 reservations of 6 items", found, err)
			}
			if err := next.Process.Signal(syscall.SIGTERM); err != nil {
				t.Fatal(err)
			}
			if err := next.Wait(); err != nil {
				t.Errorf("the worker ended with %v, expected that it drains", err)
			}
		})
	}
}
