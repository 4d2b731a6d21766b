package notify

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/lockstep-cd/lockstep/pkg/pg"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/notify"
	"github.com/lockstep-cd/lockstep/services/domain/internal/store/query"
)

// Add stores a moment while the organization has a channel, once: with the transaction that q is of.
func Add(ctx context.Context, q *query.Queries, organization int64, n core.Notification) error {
	by := string(n.By.Type)
	if by == "" {
		by = string(core.PrincipalSystem)
	}
	return pg.Classify(q.InsertNotification(ctx, query.InsertNotificationParams{
		OrganizationID: organization, Moment: string(n.Moment), Cause: n.Cause, At: n.At, DueAt: n.DueAt, ApplicationID: orNull(n.ApplicationID),
		EnvironmentID: orNull(n.EnvironmentID), RolloutID: orNull(n.RolloutID), SubjectID: n.SubjectID, Subject: n.Subject,
		PrincipalType: by, PrincipalID: n.By.ID, Reason: n.Reason, ForTools: n.Moment.ForTools(),
	}), "store a notification of %s", n.Moment)
}

// Advance stores a moment that only updates the message of a rollout, while the organization has a channel that can. rolloutEnvironment
// says which rollout it is; 0 if the moment does.
func Advance(ctx context.Context, q *query.Queries, organization int64, n core.Notification, rolloutEnvironment int64) error {
	return pg.Classify(q.InsertAdvance(ctx, query.InsertAdvanceParams{
		OrganizationID: organization, Cause: n.Cause, At: n.At, DueAt: n.DueAt, RolloutID: n.RolloutID, Subject: n.Subject,
		PrincipalType: string(n.By.Type), PrincipalID: n.By.ID, Reason: n.Reason, RolloutEnvironmentID: rolloutEnvironment,
	}), "store a notification of %s", n.Moment)
}

// Step stores a step of a rollout while something names it. rolloutEnvironment says which rollout it is; 0 if the moment does.
func Step(ctx context.Context, q *query.Queries, organization int64, n core.Notification, rolloutEnvironment int64) error {
	return pg.Classify(q.InsertStep(ctx, query.InsertStepParams{
		OrganizationID: organization, Moment: string(n.Moment), Cause: n.Cause, At: n.At, RolloutID: n.RolloutID, Subject: n.Subject,
		PrincipalType: string(n.By.Type), PrincipalID: n.By.ID, Reason: n.Reason, RolloutEnvironmentID: rolloutEnvironment,
	}), "store a notification of %s", n.Moment)
}

// Queued stores that a rollout waits in the queue of its application, and what for, while something names that. displaced is the version
// set of the one whose place it takes; 0 for none.
func Queued(ctx context.Context, q *query.Queries, organization int64, of core.QueuedRollout, displaced int64) error {
	return pg.Classify(q.InsertQueuedStep(ctx, query.InsertQueuedStepParams{
		OrganizationID: organization, ApplicationID: of.ApplicationID, At: of.RequestedAt,
		Cause:         fmt.Sprintf("queued:%d:%d%s", of.ApplicationID, of.RequestedAt.UnixNano(), core.StepEnd),
		PrincipalType: string(of.Requester.Type), PrincipalID: of.Requester.ID, Reason: of.Reason, Compares: of.ComparisonID != 0,
		DisplacedVersionSetID: displaced,
	}), "store a notification of %s", core.MomentRolloutQueued)
}

// Dropped stores that a rollout has left the queue of its application and does not begin, while something names that.
func Dropped(ctx context.Context, q *query.Queries, organization int64, of core.QueuedRollout) error {
	at := of.RequestedAt
	if of.EndedAt != nil {
		at = *of.EndedAt
	}
	return pg.Classify(q.InsertDroppedStep(ctx, query.InsertDroppedStepParams{
		OrganizationID: organization, ID: of.ID, At: at, Cause: fmt.Sprintf("dropped:%d%s", of.ID, core.StepEnd),
	}), "store a notification of %s", core.MomentRolloutDropped)
}

