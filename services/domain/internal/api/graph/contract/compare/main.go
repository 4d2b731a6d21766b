// Command compare fails where a GraphQL schema breaks the clients of an earlier one: compare BEFORE AFTER, two files. It is run by
// tools/breaking.sh with the schema of the main branch, and decides about nothing but the two files.
package main

import (
	"fmt"
	"os"

	"github.com/lockstep-cd/lockstep/services/domain/internal/api/graph/contract"
)

func main() {
	const files = 2
	if len(os.Args) != files+1 {
		fmt.Fprintln(os.Stderr, "usage: compare BEFORE AFTER")
		os.Exit(2)
	}
	var schemas [files]string
	for i := range schemas {
		text, err := os.ReadFile(os.Args[i+1])
		if err != nil {
			fmt.Fprintln(os.Stderr, "compare:", err)
			os.Exit(2)
		}
		schemas[i] = string(text)
	}
	found, err := contract.Breaking(schemas[0], schemas[1])
	if err != nil {
		fmt.Fprintln(os.Stderr, "compare:", err)
		os.Exit(2)
	}
	for _, f := range found {
		fmt.Fprintln(os.Stderr, f)
	}
	if len(found) > 0 {
		fmt.Fprintf(os.Stderr, "compare: %d changes of the GraphQL schema break clients; add beside what is there, and deprecate it before it goes\n", len(found))
		os.Exit(1)
	}
}
