package control

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/pg"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
	"github.com/lockstep-cd/lockstep/services/domain/internal/store/notify"
	"github.com/lockstep-cd/lockstep/services/domain/internal/store/query"
)

// Writes are what use cases change, in the transaction that Q is of.
type Writes struct {
	Q *query.Queries
	// Entered is the organization of the transaction; every statement names it.
	Entered int64
	// Installation are the policy sets that the operator has given.
	Installation []core.PolicySet
	// AgentsOf are the agents that the configuration of a driver names; none for a driver that is not installed.
	AgentsOf func(driver string, config json.RawMessage) ([]int64, error)
}

// AddFreeze implements freeze.Tx.
func (w Writes) AddFreeze(ctx context.Context, f core.Freeze) (core.Freeze, error) {
	tiers := make([]string, len(f.Tiers))
	for i, tier := range f.Tiers {
		tiers[i] = string(tier)
	}
	applications, err := selector(f.ApplicationLabels)
	if err != nil {
		return core.Freeze{}, err
	}
	environments, err := selector(f.EnvironmentLabels)
	if err != nil {
		return core.Freeze{}, err
	}
	row, err := w.Q.InsertFreeze(ctx, query.InsertFreezeParams{
		OrganizationID: w.Entered, Tiers: tiers, EnvironmentIds: append([]int64{}, f.EnvironmentIDs...),
		ApplicationIds: append([]int64{}, f.ApplicationIDs...), Rollbacks: f.Rollbacks, Reason: f.Reason, StartsAt: f.StartsAt, EndsAt: f.EndsAt,
		BoundedFrom: f.BoundedFrom, PrincipalType: string(f.Author.Type), PrincipalID: f.Author.ID, PrincipalName: f.Author.Name,
		CreatedAt: f.CreatedAt, Incident: f.Incident, ApplicationLabels: applications, EnvironmentLabels: environments,
	})
	if err != nil {
		return core.Freeze{}, pg.Classify(err, "add freeze")
	}
	made := Freeze(row)
	if err := notify.Add(ctx, w.Q, w.Entered, core.Notification{
		Moment: core.MomentFreezeBegan, Cause: fmt.Sprintf("freeze:%d:began", made.ID), At: made.StartsAt, DueAt: made.StartsAt, SubjectID: made.ID,
		By: made.Author.Principal,
	}); err != nil {
		return made, err
	}
	return made, w.freezeEnds(ctx, made.ID, made.EndsAt)
}

// selector is labels that a scope asks of, as the table has them: null for none.
func selector(labels map[string]string) (json.RawMessage, error) {
	if len(labels) == 0 {
		return nil, nil
	}
	text, err := json.Marshal(labels)
	if err != nil {
		return nil, fmt.Errorf("encode the labels of a freeze: %w", err)
	}
	return text, nil
}

// LabelledFreezes implements setup.Tx.
func (w Writes) LabelledFreezes(ctx context.Context, at time.Time) ([]core.Freeze, error) {
	rows, err := w.Q.LabelledFreezes(ctx, w.Entered, at)
	return convert(rows, Freeze), pg.Classify(err, "lock freezes by label")
}

// LockFreeze implements freeze.Tx.
func (w Writes) LockFreeze(ctx context.Context, id int64) (core.Freeze, error) {
	row, err := w.Q.LockFreeze(ctx, w.Entered, id)
	return Freeze(row), missing(err, "freeze", id)
}

// FreezesToCome implements freeze.Tx.
func (w Writes) FreezesToCome(ctx context.Context, at time.Time) (int, error) {
	n, err := w.Q.CountFreezes(ctx, w.Entered, at)
	return int(n), pg.Classify(err, "count freezes")
}

// ExtendFreeze implements freeze.Tx.
func (w Writes) ExtendFreeze(ctx context.Context, f core.Freeze) error {
	err := w.Q.ExtendFreeze(ctx, query.ExtendFreezeParams{OrganizationID: w.Entered, ID: f.ID, EndsAt: f.EndsAt, BoundedFrom: f.BoundedFrom})
	if err != nil {
		return pg.Classify(err, "extend freeze %d", f.ID)
	}
	return w.freezeEnds(ctx, f.ID, f.EndsAt)
}

// EndFreeze implements freeze.Tx.
func (w Writes) EndFreeze(ctx context.Context, id int64, at time.Time) error {
	if err := w.Q.EndFreeze(ctx, &at, w.Entered, id); err != nil {
		return pg.Classify(err, "end freeze %d", id)
	}
	return w.freezeEnds(ctx, id, at)
}

