package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/id"
	"github.com/lockstep-cd/lockstep/pkg/pg"
	"github.com/lockstep-cd/lockstep/pkg/telemetry"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/rollout"
	"github.com/lockstep-cd/lockstep/services/domain/internal/store/notify"
	"github.com/lockstep-cd/lockstep/services/domain/internal/store/query"
)

// AddRollout implements rollout.Tx.
func (t *tx) AddRollout(ctx context.Context, r core.Rollout) (core.Rollout, error) {
	// A partial unique index refuses a second active rollout of an application; that is a Conflict here (R14).
	trace, err := t.q.TraceOfVersionSet(ctx, t.organization, r.VersionSetID)
	if err != nil {
		return core.Rollout{}, missing(err, "version set", r.VersionSetID)
	}
	row, err := t.q.InsertRollout(ctx, query.InsertRolloutParams{
		OrganizationID: t.organization, ApplicationID: r.ApplicationID, VersionSetID: r.VersionSetID, FlowDefinitionID: r.FlowDefinitionID,
		RollbackOf: orNull(r.RollbackOf), Strategy: string(r.Plan.Strategy), StrategyReason: r.Plan.Why, Inputs: orObject(r.Inputs),
		Traceparent: orNull(telemetry.RecordedTrace(telemetry.LinkSpan(ctx, trace, "rollout created"))),
	})
	return toRollout(row), pg.Classify(err, "add rollout of application %d", r.ApplicationID)
}

// orObject is an object of JSON; an empty one for none.
func orObject(encoded json.RawMessage) json.RawMessage {
	if len(encoded) == 0 {
		return json.RawMessage(`{}`)
	}
	return encoded
}

// RecordedInputs implements rollout.Tx.
func (t *tx) RecordedInputs(ctx context.Context, versionSet, environment int64) (json.RawMessage, error) {
	inputs, err := t.q.RecordedInputs(ctx, environment, t.organization, versionSet)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, nil
	}
	return inputs, pg.Classify(err, "read the inputs of version set %d in environment %d", versionSet, environment)
}

// AddRolloutEnvironment implements rollout.Tx.
func (t *tx) AddRolloutEnvironment(ctx context.Context, e core.RolloutEnvironment) (core.RolloutEnvironment, error) {
	row, err := t.q.InsertRolloutEnvironment(ctx, query.InsertRolloutEnvironmentParams{
		OrganizationID: t.organization, RolloutID: e.RolloutID, EnvironmentID: e.EnvironmentID, Position: int32(e.Position),
		DriverBindingID: e.DriverBindingID, DriverDigest: e.DriverDigest, PreviousVersionSetID: orNull(e.PreviousVersionSetID),
		Weights: given(e.Weights), SkipsWeights: string(e.SkipsWeights), Follows: e.Follows, NeedsHealth: e.NeedsHealth,
	})
	return rolloutEnvironment(row), pg.Classify(err, "add environment %d to rollout %d", e.EnvironmentID, e.RolloutID)
}

// AddDeployment implements rollout.Tx.
func (t *tx) AddDeployment(ctx context.Context, d core.Deployment) (core.Deployment, error) {
	row, err := t.q.InsertDeployment(ctx, t.organization, d.RolloutEnvironmentID, d.ServiceID)
	return deployment(row), pg.Classify(err, "add deployment of service %d", d.ServiceID)
}

// AddRolloutSkip implements rollout.Tx.
func (t *tx) AddRolloutSkip(ctx context.Context, s core.SkippedEnvironment) error {
	err := t.q.InsertRolloutSkip(ctx, query.InsertRolloutSkipParams{
		OrganizationID: t.organization, RolloutID: s.RolloutID, EnvironmentID: s.EnvironmentID, Cause: string(s.Cause),
	})
	return pg.Classify(err, "skip environment %d in rollout %d", s.EnvironmentID, s.RolloutID)
}

// TouchedEnvironments implements rollout.Tx.
func (t *tx) TouchedEnvironments(ctx context.Context, application int64) (map[int64]bool, error) {
	ids, err := t.q.TouchedEnvironments(ctx, t.organization, application)
	return setOf(ids), pg.Classify(err, "read where application %d may have changed", application)
}

