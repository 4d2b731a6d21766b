package domain

import (
	"testing"

	"github.com/lockstep-cd/lockstep/pkg/pg"
	"github.com/lockstep-cd/lockstep/pkg/testkit/pgtest"
)

// D66: the subcommand restored leaves a gap in the numbers of rollouts, also where the service's account owns nothing.
func TestRestoredLeavesAGapInTheNumbers(t *testing.T) {
	long(t)
	t.Parallel()
	pool, c := pgtest.New(t)
	config := Config{Database: pg.Database{DatabaseURL: c.URL}, OwnerDatabaseURL: c.URL, Schema: c.Schema, DatabaseRole: role}
	config.LogLevel = "error"
	if err := Migrate(t.Context(), config); err != nil {
		t.Fatal(err)
	}
	next := func() (n int64) {
		t.Helper()
		if err := pool.QueryRow(t.Context(), `SELECT nextval(pg_get_serial_sequence('cd_rollouts', 'id'))`).Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	before := next()
	if err := Restored(t.Context(), config); err != nil {
		t.Fatal(err)
	}
	if after := next(); after != before+pg.RestoredGap+1 {
		t.Errorf("the next rollout is %d behind %d, want a gap of %d", after, before, pg.RestoredGap)
	}
}
