// Package trigger is the part of the store that keeps triggers, what they have to decide about and what they decided, and the holds after
// rollbacks.
//
// It decides nothing. Its types are embedded by those of package store, which gives them their transactions.
package trigger

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/lockstep-cd/lockstep/pkg/pg"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
	"github.com/lockstep-cd/lockstep/services/domain/internal/store/query"
)

func trigger(r query.Trigger) core.Trigger {
	return core.Trigger{
		ID: r.ID, ApplicationID: r.ApplicationID, Name: r.Name, Kind: core.TriggerKind(r.Kind), Config: r.Config, Enabled: r.Enabled,
		Author: core.Author{
			Principal: core.Principal{Type: core.PrincipalType(r.PrincipalType), ID: r.PrincipalID}, Name: r.PrincipalName,
		},
		ChangedAt: r.ChangedAt, Removed: r.RemovedAt != nil,
	}
}

func signal(r query.TriggerSignal) core.TriggerSignal {
	var edit *core.TriggerEdit
	if len(r.Edit) > 0 && json.Unmarshal(r.Edit, &edit) != nil {
		edit = &core.TriggerEdit{State: core.EditFailed, Why: "its edit cannot be read"}
	}
	if edit != nil {
		edit.FirstBegun = r.EditBegun
	}
	var sender core.Author
	if r.SenderType != nil && r.SenderID != nil && r.SenderName != nil {
		sender = core.Author{Principal: core.Principal{Type: core.PrincipalType(*r.SenderType), ID: *r.SenderID}, Name: *r.SenderName}
	}
	return core.TriggerSignal{
		Edit: edit, Sender: sender,
		ID: r.ID, TriggerID: r.TriggerID, Cause: r.Cause, At: r.At, DueAt: r.DueAt, DecidedAt: r.DecidedAt,
		Outcome: core.TriggerOutcome(r.Outcome), Reason: r.Reason, VersionSetID: orZero(r.VersionSetID), RolloutID: orZero(r.RolloutID),
		LacksFacts: r.LacksFacts,
	}
}

func hold(r query.PromotionHold) core.PromotionHold {
	return core.PromotionHold{
		ID: r.ID, ApplicationID: r.ApplicationID, EnvironmentID: r.EnvironmentID, RolloutID: r.RolloutID, Since: r.Since,
	}
}

func orZero(n *int64) int64 {
	if n == nil {
		return 0
	}
	return *n
}

func orNull(n int64) *int64 {
	if n == 0 {
		return nil
	}
	return &n
}

// Reads are what the API and the use cases look at.
type Reads struct {
	// Run runs fn in a transaction of an organization.
	Run func(ctx context.Context, organization int64, fn func(*query.Queries) error) error
}

// read runs a query and converts its rows.
func read[R, T any](
	ctx context.Context, r Reads, organization int64, what string, rows func(*query.Queries) ([]R, error), convert func(R) T,
) ([]T, error) {
	var all []T
	err := r.Run(ctx, organization, func(q *query.Queries) error {
		found, err := rows(q)
		all = make([]T, len(found)) // assigned, not appended to: the transaction may run again
		for i, one := range found {
			all[i] = convert(one)
		}
		return pg.Classify(err, "read %s", what)
	})
	return all, err
}

// by groups things by a number.
func by[T any](all []T, err error, key func(T) int64) (map[int64][]T, error) {
	if err != nil {
		return nil, err
	}
	found := map[int64][]T{}
	for _, one := range all {
		found[key(one)] = append(found[key(one)], one)
	}
	return found, nil
}

// Triggers implements trigger.Reads: those of applications that were not removed, by name.
func (r Reads) Triggers(ctx context.Context, organization int64, applications []int64) (map[int64][]core.Trigger, error) {
	all, err := read(ctx, r, organization, "triggers", func(q *query.Queries) ([]query.Trigger, error) {
		return q.TriggersByApplication(ctx, organization, applications)
	}, trigger)
	return by(all, err, func(t core.Trigger) int64 { return t.ApplicationID })
}

