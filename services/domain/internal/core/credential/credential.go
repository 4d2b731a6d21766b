// Package credential holds the use cases about credentials of organizations (D56): what programs log in to servers with, known to them by
// name only.
//
// It decides who may make them, what they are bound to and which references an organization may use; a value is sealed before it is stored,
// and never shown again. It opens values only to seal them with another key, and to check what chat servers prove with one. Everything else
// that a value is used for is the workflow service's.
package credential

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/sealing"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
)

// MaxCredentials is how many an organization has at most, revoked ones included.
const MaxCredentials = 500

// Soon is how long before its end a value is reported as expiring.
const Soon = 14 * 24 * time.Hour

// State is what a credential is at an instant.
type State string

// The states.
const (
	Live     State = "live"
	Expiring State = "expiring"
	Expired  State = "expired"
	Revoked  State = "revoked"
)

// States are all states.
func States() []State { return []State{Live, Expiring, Expired, Revoked} }

// Credential is one of an organization.
type Credential struct {
	ID int64
	// Terms are what its value is bound to; the version counts its values.
	sealing.Terms
	// Reference refers to the value, or Sealed is the value, sealed with the key of that number. A revoked one has neither.
	Reference string
	Sealed    []byte
	Key       uint32
	// ExpiresAt is when the value ends where it is used; nil for never, or not known.
	ExpiresAt *time.Time
	RevokedAt *time.Time
	// Author is who changed it last, and ChangedAt when.
	Author    core.Author
	ChangedAt time.Time
	CreatedAt time.Time
}

// StateAt is what it is at an instant. Only a revoked one is no longer used.
func (c Credential) StateAt(at time.Time) State {
	switch {
	case c.RevokedAt != nil:
		return Revoked
	case c.ExpiresAt == nil || c.ExpiresAt.After(at.Add(Soon)):
		return Live
	case c.ExpiresAt.After(at):
		return Expiring
	default:
		return Expired
	}
}

// Place is where a credential is found.
type Place struct{ ID, Organization int64 }

// Store keeps what this package needs. Its errors have the classes of pkg/fault.
type Store interface {
	core.Transactions[Tx]
	Reads
	// CredentialsAfter are those of all organizations behind a number, in order.
	CredentialsAfter(ctx context.Context, behind int64, most int) ([]Place, error)
	// CredentialsOfOtherKeys are those with values that are sealed with another key, behind a number, in order.
	CredentialsOfOtherKeys(ctx context.Context, key uint32, behind int64, most int) ([]Place, error)
	// CredentialsChanged are those that have changed since a time, behind a number, in order.
	CredentialsChanged(ctx context.Context, since time.Time, behind int64, most int) ([]Place, error)
	// RegistryCredentialsAfter are those of the kind registry of all organizations behind a number, in order, with their values as they are
	// stored: what the registry service needs.
	RegistryCredentialsAfter(ctx context.Context, behind int64, most int) ([]Credential, error)
	// CredentialsExpiring counts the values that end within a time, and those that have ended, of all organizations.
	CredentialsExpiring(ctx context.Context, within time.Duration) (expiring, expired int64, err error)
}

// Reads are what is looked up.
type Reads interface {
	// Credentials are all of the organization, by name.
	Credentials(ctx context.Context, organization int64) ([]Credential, error)
}

// Tx is what a use case may do in its transaction.
type Tx interface {
	core.ChangeTx
	Reads
	// LockCredentials keeps others from making credentials of the organization until the transaction ends.
	LockCredentials(ctx context.Context) error
	// LockCredential keeps others from changing one until the transaction ends. NotFound for none.
	LockCredential(ctx context.Context, name string) (Credential, error)
	LockCredentialByID(ctx context.Context, id int64) (Credential, error)
	// SaveCredential adds a credential, or replaces the one of its name.
	SaveCredential(ctx context.Context, c Credential) (Credential, error)
	// ResealCredential replaces a sealed value by itself, sealed with another key.
	ResealCredential(ctx context.Context, c Credential) error
	// AnnounceCredential publishes a credential for those who use it. Of two announcements the one that was made later counts, so the caller
	// holds its lock.
	AnnounceCredential(ctx context.Context, c Credential, at time.Time) error
}

