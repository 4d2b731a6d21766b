// Package secret resolves references to secrets (package reference has their grammar) each time the secret is needed, so that a
// replaced secret takes effect at once.
// It stores no secrets, and its errors contain none: they name the reference. It does not decide who may write references; these come from
// the operator.
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

// Reader resolves references. It is safe for concurrent use; a nil Reader resolves env and file.
type Reader struct {
	vault   *vault   // nil if none is configured
	cluster *cluster // nil outside a pod with an account
}

// New returns a reader. Without Vault's address it refuses references to Vault, and outside a pod with its account's token those to
// Kubernetes Secrets.
func New(c VaultConfig, now clock.Clock, log *slog.Logger) (*Reader, error) {
	in, err := newCluster(os.Getenv("KUBERNETES_SERVICE_HOST"), os.Getenv("KUBERNETES_SERVICE_PORT"), accountDir, log)
	if err != nil {
		return nil, err
	}
	r := &Reader{cluster: in}
	if c.Address == "" {
		return r, nil
	}
	if r.vault, err = newVault(c, now, log); err != nil {
		return nil, err
	}
	return r, nil
}

// Read returns the secret. The error is Invalid for a malformed reference, NotFound for a missing secret, Unavailable while Vault or
// Kubernetes does not answer, and Denied if it refuses.
func (r *Reader) Read(ctx context.Context, ref string) (string, error) {
	if !reference.Is(ref) {
		return "", fault.New(fault.Invalid, "found a value that is not a reference; %s", reference.Expected)
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
		// Editors and echo end a file with a line break that is not part of the secret. Spaces stay: they may belong to it.
		value = strings.TrimRight(string(content), "\r\n")
	case "k8s":
		if r == nil || r.cluster == nil {
			return "", fault.New(fault.Invalid, "%s: this process has no account in a cluster; expected a pod with its account's token (kubernetesSecrets of the chart)", ref)
		}
		path, key, _ := strings.Cut(rest, "#")
		var err error
		if value, err = r.cluster.read(ctx, path, key); err != nil {
			return "", err
		}
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
		return "", fault.New(fault.NotFound, "%s: missing or empty", ref)
	}
	return value, nil
}
