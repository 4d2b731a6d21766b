package workflow_test

import (
	"cmp"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	autoflowv1 "github.com/lockstep-cd/lockstep/proto/lockstep/autoflow/v1"
)

// TestTheWorkerInPython: the worker in docs/examples, with a client that is generated here, carries out calls and drains. It needs a Python
// with grpcio (LOCKSTEP_TEST_PYTHON or python3), and grpcio-tools or protoc with grpc_python_plugin.
func TestTheWorkerInPython(t *testing.T) {
	t.Parallel()
	python := cmp.Or(os.Getenv("LOCKSTEP_TEST_PYTHON"), "python3")
	generator := []string{python, "-m", "grpc_tools.protoc", "--grpc_python_out="}
	if exec.CommandContext(t.Context(), python, "-c", "import grpc_tools, grpc").Run() != nil { //nolint:gosec // the tester's
		plugin, err := exec.LookPath("grpc_python_plugin")
		if err != nil || exec.CommandContext(t.Context(), python, "-c", "import grpc").Run() != nil { //nolint:gosec // the tester's
			t.Skip("no Python with grpcio and grpcio-tools, or protoc and grpc_python_plugin; LOCKSTEP_TEST_PYTHON names one")
		}
		generator = []string{"protoc", "--plugin=protoc-gen-grpc=" + plugin, "--grpc_out="}
	}
	s := startWith(t, withWorkers(3*time.Second))
	folder := t.TempDir()
	generator[len(generator)-1] += folder
	arguments := append(slices.Clone(generator[1:]), "-I", "../../proto", "--python_out="+folder, "../../proto/lockstep/autoflow/v1/autoflow.proto")
	generate := exec.CommandContext(t.Context(), generator[0], arguments...) //nolint:gosec // the tester's
	if out, err := generate.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	script, err := filepath.Abs("../../docs/examples/worker/worker.py")
	if err != nil {
		t.Fatal(err)
	}
	worker := exec.CommandContext(context.WithoutCancel(t.Context()), python, script, s.config.GRPCAddress, "--plain") //nolint:gosec // the tester's
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
