package store_test

import (
	"io/fs"
	"strings"
	"testing"

	"github.com/lockstep-cd/lockstep/services/domain/internal/store"
)

// D56: a rollback takes credentials of every kind: a registry's is revoked, and the name stays; a key of SSH stays until its own migration
// is taken back.
func TestCredentialsOfEveryKindGoDown(t *testing.T) {
	t.Parallel()
	sql := `INSERT INTO cd_credentials (organization_id, name, kind, url_prefixes, username, header, forge, version, reference, key_id, principal_type, principal_id, principal_name, changed_at, proof)
		SELECT 1, 'each-' || n, kind, '{https://a.example/}', '', '', '', 1, 'env:A', 0, 'user', 1, 'ann', now(), proof::jsonb
		FROM (VALUES (1, 'registry', '{"ecr":{}}'), (2, 'registry', '{"gar":{}}'), (3, 'registry', '{"acr":{}}'), (4, 'registry', '{}'),
			(5, 'git', '{"ssh_key":{}}'), (6, 'git', '{"github_app":{}}'), (7, 'git', '{}'), (8, 'http', '{"oauth2":{}}'), (9, 'http', '{}')) AS t (n, kind, proof);`
	check := `DO $$ BEGIN
		IF (SELECT count(*) FROM cd_credentials WHERE name LIKE 'each-%') <> 9
			OR (SELECT count(*) FROM cd_credentials WHERE name IN ('each-1', 'each-2', 'each-3', 'each-4') AND kind = 'http' AND proof = '{}'
				AND revoked_at IS NOT NULL) <> 4
		THEN RAISE 'the credentials are others'; END IF; END $$;`
	for _, name := range []string{"1670_registry_credentials.sql", "1660_ssh_keys.sql"} {
		text, err := fs.ReadFile(store.Migrations(), name)
		if err != nil {
			t.Fatal(err)
		}
		_, down, found := strings.Cut(string(text), "-- +goose Down\n")
		if !found {
			t.Fatalf("%s has no rollback", name)
		}
		sql += down + check
	}
	if err := attempt(t.Context(), seeded(t), sql); err != nil {
		t.Error(err)
	}
}
