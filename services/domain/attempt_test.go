package domain

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/lockstep-cd/lockstep/pkg/bus"
	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/pkg/event"
	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
	"github.com/lockstep-cd/lockstep/services/domain/internal/events"
	"github.com/lockstep-cd/lockstep/services/domain/internal/store/query"
)

// nthCommit is the commit of the nth attempt.
func nthCommit(n int) string { return fmt.Sprintf("%040x", n+1) }

// attempt is the event that a deployment has committed the nth desired state, emitted at a second of a minute.
func (s *shop) attempt(deployment int64, n, second int) event.Event {
	s.t.Helper()
	e := s.emit(event.DeploymentCommitted{DeploymentID: deployment, CommitSHA: nthCommit(n), ManifestDigest: digestOf(n)}, "")
	e.SetTime(time.Date(2026, 3, 1, 12, 0, second, 0, time.UTC))
	return e
}

// attempts are the commits of a deployment, that of the latest attempt last.
func (s *shop) attempts(deployment int64) string {
	s.t.Helper()
	found, err := s.view.SnapshotsByDeployment(s.t.Context(), org, []int64{deployment})
	s.ok(err)
	before, err := s.view.AttemptsByDeployment(s.t.Context(), org, []int64{deployment})
	s.ok(err)
	var all []string
	for _, one := range append(before[deployment], found[deployment]) {
		for n := range 250 {
			if one.CommitSHA == nthCommit(n) {
				all = append(all, strconv.Itoa(n))
			}
		}
	}
	return strings.Join(all, " ")
}

// D53: every attempt of a deployment is kept. The one that was reported last is what is deployed: the events of a run arrive in their
// order, and the clocks of those that emitted them say nothing.
func TestEveryAttemptHasASnapshot(t *testing.T) {
	t.Parallel()
	type report struct{ n, second int }
	tests := map[string]struct {
		reports []report
		want    string
	}{
		"one after the other":            {[]report{{1, 1}, {2, 2}, {3, 3}}, "1 2 3"},
		"by a clock that goes back":      {[]report{{1, 9}, {2, 1}, {3, 5}}, "1 2 3"},
		"the latest again":               {[]report{{1, 1}, {2, 2}, {2, 2}, {2, 3}}, "1 2"},
		"as once before":                 {[]report{{1, 1}, {2, 2}, {1, 3}}, "2 1"},
		"at one time":                    {[]report{{1, 1}, {2, 1}}, "1 2"},
		"the first again, by old clocks": {[]report{{1, 3}, {2, 1}, {1, 2}}, "2 1"},
	}
	s := newShop(t)
	n := 1
	for name, test := range tests {
		n++
		r := s.rollout(s.release(n))
		d := s.deployments(s.stops(r)[0])[0]
		for _, one := range test.reports {
			s.deliver(s.attempt(d.ID, one.n, one.second))
		}
		if got := s.attempts(d.ID); got != test.want {
			t.Errorf("%s: found the attempts %q; want %q", name, got, test.want)
		}
		_, err := s.rollouts.CancelRollout(t.Context(), user(), r.ID, "enough")
		s.ok(err)
	}
}

