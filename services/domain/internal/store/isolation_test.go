package store_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/lockstep-cd/lockstep/pkg/pg"
	"github.com/lockstep-cd/lockstep/pkg/testkit/pgtest"
	"github.com/lockstep-cd/lockstep/services/domain/internal/store"
)

const role = "lockstep_domain"

// twins is the seed's first organization once more, name for name, as the second: 100 is added to every identifier.
// The tables belong to an account that is not a superuser, as on a managed server: row security does not stop superusers. The pool called
// owner connects as a superuser, to prepare and to inspect.
func twins(t *testing.T) (owner, service *pgxpool.Pool) {
	t.Helper()
	owner, c := pgtest.New(t)
	plain := plainOwner(t, owner, c)
	if err := pg.Migrate(t.Context(), plain, "domain", store.Migrations()); err != nil {
		t.Fatal(err)
	}
	service = pgtest.As(t, c, role)
	if err := store.Protect(t.Context(), plain, role); err != nil {
		t.Fatal(err)
	}
	alone := strings.NewReplacer(`, (2, 'shop')`, ``, `, (2, 3, 'api')`, ``, `, (2, 3, 'oci-image@1', '{}', 'k1')`,
		``, `, (2, 'staging', 'staging')`, ``)
	if _, err := owner.Exec(t.Context(), alone.Replace(seed+recent)); err != nil {
		t.Fatal(err)
	}
	err := pgx.BeginFunc(t.Context(), owner, func(tx pgx.Tx) error {
		for _, table := range tenantTables(t, owner) {
			// Cells, ends of names, keys of triggers, publications and unread pipelines come by themselves, from triggers of the tables that they are read off.
			if slices.Contains([]string{"cd_organizations", "cd_cells", "cd_application_name_ends", "cd_trigger_keys", "cd_publications", "cd_forge_unread"}, table) {
				continue
			}
			if _, err := tx.Exec(t.Context(), copyTwin(t, owner, table)); err != nil {
				return fmt.Errorf("%s: %w", table, err)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return owner, service
}

// plainOwner gives the schema to an account of its own, which may do nothing else, and answers how to sign in as it.
func plainOwner(t *testing.T, superuser *pgxpool.Pool, c pg.Config) pg.Config {
	t.Helper()
	// PostgreSQL cuts names off at 63 bytes
	account := "owner_" + strings.ToLower(rand.Text()[:8]) + "_of_" + c.Schema[max(0, len(c.Schema)-44):]
	name := pgx.Identifier{account}.Sanitize()
	if _, err := superuser.Exec(t.Context(), "CREATE ROLE "+name+" LOGIN; ALTER SCHEMA "+pgx.Identifier{c.Schema}.Sanitize()+
		" OWNER TO "+name); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), time.Minute)
		defer cancel()
		if _, err := superuser.Exec(ctx, "REASSIGN OWNED BY "+name+" TO CURRENT_USER; DROP OWNED BY "+name+"; DROP ROLE "+name); err != nil {
			t.Error(err)
		}
	})
	url := strings.Replace(c.URL, "postgres@", account+"@", 1)
	if url == c.URL {
		url += "&user=" + account
	}
	c.URL = url
	return c
}

