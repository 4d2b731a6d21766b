package graph

import (
	"context"

	"github.com/lockstep-cd/lockstep/services/domain/internal/api/graph/model"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/check"
)

// ReportCheck records a status.
func (m mutation) ReportCheck(ctx context.Context, in model.ReportCheckInput) (p model.ReportCheckPayload, err error) {
	l := loadersOf(ctx)
	r := check.Report{
		Commit: orEmpty(in.Commit), Key: in.Key, Phase: in.Phase, Description: orEmpty(in.Description), Link: orEmpty(in.Link),
	}
	// Before names are looked up, which would reveal what exists.
	if err = l.actor.MaySomewhere(core.ActionReportCheck); err == nil {
		r.ApplicationID, err = applicationNumber(ctx, m.domain.View, in.Application)
		err = inField(err, "/application")
	}
	if err == nil {
		r.EnvironmentID, err = environmentNumber(ctx, m.domain.View, in.Environment)
		err = inField(err, "/environment")
	}
	if err == nil && in.VersionSetID != nil {
		r.VersionSetID, err = number("/versionSetId", model.KindVersionSet, *in.VersionSetID)
	}
	var made core.CheckReport
	if err == nil {
		made, err = m.domain.Checks.ReportCheck(ctx, l.actor, r)
		err = inField(err, "/versionSetId")
	}
	p.Report, p.Errors, err = changed(made, err, model.WrapCheckReport)
	return p, err
}

// checkReport resolves the fields of CheckReport that are loaded.
type checkReport struct{}

// Application is the one that it is about.
func (checkReport) Application(ctx context.Context, r *model.CheckReport) (model.Application, error) {
	return required(ctx, loadersOf(ctx).applications, model.KindApplication, r.ApplicationID, model.WrapApplication)
}

// Environment is the one that it is about.
func (checkReport) Environment(ctx context.Context, r *model.CheckReport) (model.Environment, error) {
	return required(ctx, loadersOf(ctx).environments, model.KindEnvironment, r.EnvironmentID, model.WrapEnvironment)
}

// VersionSet is what it is about.
func (checkReport) VersionSet(ctx context.Context, r *model.CheckReport) (model.VersionSet, error) {
	return required(ctx, loadersOf(ctx).versionSets, model.KindVersionSet, r.VersionSetID, model.WrapVersionSet)
}
