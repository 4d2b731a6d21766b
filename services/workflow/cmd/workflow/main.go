// Command workflow runs the workflow service. With the subcommand migrate it brings the tables up to date, with restored it leaves a gap in
// the numbers that it gives, after a restore, and with pgbouncer it prints its entry of a pooler's configuration. The service starts it
// with the subcommand sandbox as a child that runs programs, and with the subcommand render as one that renders manifests.
package main

import (
	"context"
	"os"

	"github.com/lockstep-cd/lockstep/pkg/run"
	"github.com/lockstep-cd/lockstep/services/workflow"
)

func main() {
	os.Exit(run.Main("workflow", start))
}

func start(ctx context.Context) error {
	if args := os.Args[1:]; len(args) == 1 && args[0] == workflow.SandboxCommand {
		return workflow.Sandbox(ctx)
	}
	if args := os.Args[1:]; len(args) == 1 && args[0] == workflow.RenderCommand {
		return workflow.Render(ctx)
	}
	defer workflow.RoomyHeap()()
	return workflow.Program(os.Stdout).Start(ctx, os.Args[1:])
}
