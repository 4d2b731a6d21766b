package domain

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// rankAll works out what is due.
func (f *fixture) rankAll() {
	f.t.Helper()
	for {
		_, worked, err := f.intake.RankDue(f.t.Context())
		f.ok(err)
		if !worked {
			return
		}
	}
}

// TestTheNewestSetOfWhatAnEarlierReleaseHasStored is worked out again: versions without a publication, as the migration and the release
// before leave them, and sets in the order of arrival.
func TestTheNewestSetOfWhatAnEarlierReleaseHasStored(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	a := f.selecting("shop", `{"image":"registry.test/shop/api","selection":"semver"}`)
	for _, p := range []push{{tag: "2.0.0", digest: 1, minute: 1}, {tag: "1.9.5", digest: 2, minute: 2}} {
		f.publish(f.pushed("registry.test/shop/api", p))
	}
	exec := func(sql string) {
		t.Helper()
		tx, err := f.pool.Begin(t.Context())
		f.ok(err)
		defer func() { _ = tx.Rollback(t.Context()) }()
		_, err = tx.Exec(t.Context(), `SELECT set_config('lockstep.organization', '1', true)`)
		f.ok(err)
		_, err = tx.Exec(t.Context(), sql)
		f.ok(err)
		f.ok(tx.Commit(t.Context()))
	}
	// What the release before has made of it: a set for each that came.
	exec(`WITH s AS (INSERT INTO cd_version_sets (organization_id, application_id, name, entries_digest, entries_count) VALUES (1, 1, 'set-2', 'wrong', 1) RETURNING id)
		INSERT INTO cd_version_set_entries (organization_id, version_set_id, version_id, artifact_source_id, service_id) SELECT 1, s.id, 2, 1, 1 FROM s`)
	exec(`DELETE FROM cd_newest_version_sets`)
	exec(`DELETE FROM cd_publications`)
	// The release before adds versions without their publications: the table adds them.
	exec(`INSERT INTO cd_versions (organization_id, artifact_source_id, name, digest, reference, published_at) VALUES
		(1, 1, '1.0.0', '` + digestOf(3) + `', 'r', now()), (1, 1, '1.0.0-` + digestOf(4)[7:19] + `', '` + digestOf(4) +
		`', 'r', now()), (1, 1, '` + digestOf(5)[7:19] + `', '` + digestOf(5) + `', 'r', now())`)
	var tags []string
	rows, err := f.pool.Query(t.Context(), `SELECT tag FROM cd_publications ORDER BY version_id`)
	f.ok(err)
	for rows.Next() {
		var tag string
		f.ok(rows.Scan(&tag))
		tags = append(tags, tag)
	}
	f.ok(rows.Err())
	if diff := cmp.Diff([]string{"1.0.0", "1.0.0", ""}, tags); diff != "" {
		t.Fatalf("tags in the names of versions (-want +got):\n%s", diff)
	}
	// As the migration does it.
	exec(`INSERT INTO cd_publications (organization_id, artifact_source_id, version_id, tag, published_at, told_at)
		SELECT v.organization_id, v.artifact_source_id, v.id, cd_tag_of(v.name, v.digest), v.published_at, v.created_at FROM cd_versions v WHERE v.id IN (1, 2)`)
	if got := f.newestOf(a); got != "2" {
		t.Fatalf("the newest before it is worked out: %s, want that of the last set made", got)
	}
	f.rankAll()
	if got := f.newestOf(a); got != "1" {
		t.Errorf("the newest is %s, want that of 2.0.0", got)
	}
	if sets := describeSets(f, a); len(sets) != 2 {
		t.Errorf("sets %q, want no further one", sets)
	}
}

// TestAnotherSelectionHasAnotherNewest: what was recorded before counts as the new selection has it.
func TestAnotherSelectionHasAnotherNewest(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	a := f.selecting("shop", `{"image":"registry.test/shop/api","selection":"semver"}`)
	for _, p := range []push{
		{tag: "2.0.0", digest: 1, minute: 1},
		{tag: "1.9.5", digest: 2, minute: 2},
		{tag: "1.10.0", digest: 3, minute: 3},
	} {
		f.publish(f.pushed("registry.test/shop/api", p))
	}
	steps := []struct{ config, newest string }{
		{`{"image":"registry.test/shop/api","selection":"semver","range":"^1"}`, "3"},
		{`{"image":"registry.test/shop/api","selection":"mutable_tag","tag":"1.9.5"}`, "2"},
		{`{"image":"registry.test/shop/api","selection":"mutable_tag","tag":"stable"}`, "2"}, // nothing is there yet: it stays
		{`{"image":"registry.test/shop/api","selection":"lexical"}`, "1"},
		{`{"image":"registry.test/shop/api"}`, "3"},
	}
	for _, s := range steps {
		_, err := f.setup.SetArtifactSourceConfig(t.Context(), user(), 1, json.RawMessage(s.config))
		f.ok(err)
		f.rankAll()
		if got := f.newestOf(a); got != s.newest {
			t.Errorf("%s: the newest is %s, want %s", s.config, got, s.newest)
		}
	}
	// A publication works out the rest by itself, before anything that is due by time.
	_, err := f.setup.SetArtifactSourceConfig(t.Context(), user(),
		1, json.RawMessage(`{"image":"registry.test/shop/api","selection":"semver"}`))
	f.ok(err)
	f.publish(f.pushed("registry.test/shop/api", push{tag: "1.11.0", digest: 4, minute: 4}))
	if got := f.newestOf(a); got != "1" {
		t.Errorf("the newest after a publication is %s, want 1", got)
	}
}
