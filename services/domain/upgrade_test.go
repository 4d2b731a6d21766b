package domain

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/lockstep-cd/lockstep/pkg/bus"
	"github.com/lockstep-cd/lockstep/pkg/event"
	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/freeze"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/policy"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/rollout"
)

// asEarlierRelease has the service write as one that does not say which controls it knows, until the returned function is called.
func (f *fixture) asEarlierRelease() (end func()) {
	f.t.Helper()
	_, err := f.pool.Exec(f.t.Context(), `
		CREATE FUNCTION a_earlier() RETURNS trigger LANGUAGE plpgsql AS $$
			BEGIN PERFORM set_config('lockstep.controls', '', true); RETURN NEW; END $$;
		CREATE TRIGGER a_earlier BEFORE INSERT ON cd_rollouts FOR EACH ROW EXECUTE FUNCTION a_earlier();
		CREATE TRIGGER a_earlier BEFORE INSERT ON cd_rollout_transitions FOR EACH ROW EXECUTE FUNCTION a_earlier()`)
	f.ok(err)
	return func() {
		f.t.Helper()
		_, err := f.pool.Exec(f.t.Context(), `DROP FUNCTION a_earlier() CASCADE`)
		f.ok(err)
	}
}

// D46: during a rolling upgrade, a replica of an earlier release opens no passage whose conditions it does not know. The request comes
// again, and a replica of the present release grants it.
func TestAReplicaOfAnEarlierReleaseOpensNoPassage(t *testing.T) {
	t.Parallel()
	s := guarded(t)
	s.asking("", "", "")
	r := s.rollout(s.set)
	end := s.asEarlierRelease()
	request := s.emit(event.RolloutPassageRequested{RolloutID: r.ID, GateID: "staging"}, "")
	err := s.on.Domain(t.Context(), []bus.Delivery{{Event: request, Attempt: 1}})[0]
	if !fault.Is(err, fault.Unavailable) || !strings.Contains(err.Error(), "the conditions that the rollout has pinned") {
		t.Errorf("an earlier release grants a passage: %v", err)
	}
	s.want(s.granted(), []string{})
	end()
	s.deliver(request)
	s.enter(r, "release")
	end = s.asEarlierRelease()
	if err := s.approve(person(2), r, "release"); !fault.Is(err, fault.Unavailable) {
		t.Errorf("an approval that an earlier release would open a passage with: %v", err)
	}
	end()
	s.ok(s.approve(person(2), r, "release"))
	s.want(s.granted(), []string{"staging", "release"})
	s.verifyJournal(r)
}

// D46: and it begins no rollout where there are controls that it could not pin; elsewhere it does, as before.
func TestAReplicaOfAnEarlierReleaseBeginsNothingUnderControlsThatItDoesNotKnow(t *testing.T) {
	t.Parallel()
	w := frozen(t)
	begin := func() (core.Rollout, error) {
		r, err := w.rollouts.CreateRollout(t.Context(), user(), rollout.NewRollout{VersionSetID: w.set.ID, Reason: "test"})
		if err != nil {
			return core.Rollout{}, err
		}
		return *r.Rollout, nil
	}
	refused := func(control string) {
		t.Helper()
		end := w.asEarlierRelease()
		defer end()
		if _, err := begin(); !fault.Is(err, fault.Unavailable) || !strings.Contains(err.Error(), "found "+control) {
			t.Errorf("a rollout by an earlier release: %v, expected it refused for %s", err, control)
		}
	}
	_, err := w.setup.SetEnvironmentChecks(t.Context(), user(), w.production.ID, json.RawMessage(`{"proposed":[{"key":"load-test"}]}`))
	w.ok(err)
	refused("checks of environments")
	w.put(policy.NewPolicySet{Text: allowed})
	refused("policies")
	w.put(policy.NewPolicySet{Text: allowed, Mode: core.PolicyOff})
	_, err = w.setup.SetEnvironmentChecks(t.Context(), user(), w.production.ID, json.RawMessage(`{}`))
	w.ok(err)
	f := w.freeze(freeze.NewFreeze{})
	refused("freezes")
	_, err = w.freezes.EndFreeze(t.Context(), user(), f.ID, "over")
	w.ok(err)
	end := w.asEarlierRelease()
	defer end()
	_, err = begin()
	w.ok(err)
}

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