// CheckFailed stores that a check failed, once until it passes: its subject is the key, and SubjectID the version set.
func CheckFailed(ctx context.Context, q *query.Queries, organization int64, n core.Notification) error {
	return pg.Classify(q.InsertCheckNotification(ctx, query.InsertCheckNotificationParams{
		OrganizationID: organization, Cause: n.Cause, At: n.At, ApplicationID: n.ApplicationID, EnvironmentID: n.EnvironmentID,
		VersionSetID: n.SubjectID, Subject: n.Subject, PrincipalType: string(n.By.Type), PrincipalID: n.By.ID, Reason: bounded(n.Reason),
	}), "store a notification of check %s", n.Subject)
}

// Ended stores that what a moment ends has ended, once; nothing if it had not begun.
func Ended(ctx context.Context, q *query.Queries, organization int64, n core.Notification) error {
	return pg.Classify(q.InsertEndNotification(ctx, query.InsertEndNotificationParams{
		OrganizationID: organization, Moment: string(n.Moment), Begun: string(n.Moment.Ends()), At: n.At, EnvironmentID: n.EnvironmentID,
		ApplicationID: n.ApplicationID, Subject: n.Subject, SubjectID: n.SubjectID,
	}), "store a notification of %s", n.Moment)
}

// bounded is a reason as notifications keep it.
func bounded(reason string) string {
	const most = 1000
	if runes := []rune(reason); len(runes) > most {
		return string(runes[:most])
	}
	return reason
}

// CheckFailed implements rollout.Tx.
func (w Writes) CheckFailed(ctx context.Context, n core.Notification) error {
	return CheckFailed(ctx, w.Q, w.Entered, n)
}

// CheckPassed implements rollout.Tx.
func (w Writes) CheckPassed(ctx context.Context, n core.Notification) error {
	return Ended(ctx, w.Q, w.Entered, n)
}

// WarnOfCredentials implements notify.Store for a pool.
func WarnOfCredentials(ctx context.Context, q *query.Queries, at time.Time) error {
	return pg.Classify(q.WarnOfCredentials(ctx, at), "store notifications of credentials that end soon")
}

// NotifiedCredential implements notify.Tx.
func (w Writes) NotifiedCredential(ctx context.Context, id int64) (notify.Credential, error) {
	row, err := w.Q.NotifiedCredential(ctx, w.Entered, id)
	if err != nil {
		return notify.Credential{}, missing(err, "credential", id)
	}
	return notify.Credential{Version: int(row.Version), ExpiresAt: row.ExpiresAt}, nil
}

// AttachAdvance implements notify.Tx.
func (w Writes) AttachAdvance(ctx context.Context, a notify.Advance, n core.Notification) error {
	return pg.Classify(w.Q.AttachAdvance(ctx, query.AttachAdvanceParams{
		OrganizationID: w.Entered, Channels: a.Channels, Details: a.Details, Key: a.Key, DueAt: a.DueAt, NotificationID: n.ID, Cause: n.Cause,
	}), "have messages of %s updated", a.Key)
}

// AlertsOfFailedRollouts implements notify.Tx.
func (w Writes) AlertsOfFailedRollouts(ctx context.Context, rollout int64, since time.Time) ([]core.NotificationMessage, error) {
	rows, err := w.Q.AlertsOfFailedRollouts(ctx, w.Entered, rollout, since)
	all := make([]core.NotificationMessage, len(rows))
	for i, r := range rows {
		all[i] = core.NotificationMessage{ChannelID: r.ChannelID, RolloutID: r.RolloutID, Key: r.Key}
	}
	return all, pg.Classify(err, "read the alerts of failed rollouts")
}