// freezeEnds stores the moment at which a freeze ends. Once it has come, the freeze may have been extended or ended before.
func (w Writes) freezeEnds(ctx context.Context, id int64, at time.Time) error {
	return notify.Add(ctx, w.Q, w.Entered, core.Notification{
		Moment: core.MomentFreezeEnded, Cause: fmt.Sprintf("freeze:%d:ended:%d", id, at.UnixNano()), At: at, DueAt: at, SubjectID: id,
	})
}

// AddVeto implements freeze.Tx.
func (w Writes) AddVeto(ctx context.Context, v core.Veto) (core.Veto, error) {
	p := query.InsertVetoParams{
		OrganizationID: w.Entered, Reason: v.Reason, PrincipalType: string(v.Author.Type), PrincipalID: v.Author.ID, PrincipalName: v.Author.Name,
		CreatedAt: v.CreatedAt,
	}
	if v.VersionID != 0 {
		p.VersionID = &v.VersionID
	} else {
		p.VersionSetID = &v.VersionSetID
	}
	row, err := w.Q.InsertVeto(ctx, p)
	if err = pg.Classify(err, "add veto"); fault.Is(err, fault.Conflict) {
		return core.Veto{}, fault.Because(err, fault.Refused, "it is vetoed already")
	}
	return veto(row), err
}

// LockVeto implements freeze.Tx.
func (w Writes) LockVeto(ctx context.Context, id int64) (core.Veto, error) {
	row, err := w.Q.LockVeto(ctx, w.Entered, id)
	return veto(row), missing(err, "veto", id)
}

// LiftVeto implements freeze.Tx.
func (w Writes) LiftVeto(ctx context.Context, id int64, at time.Time) error {
	return pg.Classify(w.Q.LiftVeto(ctx, &at, w.Entered, id), "lift veto %d", id)
}

// LockPin implements freeze.Tx.
func (w Writes) LockPin(ctx context.Context, environment int64) (core.Pin, bool, error) {
	row, err := w.Q.LockPin(ctx, w.Entered, environment)
	if errors.Is(err, pgx.ErrNoRows) {
		return core.Pin{}, false, nil
	}
	return pin(row), row.Pinned, pg.Classify(err, "read pin of environment %d", environment)
}

// SavePin implements freeze.Tx.
func (w Writes) SavePin(ctx context.Context, p core.Pin, pinned bool) error {
	err := w.Q.SavePin(ctx, query.SavePinParams{
		OrganizationID: w.Entered, EnvironmentID: p.EnvironmentID, Pinned: pinned, Reason: p.Reason, Since: p.Since,
		PrincipalType: string(p.Author.Type), PrincipalID: p.Author.ID, PrincipalName: p.Author.Name,
	})
	return pg.Classify(err, "save pin of environment %d", p.EnvironmentID)
}

// ReviewStopped implements freeze.Tx.
func (w Writes) ReviewStopped(ctx context.Context, kind core.StopKind, id int64, at time.Time) error {
	_, err := w.Q.ReviewStopped(ctx, string(kind), id, at)
	return pg.Classify(err, "review what %s %d has stopped", kind, id)
}

// Controls implements rollout.Tx.
func (w Writes) Controls(ctx context.Context, versionSet int64, environments []int64, at time.Time) (core.Controls, error) {
	var c core.Controls
	// Usually none exists, which takes only one statement to find out.
	exist, err := w.Q.ControlsExist(ctx, query.ControlsExistParams{
		OrganizationID: w.Entered, At: at, VersionSetID: &versionSet, Environments: environments,
	})
	if err != nil {
		return c, pg.Classify(err, "look for what stops version set %d", versionSet)
	}
	reads := Reads{Run: func(_ context.Context, _ int64, fn func(*query.Queries) error) error { return fn(w.Q) }}
	if exist.Freezes {
		rows, err := w.Q.FreezesAt(ctx, w.Entered, at)
		if err != nil {
			return c, pg.Classify(err, "read freezes")
		}
		c.Freezes = convert(rows, Freeze)
	}
	if exist.Vetoes {
		vetoes, err := reads.VetoesByVersionSet(ctx, w.Entered, []int64{versionSet})
		if err != nil {
			return c, err
		}
		c.Vetoes = vetoes[versionSet]
	}
	if exist.Pins {
		if c.Pins, err = reads.PinsByEnvironment(ctx, w.Entered, environments); err != nil {
			return c, err
		}
	}
	return c, nil
}

