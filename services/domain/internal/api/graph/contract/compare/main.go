// Command compare fails if a GraphQL schema breaks clients of an earlier one: compare BEFORE AFTER, two folders of .graphqls files.
// tools/breaking.sh runs it against the schema of the main branch.
package main

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/lockstep-cd/lockstep/services/domain/internal/api/graph/contract"
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
	if found := contract.Breaking(before, after); len(found) > 0 {
		return fmt.Errorf("%d changes of the GraphQL schema break clients; add fields beside those that exist, and deprecate before removing:\n%s",
			len(found), strings.Join(found, "\n"))
	}
	return nil
}
