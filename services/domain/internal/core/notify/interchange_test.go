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
	all, err := deliveryEvents(t.Context(), manyServices{}, 1, core.NotificationMessage{LeftOut: 2}, what)
	if err != nil {
		t.Fatal(err)
	}
	if n := all[0].Content["left_out"]; len(all) != maxEvents || n != 200-(maxEvents-1)+2 {
		t.Errorf("found %d events, of which the first says %v were left out; expected %d and %d", len(all), n, maxEvents, 200-(maxEvents-1)+2)
	}
}