// TriggersOfKind implements trigger.Tx.
func (r Reads) TriggersOfKind(ctx context.Context, organization int64, kind core.TriggerKind) ([]core.Trigger, error) {
	return read(ctx, r, organization, "triggers", func(q *query.Queries) ([]query.Trigger, error) {
		return q.TriggersOfKind(ctx, organization, string(kind))
	}, trigger)
}

// TriggersOfEvent implements trigger.Tx.
func (r Reads) TriggersOfEvent(ctx context.Context, organization int64, types, details []string, most int) ([]core.ReachedTrigger, error) {
	return read(ctx, r, organization, "triggers of an event", func(q *query.Queries) ([]query.TriggersOfEventRow, error) {
		return q.TriggersOfEvent(ctx, query.TriggersOfEventParams{
			OrganizationID: organization, Types: types, Details: details, Most: int32(most),
		})
	}, func(row query.TriggersOfEventRow) core.ReachedTrigger {
		return core.ReachedTrigger{Trigger: trigger(row.Trigger), Pending: int(row.Pending)}
	})
}

// SourcesOfRepository implements trigger.Tx.
func (r Reads) SourcesOfRepository(ctx context.Context, organization int64, prefix string, most int) ([]core.ServiceSource, error) {
	behind := []byte(prefix)
	behind[len(behind)-1]++
	return read(ctx, r, organization, "sources of a repository", func(q *query.Queries) ([]query.SourcesOfRepositoryRow, error) {
		return q.SourcesOfRepository(ctx, query.SourcesOfRepositoryParams{
			OrganizationID: organization, Prefix: prefix, Behind: string(behind), Most: int32(most),
		})
	}, func(row query.SourcesOfRepositoryRow) core.ServiceSource {
		return core.ServiceSource{
			ID: row.ID, ApplicationID: row.ApplicationID, ServiceID: row.ServiceID, Service: row.Service, Ref: row.SourceRef,
			Config: row.SourceConfig,
		}
	})
}

// decisionsShown is how many decisions of a trigger are read.
const decisionsShown = 50

// TriggerDecisions implements trigger.Reads: the latest of each trigger, the latest first.
func (r Reads) TriggerDecisions(ctx context.Context, organization int64, triggers []int64) (map[int64][]core.TriggerSignal, error) {
	all, err := read(ctx, r, organization, "decisions of triggers", func(q *query.Queries) ([]query.TriggerSignal, error) {
		return q.LatestDecisions(ctx, triggers, organization, decisionsShown)
	}, signal)
	return by(all, err, func(s core.TriggerSignal) int64 { return s.TriggerID })
}

// PromotionHolds implements trigger.Reads and rollout.Tx: those in force, by application.
func (r Reads) PromotionHolds(ctx context.Context, organization int64, applications []int64) (map[int64][]core.PromotionHold, error) {
	all, err := read(ctx, r, organization, "holds after rollbacks", func(q *query.Queries) ([]query.PromotionHold, error) {
		return q.PromotionHolds(ctx, organization, applications)
	}, hold)
	return by(all, err, func(h core.PromotionHold) int64 { return h.ApplicationID })
}

// ManualTrigger implements rollout.Tx.
func (r Reads) ManualTrigger(ctx context.Context, organization, application int64) (core.Trigger, error) {
	all, err := read(ctx, r, organization, "manual trigger", func(q *query.Queries) ([]query.Trigger, error) {
		return q.ManualTriggers(ctx, organization, application)
	}, trigger)
	if err != nil || len(all) == 0 {
		return core.DefaultManualTrigger(application), err
	}
	return all[0], nil
}

// Writes are what use cases change, in the transaction that Q is of.
type Writes struct {
	Q *query.Queries
	// Entered is the organization of the transaction; every statement names it.
	Entered int64
}

// AddTrigger implements trigger.Tx.
func (w Writes) AddTrigger(ctx context.Context, t core.Trigger) (core.Trigger, error) {
	row, err := w.Q.InsertTrigger(ctx, query.InsertTriggerParams{
		OrganizationID: w.Entered, ApplicationID: t.ApplicationID, Name: t.Name, Kind: string(t.Kind), Config: t.Config, Enabled: t.Enabled,
		PrincipalType: string(t.Author.Type), PrincipalID: t.Author.ID, PrincipalName: t.Author.Name, ChangedAt: t.ChangedAt,
	})
	return trigger(row), pg.Classify(err, "add trigger %s", t.Name)
}