// HoldControls implements rollout.Tx.
func (w Writes) HoldControls(ctx context.Context) error {
	_, err := w.Q.HoldControls(ctx, w.Entered)
	return pg.Classify(err, "hold what stops passages")
}

// LockControls implements freeze.Tx and setup.Tx.
func (w Writes) LockControls(ctx context.Context) error {
	return pg.Classify(w.Q.LockControls(ctx, w.Entered), "lock what stops passages")
}

// AddPassageStop implements rollout.Tx.
func (w Writes) AddPassageStop(ctx context.Context, rollout int64, gate string, s core.Stop) error {
	err := w.Q.InsertPassageStop(ctx, query.InsertPassageStopParams{
		OrganizationID: w.Entered, RolloutID: rollout, GateID: gate, Kind: string(s.Kind), ControlID: s.ID,
	})
	return pg.Classify(err, "note that rollout %d is stopped at %s", rollout, gate)
}

// ForgetPassageStops implements rollout.Tx.
func (w Writes) ForgetPassageStops(ctx context.Context, rollout int64, keep []string) error {
	_, err := w.Q.ForgetPassageStops(ctx, rollout, append([]string{}, keep...))
	return pg.Classify(err, "forget what stops rollout %d", rollout)
}

// ScheduleReview implements rollout.Tx.
func (w Writes) ScheduleReview(ctx context.Context, rollout int64, due time.Time) error {
	return pg.Classify(w.Q.ScheduleReview(ctx, w.Entered, rollout, due), "schedule a review of rollout %d", rollout)
}

// DueReview implements rollout.Tx.
func (w Writes) DueReview(ctx context.Context, at time.Time) (rollout int64, reviews []int64, err error) {
	rows, err := w.Q.DueReview(ctx, w.Entered, at)
	for _, r := range rows {
		rollout, reviews = r.RolloutID, append(reviews, r.ID)
	}
	return rollout, reviews, pg.Classify(err, "find due review")
}

// SettleLostReviews implements rollout.Tx.
func (w Writes) SettleLostReviews(ctx context.Context, at time.Time) error {
	_, err := w.Q.SettleLostReviews(ctx, w.Entered, at)
	return pg.Classify(err, "settle reviews of rollouts that do not exist")
}

// SettleReviews implements rollout.Tx.
func (w Writes) SettleReviews(ctx context.Context, reviews []int64) error {
	_, err := w.Q.SettleReviews(ctx, reviews)
	return pg.Classify(err, "settle reviews")
}

// PinCheck implements rollout.Tx.
func (w Writes) PinCheck(ctx context.Context, rollout int64, c core.PinnedCheck) error {
	var windows []byte
	if c.Schedule != nil {
		var err error
		if windows, err = json.Marshal(c.Schedule); err != nil {
			return fmt.Errorf("write windows of check %s: %w", c.Key, err)
		}
	}
	err := w.Q.InsertRolloutCheck(ctx, query.InsertRolloutCheckParams{
		OrganizationID: w.Entered, RolloutID: rollout, EnvironmentID: c.EnvironmentID, Target: string(c.Target), Key: c.Key, Own: c.Own,
		Kind:            string(c.Kind),
		DurationSeconds: int32(c.Duration / time.Second), Windows: windows, Config: c.Config,
		KindDigest: orNull(c.Digest), InSync: c.InSync,
	})
	return pg.Classify(err, "pin check %s of rollout %d", c.Key, rollout)
}

// SaveEnvironmentChecks implements setup.Tx.
func (w Writes) SaveEnvironmentChecks(ctx context.Context, environment int64, checks json.RawMessage) error {
	if checks == nil {
		checks = json.RawMessage(`{}`)
	}
	return pg.Classify(w.Q.SaveEnvironmentChecks(ctx, w.Entered, environment, checks), "save checks of environment %d", environment)
}

// Checks implements rollout.Tx.
func (w Writes) Checks(ctx context.Context, rollout, versionSet int64) (core.Checks, error) {
	reads := Reads{Run: func(_ context.Context, _ int64, fn func(*query.Queries) error) error { return fn(w.Q) }}
	pinned, err := reads.ChecksByRollout(ctx, w.Entered, []int64{rollout})
	c := core.Checks{Pinned: pinned[rollout]}
	if err != nil {
		return c, err
	}
	// Also where nothing is pinned, so that both are asked together.
	reports, err := reads.CheckReports(ctx, w.Entered, []int64{versionSet})
	c.Reports = reports[versionSet]
	if err != nil || !slices.ContainsFunc(c.Pinned, func(p core.PinnedCheck) bool { return p.Kind.Program() }) {
		return c, err
	}
	runs, err := reads.CheckRuns(ctx, w.Entered, []int64{rollout})
	c.Runs = runs[rollout]
	return c, err
}

