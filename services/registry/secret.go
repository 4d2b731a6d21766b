package registry

import (
	"errors"
	"fmt"
	"os"
	"strings"
)

// validReference reports whether s is a reference to a secret that readSecret could follow.
func validReference(s string) bool {
	if name, ok := strings.CutPrefix(s, "env:"); ok {
		// No variable has such a name; env:NAME=value is somebody who pasted the secret where its name belongs.
		return name != "" && !strings.ContainsAny(name, "= \t\n")
	}
	path, ok := strings.CutPrefix(s, "file:")
	// A relative path would depend on where the service was started.
	return ok && strings.HasPrefix(path, "/")
}

// readSecret follows a reference: env:NAME or file:/path, whose last line may end in a line break. Its errors name the
// reference, never what is there.
func readSecret(reference string) (string, error) {
	if name, ok := strings.CutPrefix(reference, "env:"); ok {
		value := os.Getenv(name)
		if value == "" {
			return "", fmt.Errorf("%s: the variable is not set, or empty", reference)
		}
		return value, nil
	}
	path, ok := strings.CutPrefix(reference, "file:")
	if !ok {
		return "", errors.New("found something else than a reference; expected env:NAME or file:/path")
	}
	content, err := os.ReadFile(path)
	if err != nil {
		return "", fmt.Errorf("%s: %w", reference, err)
	}
	// Editors and echo end a file with a line break that was never part of the secret; signatures made by the sender,
	// who does not have it, would all be wrong. Spaces stay: they may belong to it.
	value := strings.TrimRight(string(content), "\r\n")
	if value == "" {
		return "", fmt.Errorf("%s: the file is empty", reference)
	}
	return value, nil
}
