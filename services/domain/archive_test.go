package domain

import (
	"testing"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/event"
	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/rollout"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/setup"
)

func TestWhatIsArchivedIsOutOfUseAndStaysReadable(t *testing.T) { // R51
	t.Parallel()
	s := newShop(t)
	r := s.rollout(s.set)
	_, err := s.setup.ArchiveApplication(t.Context(), user(), s.application.ID, "")
	s.refused(err, `has an active rollout: rollout_1 is pending; cancel it first`)
	_, err = s.setup.ArchiveEnvironment(t.Context(), user(), s.staging.ID, "")
	s.refused(err, `rollout_1, which is pending, goes to environment "staging"`)
	s.succeed(r)
	s.handOver()
	started, cancelled := len(s.engine.started), len(s.engine.cancels)

	_, err = s.setup.ArchiveEnvironment(t.Context(), user(), s.staging.ID, "")
	s.ok(err)
	_, err = s.rollouts.CreateRollout(t.Context(), user(), rollout.NewRollout{VersionSetID: s.set.ID})
	s.refused(err, "cannot be driven as it is")
	_, err = s.setup.RetryOnboarding(t.Context(), user(), s.staging.ID)
	s.refused(err, `environment "staging" was archived`)
	for range 2 { // idempotent
		_, err = s.setup.ArchiveApplication(t.Context(), user(), s.application.ID, "nobody buys here")
		s.ok(err)
	}
	_, err = s.rollouts.CreateRollout(t.Context(), user(), rollout.NewRollout{VersionSetID: s.set.ID})
	s.refused(err, `application "shop" was archived`)
	s.publish(s.artifact("registry.test/shop/api", "9", 900, time.Unix(1_800_000_000, 0)))
	s.want(len(s.sets()), 1)
	s.handOver()
	s.want([]int{len(s.engine.started), len(s.engine.cancels)}, []int{started, cancelled})

	found, err := s.view.ApplicationByName(t.Context(), org, "shop")
	s.ok(err)
	if found.ArchivedAt == nil || len(s.story(r)) == 0 {
		t.Errorf("no longer readable: %+v", found)
	}
	if found := s.checked(); len(found) > 0 {
		t.Errorf("the journal differs: %v", found)
	}
}

func TestWhatIsRestoredIsInUseAgain(t *testing.T) { // R39, R51
	t.Parallel()
	s := newShop(t)
	s.succeed(s.rollout(s.set))
	s.handOver()
	_, err := s.setup.ArchiveEnvironment(t.Context(), user(), s.staging.ID, "moved")
	s.ok(err)
	_, err = s.setup.ArchiveApplication(t.Context(), user(), s.application.ID, "closed")
	s.ok(err)
	// Names of archived things stay taken, so restoring one never collides with a newer one.
	_, err = s.setup.CreateApplication(t.Context(), user(),
		setup.NewApplication{Name: "shop", Services: []setup.NewService{{Name: "api", ArtifactSources: []setup.NewArtifactSource{
			{Ref: "oci-image@1", Config: []byte(`{"image":"registry.test/shop/other"}`)},
		}}}})
	if !fault.Is(err, fault.Conflict) {
		t.Errorf("a second application of an archived one's name: %v; expected a conflict", err)
	}
	started := len(s.engine.started)
	for range 2 { // idempotent
		restored, err := s.setup.RestoreApplication(t.Context(), user(), s.application.ID, "open again")
		s.ok(err)
		if restored.ArchivedAt != nil {
			t.Errorf("restored, and still archived at %s", restored.ArchivedAt)
		}
		environment, err := s.setup.RestoreEnvironment(t.Context(), user(), s.staging.ID, "moved back")
		s.ok(err)
		s.want(environment.Readiness, core.ReadinessPending)
	}
	s.handOver()
	s.want(len(s.engine.started), started+1) // onboarded, once
	_, err = s.rollouts.CreateRollout(t.Context(), user(), rollout.NewRollout{VersionSetID: s.set.ID})
	s.refused(err, "staging")
	s.report(event.EnvironmentReady{EnvironmentID: s.staging.ID})
	s.succeed(s.rollout(s.set))

	type word struct {
		Archived bool
		Reason   string
	}
	words := func(all []core.Archiving) (found []word) {
		for _, one := range all {
			found = append(found, word{one.Archived, one.Reason})
			s.want(one.Principal.ID, user().ID)
		}
		return found
	}
	ofApplication, err := s.view.ArchivingsByApplication(t.Context(), org, []int64{s.application.ID})
	s.ok(err)
	s.want(words(ofApplication[s.application.ID]), []word{{false, "open again"}, {true, "closed"}})
	ofEnvironment, err := s.view.ArchivingsByEnvironment(t.Context(), org, []int64{s.staging.ID})
	s.ok(err)
	s.want(words(ofEnvironment[s.staging.ID]), []word{{false, "moved back"}, {true, "moved"}})
}

func TestAnEnvironmentThatThePipelineLeavesIsNotListedAnyMore(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.succeed(s.rollout(s.set))
	pipe := func(environments ...string) {
		t.Helper()
		_, err := s.setup.CreateFlowDefinition(t.Context(), user(),
			setup.NewFlowDefinition{ApplicationID: s.application.ID, Definition: pipeline(environments...)})
		s.ok(err)
	}
	listed := func() int {
		t.Helper()
		found, err := s.view.ApplicationEnvironmentsByApplication(t.Context(), org, []int64{s.application.ID})
		s.ok(err)
		return len(found[s.application.ID])
	}
	pipe("staging")
	s.want(listed(), 1)
	pipe("staging", "production")
	s.want(listed(), 2)
	s.report(event.EnvironmentReady{EnvironmentID: s.production.ID})
}
