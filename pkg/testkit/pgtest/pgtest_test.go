package pgtest_test

import (
	"testing"
	"testing/fstest"

	"go.uber.org/goleak"

	"github.com/lockstep-cd/lockstep/pkg/testkit/pgtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func migration() pgtest.Migration {
	return pgtest.Migration{Name: "fruit", FS: fstest.MapFS{"0001_fruit.sql": {Data: []byte(
		"-- +goose Up\nCREATE TABLE fruit (name text PRIMARY KEY);\n-- +goose Down\nDROP TABLE fruit;\n",
	)}}}
}

func TestEachTestHasItsOwnTables(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"one", "two"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pool, c := pgtest.New(t, migration())
			if _, err := pool.Exec(t.Context(), `INSERT INTO fruit VALUES ('apple')`); err != nil {
				t.Fatal(err)
			}
			var schema string
			if err := pool.QueryRow(t.Context(), `SELECT current_schema()`).Scan(&schema); err != nil {
				t.Fatal(err)
			}
			if schema != c.Schema {
				t.Errorf("the pool is in schema %q, the configuration says %q", schema, c.Schema)
			}
		})
	}
}