// A backup may be restored under another account than it was made with, and a former owner of tables has no rights on them: under the
// policies of the former owner the new one would read nothing, and no artifact, handoff or gate would be processed.
func TestANewOwnerLooksAcross(t *testing.T) {
	t.Parallel()
	superuser, c := pgtest.New(t)
	if err := pg.Migrate(t.Context(), plainOwner(t, superuser, c), "domain", store.Migrations()); err != nil {
		t.Fatal(err)
	}
	service := pgtest.As(t, c, role)
	for range 2 {
		owner := plainOwner(t, superuser, c)
		if _, err := superuser.Exec(t.Context(), giveAll(t, superuser, owner)); err != nil {
			t.Fatal(err)
		}
		if err := store.Protect(t.Context(), owner, role); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := superuser.Exec(t.Context(), seed); err != nil {
		t.Fatal(err)
	}
	if n, err := count(t.Context(), service, 0, `SELECT FROM cd_organizations_with_source('k1')`); err != nil || n == 0 {
		t.Errorf("after the tables have had two other owners %d organizations are found, %v; want some", n, err)
	}
	if n, err := count(t.Context(), service, 0, `SELECT FROM cd_artifact_sources`); err != nil || n != 0 {
		t.Errorf("without an organization the service sees %d rows, %v; want none", n, err)
	}
}

// giveAll are the statements that give the tables and functions of a schema to another owner.
func giveAll(t *testing.T, superuser *pgxpool.Pool, to pg.Config) string {
	t.Helper()
	config, err := pgx.ParseConfig(to.URL)
	if err != nil {
		t.Fatal(err)
	}
	var statements string
	err = superuser.QueryRow(t.Context(), `
		SELECT string_agg(s, '; ') FROM (
			SELECT format('ALTER TABLE %I OWNER TO %I', relname, $1::text) s FROM pg_class WHERE relnamespace = current_schema()::regnamespace AND relkind IN ('r', 'p')
			UNION ALL SELECT format('ALTER SEQUENCE %I OWNER TO %I', relname, $1::text) FROM pg_class WHERE relnamespace = current_schema()::regnamespace AND relkind = 'S'
				AND NOT EXISTS (SELECT FROM pg_depend WHERE objid = pg_class.oid AND deptype IN ('a', 'i'))
			UNION ALL SELECT format('ALTER FUNCTION %s OWNER TO %I', oid::regprocedure, $1::text) FROM pg_proc WHERE pronamespace = current_schema()::regnamespace) every`,
		config.User).Scan(&statements)
	if err != nil {
		t.Fatal(err)
	}
	return statements
}

// tenantTables are all that belong to organizations, those that others refer to first.
func tenantTables(t *testing.T, pool *pgxpool.Pool) []string {
	t.Helper()
	rows, err := pool.Query(t.Context(), `
		WITH RECURSIVE refers AS (
			SELECT conrelid AS child, confrelid AS parent FROM pg_constraint
			WHERE contype = 'f' AND connamespace = current_schema()::regnamespace AND conrelid <> confrelid
		), deep AS (
			SELECT c.oid AS t, 0 AS depth FROM pg_class c WHERE c.relnamespace = current_schema()::regnamespace AND c.relkind IN ('r', 'p') AND c.relname LIKE 'cd\_%'
			UNION SELECT r.child, d.depth + 1 FROM deep d JOIN refers r ON r.parent = d.t
		)
		SELECT relname FROM deep JOIN pg_class c ON c.oid = t GROUP BY relname ORDER BY max(depth), relname`)
	if err != nil {
		t.Fatal(err)
	}
	tables, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil || len(tables) < 20 {
		t.Fatalf("%d tables, %v", len(tables), err)
	}
	return tables
}

// copyTwin is the statement that copies the first organization's rows of a table to the second one.
func copyTwin(t *testing.T, pool *pgxpool.Pool, table string) string {
	t.Helper()
	rows, err := pool.Query(t.Context(), `SELECT attname::text, attidentity <> '' AND attidentity = 'a' FROM pg_attribute
		WHERE attrelid = $1::regclass AND attnum > 0 AND NOT attisdropped AND attgenerated = '' ORDER BY attnum`, table)
	if err != nil {
		t.Fatal(err)
	}
	columns, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (name string, err error) {
		var always bool
		return name, row.Scan(&name, &always)
	})
	if err != nil {
		t.Fatal(err)
	}
	values := make([]string, len(columns))
	for i, c := range columns {
		values[i] = c
		switch {
		case c == "organization_id":
			values[i] = "2"
		case c == "id", strings.HasSuffix(c, "_id") && c != "gate_id" && c != "trace_id" && c != "principal_id" && c != "workflow_id" && c != "call_id":
			values[i] = c + " + 100"
		}
	}
	return fmt.Sprintf("INSERT INTO %s (%s) OVERRIDING SYSTEM VALUE SELECT %s FROM %[1]s WHERE organization_id = 1",
		table, strings.Join(columns, ", "), strings.Join(values, ", "))
}

// within runs SQL as the service in an organization; 0 enters none. Nothing of it is kept.
func within(ctx context.Context, service *pgxpool.Pool, organization int, fn func(tx pgx.Tx) error) error {
	undo := errors.New("undo")
	err := pgx.BeginFunc(ctx, service, func(tx pgx.Tx) error {
		if organization != 0 {
			if _, err := tx.Exec(ctx, `SELECT set_config('lockstep.organization', $1::text, true)`, fmt.Sprint(organization)); err != nil {
				return err
			}
		}
		if err := fn(tx); err != nil {
			return err
		}
		return undo
	})
	if errors.Is(err, undo) {
		return nil
	}
	return err
}

