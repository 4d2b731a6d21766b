package store

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/lockstep-cd/lockstep/pkg/pg"
	"github.com/lockstep-cd/lockstep/pkg/sealing"
	"github.com/lockstep-cd/lockstep/pkg/sealing/book"
	"github.com/lockstep-cd/lockstep/services/registry/internal/store/query"
)

// Credentials are those of organizations for registries, as the domain had them at the last pull: in memory, because each query of a
// registry looks one up, and in the database for the next start. It is safe for concurrent use.
type Credentials struct {
	pool *pgxpool.Pool

	mu sync.Mutex
	// known is by organization, in order; nil before they were read. at is the pull that they are of.
	known map[int64][]book.Credential
	at    time.Time
}

var _ book.Store = (*Credentials)(nil)

// NewCredentials returns a store of credentials.
func NewCredentials(pool *pgxpool.Pool) *Credentials { return &Credentials{pool: pool} }

// Replace stores the credentials of a whole pull, and removes all others.
func (c *Credentials) Replace(ctx context.Context, pulled time.Time, all map[int64]book.Credential) error {
	params := make([]query.PutCredentialParams, 0, len(all))
	known := map[int64][]book.Credential{}
	for id, one := range all {
		proof, err := json.Marshal(one.Proof)
		if err != nil {
			return fmt.Errorf("encode the proof of credential %d: %w", id, err)
		}
		known[one.Organization] = append(known[one.Organization], one)
		params = append(params, query.PutCredentialParams{
			ID: id, OrganizationID: one.Organization, Name: one.Name, Version: int32(one.Version), UrlPrefixes: one.URLPrefixes,
			Username: one.Username, Proof: proof, Reference: one.Reference, Sealed: one.Sealed, Revoked: one.Revoked, PulledAt: pulled,
		})
	}
	// In memory first: a revoked one must not be used because the database does not answer.
	c.mu.Lock()
	if !pulled.Before(c.at) {
		c.known, c.at = known, pulled
	}
	c.mu.Unlock()
	return pg.InTx(ctx, c.pool, func(tx pgx.Tx) error {
		var failed error
		query.New(tx).PutCredential(ctx, params).Exec(func(i int, err error) {
			if err != nil && failed == nil {
				failed = pg.Classify(err, "store credential %d", params[i].ID)
			}
		})
		if failed != nil {
			return failed
		}
		return pg.Classify(query.New(tx).DropCredentials(ctx, pulled), "remove credentials that no longer exist")
	})
}

// of are those of an organization, as pulled last, or as stored when the process has pulled none yet.
func (c *Credentials) of(ctx context.Context, organization int64) ([]book.Credential, error) {
	c.mu.Lock()
	known := c.known
	c.mu.Unlock()
	if known != nil {
		return known[organization], nil
	}
	rows, err := query.New(c.pool).Credentials(ctx)
	if err != nil {
		return nil, pg.Classify(err, "read the credentials")
	}
	known = map[int64][]book.Credential{}
	for _, r := range rows {
		var proof sealing.Proof
		_ = json.Unmarshal(r.Proof, &proof) // which fails for what is no JSON only, and a column has none
		known[r.OrganizationID] = append(known[r.OrganizationID], book.Credential{
			Terms: sealing.Terms{
				Organization: r.OrganizationID, Name: r.Name, Version: int(r.Version), Kind: sealing.Registry, URLPrefixes: r.UrlPrefixes,
				Username: r.Username, Proof: proof,
			},
			Reference: r.Reference, Sealed: r.Sealed, Revoked: r.Revoked,
		})
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.known == nil {
		c.known = known
	}
	return c.known[organization], nil
}

// CredentialNamed implements book.Store.
func (c *Credentials) CredentialNamed(ctx context.Context, organization int64, name string) (*book.Credential, error) {
	all, err := c.of(ctx, organization)
	for i := range all {
		if all[i].Name == name {
			one := all[i]
			return &one, err
		}
	}
	return nil, err
}

// CredentialsOfKind implements book.Store.
func (c *Credentials) CredentialsOfKind(ctx context.Context, organization int64, kind sealing.Kind) ([]book.Credential, error) {
	if kind != sealing.Registry {
		return nil, nil
	}
	all, err := c.of(ctx, organization)
	without := make([]book.Credential, len(all))
	for i, one := range all {
		one.Sealed = nil // the value of the one that is used is looked up
		without[i] = one
	}
	return without, err
}
