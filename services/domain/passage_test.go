package domain

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/event"
	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/setup"
)

// stored makes a pipeline the shop's without the checks of those that are written now.
func (s *shop) stored(definition string) {
	s.t.Helper()
	s.ok(s.store.ForSetup().In(s.t.Context(), org, func(ctx context.Context, tx setup.Tx) error {
		_, err := tx.AddFlowDefinition(ctx, core.FlowDefinition{ApplicationID: s.application.ID, Version: 7, Definition: json.RawMessage(definition)})
		return err
	}))
}

// report emits events of the rollout's workflow and delivers them one by one.
func (s *shop) report(all ...event.Data) {
	s.t.Helper()
	for _, data := range all {
		s.deliver(s.emit(data, ""))
	}
}

// D46, hole P4: an approval step that has the name of an environment replaced the rule of the environment.
func TestNothingThatHasTheNameOfAnEnvironmentReplacesWhatItAsks(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.group("platform", 3)
	own := core.EnvironmentApproval{GateRule: core.GateRule{Quorum: 2, Group: "platform", OnExpiry: core.ExpiryRejects}}
	_, err := s.setup.SetEnvironmentApproval(t.Context(), user(), s.production.ID, &own)
	s.ok(err)
	definition := fmt.Sprintf(`{"steps":[
		{"type":"deploy","environment":"staging","config":%s},
		{"type":"approval","name":"production","requester_may_approve":true,"expires_after":60,"on_expiry":"approve"},
		{"type":"deploy","environment":"production","config":%s}]}`, appEnvConfig("staging"), appEnvConfig("production"))
	_, err = s.setup.CreateFlowDefinition(
		t.Context(), user(), setup.NewFlowDefinition{ApplicationID: s.application.ID, Definition: json.RawMessage(definition)},
	)
	if !fault.Is(err, fault.Invalid) {
		t.Errorf("a step with the name of an environment: %v", err)
	}

	s.stored(definition)
	r := s.rollout(s.set)
	s.report(event.ApprovalRequested{RolloutID: r.ID, GateID: "production", EnvironmentID: s.production.ID})
	s.want(s.gates(r)["production"].GateRule, core.GateRule{Quorum: 2, Group: "platform", ExpiresAfter: time.Minute, OnExpiry: core.ExpiryRejects})
	s.refused(s.approve(user(), r, "production"), `is for the group "platform" to answer`)
	requester := user()
	requester.Groups = []string{"platform"}
	s.refused(s.approve(requester, r, "production"), "someone else must approve")
}