// WasRolledOut implements trigger.Tx.
func (w Writes) WasRolledOut(ctx context.Context, application int64) (bool, error) {
	was, err := w.Q.WasRolledOut(ctx, w.Entered, application)
	return was, pg.Classify(err, "look for rollouts of application %d", application)
}

// SaveTrigger implements trigger.Tx.
func (w Writes) SaveTrigger(ctx context.Context, t core.Trigger) error {
	var removed *time.Time
	if t.Removed {
		removed = &t.ChangedAt
	}
	err := w.Q.SaveTrigger(ctx, query.SaveTriggerParams{
		OrganizationID: w.Entered, ID: t.ID, Config: t.Config, Enabled: t.Enabled, RemovedAt: removed, PrincipalType: string(t.Author.Type),
		PrincipalID: t.Author.ID, PrincipalName: t.Author.Name, ChangedAt: t.ChangedAt,
	})
	return pg.Classify(err, "save trigger %d", t.ID)
}

// SignalTriggers implements intake.Tx and rollout.Tx.
func (w Writes) SignalTriggers(ctx context.Context, kind core.TriggerKind, causes map[int64]string, at time.Time) error {
	if len(causes) == 0 {
		return nil
	}
	p := query.SignalApplicationsParams{OrganizationID: w.Entered, Kind: string(kind), At: at}
	for application, cause := range causes {
		p.Applications, p.Causes = append(p.Applications, application), append(p.Causes, cause)
	}
	return pg.Classify(w.Q.SignalApplications(ctx, p), "signal triggers of kind %s", kind)
}

// LockFactTriggers implements origin.Tx.
func (w Writes) LockFactTriggers(ctx context.Context, version int64) error {
	err := w.Q.LockFactTriggers(ctx, w.Entered, version)
	return pg.Classify(err, "lock the triggers that version %d is decided by", version)
}

// SignalFacts implements origin.Tx.
func (w Writes) SignalFacts(ctx context.Context, version int64, at time.Time) error {
	err := w.Q.SignalFacts(ctx, w.Entered, version, at)
	return pg.Classify(err, "signal what became known of version %d", version)
}

// SignalDrift implements rollout.Tx.
func (w Writes) SignalDrift(ctx context.Context, applicationEnvironment int64, objects string, at time.Time) error {
	err := w.Q.SignalDrift(ctx, query.SignalDriftParams{
		Objects: objects, At: at, OrganizationID: w.Entered, ApplicationEnvironmentID: applicationEnvironment,
	})
	if err != nil {
		return pg.Classify(err, "signal drift of application environment %d", applicationEnvironment)
	}
	err = w.Q.InsertDriftNotification(ctx, at, w.Entered, applicationEnvironment)
	return pg.Classify(err, "store a notification of drift of application environment %d", applicationEnvironment)
}

// EndDrift implements rollout.Tx.
func (w Writes) EndDrift(ctx context.Context, applicationEnvironment int64, at time.Time) error {
	err := w.Q.InsertDriftEndNotification(ctx, at, w.Entered, applicationEnvironment)
	return pg.Classify(err, "store a notification that drift of application environment %d has ended", applicationEnvironment)
}

// AddSignal implements trigger.Tx.
func (w Writes) AddSignal(ctx context.Context, trigger int64, cause string, at, due time.Time) (bool, error) {
	n, err := w.Q.InsertSignal(ctx, query.InsertSignalParams{OrganizationID: w.Entered, TriggerID: trigger, Cause: cause, At: at, DueAt: due})
	return n == 1, pg.Classify(err, "signal trigger %d", trigger)
}

// KnownCauses implements trigger.Tx.
func (w Writes) KnownCauses(ctx context.Context, trigger int64, causes []string) ([]string, error) {
	found, err := w.Q.KnownCauses(ctx, w.Entered, trigger, causes)
	return found, pg.Classify(err, "read causes of trigger %d", trigger)
}