func notification(r query.Notification) core.Notification {
	return core.Notification{
		ID: r.ID, Moment: core.NotificationMoment(r.Moment), Cause: r.Cause, At: r.At, DueAt: r.DueAt, ApplicationID: orZero(r.ApplicationID),
		EnvironmentID: orZero(r.EnvironmentID), RolloutID: orZero(r.RolloutID), SubjectID: r.SubjectID, Subject: r.Subject,
		By: core.Principal{Type: core.PrincipalType(r.PrincipalType), ID: r.PrincipalID}, Reason: r.Reason,
	}
}

// DueNotification implements notify.Tx.
func (w Writes) DueNotification(ctx context.Context, at time.Time) (core.Notification, bool, error) {
	row, err := w.Q.DueNotification(ctx, w.Entered, at)
	if errors.Is(err, pgx.ErrNoRows) {
		return core.Notification{}, false, nil
	}
	return notification(row), err == nil, pg.Classify(err, "find a notification that is due")
}

// NotificationRouted implements notify.Tx.
func (w Writes) NotificationRouted(ctx context.Context, n core.Notification, at time.Time) error {
	err := w.Q.RouteNotification(ctx, query.RouteNotificationParams{OrganizationID: w.Entered, ID: n.ID, At: &at, Moment: string(n.Moment)})
	return pg.Classify(err, "keep that notification %d was routed", n.ID)
}

// AddNotification implements notify.Tx.
func (w Writes) AddNotification(ctx context.Context, n core.Notification) error {
	return Add(ctx, w.Q, w.Entered, n)
}

// PutOffNotification implements notify.Tx.
func (w Writes) PutOffNotification(ctx context.Context, id int64, until time.Time) error {
	return pg.Classify(w.Q.PutOffNotification(ctx, until, w.Entered, id), "put off notification %d", id)
}

// AddRoutedNotification implements notify.Tx.
func (w Writes) AddRoutedNotification(ctx context.Context, n core.Notification) (core.Notification, error) {
	id, err := w.Q.InsertRoutedNotification(ctx, query.InsertRoutedNotificationParams{
		OrganizationID: w.Entered, Moment: string(n.Moment), Cause: n.Cause, At: n.At, Subject: n.Subject, PrincipalType: string(n.By.Type),
		PrincipalID: n.By.ID,
	})
	n.ID = id
	return n, pg.Classify(err, "store a notification of %s", n.Moment)
}

// AttachNotification implements notify.Tx.
func (w Writes) AttachNotification(ctx context.Context, m core.NotificationMessage, n core.Notification, follows bool) error {
	if err := w.makeRoom(ctx, n, []int64{m.ChannelID}, []string{m.Key}); err != nil {
		return err
	}
	err := w.Q.AttachNotification(ctx, query.AttachNotificationParams{
		OrganizationID: w.Entered, ChannelID: m.ChannelID, RouteID: orNull(m.RouteID), RolloutID: orNull(m.RolloutID), Key: m.Key,
		Severity: int16(m.Severity), NotificationID: n.ID, DueAt: m.DueAt, Quiet: m.Quiet,
		Follows: follows, Waits: follows && m.Severity < core.SeverityHigh,
	})
	return pg.Classify(err, "have a message of channel %d say notification %d", m.ChannelID, n.ID)
}

// makeRoom takes the steps before a step out of messages of very many moments; nothing for another moment.
func (w Writes) makeRoom(ctx context.Context, n core.Notification, channels []int64, keys []string) error {
	if !n.Moment.IsStep() {
		return nil
	}
	moments := []string{string(core.MomentAdvanced)}
	for _, m := range core.AllNotificationMoments() {
		if m.IsStep() {
			moments = append(moments, string(m))
		}
	}
	return pg.Classify(w.Q.MakeRoomForStep(ctx, query.MakeRoomForStepParams{
		OrganizationID: w.Entered, Channels: channels, Keys: keys, Moments: moments, NotificationID: n.ID,
	}), "make room for notification %d", n.ID)
}

