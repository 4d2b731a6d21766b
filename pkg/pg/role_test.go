package pg_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/pg"
	"github.com/lockstep-cd/lockstep/pkg/testkit/pgtest"
	"github.com/lockstep-cd/lockstep/pkg/testkit/wait"
)

func TestAServiceWorksAsItsRole(t *testing.T) {
	t.Parallel()
	owner, c := fruitPool(t)
	// Replicas that start together.
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			if err := pg.EnsureRole(t.Context(), c, "test_fruit_seller"); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	seller := pgtest.As(t, c, "test_fruit_seller")
	var who string
	if err := seller.QueryRow(t.Context(), `SELECT current_user`).Scan(&who); err != nil || who != "test_fruit_seller" {
		t.Fatalf("works as %q, %v", who, err)
	}
	if _, err := seller.Exec(t.Context(), `SELECT * FROM fruit`); err == nil {
		t.Error("the role reads what nobody granted")
	}
	if _, err := owner.Exec(t.Context(), `GRANT USAGE ON SCHEMA `+pgx.Identifier{c.Schema}.Sanitize()+
		` TO test_fruit_seller; GRANT SELECT ON fruit TO test_fruit_seller`); err != nil {
		t.Fatal(err)
	}
	if _, err := seller.Exec(t.Context(), `SELECT * FROM fruit`); err != nil {
		t.Error(err)
	}
	c.Role = "test_fruit_seller"
	if err := pg.Migrate(t.Context(), c, "fruit", fruit()); err != nil {
		t.Errorf("migrations work as the role, not as the owner: %v", err)
	}
}

// TestDatabasesOfOneServerMakeARoleAtTheSameMoment has one about to make a role when another one comes to make it too.
func TestDatabasesOfOneServerMakeARoleAtTheSameMoment(t *testing.T) {
	t.Parallel()
	owner, _ := fruitPool(t)
	_, other := fruitPool(t)
	without(t, owner, "test_made_at_once")
	tx, err := owner.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) }() // where the test has failed; the other one ends by its own bound
	if _, err := tx.Exec(t.Context(), `CREATE ROLE test_made_at_once`); err != nil {
		t.Fatal(err)
	}
	made := make(chan error, 1)
	go func() {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		made <- pg.EnsureRole(ctx, other, "test_made_at_once")
	}()
	wait.For(t, "the second one waits for the role of the first", func() (waits bool) {
		if err := owner.QueryRow(t.Context(), `SELECT EXISTS (SELECT FROM pg_stat_activity
			WHERE wait_event_type = 'Lock' AND query LIKE 'CREATE ROLE "test_made_at_once"%')`).Scan(&waits); err != nil {
			t.Fatal(err)
		}
		return waits
	})
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-made; err != nil {
		t.Errorf("the second one: %v", err)
	}
}

// TestTheCreatorOfARoleMayWorkAsIt: an account that is no superuser and may make roles. From PostgreSQL 16 on such an account is a member
// of what it makes at once, but not one that may work as it.
func TestTheCreatorOfARoleMayWorkAsIt(t *testing.T) {
	t.Parallel()
	owner, c := pgtest.New(t)
	without(t, owner, "test_made_by_it", "test_makes_roles")
	if _, err := owner.Exec(t.Context(), `CREATE ROLE test_makes_roles LOGIN CREATEROLE`); err != nil {
		t.Fatal(err)
	}
	c.URL = as(c.URL, "test_makes_roles")
	for range 2 { // the second time there is nothing to do
		if err := pg.EnsureRole(t.Context(), c, "test_made_by_it"); err != nil {
			t.Fatal(err)
		}
	}
	c.Role = "test_made_by_it"
	pool, err := pg.Open(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	var who string
	if err := pool.QueryRow(t.Context(), `SELECT current_user`).Scan(&who); err != nil || who != c.Role {
		t.Errorf("works as %q, %v", who, err)
	}
}

// without drops roles when the test has ended: they are the server's, which may outlive it.
func without(t *testing.T, owner *pgxpool.Pool, roles ...string) {
	t.Helper()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), time.Minute)
		defer cancel()
		for _, role := range roles {
			if _, err := owner.Exec(ctx, "DROP ROLE IF EXISTS "+role); err != nil {
				t.Error(err)
			}
		}
	})
}

// as is a URL of the same database for another account.
func as(url, account string) string {
	if found := strings.Replace(url, "postgres@", account+"@", 1); found != url {
		return found
	}
	return url + "&user=" + account
}

func TestTheErrorOfAMissingRoleHasTheStatements(t *testing.T) {
	t.Parallel()
	owner, c := pgtest.New(t)
	without(t, owner, "test_plain_account")
	if _, err := owner.Exec(t.Context(), `CREATE ROLE test_plain_account LOGIN`); err != nil {
		t.Fatal(err)
	}
	c.URL = as(c.URL, "test_plain_account")
	err := pg.EnsureRole(t.Context(), c, "test_never_made")
	if !fault.Is(err, fault.Refused) || !strings.Contains(fault.Public(err),
		`CREATE ROLE test_never_made NOLOGIN; GRANT test_never_made TO "test_plain_account";`) {
		t.Errorf("found %v; want the statements that would make it", err)
	}
	if err := pg.EnsureRole(t.Context(), c, "Robert'; DROP"); !fault.Is(err, fault.Invalid) {
		t.Errorf("an invalid name: found %v", err)
	}
}
