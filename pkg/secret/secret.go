// Package secret follows references to secrets (D27): env:NAME, file:/path and vault:path#key, each time that the secret is
// needed, so that one that is replaced takes effect at once. A Secret of Kubernetes is a file where it is mounted.
//
// It keeps no secret, and no error of it holds one: they name the reference. Who may write references is for others to say;
// these are the operator's.
package secret

import (
	"context"
	"log/slog"
	"os"
	"regexp"
	"strings"

	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/pkg/fault"
)

// Expected says in messages what a reference looks like.
const Expected = "expected a reference: env:NAME, file:/path or vault:mount/data/path#key"

// Vault's paths are those of its API: mount/data/path for a KV engine of version 2. What could leave a path, or add to the
// request, is not part of one.
var vaultReference = regexp.MustCompile(`^([A-Za-z0-9_-][A-Za-z0-9_.-]*/)+[A-Za-z0-9_-][A-Za-z0-9_.-]*#[^#\s]+$`)

// IsReference reports whether s has the form of a reference. What has not may be a secret that somebody put there by mistake:
// do not show it.
func IsReference(s string) bool {
	scheme, rest, _ := strings.Cut(s, ":")
	switch scheme {
	case "env":
		// No variable has such a name; env:NAME=value is somebody who pasted the secret where its name belongs.
		return rest != "" && !strings.ContainsAny(rest, "= \t\n")
	case "file":
		return strings.HasPrefix(rest, "/") // a relative path would depend on where the service was started
	case "vault":
		return vaultReference.MatchString(rest)
	default:
		return false
	}
}

// Reader follows references. It is safe for concurrent use; nil follows all but those to Vault.
type Reader struct{ vault *vault }

// New is a reader. Without an address of Vault it refuses references to it.
func New(c VaultConfig, now clock.Clock, log *slog.Logger) (*Reader, error) {
	if c.Address == "" {
		return &Reader{}, nil
	}
	v, err := newVault(c, now, log)
	if err != nil {
		return nil, err
	}
	return &Reader{vault: v}, nil
}

// Read is the secret. The error is Invalid for what is no reference, NotFound where there is nothing, Unavailable while Vault is
// away, and Denied where it refuses.
func (r *Reader) Read(ctx context.Context, reference string) (string, error) {
	if !IsReference(reference) {
		return "", fault.New(fault.Invalid, "found something else than a reference; %s", Expected)
	}
	scheme, rest, _ := strings.Cut(reference, ":")
	var value string
	switch scheme {
	case "env":
		value = os.Getenv(rest)
	case "file":
		content, err := os.ReadFile(rest)
		if err != nil {
			return "", fault.Because(err, fault.NotFound, "%s cannot be read", reference)
		}
		// Editors and echo end a file with a line break that was never part of the secret. Spaces stay: they may belong to it.
		value = strings.TrimRight(string(content), "\r\n")
	default:
		if r == nil || r.vault == nil {
			return "", fault.New(fault.Invalid, "%s: no Vault is configured; expected vault.address", reference)
		}
		path, key, _ := strings.Cut(rest, "#")
		var err error
		if value, err = r.vault.read(ctx, path, key); err != nil {
			return "", err
		}
	}
	if value == "" {
		return "", fault.New(fault.NotFound, "%s: nothing is there, or it is empty", reference)
	}
	return value, nil
}