// D53, D61: the targets of a fleet report one attempt, each with parameters of its own, most without the change: it is kept as the first
// has reported it. Without a commit, other parameters are another attempt.
func TestTheTargetsOfAFleetReportOneAttempt(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	r := s.rollout(s.set)
	d := s.deployments(s.stops(r)[0])[0]
	latest := func() core.Snapshot {
		found, err := s.view.SnapshotsByDeployment(t.Context(), org, []int64{d.ID})
		s.ok(err)
		return found[d.ID]
	}
	change := event.FileChange{Path: "api.yaml", Diff: "+image: api"}
	for i, changes := range [][]event.FileChange{{change}, {}, nil} {
		s.report(event.DeploymentCommitted{
			DeploymentID: d.ID, CommitSHA: nthCommit(1), ManifestDigest: digestOf(1), Changes: changes,
			Parameters: fmt.Appendf(nil, `{"target":"eu-%d"}`, i),
		})
	}
	if got := latest(); len(got.Changes) != 1 || !strings.Contains(string(got.Parameters), "eu-0") || s.attempts(d.ID) != "1" {
		t.Errorf("found %+v and the attempts %q", got, s.attempts(d.ID))
	}
	for i := range 2 {
		s.report(event.DeploymentCommitted{DeploymentID: d.ID, ManifestDigest: digestOf(2), Parameters: fmt.Appendf(nil, `{"chart":"%d"}`, i)})
	}
	if got := latest(); !strings.Contains(string(got.Parameters), `"1"`) {
		t.Errorf("found %+v, expected the chart that was deployed last", got)
	}
}

// D53: readers find what is deployed by the latest attempt, and know the commits of those before it.
func TestReadersOfSnapshotsFindTheLatestAttempt(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	r := s.rollout(s.set)
	stop := s.stops(r)[0]
	d := s.deployments(stop)[0]
	s.deliver(s.attempt(d.ID, 1, 1))
	s.deliver(s.attempt(d.ID, 2, 2))
	s.succeed(r)
	asked := func(sql string, args ...any) (n int) {
		t.Helper()
		s.ok(s.pool.QueryRow(t.Context(), sql, args...).Scan(&n))
		return n
	}
	s.want(asked(`SELECT count(*) FROM cd_deployment_snapshots WHERE deployment_id = $1 AND commit_sha = $2`, d.ID, nthCommit(2)), 1)
	s.want(asked(`SELECT count(*) FROM cd_deployment_snapshots WHERE commit_sha = $1`, nthCommit(1)), 0)
	// A status of the commit of an earlier attempt is about the version set of the rollout.
	for _, n := range []int{1, 2} {
		sets, err := query.New(s.pool).VersionSetOfCommit(t.Context(), query.VersionSetOfCommitParams{
			OrganizationID: org, CommitSha: nthCommit(n), EnvironmentID: stop.EnvironmentID, ApplicationID: r.ApplicationID,
		})
		s.ok(err)
		s.want(sets, []int64{r.VersionSetID})
	}
	known, err := s.store.KnownCommits(t.Context(), org, []string{nthCommit(1), nthCommit(2), nthCommit(3)})
	s.ok(err)
	if diff := cmp.Diff(map[string]bool{nthCommit(1): true, nthCommit(2): true}, known); diff != "" {
		t.Errorf("commits that the record has (-want +got):\n%s", diff)
	}
}

// D53: what a program reports after the end of a deployment is kept, and changes nothing of what was deployed.
func TestAnAttemptAfterTheEndReplacesNothing(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	ends := map[string]func(r core.Rollout){
		"healthy": s.succeed,
		"cancelled": func(r core.Rollout) {
			_, err := s.rollouts.CancelRollout(t.Context(), user(), r.ID, "enough")
			s.ok(err)
		},
	}
	n := 1
	for name, end := range ends {
		n++
		r := s.rollout(s.release(n))
		d := s.deployments(s.stops(r)[0])[0]
		s.deliver(s.attempt(d.ID, 1, 1), s.attempt(d.ID, 2, 2))
		end(r)
		s.deliver(s.attempt(d.ID, 3, 3))
		if got := s.attempts(d.ID); got != "1 3 2" {
			t.Errorf("%s: found the attempts %q; want 1 and 3, and 2 as deployed", name, got)
		}
	}
}