// LockReporter implements check.Tx.
func (w Writes) LockReporter(ctx context.Context, r core.CheckReport) error {
	err := w.Q.LockReporter(ctx, query.LockReporterParams{
		OrganizationID: w.Entered, VersionSetID: r.VersionSetID, EnvironmentID: r.EnvironmentID, Key: r.Key,
		Reporter: fmt.Sprint(r.Reporter.Principal),
	})
	return pg.Classify(err, "lock the reports of check %s", r.Key)
}

// AddCheckRun implements rollout.Tx.
func (w Writes) AddCheckRun(ctx context.Context, r core.CheckRun) (core.CheckRun, error) {
	row, err := w.Q.InsertCheckRun(ctx, query.InsertCheckRunParams{
		OrganizationID: w.Entered, RolloutID: r.RolloutID, EnvironmentID: r.EnvironmentID, Target: string(r.Target), Key: r.Key, Own: r.Own,
		Number: int32(r.Number), CreatedAt: r.CreatedAt,
	})
	return checkRun(row), pg.Classify(err, "add run of check %s of rollout %d", r.Key, r.RolloutID)
}

// CheckRun implements rollout.Tx.
func (w Writes) CheckRun(ctx context.Context, id int64) (core.CheckRun, error) {
	row, err := w.Q.CheckRun(ctx, w.Entered, id)
	return checkRun(row), missing(err, "run of a check", id)
}

// SetCheckOutput implements rollout.Tx.
func (w Writes) SetCheckOutput(ctx context.Context, run int64, output json.RawMessage) error {
	err := w.Q.SetCheckOutput(ctx, output, w.Entered, run)
	return pg.Classify(err, "keep the output of run %d of a check", run)
}

// CheckOutputs implements rollout.Tx.
func (w Writes) CheckOutputs(ctx context.Context, runs []int64, most int) (map[int64]json.RawMessage, error) {
	rows, err := w.Q.CheckOutputs(ctx, int64(most), runs, w.Entered)
	all := make(map[int64]json.RawMessage, len(rows))
	for _, row := range rows {
		all[row.ID] = json.RawMessage(row.Output)
	}
	return all, pg.Classify(err, "read outputs of %d runs of checks", len(runs))
}

// EndCheckRuns implements rollout.Tx.
func (w Writes) EndCheckRuns(ctx context.Context, rollout int64, runs []int64, at time.Time) ([]core.CheckRun, error) {
	rows, err := w.Q.EndCheckRuns(ctx, query.EndCheckRunsParams{
		EndedAt: &at, OrganizationID: w.Entered, RolloutID: rollout, Ids: append([]int64{}, runs...),
	})
	ended := make([]core.CheckRun, len(rows))
	for i, row := range rows {
		ended[i] = checkRun(row)
	}
	return ended, pg.Classify(err, "end runs of checks of rollout %d", rollout)
}

// orNull is the absence of a zero value, as the tables have it.
func orNull[T comparable](v T) *T {
	var zero T
	if v == zero {
		return nil
	}
	return &v
}

// AddCheckReport implements check.Tx.
func (w Writes) AddCheckReport(ctx context.Context, r core.CheckReport) (core.CheckReport, error) {
	environments := []byte("{}")
	if len(r.Environments) > 0 {
		environments, _ = json.Marshal(r.Environments) // texts by text: never fails
	}
	rows, err := w.Q.LatestStatusesOfCheck(ctx, query.LatestStatusesOfCheckParams{
		OrganizationID: w.Entered, VersionSetID: r.VersionSetID, EnvironmentID: r.EnvironmentID, Key: r.Key,
	})
	if err != nil {
		return core.CheckReport{}, pg.Classify(err, "read statuses of checks")
	}
	before := make([]core.CheckReport, len(rows))
	for i, row := range rows {
		before[i] = checkReport(row)
	}
	row, err := w.Q.InsertCheckStatus(ctx, query.InsertCheckStatusParams{
		OrganizationID: w.Entered, ApplicationID: r.ApplicationID, EnvironmentID: r.EnvironmentID, VersionSetID: r.VersionSetID, Key: r.Key,
		Phase: string(r.Phase), Description: r.Description, Link: r.Link, PrincipalType: string(r.Reporter.Type), PrincipalID: r.Reporter.ID,
		PrincipalName: r.Reporter.Name, ObservedAt: r.ObservedAt, CreatedAt: r.CreatedAt, Asks: r.Asks, Environments: environments,
		ProposedCommit: r.ProposedCommit,
	})
	if err != nil {
		return core.CheckReport{}, pg.Classify(err, "add status of check %s", r.Key)
	}
	made := checkReport(row)
	if err := w.notifyOfCheck(ctx, before, made); err != nil {
		return core.CheckReport{}, err
	}
	_, err = w.Q.ForgetCheckStatuses(ctx, row.ID)
	return made, pg.Classify(err, "forget earlier statuses of check %s", r.Key)
}

