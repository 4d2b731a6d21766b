package autoflow_test

import (
	"context"
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/types/known/timestamppb"

	autoflowv1 "github.com/lockstep-cd/lockstep/proto/lockstep/autoflow/v1"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/handoff"
)

func (s *server) ListFunctions(_ context.Context, r *autoflowv1.ListFunctionsRequest) (*autoflowv1.ListFunctionsResponse, error) {
	if r.GetOrganizationId() != 7 {
		return &autoflowv1.ListFunctionsResponse{}, nil
	}
	return &autoflowv1.ListFunctionsResponse{Functions: []*autoflowv1.FunctionInfo{
		{Name: "git.propose", Doc: "Proposes."},
		{
			Name: "shop.reserve", Doc: "Reserves.", Effect: autoflowv1.FunctionEffect_FUNCTION_EFFECT_TAKES_BACK, Worker: true, Workers: 2,
			ArgumentsSchema: []byte(`{"type":"object"}`), ResultSchema: []byte(`{`), RegisteredAt: timestamppb.New(began),
		},
	}}, nil
}

// Functions are shown as the engine reports them, those of workers with their schemas.
func TestFunctionsAreReportedAsTheEngineReportsThem(t *testing.T) {
	t.Parallel()
	e := connect(t, &server{})
	found, err := e.ListFunctions(t.Context(), 7)
	if err != nil {
		t.Fatal(err)
	}
	at := began
	if diff := cmp.Diff([]handoff.Function{
		{Name: "git.propose", Doc: "Proposes.", Effect: handoff.FunctionSpecial},
		{
			Name: "shop.reserve", Doc: "Reserves.", Effect: handoff.FunctionTakesBack, Worker: true, Connected: 2, RegisteredAt: &at,
			ArgumentsSchema: json.RawMessage(`{"type":"object"}`),
		},
	}, found); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	if other, err := e.ListFunctions(t.Context(), 8); err != nil || len(other) != 0 {
		t.Errorf("another organization: found %v, error %v", other, err)
	}
}
