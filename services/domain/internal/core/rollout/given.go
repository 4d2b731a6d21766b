package rollout

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"

	"github.com/lockstep-cd/lockstep/pkg/fault"
)

// giveInputs finds the inputs of the rollout (R4-09). A new one is given them. A retry has those of the rollout that it repeats, which have to
// fit the pipeline of today. What goes back, and what deploys again what is live, has the inputs with which it was deployed, as they were
// recorded: no change of a pipeline since keeps a rollback from beginning.
func (p *plan) giveInputs(ctx context.Context, tx Tx, w wish) (err error) {
	returns := p.back != nil && (!p.back.forward || p.back.repair)
	switch {
	case returns:
		recorded := w.repeats.Inputs
		if w.repeats.ID == 0 {
			if recorded, err = tx.RecordedInputs(ctx, p.versionSet.ID); err != nil {
				return err
			}
		}
		p.inputs, err = p.flow.KeepInputs(recorded)
	case w.repeats.ID != 0:
		if p.inputs, err = p.flow.Inputs(w.repeats.Inputs); err != nil {
			return fault.Because(err, fault.Refused, "the inputs of rollout_%d do not fit the pipeline, which has changed since: %s; create a rollout "+
				"with others", w.repeats.ID, fault.Public(err))
		}
	default:
		p.inputs, err = p.flow.Inputs(w.inputs)
	}
	return err
}

// CheckInputs checks inputs against the latest pipeline of an application; an application without a pipeline accepts any. The error is
// Invalid, its fields JSON pointers that begin with /inputs.
func (u *UseCases) CheckInputs(ctx context.Context, tx Tx, organization, application int64, inputs json.RawMessage) error {
	latest, err := tx.LatestFlowDefinitions(ctx, organization, []int64{application})
	if err != nil {
		return err
	}
	definition, exists := latest[application]
	if !exists {
		return nil
	}
	flow, err := u.flows.Read(definition.Definition)
	if err != nil {
		return fmt.Errorf("read flow definition %d: %w", definition.ID, err)
	}
	_, err = flow.Inputs(inputs)
	return err
}

// shownInputs is how much of the inputs the journal repeats, in bytes; the rollout has all of them.
const shownInputs = 2000

// inputWords are the inputs for the journal; empty for none.
func (p plan) inputWords() string {
	if len(p.inputs) == 0 || string(p.inputs) == "{}" {
		return ""
	}
	if len(p.inputs) > shownInputs {
		return fmt.Sprintf("; inputs: %d bytes of JSON, SHA-256 %x", len(p.inputs), sha256.Sum256(p.inputs))
	}
	return "; inputs: " + string(p.inputs)
}
