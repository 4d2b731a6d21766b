// Command lockstep is the client of a Lockstep control plane, and runs one on this machine.
package main

import (
	"os"

	"github.com/lockstep-cd/lockstep/pkg/build"
	"github.com/lockstep-cd/lockstep/tools/lockstep/cli"
)

func main() {
	os.Exit(cli.Main(build.Read().String(), os.Args[1:]))
}
