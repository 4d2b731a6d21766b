// Command domain runs the domain service, brings its tables up to date with the subcommand migrate, or, with restored, leaves a gap in the
// numbers that it gives, after a restore.
package main

import (
	"context"
	"os"

	"github.com/lockstep-cd/lockstep/pkg/config"
	"github.com/lockstep-cd/lockstep/pkg/run"
	"github.com/lockstep-cd/lockstep/services/domain"
)

func main() {
	os.Exit(run.Main("domain", start))
}

func start(ctx context.Context) error {
	args, do := os.Args[1:], domain.Run
	if len(args) > 0 && args[0] == "migrate" {
		args, do = args[1:], domain.Migrate
	}
	if len(args) > 0 && args[0] == "restored" {
		args, do = args[1:], domain.Restored
	}
	if len(args) > 0 && args[0] == "pgbouncer" {
		args, do = args[1:], domain.PgBouncer
	}
	c, err := config.Load[domain.Config]("domain", args)
	if err != nil {
		return err
	}
	return do(ctx, c)
}
