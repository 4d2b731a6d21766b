package crash

import (
	"context"
	"strings"
	"testing"

	"github.com/lockstep-cd/lockstep/tools/lockstep/client"
)

// D51, E75: a policy set of a group of applications that is about calls is written in the domain, reaches the engine, and decides there: it
// denies the commit of a rollout, permits it once it is changed, denies it again in another version, and decides nothing once it is off.
func TestPoliciesOfAGroupDecideAboutCalls(t *testing.T) {
	t.Parallel()
	scenario := oneStage()
	scenario.Services, scenario.Stages[0].Gates = []string{"api"}, nil
	ctx, w := start(t, scenario)
	if err := w.Create(ctx); err != nil {
		t.Fatal(err)
	}
	shop, err := w.API.Application(ctx, scenario.Application)
	if err != nil {
		t.Fatal(err)
	}
	shop.RollbackPolicy.OnFailed = false // or it would begin in between
	if _, err := w.API.SetRollbackPolicy(ctx, scenario.Application, shop.RollbackPolicy); err != nil {
		t.Fatal(err)
	}
	if _, err := client.SetDetails[client.Application](ctx, w.API, client.Details{
		Subject: shop.ID, SetLabels: map[string]string{"tier": "critical"},
	}); err != nil {
		t.Fatal(err)
	}
	put := func(mode, text string) {
		t.Helper()
		in := client.PolicySetInput{Name: "critical", Mode: mode, Text: text, TimeZone: "UTC", Labels: map[string]string{"tier": "critical"}, Reason: "a test"}
		if _, err := w.API.PutPolicySet(ctx, in); err != nil {
			t.Fatal(err)
		}
	}
	ends := func(set client.VersionSet, want string) {
		t.Helper()
		r, err := w.Roll(ctx, set.ID, "a policy of a group")
		if err != nil {
			t.Fatal(err)
		}
		if err := w.Await(ctx, "the rollout to end", func() (string, bool, error) {
			r, err = w.API.Rollout(ctx, r.ID)
			return r.State, r.Over(), err
		}); err != nil {
			t.Fatal(err)
		}
		if r.State != want {
			t.Fatalf("%s is %s; expected %s", r.ID, r.State, want)
		}
		if want == "FAILED" {
			w.expectDenied(ctx, t, r)
		}
	}
	const permits = `@id("all") permit (principal, action == Action::"function.call", resource);` + "\n"
	const denies = permits + `@id("no-commits") @message("nobody commits now")
forbid (principal, action == Action::"function.call", resource == Function::"git.commit");` + "\n"
	first, err := w.Push(ctx, "1.0.0", nil)
	if err != nil {
		t.Fatal(err)
	}
	put("ENFORCE", denies)
	ends(first, "FAILED")
	put("ENFORCE", permits)
	ends(first, "COMPLETED")
	second, err := w.Push(ctx, "1.1.0", nil)
	if err != nil {
		t.Fatal(err)
	}
	put("ENFORCE", denies)
	ends(second, "FAILED")
	put("OFF", "")
	ends(second, "COMPLETED")
}

// expectDenied expects that the policy of the group has denied the commit of a rollout.
func (w *world) expectDenied(ctx context.Context, t *testing.T, r client.Rollout) {
	t.Helper()
	calls, err := w.API.CallRequests(ctx, false)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range calls {
		if c.Rollout != nil && c.Rollout.ID == r.ID {
			if c.State != "DENIED" || c.Function != "git.commit" || c.Policy != "critical/no-commits" || !strings.Contains(c.Reason, "nobody commits now") {
				t.Errorf("found %+v; expected the denial of critical/no-commits", c)
			}
			return
		}
	}
	t.Errorf("%s has no denied call among %d", r.ID, len(calls))
}
