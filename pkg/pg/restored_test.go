package pg_test

import (
	"testing"
	"testing/fstest"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/pg"
	"github.com/lockstep-cd/lockstep/pkg/testkit/pgtest"
)

// D66: after a restore to an earlier time no number is given twice.
func TestAfterARestoreNumbersAreNotGivenAgain(t *testing.T) {
	t.Parallel()
	pool, c := pgtest.New(t, pgtest.Migration{Name: "box", FS: fstest.MapFS{"0001_box.sql": {Data: []byte(`-- +goose Up
CREATE TABLE box (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, name text NOT NULL);
CREATE TABLE unused (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY);
-- +goose Down
DROP TABLE box, unused;
`)}}})
	add := func() (id int64) {
		t.Helper()
		if err := pool.QueryRow(t.Context(), `INSERT INTO box (name) VALUES ('x') RETURNING id`).Scan(&id); err != nil {
			t.Fatal(err)
		}
		return id
	}
	backup := add()
	for lost := backup; lost < backup+10; { // after the backup
		lost = add()
	}
	if _, err := pool.Exec(t.Context(), `SELECT setval(pg_get_serial_sequence('box', 'id'), $1)`, backup); err != nil {
		t.Fatal(err)
	}
	for range 2 { // again does no harm
		if n, err := pg.Restored(t.Context(), c); err != nil || n < 2 {
			t.Fatalf("%d sequences, error %v, want those of box and unused", n, err)
		}
	}
	if id := add(); id <= backup+pg.RestoredGap {
		t.Errorf("after the restore number %d was given, want one beyond %d", id, backup+pg.RestoredGap)
	}
	if _, err := pool.Exec(t.Context(), `ALTER SEQUENCE unused_id_seq AS bigint MAXVALUE 3000000`); err != nil {
		t.Fatal(err)
	}
	before := add()
	if _, err := pg.Restored(t.Context(), c); !fault.Is(err, fault.Refused) {
		t.Errorf("a sequence without room: %v, want that it is refused", err)
	}
	if id := add(); id != before+1 {
		t.Errorf("the refusal changed a sequence: %d after %d", id, before)
	}
}
