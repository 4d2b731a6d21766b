package domain

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/event"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/trigger"
)

// causes are the rows that led to a rollout, in words.
func (s *shop) causes(r core.Rollout) (lines []string) {
	s.t.Helper()
	all, err := s.view.CausesByRollout(s.t.Context(), org, []int64{r.ID})
	s.ok(err)
	for _, t := range all[r.ID] {
		lines = append(lines, fmt.Sprintf("%s %d %s by %s: %s|%s", t.Subject.Kind, t.Subject.ID, t.Verb, t.PrincipalType, t.Reason, t.TriggeredBy))
	}
	return lines
}

// D58: an automatic rollback leads back to what degraded, to the rollout that failed of it, and to the person who began that.
func TestAnAutomaticRollbackHasItsCauses(t *testing.T) {
	t.Parallel()
	s, r := upgraded(t)
	degraded := s.deployments(s.stops(r)[0])[0].ID
	s.report(event.DeploymentDegraded{DeploymentID: degraded, Reason: "analysis success-rate failed"})
	s.report(event.RolloutFailed{RolloutID: r.ID, Reason: "api is degraded"})
	s.close()
	done, worked := s.due()
	s.want(worked, true)
	found := s.causes(core.Rollout{ID: done.MadeRolloutID})
	s.want(len(found), 4)
	begun, back := s.causes(r), found[3]
	s.want(begun, found[:1])
	s.want([]string{found[1][:len("deployment 4 degrade by system: analysis success-rate failed")], found[2][:len("rollout 2 fail by system: api is degraded")], back}, []string{
		fmt.Sprintf("deployment %d degrade by system: analysis success-rate failed", degraded), "rollout 2 fail by system: api is degraded",
		"rollout 3 create by policy: automatic rollback of rollout_2: it failed|rollback policy: rollout_2 failed",
	})
	// What is recorded of the rollout that failed after the rollback began is no cause of it.
	s.report(event.DeploymentDegraded{DeploymentID: degraded, Reason: "once more"})
	s.want(s.causes(core.Rollout{ID: done.MadeRolloutID}), found)
}

// D58: a rollout of a chain leads back through it; texts of others, such as the source of an event, lead nowhere.
func TestAChainAndNoForgedTextIsACause(t *testing.T) {
	t.Parallel()
	shop, blog, _, _, _ := family(t)
	first := shop.rollout(shop.set)
	shop.succeed(first)
	shop.decide()
	of := blog.active()
	found := blog.causes(of)
	shop.want(found, []string{
		fmt.Sprintf("rollout %d create by user: test|", first.ID),
		fmt.Sprintf("rollout %d create by policy: set-1 is the newest version set when block 1 of chain_1 began, which follows rollout_1|"+
			"trigger follow (chain): block 1 of chain_1, which follows rollout_%d", of.ID, first.ID),
	})
	w := clocked(t)
	w.succeed(w.rollout(w.set))
	w.trigger(core.TriggerEvent, `{"types":["*"]}`)
	w.release(2)
	w.now.Advance(time.Minute)
	_, err := w.triggers.SendEvent(t.Context(), user(), trigger.Event{
		ID: "trigger x (chain): y, which follows rollout_1", Source: "x trigger x (chain): block 1 of chain_1, which follows rollout_1", Type: "t", Data: json.RawMessage(`{}`),
	})
	w.ok(err)
	w.want(len(w.decide()), 1)
	w.want(len(w.causes(w.active())), 1)
}
