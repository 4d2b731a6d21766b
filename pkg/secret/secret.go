// Package secret follows references to secrets (package reference has their grammar), each time that the secret is
// needed, so that one that is replaced takes effect at once. A Secret of Kubernetes is a file where it is mounted.
//
// It keeps no secret, and no error of it holds one: they name the reference. Who may write references is for others to say;
// these are the operator's.
package secret

import (
	"context"
	"log/slog"
	"os"
	"strings"

	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/secret/reference"
)

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
func (r *Reader) Read(ctx context.Context, ref string) (string, error) {
	if !reference.Is(ref) {
		return "", fault.New(fault.Invalid, "found something else than a reference; %s", reference.Expected)
	}
	scheme, rest, _ := strings.Cut(ref, ":")
	var value string
	switch scheme {
	case "env":
		value = os.Getenv(rest)
	case "file":
		content, err := os.ReadFile(rest)
		if err != nil {
			return "", fault.Because(err, fault.NotFound, "%s cannot be read", ref)
		}
		// Editors and echo end a file with a line break that was never part of the secret. Spaces stay: they may belong to it.
		value = strings.TrimRight(string(content), "\r\n")
	default:
		if r == nil || r.vault == nil {
			return "", fault.New(fault.Invalid, "%s: no Vault is configured; expected vault.address", ref)
		}
		path, key, _ := strings.Cut(rest, "#")
		var err error
		if value, err = r.vault.read(ctx, path, key); err != nil {
			return "", err
		}
	}
	if value == "" {
		return "", fault.New(fault.NotFound, "%s: nothing is there, or it is empty", ref)
	}
	return value, nil
}
