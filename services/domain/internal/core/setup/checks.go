package setup

import (
	"context"
	"encoding/json"

	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
)

// ChecksInput is what SetEnvironmentChecks is called with.
type ChecksInput struct {
	Environment int64
	Checks      json.RawMessage
}

// SetEnvironmentChecks decides which checks an environment requires of the rollouts that are created from now on, whatever their pipelines
// declare; nil for none (D48). Rollouts that exist keep theirs.
func (u *UseCases) SetEnvironmentChecks(
	ctx context.Context, a core.Actor, environment int64, checks json.RawMessage,
) (core.Environment, error) {
	a = a.Proposing(ChecksInput{Environment: environment, Checks: checks})
	if len(checks) > 0 && string(checks) != "null" {
		set, err := u.flows.ReadChecks(checks)
		if err != nil {
			return core.Environment{}, err
		}
		if err := u.flows.CheckChecks(checks, u.drivers.Now()); err != nil {
			return core.Environment{}, err
		}
		if len(set.Active)+len(set.Proposed) == 0 {
			checks = nil
		}
	} else {
		checks = nil
	}
	var changed core.Environment
	err := core.Within(ctx, u.store, a, core.ActionSetEnvironmentChecks, func(ctx context.Context, tx Tx) error {
		e, err := tx.LockEnvironment(ctx, environment)
		if err != nil {
			return err
		}
		changed = e.Environment
		if err := a.MayIn(core.ActionSetEnvironmentChecks, e.Target(0)); err != nil {
			return err
		}
		known, err := tx.EnvironmentChecks(ctx, a.Organization, []int64{environment})
		if err != nil {
			return err
		}
		if err := tx.SaveEnvironmentChecks(ctx, environment, checks); err != nil {
			return err
		}
		change := environmentChange(core.ActionSetEnvironmentChecks, e.Environment)
		if err := core.Record(ctx, tx, a, change, checksState(known[environment]), checksState(checks)); err != nil {
			return err
		}
		return u.announceEnvironment(ctx, tx, a.Organization, e)
	})
	u.wake()
	return changed, err
}

// ChecksSchema is the JSON Schema of the checks of an environment.
func (u *UseCases) ChecksSchema() (json.RawMessage, error) {
	return u.flows.ChecksSchema(u.drivers.Now().CheckKinds())
}

// DefinitionSchema is the JSON Schema of a flow definition.
func (u *UseCases) DefinitionSchema() (json.RawMessage, error) {
	return u.flows.DefinitionSchema(u.drivers.Now().CheckKinds())
}

// checksState is what the journal of changes keeps of an environment's checks; nil for none.
func checksState(checks json.RawMessage) any {
	if checks == nil {
		return nil
	}
	return map[string]any{"checks": checks}
}
