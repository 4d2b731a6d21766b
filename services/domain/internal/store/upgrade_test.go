package store_test

import (
	"io/fs"
	"testing"
	"testing/fstest"

	"github.com/lockstep-cd/lockstep/pkg/pg"
	"github.com/lockstep-cd/lockstep/pkg/testkit/pgtest"
	"github.com/lockstep-cd/lockstep/services/domain/internal/store"
)

// before are the migrations before one of them.
func before(t *testing.T, number string) fs.FS {
	t.Helper()
	all, err := fs.Glob(store.Migrations(), "*.sql")
	if err != nil {
		t.Fatal(err)
	}
	some := fstest.MapFS{}
	for _, name := range all {
		if name >= number {
			continue
		}
		text, err := fs.ReadFile(store.Migrations(), name)
		if err != nil {
			t.Fatal(err)
		}
		some[name] = &fstest.MapFile{Data: text}
	}
	if len(some) == 0 || len(some) == len(all) {
		t.Fatalf("%d of %d migrations are before %s", len(some), len(all), number)
	}
	return some
}

// D63: an upgrade finds a press that came at the addresses of two channels, also where the owner of the tables is no superuser, whom row
// security stops.
func TestAnUpgradeLeavesAPressOnce(t *testing.T) {
	t.Parallel()
	superuser, c := pgtest.New(t)
	owner := plainOwner(t, superuser, c)
	if err := pg.Migrate(t.Context(), owner, "domain", before(t, "1260")); err != nil {
		t.Fatal(err)
	}
	pgtest.As(t, c, role)
	if err := store.Protect(t.Context(), owner, role); err != nil {
		t.Fatal(err)
	}
	const rows = `
		INSERT INTO cd_notification_channels (organization_id, name, kind, config, rate, enabled, principal_type, principal_id, principal_name,
			changed_at)
			VALUES (1, 'a', 'slack', '{}', 20, true, 'user', 1, 'one', now()), (1, 'b', 'slack', '{}', 20, true, 'user', 1, 'one', now());
		INSERT INTO cd_chat_requests (organization_id, channel_id, digest, workspace, chat_user, chat_name, key_digest, received_at)
		SELECT 1, c.id, sha256(d::bytea), 'T1', 'U7', 'seven', sha256('key'), now() FROM cd_notification_channels c,
			unnest(ARRAY['twice', 'also twice']) d`
	if _, err := superuser.Exec(t.Context(), seed+";"+rows); err != nil {
		t.Fatal(err)
	}
	if err := pg.Migrate(t.Context(), owner, "domain", store.Migrations()); err != nil {
		t.Fatal(err)
	}
	var kept, twice int
	var forced bool
	err := superuser.QueryRow(t.Context(), `SELECT (SELECT count(*) FROM cd_chat_requests), (SELECT count(*) - count(DISTINCT digest) FROM cd_chat_requests),
		(SELECT relforcerowsecurity FROM pg_class WHERE oid = 'cd_chat_requests'::regclass)`).Scan(&kept, &twice, &forced)
	if err != nil || kept != 3 || twice != 0 || !forced {
		t.Errorf("found %d presses, %d of them again, row security forced: %t, %v; want 3 with that of the seed, 0 and true", kept, twice, forced, err)
	}
}

// D58: an upgrade finds the event triggers that are stored, of all organizations, also where row security stops the owner of the tables.
func TestAnUpgradeWritesTheKeysOfTriggers(t *testing.T) {
	t.Parallel()
	superuser, c := pgtest.New(t)
	owner := plainOwner(t, superuser, c)
	if err := pg.Migrate(t.Context(), owner, "domain", before(t, "1470")); err != nil {
		t.Fatal(err)
	}
	pgtest.As(t, c, role)
	if err := store.Protect(t.Context(), owner, role); err != nil {
		t.Fatal(err)
	}
	const rows = `
		INSERT INTO cd_organizations (id, name) OVERRIDING SYSTEM VALUE VALUES (77, 'second');
		INSERT INTO cd_applications (organization_id, name, description) SELECT id, 'two', '' FROM cd_organizations WHERE name = 'second';
		INSERT INTO cd_triggers
			(organization_id, application_id, name, kind, config, enabled, principal_type, principal_id, principal_name, changed_at)
		SELECT a.organization_id, a.id, v.name, v.kind, v.config::jsonb, v.enabled, 'user', 1, 'ann', now() FROM cd_applications a, (VALUES
			('on', 'event', '{"types":["build.*","build.*"],"data":{"name":"shop"}}', true), ('off', 'event', '{"types":["x"]}', false),
			('odd', 'event', '{"types":"x"}', true), ('sets-too', 'version', '{}', true)) v (name, kind, config, enabled)
		WHERE a.name = 'two'`
	if _, err := superuser.Exec(t.Context(), seed+";"+rows); err != nil {
		t.Fatal(err)
	}
	if err := pg.Migrate(t.Context(), owner, "domain", store.Migrations()); err != nil {
		t.Fatal(err)
	}
	var all string
	var forced bool
	err := superuser.QueryRow(t.Context(), `SELECT (SELECT string_agg(t.name || ': ' || k.type_key || ' ' || k.detail_key, ', ' ORDER BY t.name, k.type_key)
			FROM cd_trigger_keys k JOIN cd_triggers t USING (organization_id) WHERE t.id = k.trigger_id),
		(SELECT relforcerowsecurity FROM pg_class WHERE oid = 'cd_triggers'::regclass)`).Scan(&all, &forced)
	if want := "builds: ^buil , on: ^buil dname=shop"; err != nil || all != want || !forced {
		t.Errorf("found %q, row security forced: %t, %v; want %q and true", all, forced, err, want)
	}
}