// count is how many rows a statement answers, or changes.
func count(ctx context.Context, service *pgxpool.Pool, organization int, sql string) (n int64, err error) {
	err = within(ctx, service, organization, func(tx pgx.Tx) error {
		tag, err := tx.Exec(ctx, sql)
		n = tag.RowsAffected()
		return err
	})
	return n, err
}

func TestEveryTenantTableIsWalledOff(t *testing.T) {
	t.Parallel()
	owner, service := twins(t)
	for _, table := range tenantTables(t, owner) {
		mine := "organization_id = 2"
		if table == "cd_organizations" {
			mine = "id = 2"
		}
		var forced bool
		if err := owner.QueryRow(t.Context(), `SELECT relrowsecurity AND relforcerowsecurity FROM pg_class WHERE oid = $1::regclass`,
			table).Scan(&forced); err != nil || !forced {
			t.Errorf("%s: row-level security is not forced (%v)", table, err)
		}
		want := func(what string, want int64, organization int, sql string) {
			t.Helper()
			if n, err := count(t.Context(), service, organization, sql); err != nil || n != want {
				t.Errorf("%s: %s: found %d rows, %v; want %d", table, what, n, err, want)
			}
		}
		var ours int64
		if err := owner.QueryRow(t.Context(), `SELECT count(*) FROM `+table+` WHERE `+mine).Scan(&ours); err != nil {
			t.Fatal(err)
		}
		if ours == 0 && seededTables[table] {
			t.Errorf("%s: the seed has nothing for the second organization", table)
		}
		want("what an organization sees", ours, 2, `SELECT FROM `+table)
		want("what it sees of the other", 0, 2, `SELECT FROM `+table+` WHERE NOT (`+mine+`)`)
		want("what nobody in particular sees", 0, 0, `SELECT FROM `+table)
		if updatable(t, owner, table) {
			want("what it changes of the other", 0, 2, `UPDATE `+table+` SET updated_at = now() WHERE NOT (`+mine+`)`)
			want("what it locks of the other", 0, 2, `SELECT FROM `+table+` WHERE NOT (`+mine+`) FOR UPDATE`)
		}
	}
}

// seededTables are those of which the seed has rows; a wall around nothing would prove nothing.
var seededTables = map[string]bool{
	"cd_organizations": true, "cd_applications": true, "cd_services": true, "cd_artifact_sources": true, "cd_versions": true,
	"cd_version_sets":        true,
	"cd_version_set_entries": true, "cd_environments": true, "cd_environment_driver_bindings": true, "cd_driver_bundles": true,
	"cd_application_flow_definitions": true, "cd_application_environments": true, "cd_rollouts": true, "cd_rollout_environments": true,
	"cd_deployments":          true,
	"cd_deployment_snapshots": true, "cd_rollout_transitions": true, "cd_rollout_environment_transitions": true,
	"cd_deployment_transitions":      true,
	"cd_service_environment_healths": true, "cd_handoffs": true,
}

func updatable(t *testing.T, owner *pgxpool.Pool, table string) (yes bool) {
	t.Helper()
	if err := owner.QueryRow(t.Context(), `SELECT has_table_privilege($1, $2, 'UPDATE')`, role, table).Scan(&yes); err != nil {
		t.Fatal(err)
	}
	return yes
}

// TestTheServiceCannotRewriteTheRecord is about privileges: the triggers, which constraint_test.go covers, never get to see
// these statements (R12, R13, R39).
func TestTheServiceCannotRewriteTheRecord(t *testing.T) {
	t.Parallel()
	owner, service := twins(t)
	refused := func(sql string) {
		t.Helper()
		_, err := count(t.Context(), service, 1, sql)
		if pe, ok := errors.AsType[*pgconn.PgError](err); !ok || pe.Code != "42501" {
			t.Errorf("%s: found %v; want it refused for want of privilege", sql, err)
		}
	}
	for _, table := range []string{
		"cd_versions", "cd_version_sets", "cd_version_set_entries", "cd_environment_driver_bindings", "cd_driver_bundles",
		"cd_application_flow_definitions",
		"cd_deployment_snapshots", "cd_deployment_attempts", "cd_rollout_transitions", "cd_rollout_environment_transitions",
		"cd_deployment_transitions",
	} {
		refused(`UPDATE ` + table + ` SET created_at = now()`)
	}
	for _, table := range tenantTables(t, owner) {
		refused(`DELETE FROM ` + table)
		refused(`TRUNCATE ` + table + ` CASCADE`)
		refused(`ALTER TABLE ` + table + ` DISABLE ROW LEVEL SECURITY`)
	}
	refused(`CREATE TABLE cd_mine ()`)
	refused(`DROP TABLE cd_rollouts`)
}