// NotificationMessageExists implements notify.Tx.
func (w Writes) NotificationMessageExists(ctx context.Context, channel int64, key string) (bool, error) {
	exists, err := w.Q.NotificationMessageExists(ctx, w.Entered, channel, key)
	return exists, pg.Classify(err, "find message %s", key)
}

// ForgetNotifications implements notify.Tx.
func (w Writes) ForgetNotifications(ctx context.Context, before time.Time, most int) error {
	_, err := w.Q.ForgetNotifications(ctx, before, int32(most))
	return pg.Classify(err, "forget notifications")
}

// NotificationsByID implements notify.Tx.
func (w Writes) NotificationsByID(ctx context.Context, ids []int64) ([]core.Notification, error) {
	rows, err := w.Q.NotificationsByID(ctx, w.Entered, ids)
	all := make([]core.Notification, len(rows))
	for i, r := range rows {
		all[i] = core.Notification{
			ID: r.ID, Moment: core.NotificationMoment(r.Moment), Cause: r.Cause, At: r.At, DueAt: r.DueAt, ApplicationID: orZero(r.ApplicationID),
			EnvironmentID: orZero(r.EnvironmentID), RolloutID: orZero(r.RolloutID), SubjectID: r.SubjectID, Subject: r.Subject,
			By: core.Principal{Type: core.PrincipalType(r.PrincipalType), ID: r.PrincipalID}, Reason: r.Reason,
			PrincipalName: r.PrincipalName, Application: r.Application, Environment: r.Environment, Tier: core.Tier(r.Tier),
		}
		if err := json.Unmarshal(r.Labels, &all[i].Labels); err != nil {
			return nil, fmt.Errorf("labels of application %d: %w", orZero(r.ApplicationID), err)
		}
	}
	return all, pg.Classify(err, "read notifications")
}

// NotifiedQueue implements notify.Tx.
func (w Writes) NotifiedQueue(ctx context.Context, notification int64) ([]notify.RolloutEnvironment, error) {
	rows, err := w.Q.NotifiedQueue(ctx, w.Entered, notification)
	all := words(rows, func(r query.NotifiedQueueRow) notify.RolloutEnvironment {
		return notify.RolloutEnvironment{ID: r.ID, Name: r.Name, Tier: core.Tier(r.Tier)}
	})
	return all, pg.Classify(err, "read where the rollout of notification %d goes", notification)
}

// NotifiedRollout implements notify.Tx.
func (w Writes) NotifiedRollout(ctx context.Context, id int64) (notify.Rollout, error) {
	row, err := w.Q.NotifiedRollout(ctx, w.Entered, id)
	if err != nil {
		return notify.Rollout{}, missing(err, "rollout", id)
	}
	r := notify.Rollout{
		ID: row.ID, ApplicationID: row.ApplicationID, RollbackOf: row.RollbackOf, State: core.RolloutState(row.State),
		Application: row.Application, VersionSet: row.VersionSet, AskedBy: row.AskedBy,
	}
	if err := json.Unmarshal(row.Labels, &r.Labels); err != nil {
		return r, fmt.Errorf("labels of application %d: %w", row.ApplicationID, err)
	}
	environments, err := w.Q.NotifiedEnvironments(ctx, w.Entered, id)
	if err != nil {
		return r, pg.Classify(err, "read environments of rollout %d", id)
	}
	previous := int64(0)
	for i, e := range environments {
		if i == 0 {
			previous = e.PreviousVersionSetID
		}
		r.Environments = append(r.Environments, notify.RolloutEnvironment{
			ID: e.ID, Name: e.Name, Tier: core.Tier(e.Tier), State: core.RolloutState(e.State),
		})
	}
	versions, err := w.Q.NotifiedVersions(ctx, previous, w.Entered, row.VersionSetID)
	for _, v := range versions {
		r.Changes = append(r.Changes, notify.Change{Service: v.Service, Version: v.Version, Previous: v.Previous})
	}
	return r, pg.Classify(err, "read versions of rollout %d", id)
}

