// Package credential is how the core and the adapters of this service name what pkg/sealing/book has: the credentials of organizations,
// whose values are opened when a call uses them, and the tokens that were issued for them (D56).
package credential

import (
	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/pkg/sealing/book"
)

// What the package of both services has.
type (
	// Book finds credentials and their values.
	Book = book.Book
	// Deps is what a Book needs.
	Deps = book.Deps
	// Store keeps what the domain service has reported.
	Store = book.Store
	// Credential is one of an organization.
	Credential = book.Credential
	// Report is a credential as the domain service reports it.
	Report = book.Report
	// Issued are tokens that servers have issued for credentials.
	Issued = book.Issued
	// Token is one of them.
	Token = book.Token
	// Holder is what something is kept for between two uses of a credential.
	Holder = book.Holder
)

// NewBook makes a Book.
func NewBook(d Deps) *Book { return book.NewBook(d) }

// NewIssued makes an Issued without tokens.
func NewIssued(c clock.Clock) *Issued { return book.NewIssued(c) }

// Surplus is what is dropped before something of a credential is kept.
func Surplus[V any](kept map[Holder]V, of Holder, forOne, atMost int, age func(V) uint64) (drop Holder, found bool) {
	return book.Surplus(kept, of, forOne, atMost, age)
}
