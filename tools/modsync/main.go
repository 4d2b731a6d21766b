// Command modsync keeps the module files of the workspace consistent: every module has go.work's go directive, and a replace line for each
// sibling that it needs, directly or indirectly, because replace lines are not inherited.
//
//	modsync          writes
//	modsync -check   prints what it would write, and fails if there is anything
//
// It changes no versions: `go work sync` and `go mod tidy` do.
package main

import (
	"flag"
	"fmt"
	"os"
)

func main() {
	check := flag.Bool("check", false, "change nothing; fail when a go.mod would be changed")
	root := flag.String("root", ".", "the folder of go.work")
	flag.Parse()
	changed, err := run(*root, *check)
	if err != nil {
		fmt.Fprintln(os.Stderr, "modsync:", err)
		os.Exit(2)
	}
	for _, path := range changed {
		fmt.Fprintln(os.Stderr, "modsync:", path)
	}
	if *check && len(changed) > 0 {
		fmt.Fprintln(os.Stderr, "modsync: these have another go directive or other replace lines than they should; run `make generate`")
		os.Exit(1)
	}
}
