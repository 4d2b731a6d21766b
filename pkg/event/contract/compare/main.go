// Command compare fails if the schemas of events break services of an earlier release: compare BEFORE AFTER, two folders as pkg/event.
// tools/breaking.sh runs it against the schemas of the main branch.
package main

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/lockstep-cd/lockstep/pkg/event/contract"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "compare:", err)
		os.Exit(1) //nolint:forbidigo // this is a main package
	}
}

func run(folders []string) error {
	if len(folders) != 2 {
		return errors.New("usage: compare BEFORE AFTER")
	}
	before, err := contract.Load(folders[0])
	if err != nil {
		return fmt.Errorf("before: %w", err)
	}
	after, err := contract.Load(folders[1])
	if err != nil {
		return fmt.Errorf("after: %w", err)
	}
	found, err := contract.Breaking(before, after)
	if err != nil {
		return err
	}
	if len(found) > 0 {
		return fmt.Errorf("%d changes of events break services of the release before; add optional fields beside those that exist:\n%s",
			len(found), strings.Join(found, "\n"))
	}
	return nil
}
