package domain

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/lockstep-cd/lockstep/pkg/event"
	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/rollout"
)

// preview asks what a rollout of the shop's set would change.
func (s *shop) preview(n rollout.NewPreview) core.Preview {
	s.t.Helper()
	p, err := s.rollouts.PreviewRollout(s.t.Context(), user(), n)
	s.ok(err)
	return p
}

// previewed is a preview as it is read.
func (s *shop) previewed(id int64) core.Preview {
	s.t.Helper()
	found, err := s.view.PreviewsByID(s.t.Context(), org, []int64{id})
	s.ok(err)
	return found[id]
}

func TestAPreviewShowsWhatARolloutWouldChange(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	p := s.preview(rollout.NewPreview{VersionSetID: s.set.ID})
	s.handOver()
	ids := s.ids()
	if id := ids[len(ids)-1]; p.State != core.PreviewPending || id != "preview-"+itoa(p.ID) {
		t.Fatalf("preview %+v was handed over as %s", p, id)
	}
	change := event.FileChange{Path: "staging/api.yaml", Diff: "@@ -1 +1 @@\n-a\n+b\n", Truncated: true}
	previewed := event.RolloutPreviewed{PreviewID: p.ID, Environments: []event.PreviewedEnvironment{
		{EnvironmentID: 1, Changes: []event.FileChange{change}}, {EnvironmentID: 2, Changes: []event.FileChange{}, Reason: "no such file"},
	}}
	// The engine reports the end of the run first, and once more at the end: the program's result stays.
	s.report(event.WorkflowCompleted{WorkflowID: "preview-" + itoa(p.ID)})
	if got := s.previewed(p.ID); got.State != core.PreviewFailed || got.Reason != "the workflow ended without saying how it went" {
		t.Errorf("found %+v before the program's result", got)
	}
	s.report(previewed)
	s.report(event.WorkflowFailed{WorkflowID: "preview-" + itoa(p.ID), Error: "late"})
	got := s.previewed(p.ID)
	want := core.Preview{
		ID: p.ID, ApplicationID: p.ApplicationID, VersionSetID: s.set.ID, State: core.PreviewMade, RequestedAt: got.RequestedAt,
		Environments: []core.PreviewedEnvironment{
			{EnvironmentID: 1, Changes: []core.FileChange{core.FileChange(change)}},
			{EnvironmentID: 2, Changes: []core.FileChange{}, Reason: "no such file"},
		},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("preview (-want +got):\n%s", diff)
	}
}

// TestAPreviewIsAskedOfTheSameProgramAsTheRollout: what is handed over has the services and versions of the rollout, and nothing is
// made by asking.
func TestAPreviewIsAskedOfTheSameProgramAsTheRollout(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.rollout(s.set)
	s.preview(rollout.NewPreview{VersionSetID: s.set.ID}) // also while another rollout is under way
	s.handOver()
	type environments struct {
		Rollout struct {
			ID           int64
			Environments []struct {
				ID          int64
				Gates       json.RawMessage
				Deployments []struct {
					Service  json.RawMessage
					Versions json.RawMessage
				}
			}
		}
	}
	read := map[string]environments{}
	for _, w := range s.engine.started {
		var in environments
		s.ok(json.Unmarshal(w.Inputs, &in))
		read[w.ID] = in
	}
	rollout, preview := read["rollout-1"], read["preview-1"]
	if preview.Rollout.ID != 0 {
		t.Errorf("found a rollout with the number %d, which nobody has made", preview.Rollout.ID)
	}
	// There are no deployments yet, so a preview has none of their numbers.
	rollout.Rollout.ID = 0
	if diff := cmp.Diff(rollout, preview); diff != "" || len(preview.Rollout.Environments) == 0 {
		t.Errorf("rollout, and its preview (-rollout +preview):\n%s", diff)
	}
}

