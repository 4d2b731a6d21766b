package store

import (
	"bytes"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/lockstep-cd/lockstep/pkg/sealing"
	"github.com/lockstep-cd/lockstep/pkg/sealing/book"
	"github.com/lockstep-cd/lockstep/pkg/testkit/pgtest"
)

func pulled(name string, revoked bool) book.Credential {
	return book.Credential{
		Terms:   sealing.Terms{Organization: 1, Name: name, Kind: sealing.Registry, URLPrefixes: []string{"https://r.example.com/x"}},
		Revoked: revoked,
	}
}

// D56: a pull that began later counts, whatever clocks say and also while the database does not answer; and credentials are in the order of
// their names.
func TestALaterPullOfCredentialsCounts(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	gone, err := pgxpool.New(ctx, "postgres://x:x@127.0.0.1:1/x?connect_timeout=1")
	if err != nil {
		t.Fatal(err)
	}
	defer gone.Close()
	c := NewCredentials(gone)
	for range 20 {
		if err := c.Replace(ctx, c.Begin(ctx), map[int64]book.Credential{1: pulled("b", false), 2: pulled("a", false), 3: pulled("c", false)}); err == nil {
			t.Fatal("it was stored without a database")
		}
		all, err := c.CredentialsOfKind(ctx, 1, sealing.Registry)
		if err != nil || len(all) != 3 || all[0].Name != "a" || all[1].Name != "b" || all[2].Name != "c" {
			t.Fatalf("found %v, %v; want a, b and c", all, err)
		}
	}
	early, late := c.Begin(ctx), c.Begin(ctx)
	_ = c.Replace(ctx, late, map[int64]book.Credential{1: pulled("a", true)})
	_ = c.Replace(ctx, early, map[int64]book.Credential{1: pulled("a", false)})
	if one, err := c.CredentialNamed(ctx, 1, "a"); err != nil || one == nil || !one.Revoked {
		t.Errorf("found %v, %v; want the revoked one of the later pull", one, err)
	}
}

// D56: of two replicas, the one that asked later decides what is stored for the next start.
func TestTheLaterReplicaDecides(t *testing.T) {
	t.Parallel()
	pool, _ := pgtest.New(t, pgtest.Migration{Name: HookMigrationName, FS: HookMigrations()})
	ctx, a, b := t.Context(), NewCredentials(pool), NewCredentials(pool)
	early, late := a.Begin(ctx), b.Begin(ctx)
	if err := errors.Join(
		b.Replace(ctx, late, map[int64]book.Credential{1: pulled("a", true), 2: pulled("new", false)}),
		a.Replace(ctx, early, map[int64]book.Credential{1: pulled("a", false), 3: pulled("old", false)}),
	); err != nil {
		t.Fatal(err)
	}
	all, err := NewCredentials(pool).CredentialsOfKind(ctx, 1, sealing.Registry)
	if err != nil || len(all) != 2 || !all[0].Revoked || all[1].Name != "new" {
		t.Errorf("found %v, %v; want the revoked one and the new one", all, err)
	}
}

// D56: a pull that brings nothing new writes one row, and replicas that store at once do not end each other's transactions.
func TestAnUnchangedPullWritesAlmostNothing(t *testing.T) {
	t.Parallel()
	pool, _ := pgtest.New(t, pgtest.Migration{Name: HookMigrationName, FS: HookMigrations()})
	ctx, replicas := t.Context(), []*Credentials{NewCredentials(pool), NewCredentials(pool)}
	all := map[int64]book.Credential{}
	for i := range int64(200) {
		one := pulled(fmt.Sprint("c", i), false)
		one.Sealed = bytes.Repeat([]byte{byte(i)}, 1000)
		all[i+1] = one
	}
	if err := replicas[0].Replace(ctx, replicas[0].Begin(ctx), all); err != nil {
		t.Fatal(err)
	}
	versions := func() (n int) {
		if err := pool.QueryRow(ctx, "SELECT count(DISTINCT xmin::text) FROM credential").Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	var wg sync.WaitGroup
	for _, c := range replicas {
		wg.Go(func() {
			for range 20 {
				if err := c.Replace(ctx, c.Begin(ctx), all); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if n := versions(); n != 1 {
		t.Errorf("rows were written by %d transactions; want the first only", n)
	}
	one := all[7]
	one.Revoked, one.Sealed = true, nil
	all[7] = one
	delete(all, 8)
	if err := replicas[1].Replace(ctx, replicas[1].Begin(ctx), all); err != nil {
		t.Fatal(err)
	}
	stored, err := NewCredentials(pool).CredentialNamed(ctx, 1, one.Name)
	if n := versions(); err != nil || stored == nil || !stored.Revoked || n != 2 {
		t.Errorf("found %v, %v, and rows of %d transactions; want the revoked one, written alone", stored, err, n)
	}
}