// AddEvents implements trigger.Tx.
func (w Writes) AddEvents(ctx context.Context, at time.Time, all []core.ReachedTrigger) error {
	p := query.InsertEventsParams{OrganizationID: w.Entered, At: at}
	if len(all) > 0 && all[0].Sender.Type != "" {
		by := all[0].Sender
		p.SenderType, p.SenderID, p.SenderName = (*string)(&by.Type), &by.ID, &by.Name
	}
	for _, r := range all {
		edit := ""
		if r.Edit != nil {
			text, err := json.Marshal(r.Edit)
			if err != nil {
				return fmt.Errorf("write the edit of trigger %d: %w", r.ID, err)
			}
			edit = string(text)
		}
		p.Triggers, p.Causes, p.Edits = append(p.Triggers, r.ID), append(p.Causes, r.Cause), append(p.Edits, edit)
	}
	return pg.Classify(w.Q.InsertEvents(ctx, p), "signal %d triggers", len(all))
}

// SaveSignalEdit implements trigger.Tx.
func (w Writes) SaveSignalEdit(ctx context.Context, signal int64, attempt int, e core.TriggerEdit, due time.Time) error {
	text, err := json.Marshal(e)
	if err != nil {
		return fmt.Errorf("write the edit of signal %d: %w", signal, err)
	}
	err = w.Q.SaveSignalEdit(ctx, query.SaveSignalEditParams{
		OrganizationID: w.Entered, ID: signal, Attempt: int32(attempt), Edit: text, DueAt: due, Begun: e.FirstBegun,
	})
	return pg.Classify(err, "keep the edit of signal %d", signal)
}

// EditsOfCommits implements trigger.Tx.
func (w Writes) EditsOfCommits(ctx context.Context, trigger int64, commits []string) (map[string]string, error) {
	rows, err := w.Q.EditOfCommit(ctx, w.Entered, trigger, commits)
	causes := map[string]string{}
	for _, row := range rows {
		causes[row.Commit] = row.Cause
	}
	return causes, pg.Classify(err, "find edits of trigger %d", trigger)
}

// EditBegun implements trigger.Tx.
func (w Writes) EditBegun(ctx context.Context, trigger int64, place int, after, at time.Time) (time.Time, bool, error) {
	begun, err := w.Q.EditBegun(ctx, query.EditBegunParams{
		OrganizationID: w.Entered, TriggerID: trigger, Later: int32(place - 1), After: &after, At: &at,
	})
	if errors.Is(err, pgx.ErrNoRows) {
		return time.Time{}, false, nil
	}
	return begun, err == nil, pg.Classify(err, "count edits of trigger %d", trigger)
}

// DueTrigger implements trigger.Tx.
func (w Writes) DueTrigger(ctx context.Context, at time.Time) (core.Trigger, bool, error) {
	row, err := w.Q.DueTrigger(ctx, w.Entered, at)
	if errors.Is(err, pgx.ErrNoRows) {
		return core.Trigger{}, false, nil
	}
	return trigger(row.Trigger), err == nil, pg.Classify(err, "find a trigger with due signals")
}

// PendingSignals implements trigger.Tx.
func (w Writes) PendingSignals(ctx context.Context, trigger int64) ([]core.TriggerSignal, error) {
	rows, err := w.Q.PendingSignals(ctx, w.Entered, trigger)
	all := make([]core.TriggerSignal, len(rows))
	for i, row := range rows {
		all[i] = signal(row)
	}
	return all, pg.Classify(err, "read signals of trigger %d", trigger)
}

// DecideSignals implements trigger.Tx.
func (w Writes) DecideSignals(ctx context.Context, signals []int64, d core.TriggerSignal) error {
	err := w.Q.DecideSignals(ctx, query.DecideSignalsParams{
		OrganizationID: w.Entered, Ids: signals, Outcome: string(d.Outcome), Reason: d.Reason, VersionSetID: orNull(d.VersionSetID),
		RolloutID: orNull(d.RolloutID), At: d.DecidedAt, LacksFacts: d.LacksFacts,
	})
	if err != nil || d.Outcome != core.TriggerDeclined || len(signals) == 0 {
		return pg.Classify(err, "keep the decision of trigger %d", d.TriggerID)
	}
	at := time.Time{}
	if d.DecidedAt != nil {
		at = *d.DecidedAt
	}
	err = w.Q.InsertDeclinedNotification(ctx, query.InsertDeclinedNotificationParams{
		OrganizationID: w.Entered, TriggerID: d.TriggerID, SignalID: signals[0], Reason: d.Reason, At: at,
		VersionSetID: orNull(d.VersionSetID), Signals: signals,
	})
	return pg.Classify(err, "store a notification of trigger %d", d.TriggerID)
}

