package graph

import (
	"context"
	"encoding/json"

	"github.com/lockstep-cd/lockstep/services/domain/internal/api/graph/model"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/check"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/rollout"
)

// ReportCheck records a status.
func (m mutation) ReportCheck(ctx context.Context, in model.ReportCheckInput) (p model.ReportCheckPayload, err error) {
	l := loadersOf(ctx)
	r := check.Report{
		Commit: orEmpty(in.Commit), Digest: orEmpty(in.Digest), Key: in.Key, Phase: in.Phase, Description: orEmpty(in.Description),
		Link: orEmpty(in.Link), ObservedAt: in.ObservedAt,
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

// rolloutCheck resolves the fields of RolloutCheck that are loaded.
type rolloutCheck struct{}

// Environment is the one that it is about.
func (rolloutCheck) Environment(ctx context.Context, c *model.RolloutCheck) (model.Environment, error) {
	return required(ctx, loadersOf(ctx).environments, model.KindEnvironment, c.EnvironmentID, model.WrapEnvironment)
}

// Reports are the latest of each reporter.
func (rolloutCheck) Reports(_ context.Context, c *model.RolloutCheck) ([]model.CheckReport, error) {
	return wrapAll(c.Reports, model.WrapCheckReport), nil
}

// Checks are all checks of a rollout.
func (rolloutResolver) Checks(ctx context.Context, r *model.Rollout) ([]model.RolloutCheck, error) {
	return list(ctx, loadersOf(ctx).checksOf, r.ID, model.WrapRolloutCheck)
}

// Checks are those that an environment requires by itself.
func (environment) Checks(ctx context.Context, e *model.Environment) (json.RawMessage, error) {
	checks, _, err := loadersOf(ctx).environmentChecksOf.load(ctx, e.ID)
	return checks, err
}

// SetEnvironmentChecks decides which checks an environment requires by itself.
func (m mutation) SetEnvironmentChecks(
	ctx context.Context, in model.SetEnvironmentChecksInput,
) (p model.SetEnvironmentChecksPayload, err error) {
	l := loadersOf(ctx)
	n, err := number("/environmentId", model.KindEnvironment, in.EnvironmentID)
	if err == nil {
		_, err = m.domain.Setup.SetEnvironmentChecks(ctx, l.actor, n, in.Checks)
	}
	p.Environment, p.Errors, err = outcome(ctx, l.environments, n, model.WrapEnvironment, err)
	return p, err
}

// ChecksSchema is the JSON Schema of the checks that an environment requires.
func (q query) ChecksSchema(context.Context) (json.RawMessage, error) {
	return q.domain.Setup.ChecksSchema()
}

// CheckKinds are the kinds of checks whose programs decide.
func (q query) CheckKinds(context.Context) ([]model.InstalledCheckKind, error) {
	return wrapAll(q.domain.Setup.CheckKinds(), model.WrapInstalledCheckKind), nil
}

// checkNamed is the check of a rollout that a mutation names, for an actor that may do an action somewhere.
func (m mutation) checkNamed(ctx context.Context, action core.Action, id, environment, key string) (n rollout.CheckNamed, err error) {
	n = rollout.CheckNamed{Key: key}
	// Before names are looked up, which would reveal what exists.
	if err = loadersOf(ctx).actor.MaySomewhere(action); err == nil {
		n.RolloutID, err = number("/rolloutId", model.KindRollout, id)
	}
	if err == nil {
		n.EnvironmentID, err = environmentNumber(ctx, m.domain.View, environment)
		err = inField(err, "/environment")
	}
	return n, err
}

// EvaluateCheck has a check evaluated now.
func (m mutation) EvaluateCheck(ctx context.Context, in model.EvaluateCheckInput) (p model.EvaluateCheckPayload, err error) {
	l := loadersOf(ctx)
	named, err := m.checkNamed(ctx, core.ActionEvaluateCheck, in.RolloutID, in.Environment, in.Key)
	var r core.Rollout
	if err == nil {
		r, err = m.domain.Rollouts.EvaluateCheck(ctx, l.actor, named)
		err = inField(err, "/rolloutId")
	}
	p.Rollout, p.Errors, err = outcome(ctx, l.rollouts, r.ID, model.WrapRollout, err)
	return p, err
}

// DecideCheck answers a check whose program asks.
func (m mutation) DecideCheck(ctx context.Context, in model.DecideCheckInput) (p model.DecideCheckPayload, err error) {
	l := loadersOf(ctx)
	named, err := m.checkNamed(ctx, core.ActionDecideCheck, in.RolloutID, in.Environment, in.Key)
	var r core.Rollout
	if err == nil {
		r, err = m.domain.Rollouts.DecideCheck(ctx, l.actor, named, in.Phase, in.Reason)
		err = inField(err, "/rolloutId")
	}
	p.Rollout, p.Errors, err = outcome(ctx, l.rollouts, r.ID, model.WrapRollout, err)
	return p, err
}
