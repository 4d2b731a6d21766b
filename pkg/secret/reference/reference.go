// Package reference is the grammar of references to secrets (D27), in one place for whoever takes them: env:NAME, file:/path
// and vault:mount/data/path#key. A Secret of Kubernetes is a file where it is mounted.
//
// It follows none; package secret does.
package reference

import (
	"regexp"
	"strings"
)

// Expected says in messages what a reference looks like.
const Expected = "expected a reference: env:NAME, file:/path or vault:mount/data/path#key"

// Vault's paths are those of its API: mount/data/path for a KV engine of version 2. What could leave a path, or add to the
// request, is not part of one.
var vault = regexp.MustCompile(`^([A-Za-z0-9_-][A-Za-z0-9_.-]*/)+[A-Za-z0-9_-][A-Za-z0-9_.-]*#[^#\s]+$`)

// Is reports whether s has the form of a reference. What has not may be a secret that somebody put there by mistake: do not
// show it.
func Is(s string) bool {
	scheme, rest, _ := strings.Cut(s, ":")
	switch scheme {
	case "env":
		// No variable has such a name; env:NAME=value is somebody who pasted the secret where its name belongs.
		return rest != "" && !strings.ContainsAny(rest, "= \t\n")
	case "file":
		return strings.HasPrefix(rest, "/") // a relative path would depend on where the service was started
	case "vault":
		return vault.MatchString(rest)
	default:
		return false
	}
}
