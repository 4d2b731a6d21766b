package domain

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/lockstep-cd/lockstep/pkg/event"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
)

// D53, D55: what a deployment is outside of Lockstep is shown before its passage is granted, and claims nothing. The last report counts,
// also one that comes after the end of the rollout.
func TestADeploymentShowsWhatItIsOutside(t *testing.T) {
	t.Parallel()
	s := guarded(t)
	s.asking("", "", "")
	r := s.rollout(s.set)
	s.handOver()
	d := s.deployments(s.stops(r)[0])[0]
	const page = "https://git.example.com/shop/deploy/pulls/17"
	for _, status := range []string{"open", "merged by ann before the passage was granted"} {
		s.report(event.DeploymentSubmitted{DeploymentID: d.ID, Name: "#17", URL: page, Status: status})
		found, err := s.view.LinksByDeployment(t.Context(), org, []int64{d.ID})
		s.ok(err)
		want := core.DeploymentLink{DeploymentID: d.ID, Name: "#17", URL: page, Status: status}
		if diff := cmp.Diff(want, found[d.ID]); diff != "" {
			t.Errorf("link (-want +got):\n%s", diff)
		}
	}
	if got := s.reload(r); got.State.Terminal() {
		t.Errorf("found %s, expected that the rollout continues", got.State)
	}
	if n, err := s.store.Breaches(t.Context()); err != nil || n != 0 {
		t.Errorf("counted %d breaches, %v", n, err)
	}
	s.report(event.RolloutFailed{RolloutID: r.ID, Reason: "rejected"})
	s.report(event.DeploymentSubmitted{DeploymentID: d.ID, Name: "#17", URL: page, Status: "closed"})
	found, err := s.view.LinksByDeployment(t.Context(), org, []int64{d.ID})
	s.ok(err)
	s.want(found[d.ID].Status, "closed")
}
