package workflow_test

import (
	"context"
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/lockstep-cd/lockstep/pkg/testkit/bustest"
	"github.com/lockstep-cd/lockstep/services/workflow"
)

// TestMain is also the child process that programs run in, `<this binary> sandbox`, and the engine (kill_test.go) and the
// service (start_wait_test.go) that are killed.
func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == workflow.SandboxCommand {
		if err := workflow.Sandbox(context.Background()); err != nil {
			_, _ = os.Stderr.WriteString(err.Error())
			os.Exit(1)
		}
		os.Exit(0)
	}
	if len(os.Args) == 2 && os.Args[1] == workflow.RenderCommand {
		if err := workflow.Render(context.Background()); err != nil {
			_, _ = os.Stderr.WriteString(err.Error())
			os.Exit(1)
		}
		os.Exit(0)
	}
	if len(os.Args) == 2 && os.Args[1] == engineCommand {
		os.Exit(engineProcess())
	}
	if len(os.Args) == 2 && os.Args[1] == serviceCommand {
		os.Exit(serviceProcess())
	}
	if len(os.Args) == 2 && os.Args[1] == workerCommand {
		os.Exit(workerProcess())
	}
	goleak.VerifyTestMain(m, bustest.Leftovers()...)
}
