package bundle

import (
	"encoding/json"

	"github.com/lockstep-cd/lockstep/pkg/flow"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
)

// Flows is core.Flows over pkg/flow.
type Flows struct{}

var _ core.Flows = Flows{}

// Read implements core.Flows.
func (Flows) Read(definition json.RawMessage) (core.Flow, error) {
	def, err := flow.Parse(definition)
	if err != nil {
		return core.Flow{}, err
	}
	return understand(def), nil
}

// Check implements core.Flows.
func (Flows) Check(definition json.RawMessage, known core.KnownToFlow) (core.Flow, error) {
	def, err := flow.Parse(definition)
	if err != nil {
		return core.Flow{}, err
	}
	err = flow.Check(def, flow.Known{Steps: known.Steps, Environments: known.Environments, ValidateConfig: known.ValidateConfig})
	return understand(def), err
}

// understand keeps what the domain has to know of a pipeline; the deploy program walks the definition itself.
func understand(def flow.Definition) core.Flow {
	var f core.Flow
	for _, s := range def.Steps {
		// Pauses, approvals and analyses between the stops pin nothing, so the domain need not know of them.
		if s.Type != flow.Deploy {
			continue
		}
		step := core.DeployStep{Environment: s.Environment, Approval: approval(s.Approval), Config: s.Config}
		for _, g := range s.Gates {
			step.Gates = append(step.Gates, core.FlowGate{Weight: g.Weight, SoakDuration: g.SoakDuration, Approval: approval(g.Approval)})
		}
		f.Deploys = append(f.Deploys, step)
	}
	return f
}

func approval(a *flow.Approval) *core.Approval {
	if a == nil {
		return nil
	}
	return &core.Approval{Reason: a.Reason}
}