// Sealer seals values, and opens them to seal them anew. Errors are Refused without a keyset, and Unavailable while it cannot be read.
type Sealer interface {
	Configured() bool
	Seal(ctx context.Context, value string, terms sealing.Terms) (sealed []byte, key uint32, err error)
	Open(ctx context.Context, sealed []byte, terms sealing.Terms) (string, error)
	// Primary is the number of the key that values are sealed with.
	Primary(ctx context.Context) (uint32, error)
}

// Deps is what UseCases needs.
type Deps struct {
	Store  Store
	Sealer Sealer
	// References reads the values that are references; nil if there are none.
	References References
	// Settings say which references organizations may use.
	Settings sealing.Settings
	// Changed hears of a change of what the registry service has; nil for nobody.
	Changed func()
	Clock   clock.Clock
}

// References reads secrets by reference.
type References interface {
	Read(ctx context.Context, ref string) (string, error)
}

// UseCases makes, rotates and revokes credentials. It is safe for concurrent use.
type UseCases struct {
	store    Store
	sealer   Sealer
	refs     References
	settings sealing.Settings
	changed  func()
	clock    clock.Clock
}

// New makes the use cases over their dependencies.
func New(d Deps) *UseCases {
	return &UseCases{store: d.Store, sealer: d.Sealer, refs: d.References, settings: d.Settings, changed: d.Changed, clock: d.Clock}
}

// Secret is the value of a credential of the kind http, for the service to check what others prove with it. It is never shown. The error is
// NotFound or Refused for one that cannot be used, and Unavailable.
func (u *UseCases) Secret(ctx context.Context, organization int64, name string) (string, error) {
	all, err := u.store.Credentials(ctx, organization)
	if err != nil {
		return "", err
	}
	at := slices.IndexFunc(all, func(c Credential) bool { return c.Name == name && c.RevokedAt == nil && c.Kind == sealing.HTTP })
	if at < 0 {
		return "", fault.New(fault.NotFound, "the organization has no credential %.100q of the kind http; only its own can be used here", name)
	}
	c := all[at]
	switch {
	case !c.Proof.IsZero():
		return "", fault.New(fault.Refused, "the credential %q is a client of OAuth 2.0 or a certificate; expected one whose value is itself the secret", name)
	case c.Sealed != nil:
		value, err := u.sealer.Open(ctx, c.Sealed, c.Terms)
		return strings.TrimSpace(value), err
	case u.refs == nil || !u.settings.Allows(organization, c.Reference):
		return "", fault.New(fault.Refused, "the reference of credential %q is no longer allowed for the organization", name)
	}
	value, err := u.refs.Read(ctx, c.Reference)
	if err != nil { // its text names the reference, which is the operator's
		return "", fault.Because(err, fault.Unavailable, "the secret that credential %q refers to cannot be read now", name)
	}
	return strings.TrimSpace(value), nil
}

// Credentials are all of the organization, by name, without their values.
func (u *UseCases) Credentials(ctx context.Context, a core.Actor) ([]Credential, error) {
	all, err := u.store.Credentials(ctx, a.Organization)
	for i := range all {
		all[i].Sealed = nil // nobody who reads needs it; Key says that there is one
	}
	return all, err
}

// ForRegistries are those of the kind registry of all organizations behind a number, in order, with their values as they are stored.
func (u *UseCases) ForRegistries(ctx context.Context, behind int64, most int) ([]Credential, error) {
	return u.store.RegistryCredentialsAfter(ctx, behind, most)
}

// hint notifies the registry service of a changed credential. A hint that is lost is made up for within a minute.
func (u *UseCases) hint(kind sealing.Kind, err error) {
	if err == nil && kind == sealing.Registry && u.changed != nil {
		u.changed()
	}
}

// Expiring counts the values that end soon, and those that have ended, of all organizations.
func (u *UseCases) Expiring(ctx context.Context) (expiring, expired int64, err error) {
	return u.store.CredentialsExpiring(ctx, Soon)
}