// TestNothingOfAnotherOrganizationCanBeReferredToOrInferred sends, as the service in organization 2, requests whose answers would
// differ only if they depended on organization 1.
func TestNothingOfAnotherOrganizationCanBeReferredToOrInferred(t *testing.T) {
	t.Parallel()
	owner, service := twins(t)
	tests := []struct{ name, sql, refusedBy string }{
		{"a row for the other", `INSERT INTO cd_applications (organization_id, name) VALUES (1, 'new')`, "42501"},
		{"a row moved to the other", `UPDATE cd_applications SET organization_id = 1 WHERE name = 'shop'`, "42501"},
		{
			"a service of the other's application", `INSERT INTO cd_services (organization_id, application_id, name) VALUES (2, 1, 'x')`,
			"cd_services_application",
		},
		{
			"a service of nobody's application", `INSERT INTO cd_services (organization_id, application_id, name) VALUES (2, 9999, 'x')`,
			"cd_services_application",
		},
		{
			"a rollout of the other's application, which has an active one (R14)",
			`INSERT INTO cd_rollouts (organization_id, application_id, version_set_id, flow_definition_id) VALUES (2, 1, 1, 1)`,
			"cd_rollouts_application",
		},
		{"a rollout of nobody's application", `INSERT INTO cd_rollouts (organization_id, application_id, version_set_id, flow_definition_id) VALUES (2, 9999, 1, 1)`, "cd_rollouts_application"},
		{
			"a journal row about the other's rollout",
			`INSERT INTO cd_rollout_transitions (organization_id, rollout_id, from_state, to_state, event, principal_type) VALUES (2, 1, 'pending', 'in_progress', 'start', 'user')`, "cd_rollout_transitions_subject",
		},
		{
			"a deployment to the other's environment",
			`INSERT INTO cd_application_environments (organization_id, application_id, environment_id) VALUES (2, 101, 1)`,
			"cd_application_environments_environment",
		},
	}
	for _, tt := range tests {
		_, err := count(t.Context(), service, 2, tt.sql)
		if pe, ok := errors.AsType[*pgconn.PgError](err); !ok || pe.Code != tt.refusedBy && pe.ConstraintName != tt.refusedBy {
			t.Errorf("%s: found %v; want it refused by %s", tt.name, err, tt.refusedBy)
		}
	}
	// Unique indexes are looked at behind the walls too, so each has to begin with the organization. The exceptions are
	// numbers that nobody chooses, and the names of organizations, which only an operator gives.
	rows, err := owner.Query(t.Context(), `
		SELECT i.indexrelid::regclass::text FROM pg_index i JOIN pg_class c ON c.oid = i.indrelid
		JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum = i.indkey[0]
		WHERE c.relnamespace = current_schema()::regnamespace AND c.relname LIKE 'cd\_%' AND i.indisunique AND NOT i.indisprimary
		  AND a.attname <> 'organization_id' AND c.relname <> 'cd_organizations'`)
	if err != nil {
		t.Fatal(err)
	}
	if leaks, err := pgx.CollectRows(rows, pgx.RowTo[string]); err != nil || len(leaks) > 0 {
		t.Errorf("unique indexes that reveal other organizations: %q, %v", leaks, err)
	}
	// The same holds for foreign keys: one without the organization would reveal whether another organization has a row. Keys between
	// two tables of the whole installation reveal nothing.
	rows, err = owner.Query(t.Context(), `
		SELECT k.conname FROM pg_constraint k WHERE k.contype = 'f' AND k.connamespace = current_schema()::regnamespace
		  AND k.confrelid <> 'cd_organizations'::regclass
		  AND EXISTS (SELECT FROM pg_class c WHERE c.oid IN (k.conrelid, k.confrelid) AND c.relname LIKE 'cd\_%')
		  AND NOT EXISTS (SELECT FROM pg_attribute a WHERE a.attrelid = k.conrelid AND a.attnum = k.conkey[1] AND a.attname = 'organization_id')`)
	if err != nil {
		t.Fatal(err)
	}
	if leaks, err := pgx.CollectRows(rows, pgx.RowTo[string]); err != nil || len(leaks) > 0 {
		t.Errorf("foreign keys that reveal other organizations: %q, %v", leaks, err)
	}
}

