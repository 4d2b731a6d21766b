package notify

import (
	"context"
	"fmt"
	"testing"

	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
)

// manyServices has a rollout that has changed 200 services.
type manyServices struct{ Tx }

func (manyServices) NotifiedArtifacts(_ context.Context, _ int64, most int) (some []Artifact, all int, err error) {
	for i := range most {
		service := fmt.Sprintf("api-%d", i)
		some = append(some, Artifact{EnvironmentID: 1, Environment: "dev", Application: "shop", Service: service, SourceID: int64(i)})
	}
	return some, 200, nil
}

// D62: a message has at most 50 events of CDEvents, and says how many were left out.
func TestEventsThatAreLeftOutAreCounted(t *testing.T) {
	t.Parallel()
	what := content{moments: []core.Notification{{ID: 7, Moment: core.MomentRolloutCompleted, RolloutID: 3}}}
	all, err := New(Deps{}).deliveryEvents(t.Context(), manyServices{}, 1, core.NotificationMessage{LeftOut: 2}, what)
	if err != nil {
		t.Fatal(err)
	}
	if n := all[0].Content["left_out"]; len(all) != maxEvents || n != 200-(maxEvents-1)+2 {
		t.Errorf("found %d events, of which the first says %v were left out; expected %d and %d", len(all), n, maxEvents, 200-(maxEvents-1)+2)
	}
}

// D62: events of artifacts and environments are counted with the rest: what one message cannot say is in its last event.
func TestEventsOfEnvironmentsThatAreLeftOutAreCounted(t *testing.T) {
	t.Parallel()
	u := New(Deps{URL: "https://cd.example.com"})
	for _, one := range []struct{ moments, leftOut, events, counted int }{
		{1, 0, 1, -1}, {50, 0, 50, -1}, {51, 0, 50, 1}, {1, 3, 2, 3}, {49, 3, 50, 3}, {60, 3, 50, 13},
	} {
		var what content
		for i := range one.moments {
			what.moments = append(what.moments, core.Notification{ID: int64(i), Moment: core.MomentEnvironmentChanged, Environment: "a/b"})
		}
		all, err := u.deliveryEvents(t.Context(), nil, 1, core.NotificationMessage{LeftOut: one.leftOut}, what)
		if err != nil {
			t.Fatal(err)
		}
		last, first := all[len(all)-1], all[0]
		counted, is := last.Content["left_out"].(int)
		if !is {
			counted = -1
		}
		if len(all) != one.events || counted != one.counted || first.URL != "https://cd.example.com/environments/a%2Fb" {
			t.Errorf("%d moments and %d left out: found %d events, of which the last counts %d, and %s; want %d and %d", one.moments, one.leftOut,
				len(all), counted, first.URL, one.events, one.counted)
		}
	}
}