// EnvironmentsThatRan implements rollout.Tx.
func (t *tx) EnvironmentsThatRan(ctx context.Context, versionSet int64) (map[int64]bool, error) {
	ids, err := t.q.EnvironmentsThatRan(ctx, t.organization, versionSet)
	return setOf(ids), pg.Classify(err, "read where version set %d has run", versionSet)
}

func setOf(ids []int64) map[int64]bool {
	set := make(map[int64]bool, len(ids))
	for _, id := range ids {
		set[id] = true
	}
	return set
}

// LiveVersionSets implements rollout.Tx.
func (t *tx) LiveVersionSets(ctx context.Context, application int64) (map[int64]int64, error) {
	// Of stops, not of rollouts: an environment that was completed counts even if the rollout failed in a later one.
	rows, err := t.q.LiveVersionSets(ctx, t.organization, application)
	live := make(map[int64]int64, len(rows))
	for _, r := range rows {
		live[r.EnvironmentID] = r.VersionSetID
	}
	return live, pg.Classify(err, "read what is live of application %d", application)
}

// LockRollout implements rollout.Tx.
func (t *tx) LockRollout(ctx context.Context, id int64) (core.Rollout, error) {
	row, err := t.q.LockRollout(ctx, t.organization, id)
	if err != nil {
		return core.Rollout{}, missing(err, "rollout", id)
	}
	t.traces[row.ID] = orZero(row.Traceparent)
	return toRollout(row), nil
}

// LockRollouts implements rollout.Tx.
func (t *tx) LockRollouts(ctx context.Context, ids []int64) ([]core.Rollout, error) {
	rows, err := t.q.LockRollouts(ctx, t.organization, ids)
	for _, row := range rows {
		t.traces[row.ID] = orZero(row.Traceparent)
	}
	return convertAll(rows, toRollout), pg.Classify(err, "lock rollouts")
}

// RolloutsOfDeployments implements rollout.Tx.
func (t *tx) RolloutsOfDeployments(ctx context.Context, deployments []int64) (map[int64]int64, error) {
	rows, err := t.q.RolloutsOfDeployments(ctx, t.organization, deployments)
	found := make(map[int64]int64, len(rows))
	for _, r := range rows {
		found[r.ID] = r.RolloutID
	}
	return found, pg.Classify(err, "find rollouts of deployments")
}

// IsTarget implements rollout.Tx.
func (t *tx) IsTarget(ctx context.Context, deployment, environment, agent int64) (bool, error) {
	is, err := t.q.IsTarget(ctx, query.IsTargetParams{
		OrganizationID: t.organization, DeploymentID: deployment, EnvironmentID: environment, AgentID: agent,
	})
	return is, pg.Classify(err, "find target %d of deployment %d", agent, deployment)
}

// RolloutOfDeployment implements rollout.Tx.
func (t *tx) RolloutOfDeployment(ctx context.Context, deployment int64) (int64, error) {
	id, err := t.q.RolloutOfDeployment(ctx, t.organization, deployment)
	return id, missing(err, "deployment", deployment)
}

// AddSnapshot implements rollout.Tx.
func (t *tx) AddSnapshot(ctx context.Context, s core.Snapshot) error {
	err := t.q.InsertSnapshot(ctx, query.InsertSnapshotParams{
		OrganizationID: t.organization, DeploymentID: s.DeploymentID, CommitSha: s.CommitSHA, ManifestDigest: s.ManifestDigest,
		Parameters: s.Parameters,
		Changes:    given(s.Changes), ReportedAt: &s.ReportedAt,
	})
	return pg.Classify(err, "add snapshot of deployment %d", s.DeploymentID)
}

// ReplaceSnapshot implements rollout.Tx.
func (t *tx) ReplaceSnapshot(ctx context.Context, s core.Snapshot) error {
	changes, err := json.Marshal(given(s.Changes))
	if err != nil {
		return fmt.Errorf("encode changes of deployment %d: %w", s.DeploymentID, err)
	}
	err = t.q.ReplaceSnapshot(ctx, query.ReplaceSnapshotParams{
		DeploymentID: s.DeploymentID, CommitSha: s.CommitSHA, ManifestDigest: s.ManifestDigest, Parameters: s.Parameters, Changes: changes,
		ReportedAt: s.ReportedAt,
	})
	return pg.Classify(err, "replace snapshot of deployment %d", s.DeploymentID)
}

