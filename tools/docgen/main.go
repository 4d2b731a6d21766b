// Command docgen writes the reference pages in docs/reference from what the program itself knows: its commands, configuration, events,
// metrics, schemas and protocols.
//
//	docgen          writes
//	docgen -check   names the pages that it would write, and fails when there are any
package main

import (
	"flag"
	"fmt"
	"os"

	"github.com/lockstep-cd/lockstep/tools/docgen/reference"
)

func main() {
	check := flag.Bool("check", false, "change nothing; fail when a page would be changed")
	root := flag.String("root", ".", "the root of the checkout")
	flag.Parse()
	stale, err := reference.Stale(*root, !*check)
	if err != nil {
		fmt.Fprintln(os.Stderr, "docgen:", err)
		os.Exit(2)
	}
	for _, name := range stale {
		fmt.Fprintln(os.Stderr, "docgen:", name)
	}
	if *check && len(stale) > 0 {
		fmt.Fprintln(os.Stderr, "docgen: these pages differ from what they are written from; run `make generate`")
		os.Exit(1)
	}
}
