// Package reference is the grammar of references to secrets (D27), for everything that accepts them: env:NAME, file:/path,
// k8s:namespace/name#key and vault:mount/data/path#key.
//
// It resolves none; package secret does.
package reference

import (
	"regexp"
	"strings"
)

// Expected says in messages what a reference looks like.
const Expected = "expected a reference: env:NAME, file:/path, k8s:namespace/name#key or vault:mount/data/path#key"

// Vault's paths are those of its API: mount/data/path for a KV engine of version 2. What could leave a path, or add to the
// request, is not part of one.
var vault = regexp.MustCompile(`^([A-Za-z0-9_-][A-Za-z0-9_.-]*/)+[A-Za-z0-9_-][A-Za-z0-9_.-]*#[^#\s]+$`)

// A Secret of Kubernetes: its namespace is a label of RFC 1123 and its name a subdomain, so that neither leads out of the API's path.
var kubernetes = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?/[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?#[A-Za-z0-9._-]+$`)

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
	case "k8s":
		return kubernetes.MatchString(rest)
	case "vault":
		return vault.MatchString(rest)
	default:
		return false
	}
}
