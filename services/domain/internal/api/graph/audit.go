package graph

import (
	"context"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/services/domain/internal/api/graph/model"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/evidence"
)

// Audit is one page of who did what.
func (q query) Audit(
	ctx context.Context, filter *model.AuditFilter, first *int, after *string, last *int, before *string, orderBy *core.Order,
) (model.AuditEntryConnection, error) {
	p, err := page(defaultPage, first, after, last, before, orderBy)
	if err != nil {
		return model.AuditEntryConnection{}, err
	}
	actor := loadersOf(ctx).actor
	// Before names are looked up, which would reveal what exists.
	if err := actor.May(core.ActionAccessChanges); err != nil {
		return model.AuditEntryConnection{}, err
	}
	f, err := q.auditFilter(ctx, actor.Organization, filter)
	if err != nil {
		return model.AuditEntryConnection{}, err
	}
	s, err := q.domain.Evidence.Audit(ctx, actor, f, p)
	return model.AuditEntryConnection(model.Connect[model.AuditEntryEdge](s, model.WrapAuditEntry, func(ctx context.Context) (int, error) {
		return q.domain.Evidence.CountAudit(ctx, actor, f)
	})), err
}

// auditFilter finds what a filter names.
func (q query) auditFilter(ctx context.Context, organization int64, in *model.AuditFilter) (f evidence.Filter, err error) {
	if in == nil {
		return f, nil
	}
	f.Action, f.Since, f.Until = orEmpty(in.Action), in.Since, in.Until
	if in.Application != nil {
		f.ApplicationID, err = applicationNumber(ctx, q.domain.View, *in.Application)
	}
	if in.Environment != nil && err == nil {
		f.EnvironmentID, err = environmentNumber(ctx, q.domain.View, *in.Environment)
	}
	if in.Principal != nil && err == nil {
		f.PrincipalID, err = byNameOrID(ctx, model.KindMember, *in.Principal, q.domain.View.MembersByID, func(name string) (int64, error) {
			m, err := q.domain.View.MemberByName(ctx, organization, name)
			return m.ID, err
		})
	}
	return f, err
}

// maxBlocks is how many blocks one request may check: half a million rows.
const maxBlocks = 500

// JournalChain checks a stretch of the chain.
func (q query) JournalChain(ctx context.Context, first, after *int) (model.JournalChain, error) {
	most, from := 100, 0
	if first != nil {
		most = *first
	}
	if after != nil {
		from = *after
	}
	if most < 1 || most > maxBlocks || from < 0 {
		return model.JournalChain{}, fault.New(fault.Invalid, "found first %d and after %d; expected first 1 to %d and after 0 or more",
			most, from, maxBlocks)
	}
	chain, err := q.domain.Evidence.CheckChain(ctx, loadersOf(ctx).actor, int64(from), most)
	return model.JournalChain{Chain: chain}, err
}

// journalChain resolves those fields of JournalChain that are loaded.
type journalChain struct{ domain Domain }

// LastCheck is what the schedule found last; null before its first check.
func (c journalChain) LastCheck(ctx context.Context, _ *model.JournalChain) (*model.JournalChainCheck, error) {
	last, known, err := c.domain.Evidence.LastCheck(ctx, loadersOf(ctx).actor)
	if err != nil || !known {
		return nil, err
	}
	return &model.JournalChainCheck{Check: last}, nil
}

// auditEntry resolves those fields of AuditEntry that are loaded.
type auditEntry struct{}

// Application is the one that is concerned.
func (auditEntry) Application(ctx context.Context, e *model.AuditEntry) (*model.Application, error) {
	if e.ApplicationID == 0 {
		return nil, nil
	}
	return optional(ctx, loadersOf(ctx).applications, e.ApplicationID, model.WrapApplication)
}

// Environment is the one that is concerned.
func (auditEntry) Environment(ctx context.Context, e *model.AuditEntry) (*model.Environment, error) {
	if e.EnvironmentID == 0 {
		return nil, nil
	}
	return optional(ctx, loadersOf(ctx).environments, e.EnvironmentID, model.WrapEnvironment)
}
