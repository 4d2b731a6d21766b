package rollout

import (
	"fmt"
	"strings"
	"testing"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/fleet"
)

// D61: a wave has the places of the environment's own cluster in each of its targets. One that would open more than an event holds is
// refused; what is in no cluster is not repeated.
func TestWavesThatOpenTooMuchAreRefused(t *testing.T) {
	t.Parallel()
	own := []core.Place{{Repository: "https://git.test/" + strings.Repeat("r", 5000)}, {AgentID: 8, Namespace: "argocd"}}
	for i := range 30 {
		own = append(own, core.Place{AgentID: 7, Namespace: "shop", Name: fmt.Sprintf("service-%d", i)})
	}
	f := stopFleet{agents: []core.AgentReference{{Number: 7}}, waves: [][]fleet.Target{make([]fleet.Target, 1), make([]fleet.Target, 300)}}
	if err := f.fits("edge", own); err != nil {
		t.Errorf("300 targets: %v", err)
	}
	f.waves[1] = make([]fleet.Target, 900)
	err := f.fits("edge", own)
	if !fault.Is(err, fault.Refused) || !strings.Contains(err.Error(), `wave 2 of environment "edge" has 900 targets with 30 places each`) {
		t.Errorf("900 targets: %v, expected a refusal", err)
	}
	if got := placesIn(own[:3], []int64{7}, []int64{7, 9}); fmt.Sprint(got) != fmt.Sprint([]core.Place{
		{AgentID: 7, Namespace: "shop", Name: "service-0"}, {AgentID: 9, Namespace: "shop", Name: "service-0"},
	}) {
		t.Errorf("found %+v", got)
	}
}
