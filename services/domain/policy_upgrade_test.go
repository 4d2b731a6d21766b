package domain

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/bus"
	"github.com/lockstep-cd/lockstep/pkg/event"
	rules "github.com/lockstep-cd/lockstep/pkg/policy"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/policy"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/setup"
)

// shops opens shops that share the environments, each with a version set and a rollout.
func (w winter) shops(n int) (all []core.Rollout) {
	w.t.Helper()
	for i := range n {
		one := winter{&shop{fixture: w.fixture, staging: w.staging, production: w.production}, w.now}
		name := fmt.Sprintf("shop-%d", i)
		one.application = w.fixture.application(name, "api")
		_, err := w.setup.CreateFlowDefinition(w.t.Context(), user(), setup.NewFlowDefinition{
			ApplicationID: one.application.ID,
			Definition: []byte(
				fmt.Sprintf(`{"steps":[{"type":"deploy","environment":"staging","config":%s},{"type":"deploy","environment":"production","config":%s}]}`,
					appEnvConfig("staging"), appEnvConfig("production"))),
		})
		w.ok(err)
		one.makeReady()
		w.publish(w.artifact("registry.test/"+name+"/api", "1.0", 5000+i, time.Unix(1_700_000_000, 0)))
		all = append(all, one.rollout(one.sets()[0]))
	}
	return all
}

// D51: a policy set is upgraded while a hundred rollouts request passages: whichever version a request meets, those that a rollout was
// created with decide as well, every decision says by which texts it was taken, and a later rollout is decided by the new ones alone.
func TestAPolicySetIsUpgradedUnderAHundredRollouts(t *testing.T) {
	t.Parallel()
	const many = 100
	w := frozen(t)
	w.put(policy.NewPolicySet{Text: noProduction("")})
	all := w.shops(many)
	var entering []event.Event
	for _, r := range all {
		w.enter(r, "staging")
		entering = append(entering, w.emit(event.RolloutPassageRequested{RolloutID: r.ID, GateID: "production"}, ""))
	}
	w.want(w.countOf(`SELECT count(*) FROM cd_rollout_transitions WHERE event = 'pass_gate' AND gate_id = 'staging'`), many)

	errs := make(chan error, many+10)
	var working sync.WaitGroup
	for part := range slices.Chunk(entering, many/4) {
		working.Go(func() {
			for _, e := range part {
				errs <- w.on.Domain(t.Context(), []bus.Delivery{{Event: e, Attempt: 1}})[0]
			}
		})
	}
	working.Go(func() {
		for i := range 10 { // versions that permit production, each with another text
			_, err := w.policies.PutPolicySet(t.Context(), user(), policy.NewPolicySet{
				Name: "rules", Text: allowed + fmt.Sprintf("// version %d\n", i), Mode: core.PolicyEnforced, Reason: "an upgrade",
			})
			errs <- err
		}
	})
	working.Wait()
	close(errs)
	for err := range errs {
		w.ok(err)
	}
	w.review() // everything is evaluated that the versions have brought up
	w.want(w.countOf(`SELECT count(*) FROM cd_rollout_transitions WHERE event = 'pass_gate' AND gate_id = 'production'`), 0)
	ids := make([]int64, len(all))
	for i, r := range all {
		ids[i] = r.ID
	}
	decided, err := w.policies.PolicyDecisionsByRollout(t.Context(), org, ids)
	w.ok(err)
	pinned := ""
	for _, r := range all {
		latest := decided[r.ID][0]
		if latest.GateID != "production" || latest.Verdict != rules.Deny || latest.Digest == "" || latest.Pinned == "" || latest.Digest == latest.Pinned {
			t.Fatalf("rollout %d: %s %s by %q and %q; expected a denial of production by the pinned version", r.ID, latest.GateID, latest.Verdict,
				latest.Digest, latest.Pinned)
		}
		if !strings.Contains(latest.Sentence(), "rules/no-production") {
			t.Fatalf("rollout %d: %s; expected the policy that it was created with", r.ID, latest.Sentence())
		}
		if pinned != "" && latest.Pinned != pinned {
			t.Fatalf("rollout %d: pinned %q; expected the version that all were created with, %q", r.ID, latest.Pinned, pinned)
		}
		pinned = latest.Pinned
	}
	later := w.rollout(w.set)
	w.enter(later, "staging", "production")
	w.want(w.decisions(later), []string{"allow", "staging: allow", "production: allow"})
	w.verifyJournal(all[0])
	w.verifyJournal(later)
}
