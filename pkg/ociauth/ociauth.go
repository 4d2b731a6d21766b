// Package ociauth is what Lockstep's clients of OCI registries share: accounts, the parsing of references, and the classification of
// errors that registries return.
//
// It sends no requests: callers do, over a transport of their choice.
package ociauth

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"

	"github.com/lockstep-cd/lockstep/pkg/fault"
)

// Account is a login for a registry.
type Account struct {
	// Host is the registry, or a registry and a path prefix that limits the account to what is below it.
	Host string
	// Username may be empty where Password is a token.
	Username string
	// Password is called each time the password is needed.
	Password func() (string, error)
	// Insecure allows HTTP if the registry does not speak HTTPS.
	Insecure bool
	// Organizations are those that the account serves; none means all.
	Organizations []int64
}

// Accounts is a set of logins; it implements authn.Keychain.
type Accounts struct {
	accounts []Account
	docker   bool
}

var _ authn.Keychain = Accounts{}

// NewAccounts checks accounts. With docker, Docker's configuration of this process's user is used as well, credential helpers included. The
// error is Invalid and names the account.
func NewAccounts(accounts []Account, docker bool) (Accounts, error) {
	for i, a := range accounts {
		if _, err := name.NewRegistry(hostOf(a.Host)); err != nil || a.Host == "" {
			return Accounts{}, fault.InvalidFields(fault.Field{
				Name:    fmt.Sprintf("registries[%d].host", i),
				Problem: fmt.Sprintf("found %q; expected a registry's host, with its port if it has one", a.Host),
			})
		}
	}
	return Accounts{accounts, docker}, nil
}

// For returns the accounts that serve an organization; for 0, which is the service itself, all of them.
func (as Accounts) For(organization int64) Accounts {
	if organization == 0 {
		return as
	}
	as.accounts = slices.DeleteFunc(slices.Clone(as.accounts), func(a Account) bool {
		return len(a.Organizations) > 0 && !slices.Contains(a.Organizations, organization)
	})
	return as
}

// Has reports whether there is an account for a repository. One without a password counts: it says that the registry can be read
// anonymously.
func (as Accounts) Has(target authn.Resource) bool {
	if slices.ContainsFunc(as.accounts, func(a Account) bool { return covers(a.Host, target.String()) }) {
		return true
	}
	if !as.docker {
		return false
	}
	auth, err := authn.DefaultKeychain.Resolve(target)
	return err != nil || auth != authn.Anonymous
}

// Options returns how to parse the name of an image. An insecure host is tried over HTTPS first, then over HTTP.
func (as Accounts) Options(image string) []name.Option {
	for _, a := range as.accounts {
		if a.Insecure && strings.EqualFold(hostOf(a.Host), hostOf(image)) {
			return []name.Option{name.Insecure}
		}
	}
	return nil
}

// Resolve returns the account with the longest host that the repository begins with. Repositories come from payloads, so a password must
// not be sent to a host that merely resembles its own.
func (as Accounts) Resolve(target authn.Resource) (authn.Authenticator, error) {
	var best *Account
	for i, a := range as.accounts {
		if covers(a.Host, target.String()) && (best == nil || len(a.Host) > len(best.Host)) {
			best = &as.accounts[i]
		}
	}
	if best != nil && best.Password != nil {
		password, err := best.Password()
		if err != nil {
			return nil, fmt.Errorf("read the password of %s: %w", best.Host, err)
		}
		if best.Username == "" {
			return authn.FromConfig(authn.AuthConfig{RegistryToken: password}), nil
		}
		return authn.FromConfig(authn.AuthConfig{Username: best.Username, Password: password}), nil
	}
	if as.docker {
		auth, err := authn.DefaultKeychain.Resolve(target)
		if err != nil {
			return nil, fmt.Errorf("look %s up in docker's configuration: %w", target.RegistryStr(), err)
		}
		return auth, nil
	}
	return authn.Anonymous, nil
}

// covers reports whether a repository is at a host, or below a path there.
func covers(host, repository string) bool {
	registry, path, _ := strings.Cut(host, "/")
	if r, err := name.NewRegistry(registry); err == nil {
		registry = r.RegistryStr() // docker.io is index.docker.io
	}
	whole := strings.TrimSuffix(registry+"/"+path, "/")
	// Up to a slash: registry.example.com does not cover registry.example.com.evil.test, nor shop the repository shopping.
	return repository == whole || strings.HasPrefix(repository, whole+"/")
}

