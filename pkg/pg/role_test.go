package pg_test

import (
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/pg"
	"github.com/lockstep-cd/lockstep/pkg/pg/pgtest"
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
	if _, err := owner.Exec(t.Context(), `GRANT USAGE ON SCHEMA `+pgx.Identifier{c.Schema}.Sanitize()+` TO test_fruit_seller; GRANT SELECT ON fruit TO test_fruit_seller`); err != nil {
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

func TestARoleThatMayNotBeMadeSaysWhoCan(t *testing.T) {
	t.Parallel()
	owner, c := pgtest.New(t)
	if _, err := owner.Exec(t.Context(), `CREATE ROLE test_plain_account LOGIN`); err != nil {
		t.Fatal(err)
	}
	url := strings.Replace(c.URL, "postgres@", "test_plain_account@", 1)
	if url == c.URL {
		url += "&user=test_plain_account"
	}
	c.URL = url
	err := pg.EnsureRole(t.Context(), c, "test_never_made")
	if !fault.Is(err, fault.Refused) || !strings.Contains(fault.Public(err), `CREATE ROLE test_never_made NOLOGIN; GRANT test_never_made TO "test_plain_account";`) {
		t.Errorf("found %v; want the statements that would make it", err)
	}
	if err := pg.EnsureRole(t.Context(), c, "Robert'; DROP"); !fault.Is(err, fault.Invalid) {
		t.Errorf("a name that is none: found %v", err)
	}
}
