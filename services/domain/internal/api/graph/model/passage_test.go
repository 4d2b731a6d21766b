package model_test

import (
	"testing"

	"github.com/lockstep-cd/lockstep/services/domain/internal/api/graph/model"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
)

// Whatever condition the domain records, the schema has a kind and a status for it.
func TestEveryConditionOfAPassageIsInTheSchema(t *testing.T) {
	t.Parallel()
	statuses := map[model.PassageConditionStatus]bool{}
	for _, verb := range []core.Verb{core.VerbPassGate, core.VerbStopPassage, core.VerbBypassFreeze, core.VerbFail} {
		for _, kind := range core.AllConditionKinds() {
			for _, outcome := range []string{core.OutcomeApproved, core.OutcomeExpired, core.OutcomeBreakGlass} {
				row := core.Transition{Verb: verb, Conditions: []core.Condition{{Kind: kind, GateID: "production", ControlID: 7, Outcome: outcome}}}
				c := model.Transition{Transition: row}.Conditions()[0]
				if !c.Kind().IsValid() || !c.Status().IsValid() {
					t.Errorf("%s of %s: found %s, %s; expected them to be in the schema", kind, verb, c.Kind(), c.Status())
				}
				statuses[c.Status()] = true
			}
		}
	}
	if len(statuses) != len(model.AllPassageConditionStatus) {
		t.Errorf("found the statuses %v; expected each of %v", statuses, model.AllPassageConditionStatus)
	}
	for _, cause := range []core.WeightSkip{
		core.SkipsFirstDeploy, core.SkipsUnchanged, core.SkipsPromoteFull, core.SkipsNoGates, core.SkipsProgram, core.SkipsQuickSync,
	} {
		row := core.Transition{Conditions: []core.Condition{{Kind: core.ConditionSkippedWeight, Cause: cause}}}
		if found := (model.Transition{Transition: row}).Conditions()[0].Cause(); found == nil || !found.IsValid() {
			t.Errorf("%s: found %v; expected it to be in the schema", cause, found)
		}
	}
	pin := core.Transition{Verb: core.VerbStopPassage, Conditions: []core.Condition{{Kind: core.ConditionPin, ControlID: 7}}}
	if subject := (model.Transition{Transition: pin}).Conditions()[0].Subject(); subject == nil || *subject != "environment_7" {
		t.Errorf("found %v; expected the pinned environment", subject)
	}
}