// NotifiedArtifacts implements notify.Tx.
func (w Writes) NotifiedArtifacts(ctx context.Context, rollout int64, most int) (some []notify.Artifact, all int, err error) {
	rows, err := w.Q.NotifiedArtifacts(ctx, w.Entered, rollout, int32(most))
	some = make([]notify.Artifact, len(rows))
	for i, r := range rows {
		all = int(r.InAll)
		some[i] = notify.Artifact{
			EnvironmentID: r.EnvironmentID, Environment: r.Environment, Application: r.Application, Service: r.Service, SourceID: r.ArtifactSourceID,
			Image: core.Version{Reference: r.Reference}.IsImage(), Reference: r.Reference, Digest: r.Digest, Version: r.Version,
			HasPrevious: r.HasPrevious, Removed: r.Removed,
		}
	}
	return some, all, pg.Classify(err, "read what rollout %d has changed", rollout)
}

// NotifiedVersion implements notify.Tx.
func (w Writes) NotifiedVersion(ctx context.Context, id int64) (notify.Artifact, error) {
	r, err := w.Q.NotifiedVersion(ctx, w.Entered, id)
	return notify.Artifact{
		Application: r.Application, Service: r.Service, SourceID: r.ArtifactSourceID, Image: core.Version{Reference: r.Reference}.IsImage(),
		Reference: r.Reference, Digest: r.Digest, Version: r.Version,
	}, missing(err, "version", id)
}

// NotifyOfVersions implements intake.Tx.
func (w Writes) NotifyOfVersions(ctx context.Context, versions []int64, at time.Time) error {
	return w.OfArtifacts(ctx, core.MomentArtifactPublished, versions, make([]string, len(versions)), at)
}

// OfArtifacts stores a moment of versions where a route names it, each once for its mark.
func (w Writes) OfArtifacts(ctx context.Context, moment core.NotificationMoment, versions []int64, marks []string, at time.Time) error {
	return pg.Classify(w.Q.InsertArtifactNotifications(ctx, query.InsertArtifactNotificationsParams{
		OrganizationID: w.Entered, Moment: string(moment), Versions: versions, Marks: marks, At: at,
	}), "store notifications of %s", moment)
}

// NotifiedGate implements notify.Tx.
func (w Writes) NotifiedGate(ctx context.Context, rollout int64, gate string) (notify.Gate, error) {
	row, err := w.Q.NotifiedGate(ctx, w.Entered, rollout, gate)
	if err != nil {
		return notify.Gate{}, missing(err, "gate", gate)
	}
	g := notify.Gate{EnvironmentID: row.EnvironmentID, Quorum: int(row.Quorum), Group: row.ApproverGroup, Reason: row.Reason}
	if row.ExpiresAt.Unix() > 0 {
		g.ExpiresAt = &row.ExpiresAt
	}
	return g, nil
}

// NotifiedFreeze implements notify.Tx.
func (w Writes) NotifiedFreeze(ctx context.Context, id int64) (notify.Freeze, error) {
	row, err := w.Q.NotifiedFreeze(ctx, w.Entered, id)
	if err != nil {
		return notify.Freeze{}, missing(err, "freeze", id)
	}
	f := notify.Freeze{StartsAt: row.StartsAt, EndsAt: row.EndsAt, EndedAt: row.EndedAt, Reason: row.Reason, Author: row.PrincipalName}
	for _, tier := range row.Tiers {
		f.Scope = append(f.Scope, "tier "+tier)
	}
	f.Scope = append(append(f.Scope, row.Environments...), row.Applications...)
	var of core.Freeze
	if row.ApplicationLabels != nil {
		_ = json.Unmarshal(row.ApplicationLabels, &of.ApplicationLabels) // the table has objects of strings only
	}
	if row.EnvironmentLabels != nil {
		_ = json.Unmarshal(row.EnvironmentLabels, &of.EnvironmentLabels)
	}
	f.Scope = append(f.Scope, of.LabelWords()...)
	return f, nil
}
