package policy

import (
	"fmt"
	"testing"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/policy"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
)

// D51: a simulation combines the policies once for each place that recorded decisions are about, and not for each decision.
func TestASimulationCombinesOncePerPlace(t *testing.T) {
	t.Parallel()
	s := simulation{
		&Engine{},
		[]core.PolicySet{
			{Name: "rules", Mode: core.PolicyEnforced, TimeZone: "UTC", Text: `@id("a") permit (principal, action, resource);`},
		},
		Names{},
		map[string]combined{},
	}
	request := func(i int) policy.Request {
		at := policy.Environment{Name: "production", Tier: "production"}
		return policy.Request{
			Action: policy.EnterEnvironment, Principal: policy.Principal{Kind: policy.User, ID: "1"}, Application: "shop", Environment: &at,
			Gate: fmt.Sprint("production/", i), At: time.Unix(int64(i), 0),
		}
	}
	decide := func(r policy.Request, want policy.Verdict) *policy.Set {
		t.Helper()
		if d := s.decide(r); d.Verdict != want {
			t.Fatalf("found %s (%s); expected %s", d.Verdict, d.Sentence(), want)
		}
		return s.by(r.Action, r.Application, []policy.Environment{{Name: "production"}}).set
	}
	first := decide(request(0), policy.Allow)
	for i := range 300 {
		if decide(request(i), policy.Allow) != first {
			t.Fatalf("the policies were combined again for request %d", i)
		}
	}
	other := request(1)
	other.Application = "web"
	if decide(other, policy.Allow) == first || len(s.combined) != 2 {
		t.Errorf("found %d combinations; expected one for each application", len(s.combined))
	}
}
