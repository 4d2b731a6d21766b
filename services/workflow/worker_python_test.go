package workflow_test

import (
	"context"
	"os"
	"os/exec"
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
	worker.Env, worker.Stderr = append(os.Environ(), "PYTHONPATH="+folder, "WORKER_TOKEN="+workToken), os.Stderr
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
