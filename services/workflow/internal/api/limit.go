package api

import (
	"cmp"
	"context"
	"math"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/rpc"
	autoflowv1 "github.com/lockstep-cd/lockstep/proto/lockstep/autoflow/v1"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/limit"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/retention"
)

// GetLimits answers what an organization may use, and what it uses.
func (s *Server) GetLimits(ctx context.Context, req *autoflowv1.GetLimitsRequest) (*autoflowv1.GetLimitsResponse, error) {
	org, err := organization(ctx, req.GetOrganizationId())
	if err != nil {
		return nil, err
	}
	now, err := s.Limits.Get(ctx, org)
	if err != nil {
		return nil, err
	}
	resp := &autoflowv1.GetLimitsResponse{
		Limits: wireLimits(now.Limits), Own: now.Own, OpenRuns: now.Runs, StorageBytes: now.Bytes,
		StartsRate: now.Rates[limit.Starts], EventsRate: now.Rates[limit.Events], CallsRate: now.Rates[limit.Calls],
	}
	for _, c := range now.Changes {
		resp.Changes = append(resp.Changes, &autoflowv1.SettingChange{
			ChangedAt: timestamppb.New(c.At), Setting: c.Setting, ChangedBy: c.By, Reason: c.Reason, Before: c.Before, After: c.After,
		})
	}
	return resp, nil
}

func wireLimits(l limit.Limits) *autoflowv1.Limits {
	return &autoflowv1.Limits{
		OpenRuns: l.OpenRuns, StartsPerSecond: l.StartsPerSecond, EventsPerSecond: l.EventsPerSecond, StorageBytes: l.StorageBytes,
		CallsPerSecond: l.CallsPerSecond,
	}
}

// The bounds of ListLimitUse.
const (
	usesDefault = 100
	usesMost    = 1000
)

// ListLimitUse answers who is close to a limit.
func (s *Server) ListLimitUse(ctx context.Context, req *autoflowv1.ListLimitUseRequest) (*autoflowv1.ListLimitUseResponse, error) {
	if err := ofAll(ctx, "the use of all organizations is shown to"); err != nil {
		return nil, err
	}
	percent, most := req.GetAtLeastPercent(), cmp.Or(req.GetPageSize(), usesDefault)
	if percent < 0 || percent > 100 {
		return nil, invalid("at_least_percent", "found %d, expected 0 to 100", percent)
	}
	if most < 1 || most > usesMost {
		return nil, invalid("page_size", "found %d, expected 1 to %d", most, usesMost)
	}
	resp := &autoflowv1.ListLimitUseResponse{}
	for _, u := range s.Limits.Nearest(max(float64(percent)/100, math.SmallestNonzeroFloat64), int(most)) {
		resp.Uses = append(resp.Uses, &autoflowv1.LimitUse{
			OrganizationId: u.Organization, Limit: limit.Names()[u.Kind], Used: u.Used, Most: u.Most,
		})
	}
	return resp, nil
}

// ofAll refuses tokens of one organization.
func ofAll(ctx context.Context, what string) error {
	caller, known := rpc.CallerFrom(ctx)
	if !known {
		return fault.New(fault.Unauthenticated, "the call carries no known token")
	}
	if caller.Organization != 0 {
		return fault.New(fault.Denied, "%s a token of all organizations; this one is for organization %d", what, caller.Organization)
	}
	return nil
}

// SetLimits changes what an organization may use. An organization must not raise its own limits, so it takes a token of all of them.
func (s *Server) SetLimits(ctx context.Context, req *autoflowv1.SetLimitsRequest) (*autoflowv1.SetLimitsResponse, error) {
	if err := ofAll(ctx, "limits are set with"); err != nil {
		return nil, err
	}
	c := limit.Change{Organization: req.GetOrganizationId(), By: callerName(ctx), Reason: req.GetReason()}
	if l := req.GetLimits(); l != nil {
		c.To = &limit.Limits{
			OpenRuns: l.GetOpenRuns(), StartsPerSecond: l.GetStartsPerSecond(), EventsPerSecond: l.GetEventsPerSecond(),
			StorageBytes: l.GetStorageBytes(), CallsPerSecond: l.GetCallsPerSecond(),
		}
	}
	if err := s.Limits.Set(ctx, c); err != nil {
		return nil, err
	}
	return &autoflowv1.SetLimitsResponse{}, nil
}

// ListRetention answers how long ended runs of an organization are kept.
func (s *Server) ListRetention(ctx context.Context, req *autoflowv1.ListRetentionRequest) (*autoflowv1.ListRetentionResponse, error) {
	org, err := organization(ctx, req.GetOrganizationId())
	if err != nil {
		return nil, err
	}
	rules, err := s.Retention.Rules(ctx, org)
	if err != nil {
		return nil, err
	}
	resp := &autoflowv1.ListRetentionResponse{}
	for _, rule := range rules {
		resp.Rules = append(resp.Rules, &autoflowv1.RetentionRule{Label: rule.Label, Value: rule.Value, Keep: durationpb.New(rule.Keep)})
	}
	return resp, nil
}

// SetRetention sets or removes a rule of an organization.
func (s *Server) SetRetention(ctx context.Context, req *autoflowv1.SetRetentionRequest) (*autoflowv1.SetRetentionResponse, error) {
	org, err := organization(ctx, req.GetOrganizationId())
	if err != nil {
		return nil, err
	}
	rule := retention.Rule{Label: req.GetRule().GetLabel(), Value: req.GetRule().GetValue()}
	if keep := req.GetRule().GetKeep(); keep != nil {
		if err := keep.CheckValid(); err != nil {
			return nil, invalid("rule.keep", "%v", err)
		}
		rule.Keep = keep.AsDuration()
	}
	err = s.Retention.Set(ctx, retention.Change{Organization: org, Rule: rule, By: callerName(ctx), Reason: req.GetReason()})
	if err != nil {
		return nil, under("rule", err)
	}
	return &autoflowv1.SetRetentionResponse{}, nil
}