// PutOffSignals implements trigger.Tx.
func (w Writes) PutOffSignals(ctx context.Context, signals []int64, d core.TriggerSignal) error {
	err := w.Q.PutOffSignals(ctx, query.PutOffSignalsParams{
		OrganizationID: w.Entered, Ids: signals, Reason: d.Reason, VersionSetID: orNull(d.VersionSetID), DueAt: d.DueAt, At: d.DecidedAt,
	})
	return pg.Classify(err, "put off trigger %d", d.TriggerID)
}

// PutOffTrigger implements trigger.Tx.
func (w Writes) PutOffTrigger(ctx context.Context, d core.TriggerSignal) error {
	err := w.Q.PutOffTrigger(ctx, query.PutOffTriggerParams{
		OrganizationID: w.Entered, TriggerID: d.TriggerID, Reason: d.Reason, DueAt: d.DueAt, At: d.DecidedAt,
	})
	return pg.Classify(err, "put off trigger %d", d.TriggerID)
}

// ForgetSignals implements trigger.Tx.
func (w Writes) ForgetSignals(ctx context.Context, before time.Time, most int) error {
	_, err := w.Q.ForgetSignals(ctx, before, int32(most))
	return pg.Classify(err, "forget signals")
}

// AddPromotionHold implements rollout.Tx.
func (w Writes) AddPromotionHold(ctx context.Context, h core.PromotionHold) error {
	err := w.Q.InsertPromotionHold(ctx, query.InsertPromotionHoldParams{
		OrganizationID: w.Entered, ApplicationID: h.ApplicationID, EnvironmentID: h.EnvironmentID, RolloutID: h.RolloutID, Since: h.Since,
	})
	return pg.Classify(err, "hold promotions of application %d", h.ApplicationID)
}

// LockPromotionHold implements trigger.Tx.
func (w Writes) LockPromotionHold(ctx context.Context, application, environment int64) (core.PromotionHold, bool, error) {
	row, err := w.Q.LockPromotionHold(ctx, w.Entered, application, environment)
	if errors.Is(err, pgx.ErrNoRows) {
		return core.PromotionHold{}, false, nil
	}
	return hold(row), err == nil, pg.Classify(err, "lock the hold of application %d", application)
}

// ReleasePromotionHold implements trigger.Tx.
func (w Writes) ReleasePromotionHold(ctx context.Context, id int64, at time.Time) error {
	return pg.Classify(w.Q.ReleasePromotionHold(ctx, &at, w.Entered, id), "release hold %d", id)
}

// SettleQueued records the outcome of a rollout that a trigger had queued.
func (w Writes) SettleQueued(ctx context.Context, q core.QueuedRollout) error {
	if q.TriggerID == 0 {
		return nil
	}
	p := query.SettleQueuedSignalsParams{
		OrganizationID: w.Entered, TriggerID: q.TriggerID, Outcome: string(core.TriggerDeclined), Reason: q.Outcome,
		RolloutID: orNull(q.MadeRolloutID),
	}
	if q.MadeRolloutID != 0 {
		p.Outcome, p.Reason = string(core.TriggerBegan), q.Cause
	}
	return pg.Classify(w.Q.SettleQueuedSignals(ctx, p), "settle what trigger %d queued", q.TriggerID)
}

// EnvironmentsOfCommit implements trigger.Tx.
func (w Writes) EnvironmentsOfCommit(ctx context.Context, application int64, commit string) ([]int64, error) {
	ids, err := w.Q.EnvironmentsOfCommit(ctx, w.Entered, commit, application)
	return ids, pg.Classify(err, "find where commit %s was deployed", commit)
}
