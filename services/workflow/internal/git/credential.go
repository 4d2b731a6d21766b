package git

import (
	"context"
	"fmt"
	"net/url"
	"slices"
	"strings"

	githttp "github.com/go-git/go-git/v5/plumbing/transport/http"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/secret"
	"github.com/lockstep-cd/lockstep/pkg/secret/reference"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core"
)

// Credential is a user name and a reference to a password, for the repositories below a URL.
type Credential struct {
	// URLPrefix is scheme, host and the beginning of a path; it ends at a path boundary.
	URLPrefix string
	// Username is what the forge wants there; for tokens often anything.
	Username string
	// PasswordRef is env:NAME, file:/path, k8s:namespace/name#key or vault:path#key, read whenever it is needed (D27).
	PasswordRef string
	// Forge is the interface that these repositories are read and written through, one of Forges, with the password as its
	// token; "" is plain Git.
	Forge string
	// Organizations are those whose workflows it is for; none means all. To others it is as if it were not there.
	Organizations []int64
}

// check finds credentials that could never work when the process starts, not when the first commit is due.
func (c Credential) check() error {
	var wrong []fault.Field
	if _, err := parseURL("url_prefix", c.URLPrefix, true); err != nil {
		wrong = append(wrong, fault.FieldsOf(err)...)
	}
	if !reference.Is(c.PasswordRef) {
		// The value is not shown: it may be a password that somebody put here by mistake.
		wrong = append(wrong, fault.Field{Name: "password_ref", Problem: reference.Expected})
	}
	if c.Forge != "" && !slices.Contains(Forges(), c.Forge) {
		wrong = append(wrong, fault.Field{Name: "forge", Problem: fmt.Sprintf("found %q, expected one of %s", c.Forge, strings.Join(Forges(), ", "))})
	}
	for _, o := range c.Organizations {
		if o <= 0 {
			wrong = append(wrong, fault.Field{Name: "organizations", Problem: fmt.Sprintf("found %d, expected numbers above zero", o)})
		}
	}
	if len(wrong) > 0 {
		return fault.InvalidFields(wrong...)
	}
	return nil
}

// matches reports how many bytes of path the credential covers; -1 for none. Scheme, host and port have to be the same,
// and the path to continue at a slash: git.example.com must not match git.example.com.evil.org, nor /team match /teammate.
func (c Credential) matches(u *url.URL) int {
	p, err := parseURL("url_prefix", c.URLPrefix, true)
	if err != nil || p.Scheme != u.Scheme || !strings.EqualFold(p.Host, u.Host) {
		return -1
	}
	prefix := strings.TrimSuffix(p.Path, "/")
	if rest, ok := strings.CutPrefix(u.Path, prefix); !ok || (rest != "" && rest[0] != '/') {
		return -1
	}
	return len(prefix)
}

// best is the credential of a repository for an organization, nil where none matches. The longest prefix wins; of equal ones
// the first in the configuration. A program names any repository that it likes, so what is one organization's must not log
// another one in.
func best(credentials []Credential, organization int64, u *url.URL) *Credential {
	var best *Credential
	longest := -1
	for i := range credentials {
		if only := credentials[i].Organizations; len(only) > 0 && !slices.Contains(only, organization) {
			continue
		}
		if n := credentials[i].matches(u); n > longest {
			best, longest = &credentials[i], n
		}
	}
	return best
}

// authFor finds the credential of a repository, nil where none matches, and reads its password: a rotated one takes effect with
// the next operation.
func authFor(ctx context.Context, secrets *secret.Reader, credentials []Credential, organization int64, u *url.URL) (*githttp.BasicAuth, error) {
	best := best(credentials, organization, u)
	if best == nil {
		return nil, nil
	}
	password, err := secrets.Read(ctx, best.PasswordRef)
	if fault.Is(err, fault.Unavailable) { // which passes: the operation is tried again
		return nil, fault.Because(err, fault.Unavailable, "the password for %s: %s", best.URLPrefix, fault.Public(err))
	}
	if err != nil {
		return nil, fault.Because(err, fault.Unauthenticated, "the password for %s cannot be read from %s", best.URLPrefix, best.PasswordRef)
	}
	core.Conceal(ctx, password)
	return &githttp.BasicAuth{Username: best.Username, Password: password}, nil
}
