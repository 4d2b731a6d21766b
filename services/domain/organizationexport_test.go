package domain

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/access"
)

// exported reads an export, verifies that it is whole, and answers its rows by table.
func exported(t *testing.T, file []byte) (name string, tables map[string][]map[string]any) {
	t.Helper()
	lines := bytes.SplitAfter(file, []byte("\n"))
	if n := len(lines); n < 3 || len(lines[n-1]) > 0 {
		t.Fatalf("found %.500s", file)
	}
	lines = lines[:len(lines)-1]
	var header struct {
		Format           string
		Organization     int64
		OrganizationName string `json:"organization_name"`
	}
	var last struct {
		End struct {
			Rows   int
			SHA256 string
		}
	}
	if err := errors.Join(json.Unmarshal(lines[0], &header), json.Unmarshal(lines[len(lines)-1], &last)); err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(bytes.Join(lines[:len(lines)-1], nil))
	if header.Format != access.ExportFormat || last.End.Rows != len(lines)-2 || last.End.SHA256 != hex.EncodeToString(sum[:]) {
		t.Errorf("found header %+v, end %+v; expected %d rows with the digest %x", header, last, len(lines)-2, sum)
	}
	tables = map[string][]map[string]any{}
	for _, line := range lines[1 : len(lines)-1] {
		var one struct {
			Table string
			Row   map[string]any
		}
		if err := json.Unmarshal(line, &one); err != nil {
			t.Fatal(err)
		}
		of := "organization_id"
		if one.Table == "cd_organizations" {
			of = "id"
		}
		if one.Row[of] != float64(header.Organization) {
			t.Errorf("%s: found a row of organization %v", one.Table, one.Row[of])
		}
		tables[one.Table] = append(tables[one.Table], one.Row)
	}
	return header.OrganizationName, tables
}

// D65: an export has every row of its organization, none of another, nothing secret, and is in the journal.
func TestAnOrganizationIsExported(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.succeed(s.rollout(s.release(1)))
	v := browserOf(t, s.fixture, Config{BootstrapToken: bootstrapToken})
	_, alice := v.createOrganization("books", "alice@example.com")
	export := func(method, token string) (int, []byte) {
		t.Helper()
		w := v.send(method, v.origin+"/organization/export", "", map[string]string{"Authorization": "Bearer " + token})
		return w.Code, w.Body.Bytes()
	}
	_, file := export(http.MethodGet, alice)
	name, tables := exported(t, file)
	s.want(name, "books")
	s.want(len(tables["cd_applications"]), 0)
	s.want(len(tables["cd_members"]), 1)

	_, less, err := s.access.CreateToken(t.Context(), user(), access.NewToken{Name: "less", Scopes: core.PermissionsOf(core.MayConfigure)})
	s.ok(err)
	for _, row := range []string{
		`INSERT INTO cd_proposed_changes (organization_id, proposer_id, proposer_name, action, subject_kind, subject_number, subject_name,
			environments, input, expires_at) SELECT organization_id, id, name, 'setLabels', 'environment', 1, 'staging', '{1}', '{"x": 1}', now()
			FROM cd_members WHERE organization_id = $1 LIMIT 1`,
		`INSERT INTO cd_forge_hooks (organization_id, key, forge, repositories, check_keys, principal_type, principal_id, principal_name)
			VALUES ($1, '7f3a9c52e1b84d06', 'gitea', '{https://git.example.com/shop}', '{}', 'user', 1, 'owner')`,
	} {
		_, err := s.pool.Exec(t.Context(), row, int64(ownerOrganization))
		s.ok(err)
	}
	var out bytes.Buffer
	s.ok(s.access.ExportOrganization(t.Context(), user(), &out))
	_, tables = exported(t, out.Bytes())
	for table, rows := range s.rowsByTable(ownerOrganization) {
		if table != "cd_requests" && table != "cd_application_name_ends" {
			s.want([]any{table, len(tables[table])}, []any{table, rows})
		}
	}
	for _, table := range []string{"cd_rollouts", "cd_rollout_transitions", "cd_changes", "cd_deployments", "cd_handoffs"} {
		if len(tables[table]) == 0 {
			t.Errorf("no rows of %s; expected some", table)
		}
	}
	for table, column := range map[string]string{
		"cd_proposed_changes": "input", "cd_access_tokens": "provider_session", "cd_forge_hooks": "key",
	} {
		if len(tables[table]) == 0 {
			t.Errorf("%s: found no row; expected one without %s", table, column)
		}
		for _, row := range tables[table] {
			if value, has := row[column]; has {
				t.Errorf("%s: found %s %v; expected it withheld", table, column, value)
			}
		}
	}
	for table, rows := range tables {
		for _, row := range rows {
			for column, value := range row {
				if text, is := value.(string); is && strings.HasPrefix(text, `\x`) && table != "cd_driver_bundles" {
					t.Errorf("%s.%s: found bytes, which may be secret: %.40s", table, column, text)
				}
			}
		}
	}
	changes := tables["cd_changes"]
	s.want(changes[len(changes)-1]["action"], "exportOrganization")

	for _, wrong := range []struct {
		method, token string
		code          int
	}{
		{http.MethodGet, less, http.StatusForbidden},
		{http.MethodGet, "guessed", http.StatusUnauthorized},
		{http.MethodPost, alice, http.StatusMethodNotAllowed},
	} {
		if code, text := export(wrong.method, wrong.token); code != wrong.code {
			t.Errorf("%s: found %d %s; expected %d", wrong.method, code, text, wrong.code)
		}
	}
}

