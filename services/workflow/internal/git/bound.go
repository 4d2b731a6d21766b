package git

import (
	"context"
	"net/http"
	"slices"
	"strings"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/sealing"
	"github.com/lockstep-cd/lockstep/pkg/sealing/book"
)

// places are where the login of an operation may be sent. They are in the context of all of its requests: the Git library follows a
// redirect also with the requests after it, which would take the login along.
type places struct {
	prefixes []string
	// used are the tokens that the operation was logged in with.
	used []used
}

// used is a token that was issued: again if it was so for an earlier operation.
type used struct {
	again bool
	// young is set if it was issued so short a time ago that a server may not know it yet: GitHub's do not for some seconds.
	young  bool
	forget func()
}

type placesKey struct{}

// withPlaces is a context whose requests carry no login until mayGo says where to.
func withPlaces(ctx context.Context) context.Context {
	return context.WithValue(ctx, placesKey{}, &places{})
}

// mayGo says where the login of the operation may be sent, in addition.
func mayGo(ctx context.Context, prefixes ...string) {
	if p, ok := ctx.Value(placesKey{}).(*places); ok {
		p.prefixes = append(p.prefixes, prefixes...)
	}
}

// uses says that the operation is logged in with a token.
func uses(ctx context.Context, one used) {
	if p, ok := ctx.Value(placesKey{}).(*places); ok {
		p.used = append(p.used, one)
	}
}

// settling reports whether a server may not know a token of an operation yet.
func settling(ctx context.Context) bool {
	p, _ := ctx.Value(placesKey{}).(*places)
	return slices.ContainsFunc(p.used, func(one used) bool { return one.young })
}

// renewed drops the tokens of an operation that a server has not accepted, and reports whether others may be: one was issued for an earlier
// operation, and may have been taken back meanwhile.
func renewed(ctx context.Context) (again bool) {
	p, _ := ctx.Value(placesKey{}).(*places)
	for _, one := range p.used {
		one.forget()
		again = again || one.again
	}
	return again
}

// bound takes the login from requests to other places, also after redirects.
type bound struct{ next http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (b bound) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Header.Get("Authorization") != "" && !mayCarry(r) {
		r = r.Clone(r.Context())
		r.Header.Del("Authorization")
	}
	return b.next.RoundTrip(r) //nolint:wrapcheck // an http.RoundTripper's own
}

func mayCarry(r *http.Request) bool {
	p, ok := r.Context().Value(placesKey{}).(*places)
	return ok && plain(r.URL.Path) && sealing.Covers(p.prefixes, r.URL)
}

// plain reports whether a path leads nowhere else than it says: /team/../other is /other to a server.
func plain(path string) bool {
	for part := range strings.SplitSeq(path, "/") {
		if name, _, _ := strings.Cut(part, ";"); name == "." || name == ".." {
			return false
		}
	}
	return true
}

// owned is a credential of the organization itself, for one of its places.
func owned(c book.Credential, prefix string) Credential {
	return Credential{
		Name: c.Name, URLPrefix: prefix, Username: c.Username, Forge: c.Forge, Organizations: []int64{c.Organization}, own: &c,
	}
}

// candidates are the credentials of an organization that its program may have meant, its own ones first: those of the name that the program
// has given, or all. A name is that of the organization's own credential if it has one, also when that was revoked.
func (c credentials) candidates(ctx context.Context, organization int64, name string, named []Credential) ([]Credential, error) {
	if c.own == nil {
		return named, nil
	}
	var own []book.Credential
	var err error
	if name != "" {
		var one *book.Credential
		if one, err = c.own.Named(ctx, organization, name, sealing.Git); one != nil {
			own, named = []book.Credential{*one}, nil
		}
	} else {
		own, err = c.own.OfKind(ctx, organization, sealing.Git)
	}
	if err != nil {
		return nil, err
	}
	var all, revoked []Credential
	for _, one := range own {
		for _, prefix := range one.URLPrefixes {
			if one.Revoked {
				revoked = append(revoked, owned(one, prefix))
			} else {
				all = append(all, owned(one, prefix))
			}
		}
	}
	return append(append(all, named...), revoked...), nil
}

// password is the value of a credential as it is now.
func (c credentials) password(ctx context.Context, found Credential) (string, error) {
	if found.own != nil {
		return c.own.Value(ctx, *found.own) // its error says which credential
	}
	password, err := c.secrets.Read(ctx, found.PasswordRef)
	if fault.Is(err, fault.Unavailable) { // which passes: the operation is tried again
		return "", fault.Because(err, fault.Unavailable, "the password for %s: %s", found.URLPrefix, fault.Public(err))
	}
	if err != nil {
		return "", fault.Because(err, fault.Unauthenticated, "the password for %s cannot be read from %s", found.URLPrefix, found.PasswordRef)
	}
	return password, nil
}
