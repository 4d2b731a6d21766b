package domain

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/lockstep-cd/lockstep/pkg/bus"
	"github.com/lockstep-cd/lockstep/pkg/event"
	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/rollout"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/setup"
)

// beforeFleets has the service write as a release that knows every control but fleets, until the returned function is called.
func (f *fleets) beforeFleets() (end func()) {
	f.t.Helper()
	_, err := f.pool.Exec(f.t.Context(), `
		CREATE FUNCTION a_earlier() RETURNS trigger LANGUAGE plpgsql AS $$
			BEGIN PERFORM set_config('lockstep.controls', '1', true); RETURN NEW; END $$;
		CREATE TRIGGER a_earlier BEFORE INSERT ON cd_rollouts FOR EACH ROW EXECUTE FUNCTION a_earlier();
		CREATE TRIGGER a_earlier BEFORE INSERT ON cd_environment_driver_bindings FOR EACH ROW EXECUTE FUNCTION a_earlier();
		CREATE TRIGGER a_earlier BEFORE INSERT ON cd_rollout_transitions FOR EACH ROW EXECUTE FUNCTION a_earlier()`)
	f.ok(err)
	return func() {
		f.t.Helper()
		_, err := f.pool.Exec(f.t.Context(), `DROP FUNCTION a_earlier() CASCADE`)
		f.ok(err)
	}
}

// D61: during a rolling upgrade, a replica that does not know fleets begins no rollout to one, lets none of its waves pass, and takes no
// fleet away with a new binding. A replica of the present release does it afterwards.
func TestAReplicaThatDoesNotKnowFleetsLeavesThemAlone(t *testing.T) {
	t.Parallel()
	f := newFleets(t, twoWaves)
	refused := func(what string, err error) {
		t.Helper()
		if !fault.Is(err, fault.Unavailable) || !strings.Contains(err.Error(), "does not know all controls") ||
			!strings.Contains(err.Error(), what) {
			t.Errorf("found %v; expected it refused for %s", err, what)
		}
	}
	end := f.beforeFleets()
	_, err := f.rollouts.CreateRollout(t.Context(), user(), rollout.NewRollout{VersionSetID: f.set.ID})
	refused("the fleet of an environment", err)
	_, err = f.setup.UpdateEnvironment(t.Context(), user(), setup.ChangedEnvironment{ID: f.edge.ID, Fleet: json.RawMessage(`{}`)})
	refused("the fleet of an environment", err)
	end()
	r := f.enters()
	end = f.beforeFleets()
	request := f.emit(event.RolloutPassageRequested{RolloutID: r.ID, GateID: "edge/wave-1", EnvironmentID: f.edge.ID}, "")
	refused("the waves of a fleet", f.on.Domain(t.Context(), []bus.Delivery{{Event: request, Attempt: 1}})[0])
	f.want(f.waves(r), []string{"1: 0+0/2 #0", "2: 0+0/3 #0"})
	end()
	f.deliver(request)
	f.want(f.waves(r), []string{"1: 0+0/2 #1", "2: 0+0/3 #0"})
	f.verifyJournal(r)
}

// D61, D46: which clusters a fleet has is announced with its environment, and again when labels or agents change it.
func TestTheTargetsOfAFleetAreAnnounced(t *testing.T) {
	t.Parallel()
	f := newFleets(t, twoWaves)
	want := func(agents ...int64) {
		t.Helper()
		got := f.announced()["edge"]
		if got.Fleet == nil {
			t.Fatalf("found %+v without a fleet", got)
		}
		f.want(got.Fleet.AgentIDs, []int64{f.agents[5]})
		f.want(got.Fleet.TargetIDs, agents)
	}
	want(f.agents[:5]...)
	_, err := f.access.SetAgentLabels(t.Context(), user(), f.agents[5], map[string]string{"region": "eu"})
	f.ok(err)
	want(f.agents...)
	before := f.announced()["edge"].Sequence
	_, err = f.access.SetAgentLabels(t.Context(), user(), f.agents[5], map[string]string{"region": "eu", "ring": "1"}) // the same targets
	f.ok(err)
	f.want(f.announced()["edge"].Sequence, before)
	_, err = f.access.SetAgentLabels(t.Context(), user(), f.agents[5], nil, "region", "ring")
	f.ok(err)
	_, err = f.access.RevokeAgent(t.Context(), user(), f.agents[0])
	f.ok(err)
	want(f.agents[1:5]...)
	_, err = f.setup.UpdateEnvironment(t.Context(), user(), setup.ChangedEnvironment{ID: f.edge.ID, Fleet: json.RawMessage(`{}`)})
	f.ok(err)
	if got := f.announced()["edge"]; got.Fleet != nil {
		t.Errorf("found %+v after the fleet has ended", got.Fleet)
	}
}

// D61, D46: a rollout to a fleet does not go to the cluster of a target where another application of a protected environment has its place.
func TestARolloutToAFleetLeavesOthersPlacesAlone(t *testing.T) {
	t.Parallel()
	for name, tier := range map[string]core.Tier{"protected": core.TierProduction, "open": core.TierQA} {
		f := newFleets(t, twoWaves)
		_, err := f.setup.CreateEnvironment(t.Context(), user(), setup.NewEnvironment{
			Name: "store", Tier: tier, DriverRef: "kubernetes@1", DriverConfig: json.RawMessage(`{"cluster_agent_id":` + itoa(f.agents[2]) + `}`),
		})
		f.ok(err)
		other, err := f.setup.CreateApplication(t.Context(), user(), setup.NewApplication{Name: "till", Services: []setup.NewService{{
			Name: "till", ArtifactSources: []setup.NewArtifactSource{{Ref: "oci-image@1", Config: []byte(`{"image":"registry.test/till"}`)}},
		}}})
		f.ok(err)
		_, err = f.setup.CreateFlowDefinition(t.Context(), user(), setup.NewFlowDefinition{
			ApplicationID: other.ID, Definition: json.RawMessage(`{"steps":[{"type":"deploy","environment":"store","config":{
				"repository_url":"https://git.test/till","files":["all.yaml"],"namespace":"shop","services":[{"service":"till","container":"till"}]}}]}`),
		})
		f.ok(err)
		_, err = f.rollouts.CreateRollout(t.Context(), user(), rollout.NewRollout{VersionSetID: f.set.ID})
		if name == "open" {
			f.ok(err)
			continue
		}
		if !fault.Is(err, fault.Refused) ||
			!strings.Contains(err.Error(), `target "c3" of environment "edge": namespace shop belongs to application_`) {
			t.Errorf("found %v; expected target c3 refused", err)
		}
		_, err = f.setup.SetDirectChanges(t.Context(), user(), f.named("store"), true, "shared")
		f.ok(err)
		_, err = f.rollouts.CreateRollout(t.Context(), user(), rollout.NewRollout{VersionSetID: f.set.ID})
		f.ok(err)
	}
}

// named is the number of an environment.
func (f *fleets) named(name string) (environment int64) {
	f.t.Helper()
	f.ok(f.pool.QueryRow(f.t.Context(), `SELECT id FROM cd_environments WHERE name = $1`, name).Scan(&environment))
	return environment
}
