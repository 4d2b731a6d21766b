package events

import (
	"fmt"
	"slices"

	"github.com/lockstep-cd/lockstep/pkg/event"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/activity"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/guard"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/history"
)

// changeOf is the report in an event that decides what runs may change; false for any other event. Only what the domain service reports
// decides: that is checked here once more, because everything else depends on it.
func changeOf(wire event.Event, e history.Event) (c guard.Change, decides bool, err error) {
	c = guard.Change{Organization: e.Organization, At: e.Time}
	if wire.Source() != event.SourceDomain {
		return c, false, nil
	}
	var rollout int64
	switch e.Type {
	case event.TypeRolloutPassageGranted:
		data, err := event.Decode[event.RolloutPassageGranted](wire)
		if err != nil || data.EnvironmentID == 0 { // it opens no environment
			return c, false, err
		}
		rollout = data.RolloutID
		c.Granted = &guard.Passage{
			Environment: data.EnvironmentID, Weight: data.Weight, Wave: data.Wave, Places: placesOf(data.Places),
			Pinned: data.PinnedWeights, Application: data.ApplicationID, At: e.Time,
		}
	case event.TypeRolloutAbortRequested:
		data, err := event.Decode[event.RolloutAbortRequested](wire)
		if err != nil {
			return c, false, err
		}
		rollout, c.Aborted = data.RolloutID, true
	case event.TypeRolloutRetryRequested:
		data, err := event.Decode[event.RolloutRetryRequested](wire)
		if err != nil {
			return c, false, err
		}
		rollout, c.Retried = data.RolloutID, true
	case event.TypeRolloutPassagesRevoked:
		data, err := event.Decode[event.RolloutPassagesRevoked](wire)
		if err != nil {
			return c, false, err
		}
		rollout, c.Revoked, c.Cancelled, c.Left = data.RolloutID, true, data.Cancelled, data.EnvironmentIDs
	case event.TypeEnvironmentPlacesChanged:
		data, err := event.Decode[event.EnvironmentPlacesChanged](wire)
		c.Territory = &guard.Territory{
			Environment: data.EnvironmentID, Application: data.ApplicationID, Name: data.Name, Sequence: data.Sequence,
			Protected: data.Protected, Archived: data.Archived, Places: placesOf(data.Places),
		}
		if f := data.Fleet; f != nil {
			c.Territory.Fleet = &guard.Fleet{Agents: f.AgentIDs, Targets: slices.Sorted(slices.Values(f.TargetIDs))}
		}
		return c, true, err
	default:
		return c, false, nil
	}
	c.Workflow = fmt.Sprintf("rollout-%d", rollout)
	return c, true, nil
}

func placesOf(all []event.Place) []activity.Place {
	var places []activity.Place
	for _, p := range all {
		places = append(places, activity.Place{
			Agent: p.AgentID, Application: p.Application, Namespace: p.Namespace, Name: p.Name, Repository: p.Repository,
			Branch: p.Branch, Path: p.Path, URL: p.URL,
		})
	}
	return places
}