// rowsByTable are how many rows of an organization each table has.
func (f *fixture) rowsByTable(organization int64) map[string]int {
	f.t.Helper()
	names, err := f.pool.Query(f.t.Context(), `SELECT table_name::text FROM information_schema.columns
		WHERE table_schema = current_schema() AND column_name = 'organization_id'`)
	f.ok(err)
	tables, err := pgx.CollectRows(names, pgx.RowTo[string])
	f.ok(err)
	rows := map[string]int{}
	for _, table := range tables {
		var n int
		f.ok(f.pool.QueryRow(f.t.Context(), "SELECT count(*) FROM "+pgx.Identifier{table}.Sanitize()+" WHERE organization_id = $1",
			organization).Scan(&n))
		rows[table] = n
	}
	return rows
}

// A column whose name sounds secret is of bytes, which no export has, or was looked at: a new one fails here, and is either withheld
// (store/organizations.go) or added to this list.
func TestColumnsThatSoundSecretWereLookedAt(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	rows, err := f.pool.Query(t.Context(), `SELECT table_name || '.' || column_name FROM information_schema.columns
		WHERE table_schema = current_schema() AND data_type <> 'bytea' AND column_name ~ 'digest|secret|token|password|sealed|key|session|code'
		AND table_name ~ '^cd_' ORDER BY 1`)
	f.ok(err)
	got, err := pgx.CollectRows(rows, pgx.RowTo[string])
	f.ok(err)
	withheld := []string{"cd_access_tokens.provider_session", "cd_forge_hooks.key"}
	// Digests of images, drivers and blocks; names of checks and controls; public keys, and which key a value is sealed with.
	open := []string{
		"cd_access_tokens.check_keys", "cd_agent_keys.public_key", "cd_artifact_deletions.digest", "cd_artifact_sources.match_key",
		"cd_check_runs.key", "cd_check_statuses.key", "cd_credentials.key_id", "cd_deployment_attempts.manifest_digest",
		"cd_deployment_snapshots.manifest_digest", "cd_driver_bundles.digest", "cd_forge_hooks.check_keys", "cd_handoffs.driver_digest",
		"cd_journal_blocks.digest", "cd_journal_blocks.sealed_at", "cd_notification_messages.key", "cd_publications.digest_seen",
		"cd_requests.key", "cd_rollout_checks.key", "cd_rollout_checks.kind_digest", "cd_rollout_environments.driver_digest",
		"cd_trigger_keys.detail_key", "cd_trigger_keys.type_key", "cd_version_sets.entries_digest", "cd_versions.digest",
	}
	for _, column := range got {
		if !slices.Contains(withheld, column) && !slices.Contains(open, column) {
			t.Errorf("%s: may it be exported?", column)
		}
	}
}

// stalled is a reader who takes nothing until released, and says when the first bytes have come.
type stalled struct {
	arrived chan struct{}
	release chan struct{}
}

// Write implements io.Writer.
func (s stalled) Write(text []byte) (int, error) {
	s.arrived <- struct{}{}
	<-s.release
	return len(text), nil
}

// Slow readers take the places of exports, and nothing else; a reader who is gone ends his.
func TestExportsAreFewAtOnce(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	release := make(chan struct{})
	done := make(chan error, 2)
	for range 2 {
		one := stalled{make(chan struct{}, 1000), release}
		go func() { done <- s.access.ExportOrganization(t.Context(), user(), one) }()
		<-one.arrived
	}
	s.want(fault.ClassOf(s.access.ExportOrganization(t.Context(), user(), io.Discard)), fault.Unavailable)
	close(release)
	s.ok(errors.Join(<-done, <-done))
	gone, writer := io.Pipe()
	s.ok(gone.Close())
	if err := s.access.ExportOrganization(t.Context(), user(), writer); !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("found %v; expected that nobody reads", err)
	}
	s.ok(s.access.ExportOrganization(t.Context(), user(), io.Discard))
}