// D46: what a replica of an earlier release has let through without a check of the environment, before they were kept from that, is found.
func TestTheJournalCheckFindsPassagesWithoutTheirChecks(t *testing.T) {
	t.Parallel()
	w := frozen(t)
	_, err := w.setup.SetEnvironmentChecks(t.Context(), user(), w.production.ID, json.RawMessage(`{"proposed":[{"key":"load-test"}]}`))
	w.ok(err)
	r := w.rollout(w.set)
	w.enter(r, "staging", "production")
	w.want(w.granted(), []string{"staging"})
	w.verifyJournal(r)
	_, err = w.pool.Exec(t.Context(), `DO $$ BEGIN
		PERFORM set_config('lockstep.controls', '1', true);
		INSERT INTO cd_rollout_transitions (organization_id, rollout_id, from_state, to_state, event, gate_id, principal_type)
			SELECT organization_id, rollout_id, from_state, to_state, 'pass_gate', gate_id, 'system' FROM cd_rollout_transitions
			WHERE event = 'request_passage' AND gate_id = 'production'; END $$`)
	w.ok(err)
	check, err := w.rollouts.CheckJournal(t.Context(), user(), core.Page{First: 50})
	w.ok(err)
	found := ""
	for _, d := range check.Differences {
		found += d.Problem + "\n"
	}
	if !strings.Contains(found, `found passage "production" granted without check "load-test", which guards it`) {
		t.Errorf("found %q", found)
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
	exec(`INSERT INTO cd_publications (organization_id, artifact_source_id, version_id, tag, published_at, announced_at)
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
		{`{"image":"registry.test/shop/api","selection":"mutable_tag","tag":"stable"}`, "2"}, // nothing was published yet: it stays
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

// D51: during a rolling upgrade, a replica that does not know groups of applications, and takes their policies for those of the organization,
// begins no rollout and reports no version of such a set.
func TestAReplicaThatDoesNotKnowGroupsLeavesTheirPoliciesAlone(t *testing.T) {
	t.Parallel()
	w := frozen(t)
	w.put(policy.NewPolicySet{Name: "critical", Labels: map[string]string{"tier": "critical"}, Text: allowed})
	_, err := w.pool.Exec(t.Context(), `
		CREATE FUNCTION a_earlier() RETURNS trigger LANGUAGE plpgsql AS $$
			BEGIN PERFORM set_config('lockstep.controls', '2', true); RETURN NEW; END $$;
		CREATE TRIGGER a_earlier BEFORE INSERT ON cd_rollouts FOR EACH ROW EXECUTE FUNCTION a_earlier();
		CREATE TRIGGER a_earlier BEFORE INSERT ON cd_policy_versions FOR EACH ROW EXECUTE FUNCTION a_earlier()`)
	w.ok(err)
	_, err = w.rollouts.CreateRollout(t.Context(), user(), rollout.NewRollout{VersionSetID: w.set.ID})
	if !fault.Is(err, fault.Unavailable) || !strings.Contains(err.Error(), "policies of groups of applications") {
		t.Errorf("an earlier release begins a rollout: %v", err)
	}
	put := func() error {
		_, err := w.policies.PutPolicySet(t.Context(), user(), policy.NewPolicySet{Name: "critical", Mode: core.PolicyOff, Reason: "a test"})
		return err
	}
	if err := put(); !fault.Is(err, fault.Unavailable) || !strings.Contains(err.Error(), "the applications of a policy set") {
		t.Errorf("an earlier release reports a version of the set: %v", err)
	}
	_, err = w.pool.Exec(t.Context(), `DROP TRIGGER a_earlier ON cd_policy_versions`)
	w.ok(err)
	w.ok(put())
	w.rollout(w.set) // no policy of a group is in force
}
