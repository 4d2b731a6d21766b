package api

import (
	"context"

	"google.golang.org/protobuf/types/known/timestamppb"

	autoflowv1 "github.com/lockstep-cd/lockstep/proto/lockstep/autoflow/v1"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/eventtype"
)

// DeclareEventType declares a type of events of an organization.
func (s *Server) DeclareEventType(
	ctx context.Context, req *autoflowv1.DeclareEventTypeRequest,
) (*autoflowv1.DeclareEventTypeResponse, error) {
	org, err := organization(ctx, req.GetOrganizationId())
	if err != nil {
		return nil, err
	}
	changed, err := s.Types.Declare(ctx, eventtype.Type{
		Organization: org, Name: req.GetType(), Description: req.GetDescription(), Schema: req.GetSchema(), By: callerName(ctx),
	})
	if err != nil {
		return nil, err
	}
	return &autoflowv1.DeclareEventTypeResponse{Changed: changed}, nil
}

// ListEventTypes answers the types that an organization has declared.
func (s *Server) ListEventTypes(ctx context.Context, req *autoflowv1.ListEventTypesRequest) (*autoflowv1.ListEventTypesResponse, error) {
	org, err := organization(ctx, req.GetOrganizationId())
	if err != nil {
		return nil, err
	}
	all, err := s.Types.List(ctx, org)
	if err != nil {
		return nil, err
	}
	resp := &autoflowv1.ListEventTypesResponse{}
	for _, t := range all {
		resp.EventTypes = append(resp.EventTypes, &autoflowv1.EventType{
			Type: t.Name, OrganizationId: t.Organization, Description: t.Description, Schema: t.Schema, Version: int32(t.Version), DeclaredBy: t.By,
			DeclaredAt: timestamppb.New(t.At),
		})
	}
	return resp, nil
}

// DeleteEventType deletes a type of events of an organization.
func (s *Server) DeleteEventType(ctx context.Context, req *autoflowv1.DeleteEventTypeRequest) (*autoflowv1.DeleteEventTypeResponse, error) {
	org, err := organization(ctx, req.GetOrganizationId())
	if err != nil {
		return nil, err
	}
	if err := s.Types.Delete(ctx, org, req.GetType()); err != nil {
		return nil, err
	}
	return &autoflowv1.DeleteEventTypeResponse{}, nil
}