// R4-11: an upgrade makes a list of the drift that is stored in words, of all organizations, also where row security stops the owner of the
// tables.
func TestAnUpgradeListsDrift(t *testing.T) {
	t.Parallel()
	superuser, c := pgtest.New(t)
	owner := plainOwner(t, superuser, c)
	if err := pg.Migrate(t.Context(), owner, "domain", before(t, "1520")); err != nil {
		t.Fatal(err)
	}
	pgtest.As(t, c, role)
	if err := store.Protect(t.Context(), owner, role); err != nil {
		t.Fatal(err)
	}
	const rows = `
		INSERT INTO cd_application_environment_reconciliations AS r
			(organization_id, application_environment_id, revision, expected_revision, automatic, drift, since, observed_at)
		SELECT organization_id, id, '', '', false, 'Deployment/api differs (others manage spec.replicas, image a)', now(), now()
		FROM cd_application_environments
		ON CONFLICT (organization_id, application_environment_id) DO UPDATE SET drift = excluded.drift`
	if _, err := superuser.Exec(t.Context(), seed+";"+rows); err != nil {
		t.Fatal(err)
	}
	if err := pg.Migrate(t.Context(), owner, "domain", store.Migrations()); err != nil {
		t.Fatal(err)
	}
	var objects string
	var forced bool
	err := superuser.QueryRow(t.Context(), `SELECT (SELECT string_agg(objects::text, '') FROM cd_application_environment_reconciliations),
		(SELECT relforcerowsecurity FROM pg_class WHERE oid = 'cd_application_environment_reconciliations'::regclass)`).Scan(&objects, &forced)
	const want = `[{"how": "different", "held": [{"path": "spec.replicas"}], "kind": "", "name": "", ` +
		`"differs": ["Deployment/api differs (others manage spec.replicas, image a)"]}]`
	if err != nil || objects != want || !forced {
		t.Errorf("found %s, row security forced: %t, %v; want %s and true", objects, forced, err, want)
	}
}

// D49: an upgrade has evaluated again what freezes by label have stopped, since a release of before takes one for a freeze of everything.
func TestAnUpgradeReviewsWhatFreezesByLabelHaveStopped(t *testing.T) {
	t.Parallel()
	superuser, c := pgtest.New(t)
	owner := plainOwner(t, superuser, c)
	if err := pg.Migrate(t.Context(), owner, "domain", before(t, "1631")); err != nil {
		t.Fatal(err)
	}
	pgtest.As(t, c, role)
	if err := store.Protect(t.Context(), owner, role); err != nil {
		t.Fatal(err)
	}
	const rows = `
		DELETE FROM cd_passage_reviews;
		DELETE FROM cd_passage_stops;
		INSERT INTO cd_freezes (organization_id, tiers, environment_ids, application_ids, rollbacks, reason, starts_at, ends_at, bounded_from,
			principal_type, principal_id, principal_name, application_labels)
			SELECT 1, '{}', '{}', '{}', false, 'x', now(), now() + interval '1 day', now(), 'user', 1, 'ann', labels::jsonb
			FROM unnest(ARRAY[NULL, '{"tier":"critical"}']) labels;
		INSERT INTO cd_rollouts (organization_id, application_id, version_set_id, flow_definition_id, state, finished_at)
			VALUES (1, 1, 1, 1, 'completed', now());
		INSERT INTO cd_passage_stops (organization_id, rollout_id, gate_id, kind, control_id)
			SELECT 1, r.id, 'staging', 'freeze', f.id FROM cd_rollouts r
			JOIN cd_freezes f ON (f.application_labels IS NULL) = (r.id <> 1) AND f.id > 1`
	if _, err := superuser.Exec(t.Context(), seed+";"+rows); err != nil {
		t.Fatal(err)
	}
	if err := pg.Migrate(t.Context(), owner, "domain", store.Migrations()); err != nil {
		t.Fatal(err)
	}
	var reviewed []int64
	err := superuser.QueryRow(t.Context(), `SELECT array_agg(rollout_id) FROM cd_passage_reviews`).Scan(&reviewed)
	if err != nil || len(reviewed) != 1 || reviewed[0] != 1 {
		t.Errorf("found reviews of rollouts %v, %v; expected of rollout 1, which a freeze by label has stopped", reviewed, err)
	}
}
