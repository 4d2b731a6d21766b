package store

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

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
	// known is by organization, in the order of names; nil before they were read. at is the pull that they are of, of begun ones.
	known     map[int64][]book.Credential
	begun, at uint64
}

var _ book.Store = (*Credentials)(nil)

// NewCredentials returns a store of credentials.
func NewCredentials(pool *pgxpool.Pool) *Credentials { return &Credentials{pool: pool} }

// Pull is one pull of credentials: its place among those of this process, and among those of all replicas. No clock decides, since one may
// be set back.
type Pull struct {
	here    uint64
	overall int64
	err     error
}

// Begin begins a pull, before the domain is asked. While the database does not answer, it has a place in this process only.
func (c *Credentials) Begin(ctx context.Context) Pull {
	c.mu.Lock()
	c.begun++
	p := Pull{here: c.begun}
	c.mu.Unlock()
	p.overall, p.err = query.New(c.pool).BeginPull(ctx)
	return p
}

// Replace stores the credentials of a whole pull, and removes all others, unless a pull that began later was stored.
func (c *Credentials) Replace(ctx context.Context, p Pull, all map[int64]book.Credential) error {
	params := make([]query.PutCredentialParams, 0, len(all))
	known := map[int64][]book.Credential{}
	ids := slices.Sorted(maps.Keys(all))
	for _, id := range ids {
		one := all[id]
		proof, err := json.Marshal(one.Proof)
		if err != nil {
			return fmt.Errorf("encode the proof of credential %d: %w", id, err)
		}
		known[one.Organization] = append(known[one.Organization], one)
		params = append(params, query.PutCredentialParams{
			ID: id, OrganizationID: one.Organization, Name: one.Name, Version: int32(one.Version), UrlPrefixes: one.URLPrefixes,
			Username: one.Username, Proof: proof, Reference: one.Reference, Sealed: one.Sealed, Revoked: one.Revoked,
		})
	}
	inOrder(known)
	// In memory first: a revoked one must not be used because the database does not answer.
	c.mu.Lock()
	if p.here > c.at {
		c.known, c.at = known, p.here
	}
	c.mu.Unlock()
	if p.err != nil {
		return pg.Classify(p.err, "begin to store the credentials")
	}
	return pg.InTx(ctx, c.pool, func(tx pgx.Tx) error {
		latest, err := query.New(tx).StorePull(ctx, p.overall)
		if err != nil || latest == 0 {
			return pg.Classify(err, "store the pull of credentials")
		}
		var failed error
		query.New(tx).PutCredential(ctx, params).Exec(func(i int, err error) {
			if err != nil && failed == nil {
				failed = pg.Classify(err, "store credential %d", params[i].ID)
			}
		})
		if failed != nil {
			return failed
		}
		return pg.Classify(query.New(tx).DropCredentials(ctx, ids), "remove credentials that no longer exist")
	})
}

// inOrder sorts credentials by their names.
func inOrder(known map[int64][]book.Credential) {
	for _, all := range known {
		slices.SortFunc(all, func(a, b book.Credential) int { return strings.Compare(a.Name, b.Name) })
	}
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
	inOrder(known)
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
