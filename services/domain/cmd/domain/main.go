// Command domain runs the domain service. With the subcommand migrate it brings the tables up to date, with restored it leaves a gap in the
// numbers that it gives, after a restore, and with pgbouncer it prints its entry of a pooler's configuration.
package main

import (
	"context"
	"os"

	"github.com/lockstep-cd/lockstep/pkg/run"
	"github.com/lockstep-cd/lockstep/services/domain"
)

func main() {
	os.Exit(run.Main("domain", start))
}

func start(ctx context.Context) error {
	return domain.Program(os.Stdout).Start(ctx, os.Args[1:])
}
