package git

import (
	"context"
	"fmt"
	"net/url"
	"slices"
	"strings"

	githttp "github.com/go-git/go-git/v5/plumbing/transport/http"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/sealing"
	"github.com/lockstep-cd/lockstep/pkg/sealing/book"
	"github.com/lockstep-cd/lockstep/pkg/secret"
	"github.com/lockstep-cd/lockstep/pkg/secret/reference"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/activity"
)

// Credential is a user name and a reference to a password, for the repositories below a URL.
type Credential struct {
	// Name is what programs call it, for those that choose among several; "" for none.
	Name string
	// URLPrefix is scheme, host and the beginning of a path; it ends at a path boundary.
	URLPrefix string
	// Username is what the forge wants there; for tokens often anything.
	Username string
	// PasswordRef is env:NAME, file:/path, k8s:namespace/name#key or vault:path#key, read whenever it is needed (D27).
	PasswordRef string
	// Forge is the interface that these repositories are read and written through, one of Forges, with the password as its
	// token; "" is plain Git.
	Forge string
	// Organizations are those whose workflows it is for. To others it is as if it were not there. None means the only organization: where
	// there are several the credential is not used.
	Organizations []int64
	// own is the credential of the organization itself that it stands for; nil for one of the operator's.
	own *book.Credential
}

// check finds credentials that could never work when the process starts, not when the first commit is due.
func (c Credential) check() error {
	var wrong []fault.Field
	if u, err := parseURL("url_prefix", c.URLPrefix, true); err != nil {
		wrong = append(wrong, fault.FieldsOf(err)...)
	} else if u.Scheme == sealing.SchemeSSH {
		wrong = append(wrong, fault.Field{
			Name: "url_prefix", Problem: "found the scheme ssh, expected http or https: keys of SSH are credentials of organizations (lockstep credential create --ssh-key)",
		})
	}
	if !reference.Is(c.PasswordRef) {
		// The value is not shown: it may be a password, entered here by mistake.
		wrong = append(wrong, fault.Field{Name: "password_ref", Problem: reference.Expected})
	}
	if c.Forge != "" && !slices.Contains(Forges(), c.Forge) {
		wrong = append(wrong, fault.Field{
			Name:    "forge",
			Problem: fmt.Sprintf("found %q, expected one of %s", c.Forge, strings.Join(Forges(), ", ")),
		})
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
	if !plain(u.Path) {
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

// credentials are those of organizations, and those of a configuration.
type credentials struct {
	all     []Credential
	own     *book.Book
	secrets *secret.Reader
	several func(context.Context) (bool, error)
	apps    *apps
}

// Unscoped is what is wrong with credentials where there is more than one organization: those that do not say whose they are would log
// every organization in to the repositories of the others.
func Unscoped(all []Credential) []fault.Field {
	var wrong []fault.Field
	for i, c := range all {
		if len(c.Organizations) == 0 {
			wrong = append(wrong, fault.Field{
				Name:    fmt.Sprintf("git_credentials[%d].organizations", i),
				Problem: "missing for " + c.URLPrefix + ", and there are several organizations; expected the numbers of those whose workflows the credential is for",
			})
		}
	}
	return wrong
}

// named are the credentials that a program has chosen from: by the operator's name, or by the reference of one of the run's secrets. A
// program chooses the repository, so a reference that no credential of the organization has is never resolved.
func (c credentials) named(l activity.Login) []Credential {
	ref, isSecret := l.Secrets[l.Name]
	var all []Credential
	for _, each := range c.all {
		if isSecret && each.PasswordRef == ref || !isSecret && each.Name == l.Name {
			all = append(all, each)
		}
	}
	return all
}

// of is the credential of a repository for an organization, nil where none matches. One that the program has named has to match.
func (c credentials) of(ctx context.Context, organization int64, u *url.URL) (*Credential, error) {
	all := c.all
	login, chosen := activity.LoginOf(ctx)
	name := login.Name
	if chosen {
		all = c.named(login)
		if _, isSecret := login.Secrets[name]; isSecret { // of the run: whose references are the operator's to allow
			name = ""
		}
	}
	if !chosen || name != "" {
		var err error
		if all, err = c.candidates(ctx, organization, name, all); err != nil {
			return nil, err
		}
	}
	found := best(all, organization, u)
	if chosen && found == nil {
		return nil, fault.New(
			fault.Denied, "this organization has no credential %q for this repository: neither one of its own nor one of the operator (git_credentials)",
			login.Name,
		)
	}
	if found == nil || len(found.Organizations) > 0 || c.several == nil {
		return found, nil
	}
	several, err := c.several(ctx)
	if err != nil {
		return nil, fault.Because(err, fault.Unavailable, "checking whether the credential for %s may be used failed", found.URLPrefix)
	}
	if several {
		return nil, fault.New(fault.Denied, "the credential for %s does not say whose it is, and there are several organizations; an operator has to give it organizations (git_credentials)", found.URLPrefix)
	}
	return found, nil
}

// login is the credential of a repository with its password, nil where none matches. The password is read now: a rotated one takes effect
// with the next operation.
func (c credentials) login(ctx context.Context, organization int64, u *url.URL) (*githttp.BasicAuth, error) {
	found, err := c.of(ctx, organization, u)
	if found == nil || err != nil {
		return nil, err
	}
	return c.with(ctx, found, u)
}

// with is the login of a credential for a repository.
func (c credentials) with(ctx context.Context, found *Credential, repository *url.URL) (*githttp.BasicAuth, error) {
	if found.sshKey() || repository.Scheme == sealing.SchemeSSH { // whose key is no password
		return nil, fault.New(fault.Unauthenticated, "the credential %q is for SSH; expected one for %s", found.Name, repository.Scheme+"://"+repository.Host)
	}
	password, err := c.password(ctx, *found)
	if err != nil {
		return nil, err
	}
	activity.Conceal(ctx, password)
	user := found.Username
	if found.app() != (sealing.GitHubApp{}) { // whose key is sent nowhere
		user = appUser
		if password, err = c.apps.token(ctx, found, password, repository); err != nil {
			return nil, err
		}
		activity.Conceal(ctx, password)
	}
	// A reference may be to a key, and a service of before the Apps has lost that it is one.
	if strings.ContainsAny(password, "\r\n\x00") {
		return nil, fault.New(fault.Unauthenticated, "the credential for %s has a line break or a zero byte, which no password has", found.URLPrefix)
	}
	mayGo(ctx, found.URLPrefix)
	activity.Conceal(ctx, user+":"+password) // as basic authentication sends it
	return &githttp.BasicAuth{Username: user, Password: password}, nil
}