// TestTheSettingIsForgotten is about what a pooled connection still knows: after a commit PostgreSQL gives back ” for a
// setting that was local, and a policy that casts it would fail, or worse.
func TestTheSettingIsForgotten(t *testing.T) {
	t.Parallel()
	_, service := twins(t)
	conn, err := service.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	var n int
	err = pgx.BeginFunc(t.Context(), conn, func(tx pgx.Tx) error {
		if _, err := tx.Exec(t.Context(), `SELECT set_config('lockstep.organization', '1', true)`); err != nil {
			return err
		}
		return tx.QueryRow(t.Context(), `SELECT count(*) FROM cd_applications`).Scan(&n)
	})
	if err != nil || n != 2 {
		t.Fatalf("within: found %d, %v; want 2", n, err)
	}
	var setting string
	if err := conn.QueryRow(t.Context(), `SELECT current_setting('lockstep.organization', true)`).Scan(&setting); err != nil || setting != "" {
		t.Fatalf("after the commit the setting reads %q, %v; want it empty, not NULL", setting, err)
	}
	if err := conn.QueryRow(t.Context(), `SELECT count(*) FROM cd_applications`).Scan(&n); err != nil || n != 0 {
		t.Errorf("after the commit: found %d, %v; want none and no error", n, err)
	}
}

// TestLooksAcrossGiveAwayOrganizationsOnly is about the ways around the walls.
func TestLooksAcrossGiveAwayOrganizationsOnly(t *testing.T) {
	t.Parallel()
	owner, service := twins(t)
	for _, sql := range []string{
		`SELECT FROM cd_organizations_with_source('k1')`,
		`SELECT FROM cd_organizations_with_due_handoffs(now() + interval '1 hour')`,
		`SELECT FROM cd_all_organizations(0, 1000, false, 10)`, `SELECT FROM generate_series(1, cd_count_organizations())`,
	} {
		if n, err := count(t.Context(), service, 0, sql); err != nil || n != 2 {
			t.Errorf("%s: found %d, %v; want both organizations", sql, n, err)
		}
	}
	// Whatever else looks across finds nothing here, but must be able to look.
	for _, sql := range []string{
		`cd_organizations_with_due_rollbacks(now())`, `cd_organizations_with_due_gates(now())`, `cd_organizations_with_token('x')`,
		`cd_organizations_with_due_closings(now())`, `cd_organizations_with_due_deadlines(now())`, `cd_organizations_with_free_queue()`, `cd_sources_after(0, 10)`,
		`cd_forge_hooks_after(0, 10)`, `cd_organizations_with_due_drift_looks(now())`,
		`cd_agent_of_key('k', now())`,
		`cd_good_agent_keys('{1}', now())`, `cd_agent_owners()`, `cd_organizations_with_unranked_publications()`,
		`cd_organizations_of_identity('i', 's')`, `cd_organizations_with_member('n')`,
		`cd_organizations_with_provider_session('s')`,
	} {
		if _, err := count(t.Context(), service, 0, "SELECT * FROM "+sql); err != nil {
			t.Errorf("%s: %v", sql, err)
		}
	}
	// The walls stand again as soon as such a function has answered.
	if n, err := count(t.Context(), service, 0, `SELECT FROM cd_organizations_with_source('k1') o, cd_artifact_sources`); err != nil ||
		n != 0 {
		t.Errorf("beside a look across the service sees %d rows, %v; want none", n, err)
	}
	// What opens the walls for the owner of these functions does nothing for the service.
	n, err := count(t.Context(), service, 0, `WITH s AS MATERIALIZED (SELECT set_config('lockstep.across', 'on', true)) SELECT FROM s, cd_artifact_sources`)
	if err != nil || n != 0 {
		t.Errorf("with the owner's setting the service sees %d rows, %v; want none", n, err)
	}
	var strangers int
	err = owner.QueryRow(t.Context(), `SELECT count(*) FROM pg_proc p, aclexplode(p.proacl) a
		WHERE p.pronamespace = current_schema()::regnamespace AND p.prosecdef AND a.grantee = 0`).Scan(&strangers)
	if err != nil || strangers != 0 {
		t.Errorf("%d privileges of everybody on functions that run as the owner, %v", strangers, err)
	}
	if err := store.Protect(t.Context(), pg.Config{}, role); err == nil {
		t.Error("protection without a database succeeds")
	}
}
