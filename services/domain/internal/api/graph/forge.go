package graph

import (
	"context"

	"github.com/lockstep-cd/lockstep/services/domain/internal/api/graph/model"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/forge"
)

// Forges is what the API needs of package forge.
type Forges interface {
	PutMirror(ctx context.Context, a core.Actor, n forge.NewMirror) (forge.Named, error)
	Mirrors(ctx context.Context, organization int64) ([]forge.Named, error)
	Statuses(ctx context.Context, organization int64, f forge.Filter) ([]forge.Status, error)
	Hosts(ctx context.Context, organization int64) ([]forge.Host, error)
	Retry(ctx context.Context, a core.Actor, status int64, reason string) (int, error)
}

var _ Forges = (*forge.UseCases)(nil)

// ForgeMirrors are those of the organization.
func (q query) ForgeMirrors(ctx context.Context) ([]model.ForgeMirror, error) {
	mirrors, err := q.domain.Forges.Mirrors(ctx, loadersOf(ctx).actor.Organization)
	all := []model.ForgeMirror{}
	for _, m := range mirrors {
		all = append(all, model.WrapForgeMirror(m))
	}
	return all, err
}

// ForgeStatuses are those of the organization, the newest first.
func (q query) ForgeStatuses(ctx context.Context, state *forge.State, commit *string, before *int, first int) ([]model.ForgeStatus, error) {
	f := forge.Filter{Most: first, Commit: orEmpty(commit)}
	if state != nil {
		f.State = *state
	}
	if before != nil {
		f.Before = int64(*before)
	}
	statuses, err := q.domain.Forges.Statuses(ctx, loadersOf(ctx).actor.Organization, f)
	all := []model.ForgeStatus{}
	for _, s := range statuses {
		all = append(all, model.WrapForgeStatus(s))
	}
	return all, err
}

// ForgeHosts are those of the organization.
func (q query) ForgeHosts(ctx context.Context) ([]model.ForgeHost, error) {
	hosts, err := q.domain.Forges.Hosts(ctx, loadersOf(ctx).actor.Organization)
	all := []model.ForgeHost{}
	for _, h := range hosts {
		all = append(all, model.WrapForgeHost(h, loadersOf(ctx).clock.Now()))
	}
	return all, err
}

// PutForgeMirror switches publishing on or off for an application.
func (m mutation) PutForgeMirror(ctx context.Context, in model.PutForgeMirrorInput) (p model.ForgeMirrorPayload, err error) {
	saved, err := m.domain.Forges.PutMirror(ctx, loadersOf(ctx).actor, forge.NewMirror{
		Application: in.Application, Environments: in.Environments, Credential: in.Credential, Enabled: in.Enabled, Reason: orEmpty(in.Reason),
	})
	p.Mirror, p.Errors, err = changed(saved, err, model.WrapForgeMirror)
	return p, err
}

// RetryForgeStatuses sends statuses again.
func (m mutation) RetryForgeStatuses(ctx context.Context, in model.RetryForgeStatusesInput) (p model.RetryForgeStatusesPayload, err error) {
	number := int64(0)
	if in.Number != nil {
		if number = int64(*in.Number); number == 0 {
			number = -1 // there is none of that number, and it does not mean all
		}
	}
	count, err := m.domain.Forges.Retry(ctx, loadersOf(ctx).actor, number, orEmpty(in.Reason))
	p.Retried, p.Errors, err = changed(count, err, func(n int) model.RetriedForgeStatuses { return model.RetriedForgeStatuses{Count: n} })
	return p, err
}
