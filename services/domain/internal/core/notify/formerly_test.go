package notify

import (
	"testing"

	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
)

// D57: a route that has a former name of an application as a whole still is about it; its patterns go by the present name.
func TestRoutesGoByFormerNames(t *testing.T) {
	t.Parallel()
	f := facts{notification: core.Notification{Application: "store", Moment: core.MomentRolloutFailed}, former: []string{"shop"}}
	for one, want := range map[string]bool{"shop": true, "store": true, "sto*": true, "sho*": false, "blog": false} {
		if matches, problem := f.match(t.Context(), RouteConfig{Applications: []string{one}}); matches != want || problem != "" {
			t.Errorf("%s: found %v and %q; want %v", one, matches, problem, want)
		}
	}
}
