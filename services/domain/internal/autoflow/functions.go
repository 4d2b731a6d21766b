package autoflow

import (
	"context"
	"encoding/json"
	"fmt"

	autoflowv1 "github.com/lockstep-cd/lockstep/proto/lockstep/autoflow/v1"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/handoff"
)

// ListFunctions implements handoff.Functions.
func (e Engine) ListFunctions(ctx context.Context, organization int64) ([]handoff.Function, error) {
	answer, err := e.client.ListFunctions(ctx, &autoflowv1.ListFunctionsRequest{OrganizationId: organization})
	if err != nil {
		return nil, fmt.Errorf("list Functions: %w", err)
	}
	all := make([]handoff.Function, 0, len(answer.GetFunctions()))
	for _, f := range answer.GetFunctions() {
		shown := handoff.Function{
			Name: f.GetName(), Doc: f.GetDoc(), Effect: handoff.FunctionEffect(constant(f.GetEffect().String(), "FUNCTION_EFFECT_")),
			ArgumentsSchema: schemaOf(f.GetArgumentsSchema()), ResultSchema: schemaOf(f.GetResultSchema()),
			Worker: f.GetWorker(), Connected: int(f.GetWorkers()),
		}
		switch shown.Effect {
		case handoff.FunctionReads, handoff.FunctionChanges, handoff.FunctionTakesBack:
		default:
			shown.Effect = handoff.FunctionSpecial
		}
		if f.GetWorker() {
			shown.RegisteredAt = ended(f.GetRegisteredAt())
			shown.RegisteredBy, shown.RegisteredByWorker = f.GetRegisteredBy(), f.GetRegisteredByWorker()
			shown.RegisteredByVersion = f.GetRegisteredByVersion()
		}
		all = append(all, shown)
	}
	return all, nil
}

// schemaOf is a schema that may be absent.
func schemaOf(text []byte) json.RawMessage {
	if !json.Valid(text) {
		return nil
	}
	return text
}
