package autoflow

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	autoflowv1 "github.com/lockstep-cd/lockstep/proto/lockstep/autoflow/v1"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/reconcile"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/rollout"
)

var _ reconcile.Engine = Engine{}

// Reports implements reconcile.Engine.
func (e Engine) Reports(
	ctx context.Context, organization int64, since time.Time, workflow, after string,
) (all []reconcile.Report, next string, err error) {
	answer, err := e.known.ListReports(ctx, &autoflowv1.ListReportsRequest{
		OrganizationId: organization, Since: timestamppb.New(since), WorkflowId: workflow, PageToken: after,
	})
	if err != nil {
		return nil, "", fmt.Errorf("list reports: %w", err)
	}
	for _, r := range answer.GetReports() {
		all = append(all, reconcile.Report{ID: r.GetEventId(), Source: r.GetSource(), Workflow: r.GetWorkflowId(), Time: r.GetTime().AsTime()})
	}
	return all, answer.GetNextPageToken(), nil
}

// RepeatReports implements reconcile.Engine.
func (e Engine) RepeatReports(ctx context.Context, organization int64, ids []string) error {
	_, err := e.known.RepeatReports(ctx, &autoflowv1.RepeatReportsRequest{OrganizationId: organization, EventIds: ids})
	if err != nil {
		return fmt.Errorf("repeat %d reports: %w", len(ids), err)
	}
	return nil
}

// Passages implements reconcile.Engine.
func (e Engine) Passages(
	ctx context.Context, organization int64, workflows []string, since time.Time,
) (map[string][]rollout.GrantedPassage, error) {
	answer, err := e.known.ListPassages(ctx, &autoflowv1.ListPassagesRequest{
		OrganizationId: organization, WorkflowIds: workflows, Since: timestamppb.New(since),
	})
	if err != nil {
		return nil, fmt.Errorf("list the passages of %d runs: %w", len(workflows), err)
	}
	all := map[string][]rollout.GrantedPassage{}
	for _, p := range answer.GetPassages() {
		granted := rollout.GrantedPassage{GateID: p.GetGateId()}
		for _, weight := range p.GetPinnedWeights() {
			granted.Pinned = append(granted.Pinned, int(weight))
		}
		all[p.GetWorkflowId()] = append(all[p.GetWorkflowId()], granted)
	}
	return all, nil
}

// Commits implements reconcile.Engine.
func (e Engine) Commits(ctx context.Context, organization int64, after string) (all []reconcile.Branch, next string, err error) {
	answer, err := e.known.ListCommits(ctx, &autoflowv1.ListCommitsRequest{OrganizationId: organization, PageToken: after})
	if err != nil {
		return nil, "", fmt.Errorf("list commits: %w", err)
	}
	for _, b := range answer.GetBranches() {
		branch := reconcile.Branch{Repository: b.GetRepositoryUrl(), Name: b.GetBranch(), Problem: b.GetError()}
		for _, c := range b.GetCommits() {
			branch.Commits = append(branch.Commits, reconcile.Commit{SHA: c.GetSha(), Trailers: c.GetTrailers()})
		}
		all = append(all, branch)
	}
	return all, answer.GetNextPageToken(), nil
}
