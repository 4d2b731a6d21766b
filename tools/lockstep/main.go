// Command lockstep asks a Lockstep control plane, and runs one on this machine.
package main

import (
	"os"

	"github.com/lockstep-cd/lockstep/tools/lockstep/cli"
)

// version is set by the linker.
var version = "dev"

func main() {
	os.Exit(cli.Main(version, os.Args[1:]))
}
