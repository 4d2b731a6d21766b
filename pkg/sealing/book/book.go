// Package book holds the credentials of organizations, as the domain service has reported them (D56), and opens a value when something
// uses it: a rotated value takes effect with the next use, and a revoked one fails it. It also keeps tokens that were issued for one.
//
// It sends nothing anywhere. Where a value may be sent is among its terms, which the adapters check before each request and each redirect.
package book

import (
	"cmp"
	"context"
	"reflect"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/sealing"
)

// Credential is one of an organization.
type Credential struct {
	// Terms are what its value is bound to.
	sealing.Terms
	// Reference refers to the value, or Sealed is the value; a revoked one has neither.
	Reference string
	Sealed    []byte
	Revoked   bool
}

// Report is a credential as the domain service reports it. Of two reports the one with the higher sequence counts.
type Report struct {
	Credential
	Sequence int64
}

// Store keeps what the domain service has reported.
type Store interface {
	// CredentialNamed is that of an organization; nil for none.
	CredentialNamed(ctx context.Context, organization int64, name string) (*Credential, error)
	// CredentialsOfKind are those of an organization, by name, without sealed values.
	CredentialsOfKind(ctx context.Context, organization int64, kind sealing.Kind) ([]Credential, error)
}

// Deps is what a Book needs.
type Deps struct {
	Store Store
	// Open opens a sealed value. Its errors are Refused without a keyset, Unavailable for a key that is not known here, or not yet, and
	// Unauthenticated for what was sealed for other terms.
	Open func(ctx context.Context, sealed []byte, terms sealing.Terms) (string, error)
	// Read resolves a reference. Its errors are Unavailable if a retry may help.
	Read func(ctx context.Context, ref string) (string, error)
	// Service is what the service is called whose settings these are, in errors: workflow or registry.
	Service string
	// Settings say which references an organization may use. They are checked at each use, so that an operator can take them back.
	Settings sealing.Settings
}

// Book finds credentials and their values. It is safe for concurrent use; a nil Book has none.
type Book struct{ d Deps }

// NewBook makes a Book.
func NewBook(d Deps) *Book {
	d.Service = cmp.Or(d.Service, "workflow")
	return &Book{d}
}

// Named is the credential of a name, as it is now; nil for none. The error is Denied for one of another kind, and Unauthenticated for a
// revoked one: the name is the organization's, and no other credential takes its place.
func (b *Book) Named(ctx context.Context, organization int64, name string, kind sealing.Kind) (*Credential, error) {
	if b == nil || name == "" {
		return nil, nil //nolint:nilnil // none is no error
	}
	c, err := b.d.Store.CredentialNamed(ctx, organization, name)
	switch {
	case err != nil:
		return nil, fault.Because(err, fault.Unavailable, "the credential %q cannot be looked up now", name)
	case c == nil:
		return nil, nil //nolint:nilnil // see above
	case c.Kind != kind:
		return nil, fault.New(fault.Denied, "the credential %q is of kind %s; expected one of kind %s", name, c.Kind, kind)
	case c.Revoked:
		return nil, revoked(*c)
	}
	return c, nil
}

// OfKind are the credentials of a kind, revoked ones included, without sealed values: Value looks up that of the one that is used.
func (b *Book) OfKind(ctx context.Context, organization int64, kind sealing.Kind) ([]Credential, error) {
	if b == nil {
		return nil, nil
	}
	all, err := b.d.Store.CredentialsOfKind(ctx, organization, kind)
	if err != nil {
		return nil, fault.Because(err, fault.Unavailable, "the credentials of the organization cannot be looked up now")
	}
	return all, nil
}

func revoked(c Credential) error {
	return fault.New(fault.Unauthenticated, "the credential %q was revoked; expected one that is in force", c.Name)
}

// Value is the value of a credential as it is now. The error is Unavailable if a retry may help, and Unauthenticated if not.
func (b *Book) Value(ctx context.Context, c Credential) (string, error) {
	if c.Revoked {
		return "", revoked(c)
	}
	if c.Sealed == nil && c.Reference == "" {
		now, err := b.Named(ctx, c.Organization, c.Name, c.Kind)
		switch {
		case err != nil:
			return "", err
		case now == nil || !reflect.DeepEqual(now.Terms, c.Terms): // where it may be sent was decided by its former terms
			return "", fault.New(fault.Unavailable, "the credential %q has just been changed", c.Name)
		}
		c = *now
	}
	if !c.Proof.Known() { // another replica may know it, or this one after its upgrade
		return "", fault.New(fault.Unavailable, "the credential %q was made by a later version of Lockstep; expected all replicas of the %s service "+
			"to be of that version", c.Name, b.d.Service)
	}
	var value string
	var err error
	switch {
	case c.Sealed != nil:
		value, err = b.d.Open(ctx, c.Sealed, c.Terms)
	case !b.d.Settings.Allows(c.Organization, c.Reference):
		return "", fault.New(
			fault.Unauthenticated, "the credential %q is a reference that this organization may not use; an operator has to allow it "+
				"(credentials.references of the %s service)", c.Name, b.d.Service,
		)
	default:
		value, err = b.d.Read(ctx, c.Reference)
	}
	switch {
	case fault.Is(err, fault.Unavailable):
		return "", fault.Because(err, fault.Unavailable, "the credential %q: %s", c.Name, fault.Public(err))
	case err != nil && c.Sealed == nil:
		return "", fault.Because(err, fault.Unauthenticated, "the credential %q cannot be read from its reference", c.Name)
	case err != nil:
		return "", fault.Because(err, fault.Unauthenticated, "the credential %q: %s", c.Name, fault.Public(err))
	}
	return value, nil
}
