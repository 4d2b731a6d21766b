// Command verify-journal verifies an export of journals (lockstep journal export) without a server. It is built from package proof and the
// standard library, and from nothing else.
//
//	verify-journal FILE [PUBLIC-KEY-FILE]
package main

import (
	"crypto/ed25519"
	"fmt"
	"os"

	"github.com/lockstep-cd/lockstep/pkg/proof"
)

func main() {
	if err := verify(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "verify-journal:", err)
		os.Exit(1) //nolint:forbidigo // a main package
	}
}

func verify(args []string) error {
	if len(args) < 1 || len(args) > 2 {
		return fmt.Errorf("found %d arguments; expected a file, and a file with the public key", len(args))
	}
	var key ed25519.PublicKey
	if len(args) == 2 {
		text, err := os.ReadFile(args[1])
		if err != nil {
			return err
		}
		if key, err = proof.ReadKey(text); err != nil {
			return err
		}
	}
	file, err := os.Open(args[0])
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }()
	report, err := proof.Verify(file, key)
	if err != nil {
		return fmt.Errorf("%s: %w", args[0], err)
	}
	_, err = fmt.Fprintln(os.Stdout, report)
	return err
}
