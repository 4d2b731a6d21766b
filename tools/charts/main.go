// Command charts writes what in the Helm charts follows from elsewhere in the tree: package derive lists what that is. Its tests
// are what `make charts` runs.
package main

import (
	"flag"
	"fmt"
	"os"

	"github.com/lockstep-cd/lockstep/tools/charts/derive"
)

func main() {
	check := flag.Bool("check", false, "change nothing; fail when a file would be changed")
	root := flag.String("root", "../..", "the root of the checkout")
	flag.Parse()
	stale, err := derive.Stale(*root, !*check)
	if err != nil {
		fmt.Fprintln(os.Stderr, "charts:", err)
		os.Exit(2)
	}
	for _, name := range stale {
		fmt.Fprintln(os.Stderr, "charts:", name)
	}
	if *check && len(stale) > 0 {
		fmt.Fprintln(os.Stderr, "charts: these do not say what they are derived from; run `make charts-write`")
		os.Exit(1)
	}
}
