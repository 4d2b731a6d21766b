package pgtest_test

import (
	"os"
	"path/filepath"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"

	"github.com/lockstep-cd/lockstep/pkg/testkit/pgtest"
)

// garden has one of each thing that a schema is rendered with.
const garden = `-- +goose Up
CREATE TABLE tree (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, name text NOT NULL DEFAULT 'oak',
size int CONSTRAINT tree_grows CHECK (size > 0));
CREATE UNIQUE INDEX tree_name ON tree (name) WHERE size > 1;
COMMENT ON TABLE tree IS 'It''s tall.';
COMMENT ON COLUMN tree.size IS 'In metres.';
CREATE TABLE fruit (tree bigint NOT NULL REFERENCES tree, weight int, heavy boolean GENERATED ALWAYS AS (weight > 9) STORED)
WITH (fillfactor = 80);
ALTER TABLE fruit ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;
CREATE POLICY ripe ON fruit FOR SELECT USING (weight > 1);
CREATE SEQUENCE harvest;
-- +goose StatementBegin
CREATE FUNCTION grow() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$ BEGIN RETURN NEW; END $$;
-- +goose StatementEnd
COMMENT ON FUNCTION grow() IS 'Slowly.';
CREATE TRIGGER grows BEFORE INSERT ON tree FOR EACH ROW EXECUTE FUNCTION grow();
-- +goose Down
DROP TABLE fruit, tree;
DROP SEQUENCE harvest;
DROP FUNCTION grow;
`

func TestSchema(t *testing.T) {
	t.Parallel()
	pool, _ := pgtest.New(t, pgtest.Migration{Name: "garden", FS: fstest.MapFS{"0001_garden.sql": {Data: []byte(garden)}}})

	got := pgtest.Schema(t, pool)

	want := `
CREATE TABLE fruit (
    tree bigint NOT NULL,
    weight integer,
    heavy boolean GENERATED ALWAYS AS ((weight > 9)) STORED,
    CONSTRAINT fruit_tree_fkey FOREIGN KEY (tree) REFERENCES tree(id)
) WITH (fillfactor=80);
ALTER TABLE fruit FORCE ROW LEVEL SECURITY;
CREATE POLICY ripe ON fruit AS PERMISSIVE FOR SELECT
    USING ((weight > 1));

CREATE TABLE tree (
    id bigint NOT NULL GENERATED ALWAYS AS IDENTITY,
    name text NOT NULL DEFAULT 'oak'::text,
    size integer,
    CONSTRAINT tree_pkey PRIMARY KEY (id),
    CONSTRAINT tree_grows CHECK ((size > 0))
);
CREATE UNIQUE INDEX tree_name ON tree USING btree (name) WHERE (size > 1);
CREATE TRIGGER grows BEFORE INSERT ON tree FOR EACH ROW EXECUTE FUNCTION grow();
COMMENT ON TABLE tree IS
    'It''s tall.';
COMMENT ON COLUMN tree.size IS
    'In metres.';

CREATE SEQUENCE harvest;

CREATE OR REPLACE FUNCTION grow()
 RETURNS trigger
 LANGUAGE plpgsql
 SET search_path FROM CURRENT
AS $function$ BEGIN RETURN NEW; END $function$;
COMMENT ON FUNCTION grow IS
    'Slowly.';
`
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("schema (-want +got):\n%s", diff)
	}
}

// failures records whether a test that uses it would have failed.
type failures struct {
	testing.TB
	failed bool
}

func (f *failures) Errorf(string, ...any) { f.failed = true }
func (f *failures) Helper()               {}

func TestGoldenSchemaNoticesAnotherSchema(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "schema.sql")
	f := &failures{TB: t}
	pgtest.GoldenSchema(f, file, true, migration())
	if pgtest.GoldenSchema(f, file, false, migration()); f.failed {
		t.Error("the file that was just written differs")
	}
	if err := os.WriteFile(file, []byte("CREATE TABLE fruit ();\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if pgtest.GoldenSchema(f, file, false, migration()); !f.failed {
		t.Error("a file with other tables does not differ")
	}
}