func hostOf(image string) string {
	host, _, _ := strings.Cut(image, "/")
	return host
}

// Classify gives an error of a registry a class: Unavailable if a retry may help, NotFound, Denied. The guarded transport's own refusals
// keep their class.
func Classify(err error, reference fmt.Stringer) error {
	if own, ok := errors.AsType[*fault.Error](err); ok { // the transport's own refusals
		return fault.New(own.Class(), "%s: %w", reference, own)
	}
	t, ok := errors.AsType[*transport.Error](err)
	if !ok {
		if silent(err) && !tokenless(err) {
			return fault.Because(err, fault.Unavailable, "%s: the registry does not answer%s", reference, network(err))
		}
		return fault.New(fault.Unavailable, "%s: %w", reference, Unusable{err})
	}
	switch t.StatusCode {
	case http.StatusNotFound:
		return fault.New(fault.NotFound, "%s: the registry has no such manifest", reference)
	// Docker Hub and others answer so for repositories that do not exist, too. It is retried: an operator can correct the password.
	case http.StatusUnauthorized, http.StatusForbidden:
		return fault.New(fault.Denied, "%s: the registry refuses access with status %d; expected an account that may read there: a credential of "+
			"kind registry of the organization, or an entry for this host in `registries` of the configuration of the service that asks", reference, t.StatusCode)
	default:
		return fault.New(fault.Unavailable, "%s: the registry answers with status %d", reference, t.StatusCode)
	}
}

// Unusable is the error for a registry whose answer violates the OCI distribution specification. The client's text is not in it: that has
// parts of the answer, which may repeat the login.
type Unusable struct{ Err error }

// Error returns the message.
func (u Unusable) Error() string {
	text := "the registry's answer cannot be used"
	if what := Problem(u.Err); what != "" {
		text += ": " + what
	}
	return text
}

// Unwrap returns what was wrong with the answer.
func (u Unusable) Unwrap() error { return u.Err }

// noToken begins the client's text about what issues tokens and has issued none. All of the answer follows.
const noToken = "no token in bearer response"

func tokenless(err error) bool { return strings.Contains(err.Error(), noToken) }

// Problem is what is wrong with an answer, without any part of it; empty where that is not known.
func Problem(err error) string {
	text := err.Error()
	for _, known := range [][2]string{
		{noToken, "what issues its tokens has issued no token that can be read"},
		{"does not match requested digest", "its content is not that of the digest"},
		{"error verifying Digest", "its content is not that of the digest"},
		{"error verifying sha", "its content is not that of the digest"},
		{"error verifying size", "its content is not of the expected size"},
		{"error verifying Size", "its content is not of the expected size"},
		{"does not match expected size", "its content is not of the expected size"},
		{"response did not include", "it has no type, length or digest of the content in its header"},
		{"unsupported MediaType", "its content is of a type that is not known"},
		{"www-authenticate", "it does not say where its tokens are issued"},
		{"challenge scheme", "it wants a login of a kind that is not known"},
		{"realm ", "its tokens are issued at an address that is not used"},
		{"link header", "the address of its next page cannot be read"},
		{"pagination URL", "its next page is at another host"},
		{"private or link-local", "it leads to a network that is not reached"},
		{"invalid character", "it is no JSON that can be read"},
		{"unexpected end of JSON", "it is no JSON that can be read"},
		{"cannot unmarshal", "its JSON has another form"},
		{"hash", "it has a digest that cannot be read"},
	} {
		if strings.Contains(text, known[0]) {
			return known[1]
		}
	}
	return ""
}

// network is what the network says of an answer that has not come, without the addresses of requests: a redirect may have anything in its.
func network(err error) string {
	for _, known := range []error{context.DeadlineExceeded, context.Canceled, io.ErrUnexpectedEOF, io.EOF} {
		if errors.Is(err, known) {
			return ": " + known.Error()
		}
	}
	if of, ok := errors.AsType[*net.OpError](err); ok {
		return ": " + of.Error()
	}
	return ""
}

// silent reports whether there was no answer, or only the beginning of one.
func silent(err error) bool {
	_, network := errors.AsType[net.Error](err)
	return network || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, io.EOF) ||
		errors.Is(err, io.ErrUnexpectedEOF)
}
