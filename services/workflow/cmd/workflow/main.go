// Command workflow runs the workflow service, brings its tables up to date with the subcommand migrate, or, with
// restored, leaves a gap in the numbers that it gives, after a restore; pgbouncer prints its entry of a pooler's configuration. The service
// starts it with the subcommand sandbox as a child that runs programs.
package main

import (
	"context"
	"os"

	"github.com/lockstep-cd/lockstep/pkg/config"
	"github.com/lockstep-cd/lockstep/pkg/run"
	"github.com/lockstep-cd/lockstep/services/workflow"
)

func main() {
	os.Exit(run.Main("workflow", start))
}

func start(ctx context.Context) error {
	args, do := os.Args[1:], workflow.Run
	if len(args) == 1 && args[0] == workflow.SandboxCommand {
		return workflow.Sandbox(ctx)
	}
	if len(args) > 0 && args[0] == "migrate" {
		args, do = args[1:], workflow.Migrate
	}
	if len(args) > 0 && args[0] == "restored" {
		args, do = args[1:], workflow.Restored
	}
	if len(args) > 0 && args[0] == "pgbouncer" {
		args, do = args[1:], workflow.PgBouncer
	}
	c, err := config.Load[workflow.Config]("workflow", args)
	if err != nil {
		return err
	}
	defer workflow.RoomyHeap()()
	return do(ctx, c)
}