// AddAttempt implements rollout.Tx.
func (t *tx) AddAttempt(ctx context.Context, s core.Snapshot) error {
	err := t.q.InsertAttempt(ctx, query.InsertAttemptParams{
		OrganizationID: t.organization, DeploymentID: s.DeploymentID, CommitSha: s.CommitSHA, ManifestDigest: s.ManifestDigest,
		ReportedAt: s.ReportedAt,
	})
	return pg.Classify(err, "add attempt of deployment %d", s.DeploymentID)
}

// CountAttempts implements rollout.Tx.
func (t *tx) CountAttempts(ctx context.Context, deployment int64) (int, error) {
	n, err := t.q.CountAttempts(ctx, t.organization, deployment)
	return int(n), pg.Classify(err, "count attempts of deployment %d", deployment)
}

// AddCancellation implements rollout.Tx.
func (t *tx) AddCancellation(ctx context.Context, rollout int64, inputs json.RawMessage, at time.Time) error {
	err := t.q.InsertCancellation(ctx, query.InsertCancellationParams{
		OrganizationID: t.organization, WorkflowID: id.RolloutRun(rollout), CancelledWorkflowID: id.CancelledRun(rollout), Inputs: inputs, At: at,
	})
	return pg.Classify(err, "hand over the cancellation of rollout %d", rollout)
}

// SaveDeploymentLink implements rollout.Tx.
func (t *tx) SaveDeploymentLink(ctx context.Context, l core.DeploymentLink) error {
	err := t.q.UpsertDeploymentLink(ctx, query.UpsertDeploymentLinkParams{
		OrganizationID: t.organization, DeploymentID: l.DeploymentID, Name: l.Name, Namespace: l.Namespace, Url: l.URL, Status: l.Status,
	})
	return pg.Classify(err, "save link of deployment %d", l.DeploymentID)
}

// EnteredEnvironments implements rollout.Tx.
func (t *tx) EnteredEnvironments(ctx context.Context, rollout int64) ([]int64, error) {
	ids, err := t.q.EnteredEnvironments(ctx, t.organization, rollout)
	return ids, pg.Classify(err, "find what rollout %d has entered", rollout)
}

// ReportableDeployment implements rollout.Tx.
func (t *tx) ReportableDeployment(ctx context.Context, deployment int64) (rollout.ReportableDeployment, error) {
	r, err := t.q.ReportableDeployment(ctx, t.organization, deployment)
	if err != nil {
		return rollout.ReportableDeployment{}, missing(err, "deployment", deployment)
	}
	return rollout.ReportableDeployment{
		Target: core.Target{
			ApplicationID: r.ApplicationID, EnvironmentID: r.EnvironmentID, Environment: r.Environment, Tier: core.Tier(r.Tier),
		},
		Ended: core.DeploymentState(r.State).Terminal() || core.RolloutState(r.RolloutState).Terminal(),
		Name:  r.Name, Namespace: r.Namespace, Reported: r.Reported,
	}, nil
}

// NoteNudge implements rollout.Tx.
func (t *tx) NoteNudge(ctx context.Context, r rollout.OutsideReport) (bool, error) {
	n, err := t.q.NoteDeploymentReport(ctx, query.NoteDeploymentReportParams{
		OrganizationID: t.organization, DeploymentID: r.DeploymentID, Name: r.Name, Namespace: r.Namespace, Phase: r.Phase,
	})
	return n > 0, pg.Classify(err, "note a report about deployment %d", r.DeploymentID)
}