// D53: a program that does not end fills no table, and nothing that it has deployed is lost: its rollout fails.
func TestAttemptsAreBounded(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	r := s.rollout(s.set)
	d := s.deployments(s.stops(r)[0])[0]
	state := func() (state string) {
		t.Helper()
		s.ok(s.pool.QueryRow(t.Context(), `SELECT state FROM cd_rollouts WHERE id = $1`, r.ID).Scan(&state))
		return state
	}
	for n := range 300 { // targets of a fleet, while a member pushes
		s.deliver(s.attempt(d.ID, n%2, 0))
	}
	s.want(s.attempts(d.ID), "0 1")
	s.want(state(), "pending")
	want := []string{"0", "1"}
	for n := 2; n < 201; n++ {
		s.deliver(s.attempt(d.ID, n, 0))
		want = append(want, strconv.Itoa(n))
	}
	s.want(s.attempts(d.ID), strings.Join(want, " "))
	for n := 199; n < 201; n++ { // what is kept already is no other attempt
		s.deliver(s.attempt(d.ID, n, 0))
	}
	s.want(state(), "pending")
	s.deliver(s.attempt(d.ID, 201, 0))
	s.want(s.attempts(d.ID), strings.Join(append(want, "201"), " "))
	s.want(state(), "failed")
	on := events.New(s.intake, s.rollouts, s.forges, s.chats, s.inbox)
	if err := on.Domain(t.Context(), []bus.Delivery{{Event: s.attempt(d.ID, 202, 0), Attempt: 1}})[0]; !fault.Is(err, fault.Refused) {
		t.Errorf("found %v; want what comes after the end refused", err)
	}
	s.want(s.attempts(d.ID), strings.Join(append(want, "201"), " "))
}

// D53, R4-02: a process that is killed at any statement of a report has kept both attempts, or the first alone.
func TestAProcessThatDiesAtAReportLosesNoAttempt(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	r := s.rollout(s.set)
	d := s.deployments(s.stops(r)[0])[0]
	s.deliver(s.attempt(d.ID, 1, 1))
	second := s.attempt(d.ID, 2, 2)
	mortal, died := s.mortal(clock.System())
	on := events.New(mortal.intake, mortal.rollouts, mortal.forges, mortal.chats, mortal.inbox)
	kills := s.diesAt(died, func() error {
		return on.Domain(t.Context(), []bus.Delivery{{Event: second, Attempt: 1}})[0]
	}, func() {
		if got := s.attempts(d.ID); got != "1" && got != "1 2" {
			t.Fatalf("found the attempts %q; want 1, or 1 2", got)
		}
	})
	if got := s.attempts(d.ID); got != "1 2" || kills < 3 {
		t.Errorf("found the attempts %q after %d deaths; want 1 2 after several", got, kills)
	}
}

// D53: a replica of the release before knows nothing of attempts: it stores the first, as it does alone. What it stores is replaced and
// kept.
func TestAReplicaOfTheReleaseBeforeStoresTheFirstAttempt(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	r := s.rollout(s.set)
	d := s.deployments(s.stops(r)[0])[0]
	before := func(n int) {
		t.Helper()
		tx, err := s.pool.Begin(t.Context())
		s.ok(err)
		_, err = tx.Exec(t.Context(), `SELECT set_config('lockstep.organization', $1, true)`, itoa(org))
		s.ok(err)
		_, err = tx.Exec(t.Context(), `INSERT INTO cd_deployment_snapshots (organization_id, deployment_id, commit_sha, manifest_digest, parameters, changes)
			VALUES ($1, $2, $3, $4, '{}', '[]') ON CONFLICT (organization_id, deployment_id) DO NOTHING`, org, d.ID, nthCommit(n), digestOf(n))
		s.ok(err)
		s.ok(tx.Commit(t.Context()))
	}
	before(1)
	before(1)
	s.want(s.attempts(d.ID), "1")
	before(2)
	s.want(s.attempts(d.ID), "1")
	s.deliver(s.attempt(d.ID, 3, 3)) // long ago
	s.want(s.attempts(d.ID), "1 3")
	before(4)
	s.want(s.attempts(d.ID), "1 3")
	s.deliver(s.attempt(d.ID, 4, 1))
	s.want(s.attempts(d.ID), "1 3 4")
}