// R2-35: a preview is given with what each service was deployed that is live, so that a driver whose desired state is in no repository can
// compare with it. What was deployed since, and is not live, is not; and what is too large is left out.
func TestAPreviewIsGivenWhatIsLive(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	deploys := func(r core.Rollout, parameters func(core.Deployment) string) {
		for _, stop := range s.stops(r) {
			for _, d := range s.deployments(stop) {
				s.report(event.DeploymentStarted{DeploymentID: d.ID})
				s.report(event.DeploymentCommitted{DeploymentID: d.ID, ManifestDigest: digestOf(int(d.ID)), Parameters: json.RawMessage(parameters(d))})
			}
		}
	}
	type last struct {
		Deployment int64  `json:"deployment_id"`
		Rollout    int64  `json:"rollout_id"`
		Digest     string `json:"manifest_digest"`
		Parameters json.RawMessage
	}
	given := func() map[int64]map[int64]*last {
		s.preview(rollout.NewPreview{VersionSetID: s.set.ID})
		s.handOver()
		var in struct {
			Rollout struct {
				Environments []struct {
					ID          int64
					Deployments []struct {
						ID   int64
						Last *last
					}
				}
			}
		}
		s.ok(json.Unmarshal(s.engine.started[len(s.engine.started)-1].Inputs, &in))
		all := map[int64]map[int64]*last{}
		for _, e := range in.Rollout.Environments {
			all[e.ID] = map[int64]*last{}
			for _, d := range e.Deployments {
				all[e.ID][d.ID] = d.Last
			}
		}
		return all
	}
	for environment, services := range given() {
		for service, found := range services {
			if found != nil {
				t.Errorf("environment %d, service %d: %+v before anything was deployed", environment, service, found)
			}
		}
	}
	live := s.rollout(s.set)
	deploys(live, func(d core.Deployment) string { return fmt.Sprintf(`{"workflow":{"of":%d}}`, d.ID) })
	s.succeed(live)
	failed := s.rollout(s.set)
	deploys(failed, func(core.Deployment) string { return `{"workflow":{"of":"what failed"}}` })
	check := func(parameters func(core.Deployment) string) {
		t.Helper()
		found := given()
		for _, stop := range s.stops(live) {
			for _, d := range s.deployments(stop) {
				got := found[stop.EnvironmentID][d.ServiceID]
				if got == nil || got.Deployment != d.ID || got.Rollout != live.ID || got.Digest != digestOf(int(d.ID)) ||
					strings.ReplaceAll(string(got.Parameters), " ", "") != parameters(d) {
					t.Errorf("environment %d, service %d: found %+v, expected the snapshot of deployment %d", stop.EnvironmentID, d.ServiceID, got, d.ID)
				}
			}
		}
	}
	check(func(d core.Deployment) string { return fmt.Sprintf(`{"workflow":{"of":%d}}`, d.ID) })
	s.cancelled(failed)
	live = s.rollout(s.set)
	deploys(live, func(core.Deployment) string { return `{"workflow":"` + strings.Repeat("x", 3<<20) + `"}` })
	s.succeed(live)
	check(func(core.Deployment) string { return "" })
}

func TestPreviewsAreRefusedAsTheRolloutWouldBe(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.application("shop", "api")
	if _, err := f.rollouts.PreviewRollout(t.Context(), user(), rollout.NewPreview{VersionSetID: 7}); !fault.Is(err, fault.NotFound) {
		t.Errorf("a set that nobody has: %v", err)
	}
	viewer := user()
	viewer.Permissions = core.RoleViewer.Permissions()
	if _, err := f.rollouts.PreviewRollout(t.Context(), viewer, rollout.NewPreview{VersionSetID: 7}); !fault.Is(err, fault.Denied) {
		t.Errorf("a member who may not roll out: %v", err)
	}
}

// TestASnapshotKeepsWhatTheCommitChanged: issue 7, "and afterwards".
func TestASnapshotKeepsWhatTheCommitChanged(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	r := s.rollout(s.set)
	d := s.deployments(s.stops(r)[0])[0]
	change := event.FileChange{Path: "staging/api.yaml", Diff: "@@ -1 +1 @@\n-a\n+b\n"}
	s.report(event.DeploymentCommitted{
		DeploymentID: d.ID, CommitSHA: digestOf(1)[7:47], ManifestDigest: digestOf(2),
		Changes: []event.FileChange{change},
	})
	found, err := s.view.SnapshotsByDeployment(t.Context(), org, []int64{d.ID})
	s.ok(err)
	if diff := cmp.Diff([]core.FileChange{core.FileChange(change)}, found[d.ID].Changes); diff != "" {
		t.Errorf("changes (-want +got):\n%s", diff)
	}
}

// TestPreviewsAreForgottenAfterAWeek: the table does not grow for ever, and another organization's are not touched.
func TestPreviewsAreForgottenAfterAWeek(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	old, recent := s.preview(rollout.NewPreview{VersionSetID: s.set.ID}), s.preview(rollout.NewPreview{VersionSetID: s.set.ID})
	s.aged(old.ID, "8 days")
	s.aged(recent.ID, "6 days")
	made := s.preview(rollout.NewPreview{VersionSetID: s.set.ID})
	for id, want := range map[int64]bool{old.ID: false, recent.ID: true, made.ID: true} {
		if got := s.previewed(id).ID != 0; got != want {
			t.Errorf("preview %d exists: %t, want %t", id, got, want)
		}
	}
	// A report about a deleted preview changes nothing.
	s.report(event.WorkflowFailed{WorkflowID: "preview-" + itoa(old.ID), Error: "late"})
	if got := s.previewed(old.ID); got.ID != 0 {
		t.Errorf("a late word brought back %+v", got)
	}
}

// aged makes a preview as old as an interval.
func (s *shop) aged(id int64, interval string) {
	s.t.Helper()
	for _, sql := range []string{
		"ALTER TABLE cd_rollout_previews DISABLE TRIGGER USER",
		fmt.Sprintf("UPDATE cd_rollout_previews SET created_at = now() - interval '%s' WHERE id = %d", interval, id),
		"ALTER TABLE cd_rollout_previews ENABLE TRIGGER USER",
	} {
		_, err := s.pool.Exec(s.t.Context(), sql)
		s.ok(err)
	}
}