// Record implements rollout.Tx: the row, and the state that it changes. Neither is waited for: their errors are returned
// by the next statement, or the commit.
func (t *tx) Record(ctx context.Context, r core.Transition) error {
	if err := t.insertTransition(ctx, query.New(later{t.line, whatever}), r); err != nil {
		return pg.Classify(err, "record %s of %s %d", r.Verb, r.Subject.Kind, r.Subject.ID)
	}
	if n, is := core.NotificationOf(r); is {
		add := notify.Add
		if n.Moment == core.MomentAdvanced {
			add = func(ctx context.Context, q *query.Queries, organization int64, n core.Notification) error {
				return notify.Advance(ctx, q, organization, n, 0)
			}
		}
		if err := add(ctx, query.New(later{t.line, whatever}), t.organization, n); err != nil {
			return err
		}
	} else if n, is := core.NotificationOfEnvironment(r); is {
		if err := notify.Advance(ctx, query.New(later{t.line, whatever}), t.organization, n, r.Subject.ID); err != nil {
			return err
		}
	}
	if n, is := core.StepOf(r); is {
		rolloutEnvironment := int64(0)
		if n.RolloutID == 0 {
			rolloutEnvironment = r.Subject.ID
		}
		if err := notify.Step(ctx, query.New(later{t.line, whatever}), t.organization, n, rolloutEnvironment); err != nil {
			return err
		}
	}
	if r.Verb == core.VerbApprove || r.Verb == core.VerbReject {
		if err := notify.AnsweredGate(ctx, query.New(later{t.line, whatever}), t.organization, r); err != nil {
			return err
		}
	}
	// The creation, whose row is made with the first state, and a request (D17): there is no state to change.
	if r.From == "" || r.From == r.To {
		return nil
	}
	moved := func(tag pgconn.CommandTag) error {
		// The update asks for the state it leaves. A caller that holds the rollout's lock never meets this; it catches one
		// that forgot to take it, before cache and journal differ (R42).
		if tag.RowsAffected() != 1 {
			return fault.New(fault.Conflict, "%s %d is no longer %s", r.Subject.Kind, r.Subject.ID, r.From)
		}
		return nil
	}
	return pg.Classify(t.setState(ctx, query.New(later{t.line, moved}), r), "set state of %s %d", r.Subject.Kind, r.Subject.ID)
}

func (t *tx) insertTransition(ctx context.Context, q *query.Queries, r core.Transition) error {
	var (
		principal, reason, triggeredBy = orNull(r.PrincipalID), orNull(r.Reason), orNull(r.TriggeredBy)
		verb, by                       = string(r.Verb), string(r.PrincipalType)
	)
	var conditions json.RawMessage
	if r.Conditions != nil {
		var err error
		if conditions, err = json.Marshal(r.Conditions); err != nil {
			return fmt.Errorf("write conditions of %s: %w", r.GateID, err)
		}
	}
	if r.Subject.Kind != core.SubjectDeployment {
		t.line.keepGathered(ctx)
	}
	switch r.Subject.Kind {
	case core.SubjectRollout:
		return q.InsertRolloutTransition(ctx, query.InsertRolloutTransitionParams{
			OrganizationID: t.organization, RolloutID: r.Subject.ID, FromState: orNull(string(r.From)), ToState: string(r.To), Event: verb,
			GateID:        orNull(r.GateID),
			PrincipalType: by, PrincipalID: principal, Reason: reason, TriggeredBy: triggeredBy, Conditions: conditions, Breach: r.Breach,
			CreatedAt: r.CreatedAt,
		})
	case core.SubjectRolloutEnvironment:
		return q.InsertRolloutEnvironmentTransition(ctx, query.InsertRolloutEnvironmentTransitionParams{
			OrganizationID: t.organization, RolloutEnvironmentID: r.Subject.ID, FromState: orNull(string(r.From)), ToState: string(r.To),
			Event:         verb,
			PrincipalType: by, PrincipalID: principal, Reason: reason, TriggeredBy: triggeredBy, CreatedAt: r.CreatedAt,
		})
	case core.SubjectDeployment:
		return t.line.gather(t.organization, r)
	default:
		return fault.New(fault.Internal, "no journal for %q", r.Subject.Kind)
	}
}