// notifyOfCheck stores that a report has a check fail or pass, once for each failure: one that is pending in between is the same.
func (w Writes) notifyOfCheck(ctx context.Context, before []core.CheckReport, r core.CheckReport) error {
	was, is, why := core.PhasesOf(before, r)
	if was == is {
		return nil
	}
	n := core.Notification{
		Moment: core.MomentCheckFailed, Cause: fmt.Sprintf("check:%d", r.ID), At: r.CreatedAt, ApplicationID: r.ApplicationID,
		EnvironmentID: r.EnvironmentID, SubjectID: r.VersionSetID, Subject: r.Key, By: r.Reporter.Principal, Reason: why,
	}
	switch is {
	case core.CheckFailure:
		return notify.CheckFailed(ctx, w.Q, w.Entered, n)
	case core.CheckSuccess:
		n.Moment = core.MomentCheckPassed
		return notify.Ended(ctx, w.Q, w.Entered, n)
	case core.CheckPending:
		return nil
	default:
		return nil
	}
}

// ProposedCommit implements check.Tx.
func (w Writes) ProposedCommit(ctx context.Context, rollout, environment int64) (string, error) {
	head, err := w.Q.ProposedCommit(ctx, w.Entered, rollout, environment)
	if errors.Is(err, pgx.ErrNoRows) {
		return "", nil
	}
	return head, pg.Classify(err, "find what rollout %d has proposed for environment %d", rollout, environment)
}

// VersionSetsOfCommit implements check.Tx.
func (w Writes) VersionSetsOfCommit(ctx context.Context, application, environment int64, commit string) ([]int64, error) {
	ids, err := w.Q.VersionSetOfCommit(ctx, query.VersionSetOfCommitParams{
		OrganizationID: w.Entered, CommitSha: commit, EnvironmentID: environment, ApplicationID: application,
	})
	return ids, pg.Classify(err, "find the version set of commit %s", commit)
}

// VersionSetsOfArtifact implements check.Tx.
func (w Writes) VersionSetsOfArtifact(
	ctx context.Context, application, active int64, artifact string, built bool,
) (whole, partly []int64, err error) {
	rows, err := w.Q.VersionSetsOfArtifact(ctx, query.VersionSetsOfArtifactParams{
		OrganizationID: w.Entered, ApplicationID: application, Active: active, Artifact: artifact, Built: built,
	})
	for _, row := range rows {
		if row.Whole {
			whole = append(whole, row.VersionSetID)
			continue
		}
		partly = append(partly, row.VersionSetID)
	}
	return whole, partly, pg.Classify(err, "find the version sets of %s", artifact)
}

// ReviewChecked implements rollout.Tx.
func (w Writes) ReviewChecked(ctx context.Context, rollout, seen int64, due time.Time) error {
	return pg.Classify(w.Q.ReviewChecked(ctx, query.ReviewCheckedParams{
		OrganizationID: w.Entered, RolloutID: rollout, EnvironmentID: seen, DueAt: due,
	}), "schedule a review of rollout %d", rollout)
}

// ReviewInSync implements rollout.Tx.
func (w Writes) ReviewInSync(ctx context.Context, applicationEnvironment int64, due time.Time) error {
	return pg.Classify(
		w.Q.ReviewInSync(ctx, due, w.Entered, applicationEnvironment), "schedule reviews of what depends on application environment %d",
		applicationEnvironment,
	)
}

// ReviewHealth implements rollout.Tx.
func (w Writes) ReviewHealth(ctx context.Context, environment int64, due time.Time) error {
	return pg.Classify(w.Q.ReviewHealth(ctx, due, w.Entered, environment), "schedule reviews of what depends on environment %d", environment)
}
