// Command registry runs the registry service. With the subcommand migrate it brings the tables up to date, with restored it leaves a gap in
// the numbers that it gives, after a restore, with pgbouncer it prints its entry of a pooler's configuration, and with hooks the paths of
// its hooks.
package main

import (
	"context"
	"os"

	"github.com/lockstep-cd/lockstep/pkg/run"
	"github.com/lockstep-cd/lockstep/services/registry"
)

func main() {
	os.Exit(run.Main("registry", start))
}

func start(ctx context.Context) error {
	return registry.Program(os.Stdout).Start(ctx, os.Args[1:])
}
