// Package credential is the part of the store that keeps the credentials of organizations. Values come to it sealed.
//
// It decides nothing. Its types are embedded by those of package store, which gives them their transactions.
package credential

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/pg"
	"github.com/lockstep-cd/lockstep/pkg/sealing"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/credential"
	"github.com/lockstep-cd/lockstep/services/domain/internal/store/query"
)

// Reads are what the API and the use cases look at.
type Reads struct {
	// Run runs fn in a transaction of an organization.
	Run func(ctx context.Context, organization int64, fn func(*query.Queries) error) error
}

// Credentials implements credential.Reads.
func (r Reads) Credentials(ctx context.Context, organization int64) ([]credential.Credential, error) {
	var all []credential.Credential
	err := r.Run(ctx, organization, func(q *query.Queries) error {
		rows, err := q.Credentials(ctx, organization)
		all = make([]credential.Credential, len(rows)) // assigned, not appended to: the transaction may run again
		for i, row := range rows {
			all[i] = of(row)
		}
		return pg.Classify(err, "read credentials")
	})
	return all, err
}

func of(r query.Credential) credential.Credential {
	var proof sealing.Proof
	_ = json.Unmarshal(r.Proof, &proof) // which fails for what is no JSON only, and a column has none
	return credential.Credential{
		ID: r.ID, Terms: sealing.Terms{
			Organization: r.OrganizationID, Name: r.Name, Version: int(r.Version), Kind: sealing.Kind(r.Kind), URLPrefixes: r.UrlPrefixes,
			Username: r.Username, Header: r.Header, Forge: r.Forge, Proof: proof,
		},
		Reference: r.Reference, Sealed: r.Sealed, Key: uint32(r.KeyID), ExpiresAt: r.ExpiresAt, RevokedAt: r.RevokedAt,
		Author: core.Author{
			Principal: core.Principal{Type: core.PrincipalType(r.PrincipalType), ID: r.PrincipalID}, Name: r.PrincipalName,
		},
		ChangedAt: r.ChangedAt, CreatedAt: r.CreatedAt,
	}
}

// OfRegistry is one of the kind registry, with its value as it is stored.
func OfRegistry(r query.RegistryCredentialsAfterRow) credential.Credential {
	var proof sealing.Proof
	_ = json.Unmarshal(r.Proof, &proof) // see of
	c := credential.Credential{
		ID: r.ID, Reference: r.Reference, Sealed: r.Sealed,
		Terms: sealing.Terms{
			Organization: r.OrganizationID, Name: r.Name, Version: int(r.Version), Kind: sealing.Registry, URLPrefixes: r.UrlPrefixes,
			Username: r.Username, Proof: proof,
		},
	}
	if r.Revoked {
		c.RevokedAt = &time.Time{} // when does not matter to who uses it
	}
	return c
}

// Writes are what use cases change, in the transaction that Q is of.
type Writes struct {
	Q *query.Queries
	// Entered is the organization of the transaction; every statement names it.
	Entered int64
}

// LockCredentials implements credential.Tx.
func (w Writes) LockCredentials(ctx context.Context) error {
	return pg.Classify(w.Q.LockCredentials(ctx, w.Entered), "lock the credentials")
}

// LockCredential implements credential.Tx.
func (w Writes) LockCredential(ctx context.Context, name string) (credential.Credential, error) {
	row, err := w.Q.LockCredential(ctx, w.Entered, name)
	if errors.Is(err, pgx.ErrNoRows) {
		return of(row), fault.New(fault.NotFound, "credential %q does not exist", name)
	}
	return of(row), pg.Classify(err, "lock credential %q", name)
}

// LockCredentialByID implements credential.Tx.
func (w Writes) LockCredentialByID(ctx context.Context, id int64) (credential.Credential, error) {
	row, err := w.Q.LockCredentialByID(ctx, w.Entered, id)
	if errors.Is(err, pgx.ErrNoRows) {
		return of(row), fault.New(fault.NotFound, "credential %d does not exist", id)
	}
	return of(row), pg.Classify(err, "lock credential %d", id)
}

// SaveCredential implements credential.Tx.
func (w Writes) SaveCredential(ctx context.Context, c credential.Credential) (credential.Credential, error) {
	proof, err := json.Marshal(c.Proof)
	if err != nil {
		return c, fmt.Errorf("encode the proof of credential %q: %w", c.Name, err)
	}
	row, err := w.Q.SaveCredential(ctx, query.SaveCredentialParams{
		OrganizationID: w.Entered, Name: c.Name, Kind: string(c.Kind), UrlPrefixes: c.URLPrefixes, Username: c.Username, Header: c.Header,
		Forge: c.Forge, Version: int32(c.Version), Reference: c.Reference, Sealed: c.Sealed, KeyID: int64(c.Key), ExpiresAt: c.ExpiresAt,
		RevokedAt: c.RevokedAt, PrincipalType: string(c.Author.Type), PrincipalID: c.Author.ID, PrincipalName: c.Author.Name,
		ChangedAt: c.ChangedAt, Proof: proof,
	})
	if err == nil {
		err = w.Q.InsertCredentialReplaced(ctx, c.ChangedAt, w.Entered, row.ID)
	}
	return of(row), pg.Classify(err, "save credential %q", c.Name)
}

// ResealCredential implements credential.Tx.
func (w Writes) ResealCredential(ctx context.Context, c credential.Credential) error {
	err := w.Q.ResealCredential(ctx, query.ResealCredentialParams{OrganizationID: w.Entered, ID: c.ID, Sealed: c.Sealed, KeyID: int64(c.Key)})
	return pg.Classify(err, "save credential %q", c.Name)
}
