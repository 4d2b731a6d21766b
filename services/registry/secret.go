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
		return name != "" && !strings.ContainsAny(name, "= \t\n")
	}
	path, ok := strings.CutPrefix(s, "file:")
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
	value := strings.TrimRight(string(content), "\r\n")
	if value == "" {
		return "", fmt.Errorf("%s: the file is empty", reference)
	}
	return value, nil
}
