// Package reference is the grammar of references to secrets (D27), for everything that accepts them: env:NAME, file:/path,
// k8s:namespace/name#key and vault:mount/data/path#key.
//
// It resolves none; package secret does.
package reference

import (
	"regexp"
	"strings"
)

// Expected describes a valid reference, for messages.
const Expected = "expected a reference: env:NAME, file:/path, k8s:namespace/name#key or vault:mount/data/path#key"

// Vault's paths are those of its API: mount/data/path for a KV engine of version 2. Characters that could escape the path or extend the
// request are not allowed.
var vault = regexp.MustCompile(`^([A-Za-z0-9_-][A-Za-z0-9_.-]*/)+[A-Za-z0-9_-][A-Za-z0-9_.-]*#[^#\s]+$`)

// A Secret of Kubernetes: its namespace is an RFC 1123 label and its name a subdomain, so neither can escape the API's path.
var kubernetes = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?/[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?#[A-Za-z0-9._-]+$`)

// A name of a variable, as shells have them.
var variable = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// Is reports whether s has the form of a reference. Never print a value that does not: it may be a secret entered by mistake.
func Is(s string) bool {
	scheme, rest, _ := strings.Cut(s, ":")
	switch scheme {
	case "env":
		return variable.MatchString(rest) // env:NAME=value means that the secret was pasted in place of its name
	case "file":
		return strings.HasPrefix(rest, "/") // a relative path would depend on the working directory
	case "k8s":
		return kubernetes.MatchString(rest)
	case "vault":
		return vault.MatchString(rest)
	default:
		return false
	}
}
