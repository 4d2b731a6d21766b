// Command relay runs the relay service beside a cluster.
package main

import (
	"context"
	"os"

	"github.com/lockstep-cd/lockstep/pkg/run"
	"github.com/lockstep-cd/lockstep/services/relay"
)

func main() {
	os.Exit(run.Main("relay", start))
}

func start(ctx context.Context) error {
	args := os.Args[1:]
	if len(args) > 0 && args[0] == "migrate" {
		return nil // the relay has no database, but every service accepts the subcommand
	}
	return relay.Program().Start(ctx, args)
}
