// Command compare fails where a GraphQL schema breaks the clients of an earlier one: compare BEFORE AFTER, two files. It is run by
// tools/breaking.sh with the schema of the main branch, and decides about nothing but the two files.
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

func run(files []string) error {
	if len(files) != 2 {
		return errors.New("usage: compare BEFORE AFTER")
	}
	var schemas [2]string
	for i, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return fmt.Errorf("read schema: %w", err)
		}
		schemas[i] = string(text)
	}
	found, err := contract.Breaking(schemas[0], schemas[1])
	if err != nil {
		return err
	}
	if len(found) > 0 {
		return fmt.Errorf("%d changes of the GraphQL schema break clients; add beside what is there, and deprecate it before it is removed:\n%s",
			len(found), strings.Join(found, "\n"))
	}
	return nil
}
