// Command registry runs the registry service, brings its tables up to date with the subcommand migrate, or lists the
// paths of its hooks with the subcommand hooks.
package main

import (
	"context"
	"os"

	"github.com/lockstep-cd/lockstep/pkg/config"
	"github.com/lockstep-cd/lockstep/pkg/run"
	"github.com/lockstep-cd/lockstep/services/registry"
)

func main() {
	os.Exit(run.Main("registry", start))
}

func start(ctx context.Context) error {
	args, do := registry.Command(os.Args[1:], os.Stdout)
	c, err := config.Load[registry.Config]("registry", args)
	if err != nil {
		return err
	}
	return do(ctx, c)
}