func (t *tx) setState(ctx context.Context, q *query.Queries, r core.Transition) (err error) {
	switch r.Subject.Kind {
	case core.SubjectRollout:
		// how many is known later
		_, err = q.SetRolloutState(ctx, query.SetRolloutStateParams{
			OrganizationID: t.organization, ID: r.Subject.ID, FromState: string(r.From),
			ToState: string(r.To), At: r.CreatedAt,
		})
	case core.SubjectRolloutEnvironment:
		// how many is known later
		_, err = q.SetRolloutEnvironmentState(ctx, query.SetRolloutEnvironmentStateParams{
			OrganizationID: t.organization, ID: r.Subject.ID,
			FromState: string(r.From), ToState: string(r.To), At: r.CreatedAt,
		})
	case core.SubjectDeployment:
		// how many is known later
		_, err = q.SetDeploymentState(ctx, query.SetDeploymentStateParams{
			OrganizationID: t.organization, ID: r.Subject.ID, FromState: string(r.From),
			ToState: string(r.To), At: r.CreatedAt,
		})
	default:
		return fault.New(fault.Internal, "no state for %q", r.Subject.Kind)
	}
	return err
}

// AddHandoff implements setup.StartTx.
func (t *tx) AddHandoff(ctx context.Context, h core.Handoff) error {
	err := t.q.InsertHandoff(ctx, query.InsertHandoffParams{
		OrganizationID: t.organization, Kind: string(h.Kind), WorkflowID: h.WorkflowID, SubjectKind: string(h.Subject), SubjectID: h.SubjectID,
		Program: orNull(h.Program), DriverDigest: orNull(h.DriverDigest), Inputs: h.Inputs, Reason: h.Reason, DueAt: h.DueAt,
		Traceparent: orNull(telemetry.RecordedTrace(ctx)),
	})
	return pg.Classify(err, "add %s of workflow %s", h.Kind, h.WorkflowID)
}

// WithdrawStart implements rollout.Tx.
func (t *tx) WithdrawStart(ctx context.Context, workflowID string) (bool, error) {
	// One statement tests and takes back, so a dispatcher that claims at the same time either comes first, and this is
	// too late, or finds nothing pending.
	n, err := t.q.WithdrawStart(ctx, t.organization, workflowID)
	return n > 0, pg.Classify(err, "withdraw start of workflow %s", workflowID)
}

// ClaimHandoff implements handoff.Tx.
func (t *tx) ClaimHandoff(ctx context.Context, at, until time.Time) (core.Handoff, bool, error) {
	row, err := t.q.ClaimHandoff(ctx, until, t.organization, at)
	if errors.Is(err, pgx.ErrNoRows) {
		return core.Handoff{}, false, nil
	}
	return toHandoff(row), err == nil, pg.Classify(err, "claim hand-over")
}

// SaveHandoff implements handoff.Tx.
func (t *tx) SaveHandoff(ctx context.Context, h core.Handoff) error {
	// Only what is pending is saved. No row is no error: another worker has settled it after the lease expired.
	_, err := t.q.SaveHandoff(ctx, query.SaveHandoffParams{
		OrganizationID: t.organization, ID: h.ID, State: string(h.State),
		DueAt: h.DueAt, Error: h.Error,
	})
	return pg.Classify(err, "save hand-over %d", h.ID)
}

// SetWorkflowRef implements handoff.Tx.
func (t *tx) SetWorkflowRef(ctx context.Context, kind core.HandoffSubject, id int64, ref string) error {
	var err error
	switch kind {
	case core.HandoffRollout:
		err = t.q.SetRolloutWorkflowRef(ctx, &ref, t.organization, id)
	case core.HandoffEnvironment:
		err = t.q.SetEnvironmentWorkflowRef(ctx, &ref, t.organization, id)
	case core.HandoffApplicationEnvironment:
		err = t.q.SetApplicationEnvironmentWorkflowRef(ctx, &ref, t.organization, id)
	case core.HandoffPreview:
		err = t.q.SetPreviewWorkflowRef(ctx, &ref, t.organization, id)
	case core.HandoffCheck:
		err = t.q.SetCheckRunWorkflowRef(ctx, &ref, t.organization, id)
	case core.HandoffCancellation: // the run's id follows from the rollout's
	}
	return pg.Classify(err, "store workflow of %s %d", kind, id)
}
