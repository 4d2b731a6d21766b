package core

import (
	"encoding/json"
	"fmt"
	"time"
)

// NotificationKind is a kind of channel that notifications are sent to (D62).
type NotificationKind string

// The kinds.
const (
	NotifySlack      NotificationKind = "slack"
	NotifyTeams      NotificationKind = "teams"
	NotifyMattermost NotificationKind = "mattermost"
	NotifyDiscord    NotificationKind = "discord"
	NotifyEmail      NotificationKind = "email"
	NotifyPagerDuty  NotificationKind = "pagerduty"
	NotifyOpsgenie   NotificationKind = "opsgenie"
	NotifyWebhook    NotificationKind = "webhook"
	NotifyNATS       NotificationKind = "nats"
)

// AllNotificationKinds lists all kinds.
func AllNotificationKinds() []NotificationKind {
	return []NotificationKind{
		NotifySlack, NotifyTeams, NotifyMattermost, NotifyDiscord, NotifyEmail, NotifyPagerDuty, NotifyOpsgenie,
		NotifyWebhook, NotifyNATS,
	}
}

// Title is what people call the kind.
func (k NotificationKind) Title() string {
	switch k {
	case NotifySlack:
		return "Slack"
	case NotifyMattermost:
		return "Mattermost"
	case NotifyTeams, NotifyDiscord, NotifyEmail, NotifyPagerDuty, NotifyOpsgenie, NotifyWebhook, NotifyNATS:
		return string(k)
	default:
		return string(k)
	}
}

// Alarms reports whether messages of the kind are alerts, which wake people, and end.
func (k NotificationKind) Alarms() bool { return k == NotifyPagerDuty || k == NotifyOpsgenie }

// NotificationChannel is where an organization sends notifications to.
type NotificationChannel struct {
	ID int64
	// Name is unique in the organization.
	Name string
	Kind NotificationKind
	// Config is as the kind has it: addresses, and the names of credentials.
	Config json.RawMessage
	// Rate is how many messages it receives within a minute; the last of them is a digest of what waits.
	Rate    int
	Enabled bool
	// WindowAt is when the present minute began, in which WindowCount messages were begun.
	WindowAt    time.Time
	WindowCount int
	// Author is who saved it last, at ChangedAt.
	Author    Author
	ChangedAt time.Time
	// Removed reports whether it was removed; only messages refer to it still.
	Removed bool
}

// NotificationRoute says what a channel is sent, and how.
type NotificationRoute struct {
	ID, ChannelID int64
	// Name is unique in the organization.
	Name string
	// Config is what it matches, digests and quiet hours.
	Config    json.RawMessage
	Enabled   bool
	Author    Author
	ChangedAt time.Time
	Removed   bool
	// Problem is why its expression could not be evaluated, of the latest moment for which that was so since it was saved; empty for none.
	Problem string
}

// NotificationSubscription is what a member has sent to themselves (D62).
type NotificationSubscription struct {
	MemberID, ChannelID int64
	// Name is unique among the member's.
	Name string
	// ApplicationID and EnvironmentID are what it is about; 0 for all. The lists are empty for all as well.
	ApplicationID, EnvironmentID int64
	Moments                      []NotificationMoment
	Severities                   []NotificationSeverity
	Tiers                        []Tier
	Involvement                  Involvement
	// Config is as the member saved it.
	Config    json.RawMessage
	Enabled   bool
	ChangedAt time.Time
}

// Involvement is what a member has to do with a moment.
type Involvement string

// The involvements.
const (
	// InvolvedAnyhow is that it does not matter.
	InvolvedAnyhow Involvement = ""
	// InvolvedBegun is that the member has begun the rollout.
	InvolvedBegun Involvement = "begun"
	// InvolvedWaiting is that the member takes part in the rollout: has begun, approved, resumed or retried it.
	InvolvedWaiting Involvement = "waiting"
	// InvolvedMayApprove is that it is a question that the member may answer.
	InvolvedMayApprove Involvement = "may_approve"
)

// NotificationMoment is something that is worth a notification.
type NotificationMoment string

// The moments.
const (
	MomentApprovalNeeded   NotificationMoment = "approval_needed"
	MomentCallRequested    NotificationMoment = "call_requested"
	MomentRolloutBegan     NotificationMoment = "rollout_began"
	MomentRolloutStopped   NotificationMoment = "rollout_stopped"
	MomentRolloutFailed    NotificationMoment = "rollout_failed"
	MomentRollbackBegan    NotificationMoment = "rollback_began"
	MomentRolledBack       NotificationMoment = "rolled_back"
	MomentRolloutCompleted NotificationMoment = "rollout_completed"
	MomentCheckFailed      NotificationMoment = "check_failed"
	MomentCheckPassed      NotificationMoment = "check_passed"
	MomentBreach           NotificationMoment = "breach"
	MomentFreezeBegan      NotificationMoment = "freeze_began"
	MomentFreezeEnded      NotificationMoment = "freeze_ended"
	MomentFreezeBypassed   NotificationMoment = "freeze_bypassed"
	MomentAgentOffline     NotificationMoment = "agent_offline"
	MomentAgentOnline      NotificationMoment = "agent_online"
	MomentDrift            NotificationMoment = "drift"
	MomentDriftEnded       NotificationMoment = "drift_ended"
	MomentTriggerDeclined  NotificationMoment = "trigger_declined"
	// MomentCredentialExpires is that the value of a credential ends soon: 14, 7 and 1 day before, once each.
	MomentCredentialExpires NotificationMoment = "credential_expires" //nolint:gosec // a name
	// What happens to environments and artifacts is for tools: a route has to name the moment.
	MomentEnvironmentCreated  NotificationMoment = "environment_created"
	MomentEnvironmentChanged  NotificationMoment = "environment_changed"
	MomentEnvironmentArchived NotificationMoment = "environment_archived"
	MomentEnvironmentRestored NotificationMoment = "environment_restored"
	// MomentArtifactPublished is that a version was recorded, MomentArtifactDeleted that its registry does not have it any more.
	MomentArtifactPublished NotificationMoment = "artifact_published"
	MomentArtifactDeleted   NotificationMoment = "artifact_deleted"
	// The steps of a rollout (R4-29): it was put into the queue, has left it and does not begin, was planned, is under way; one of its
	// environments was entered, has completed or has failed. They reach only the routes and subscriptions that name them.
	MomentRolloutQueued        NotificationMoment = "rollout_queued"
	MomentRolloutDropped       NotificationMoment = "rollout_dropped"
	MomentRolloutPlanned       NotificationMoment = "rollout_planned"
	MomentRolloutStarted       NotificationMoment = "rollout_started"
	MomentEnvironmentEntered   NotificationMoment = "environment_entered"
	MomentEnvironmentCompleted NotificationMoment = "environment_completed"
	MomentEnvironmentFailed    NotificationMoment = "environment_failed"
	// MomentCredentialReplaced only ends the alert of a credential: it has another value, or was revoked. No route chooses it.
	MomentCredentialReplaced NotificationMoment = "credential_replaced" //nolint:gosec // a name
	// MomentApprovalUnanswered and MomentCallUnanswered are that nobody has answered for so long that another channel is sent the question.
	// No route chooses them.
	MomentApprovalUnanswered NotificationMoment = "approval_unanswered"
	MomentCallUnanswered     NotificationMoment = "call_unanswered"
	// MomentProceeded only updates the message of a rollout or of a call: an answer was given, or the rollout resumed. No route chooses it.
	MomentProceeded NotificationMoment = "rollout_proceeded"
	// MomentAdvanced only updates the message of a rollout: something else has happened to it or to one of its environments (R4-29). No route
	// chooses it, and it sends no message that the channel does not have yet.
	MomentAdvanced NotificationMoment = "rollout_advanced"
	// MomentTest is what a test of a route sends. No route chooses it.
	MomentTest NotificationMoment = "test"
)

// AllNotificationMoments lists those that a route may choose.
func AllNotificationMoments() []NotificationMoment {
	return []NotificationMoment{
		MomentApprovalNeeded, MomentCallRequested, MomentRolloutBegan, MomentRolloutStopped, MomentRolloutFailed, MomentRollbackBegan,
		MomentRolledBack, MomentRolloutCompleted, MomentCheckFailed, MomentCheckPassed, MomentBreach, MomentFreezeBegan, MomentFreezeEnded,
		MomentFreezeBypassed, MomentAgentOffline, MomentAgentOnline, MomentDrift, MomentDriftEnded, MomentTriggerDeclined,
		MomentCredentialExpires,
		MomentEnvironmentCreated, MomentEnvironmentChanged, MomentEnvironmentArchived, MomentEnvironmentRestored, MomentArtifactPublished,
		MomentArtifactDeleted,
		MomentRolloutQueued, MomentRolloutDropped, MomentRolloutPlanned, MomentRolloutStarted, MomentEnvironmentEntered,
		MomentEnvironmentCompleted,
		MomentEnvironmentFailed,
	}
}

// NotificationSeverity is how much a moment matters. The numbers are stored.
type NotificationSeverity int16

// The severities.
const (
	SeverityLow NotificationSeverity = iota
	SeverityNormal
	SeverityHigh
)

// String is the severity as the API spells it.
func (s NotificationSeverity) String() string {
	switch s {
	case SeverityLow:
		return "low"
	case SeverityHigh:
		return "high"
	case SeverityNormal:
		return "normal"
	default:
		return "unknown"
	}
}

// Severity is how much the moment matters.
func (m NotificationMoment) Severity() NotificationSeverity {
	switch m {
	case MomentApprovalUnanswered, MomentCallUnanswered:
		return SeverityHigh
	case MomentApprovalNeeded, MomentCallRequested, MomentRolloutFailed, MomentRollbackBegan, MomentCheckFailed, MomentBreach,
		MomentAgentOffline, MomentFreezeBypassed:
		return SeverityHigh
	case MomentRolloutBegan, MomentRolloutCompleted, MomentTriggerDeclined, MomentProceeded, MomentAdvanced, MomentCheckPassed,
		MomentDriftEnded, MomentCredentialReplaced, MomentEnvironmentCreated, MomentEnvironmentChanged, MomentEnvironmentArchived,
		MomentEnvironmentRestored, MomentArtifactPublished, MomentArtifactDeleted, MomentRolloutQueued, MomentRolloutPlanned,
		MomentRolloutStarted, MomentEnvironmentEntered, MomentEnvironmentCompleted:
		return SeverityLow
	case MomentRolloutStopped, MomentRolledBack, MomentFreezeBegan, MomentFreezeEnded, MomentDrift, MomentTest, MomentAgentOnline,
		MomentCredentialExpires, MomentEnvironmentFailed, MomentRolloutDropped:
		return SeverityNormal
	default:
		return SeverityNormal
	}
}

// ForTools reports whether the moment only reaches routes that name it, and no member: it is of more use to tools than to people.
func (m NotificationMoment) ForTools() bool {
	return m.OfEnvironment() || m == MomentArtifactPublished || m == MomentArtifactDeleted
}

// IsStep reports whether the moment is a step of a rollout (R4-29).
func (m NotificationMoment) IsStep() bool {
	return m.OfQueue() || m == MomentRolloutPlanned || m == MomentRolloutStarted || m == MomentEnvironmentEntered ||
		m == MomentEnvironmentCompleted || m == MomentEnvironmentFailed
}

// OfQueue reports whether the moment is about what waits, or has waited, in the queue of an application: it is no rollout.
func (m NotificationMoment) OfQueue() bool {
	return m == MomentRolloutQueued || m == MomentRolloutDropped
}

// Named reports whether the moment only reaches what names it.
func (m NotificationMoment) Named() bool { return m.ForTools() || m.IsStep() }

// OfEnvironment reports whether the moment is about an environment itself.
func (m NotificationMoment) OfEnvironment() bool {
	return m == MomentEnvironmentCreated || m == MomentEnvironmentChanged || m == MomentEnvironmentArchived || m == MomentEnvironmentRestored
}

// Asks is whether people are to answer.
func (m NotificationMoment) Asks() bool {
	return m == MomentApprovalNeeded || m == MomentApprovalUnanswered || m == MomentCallRequested || m == MomentCallUnanswered
}

// Ends is the moment that one is the end of; empty for any other. It belongs to the message of what it ends.
func (m NotificationMoment) Ends() NotificationMoment {
	switch m { // the others end nothing
	case MomentAgentOnline:
		return MomentAgentOffline
	case MomentDriftEnded:
		return MomentDrift
	case MomentCheckPassed:
		return MomentCheckFailed
	default:
		return ""
	}
}

// Notification is a moment that happened.
type Notification struct {
	ID     int64
	Moment NotificationMoment
	// Cause identifies what happened: each is kept once.
	Cause string
	// At is when it happened or will, DueAt when it is routed.
	At, DueAt time.Time
	// ApplicationID, EnvironmentID and RolloutID are what it is about; 0 for none.
	ApplicationID, EnvironmentID, RolloutID int64
	// SubjectID is the freeze, the trigger, the credential, the version of an artifact or the call request that it is about, of a check the
	// version set, or of an escalation the question; Subject the gate, the key of the check, or the name of the trigger, of the credential or
	// of the artifact.
	SubjectID int64
	Subject   string
	// By is who caused it.
	By     Principal
	Reason string

	// PrincipalName, Application, Environment and Tier are looked up for rendering.
	PrincipalName, Application, Environment string
	Tier                                    Tier
	// Labels are those of the application, looked up for routing.
	Labels map[string]string
}

// OfRollback is the moment if the rollout takes another one back: it begins and completes as a rollback.
func (m NotificationMoment) OfRollback() NotificationMoment {
	switch m {
	case MomentRolloutBegan:
		return MomentRollbackBegan
	case MomentRolloutCompleted:
		return MomentRolledBack
	default:
		return m
	}
}

// NotificationOf is the moment that a row of a rollout's journal is; false for any other row.
func NotificationOf(r Transition) (Notification, bool) {
	if r.Subject.Kind != SubjectRollout {
		return Notification{}, false
	}
	n := Notification{
		Cause: fmt.Sprintf("rollout:%d:%s:%s:%d", r.Subject.ID, r.Verb, r.GateID, r.CreatedAt.UnixNano()),
		At:    r.CreatedAt, DueAt: r.CreatedAt, RolloutID: r.Subject.ID, Subject: r.GateID, By: Principal{r.PrincipalType, r.PrincipalID},
		Reason: r.Reason,
	}
	switch r.Verb {
	case VerbCreate:
		n.Moment = MomentRolloutBegan
	case VerbRequestApproval:
		n.Moment = MomentApprovalNeeded
	case VerbPause, VerbAbort, VerbStopPassage, VerbCancel:
		n.Moment = MomentRolloutStopped
	case VerbComplete:
		n.Moment = MomentRolloutCompleted
	case VerbFail:
		n.Moment = MomentRolloutFailed
		if r.Breach {
			n.Moment = MomentBreach
		}
	case VerbApprove, VerbReject, VerbExpire, VerbResume, VerbRetry, VerbBreakGlass:
		n.Moment = MomentProceeded
	case VerbBypassFreeze:
		n.Moment = MomentFreezeBypassed
	case VerbPlan:
		return Notification{}, false
	case VerbStart, VerbDegrade, VerbReachGate, VerbPassGate, VerbSkip, VerbStopRollback, VerbRequestPassage, VerbStartJob, VerbEndJob,
		VerbPauseWave, VerbResumeWave:
		n.Moment = MomentAdvanced
		n.DueAt = n.At.Add(AdvanceDelay)
	default:
		return Notification{}, false
	}
	if c := pastChecks(r.Conditions); c != nil && r.Verb == VerbPassGate {
		n.Moment, n.DueAt, n.By = MomentFreezeBypassed, n.At, Principal{c.By[0].Type, c.By[0].ID}
	}
	return n, true
}

// AdvanceDelay is how much later than other moments one is routed that only updates messages: what people are asked comes first, and
// several of them are one update.
const AdvanceDelay = 5 * time.Second

// NotificationOfEnvironment is the moment that a row of the journal of a rollout's environment is; false for its creation, and for the row
// of anything else. Of which rollout and environment it is has to be looked up.
func NotificationOfEnvironment(r Transition) (Notification, bool) {
	if r.Subject.Kind != SubjectRolloutEnvironment || r.Verb == VerbCreate {
		return Notification{}, false
	}
	return Notification{
		Moment: MomentAdvanced, Cause: fmt.Sprintf("environment:%d:%s:%d", r.Subject.ID, r.Verb, r.CreatedAt.UnixNano()),
		At: r.CreatedAt, DueAt: r.CreatedAt.Add(AdvanceDelay), By: Principal{r.PrincipalType, r.PrincipalID}, Reason: r.Reason,
	}, true
}

// StepOf is the step of a rollout that a row of the journal is; false for any other row. Its cause is that of what else the row is, with an
// end of its own.
func StepOf(r Transition) (Notification, bool) {
	n := Notification{
		At: r.CreatedAt, DueAt: r.CreatedAt, Subject: r.GateID, By: Principal{r.PrincipalType, r.PrincipalID}, Reason: r.Reason,
	}
	switch {
	case r.Subject.Kind == SubjectRollout && r.Verb == VerbPlan:
		n.Moment = MomentRolloutPlanned
	case r.Subject.Kind == SubjectRollout && r.Verb == VerbStart:
		n.Moment = MomentRolloutStarted
	case r.Subject.Kind == SubjectRolloutEnvironment && r.Verb == VerbStart:
		n.Moment = MomentEnvironmentEntered
	case r.Subject.Kind == SubjectRolloutEnvironment && r.Verb == VerbComplete:
		n.Moment = MomentEnvironmentCompleted
	case r.Subject.Kind == SubjectRolloutEnvironment && r.Verb == VerbFail:
		n.Moment = MomentEnvironmentFailed
	default:
		return Notification{}, false
	}
	if r.Subject.Kind == SubjectRolloutEnvironment {
		n.Cause = fmt.Sprintf("environment:%d:%s:%d", r.Subject.ID, r.Verb, r.CreatedAt.UnixNano())
	} else {
		n.RolloutID, n.Cause = r.Subject.ID, fmt.Sprintf("rollout:%d:%s:%s:%d", r.Subject.ID, r.Verb, r.GateID, r.CreatedAt.UnixNano())
	}
	n.Cause += StepEnd
	return n, true
}

// StepEnd is what the cause of a step ends with.
const StepEnd = ":step"

// NotificationState is the outcome of a message.
type NotificationState string

// The states.
const (
	// MessagePending is one that is to be sent.
	MessagePending NotificationState = "pending"
	// MessageSending is one that a run of the engine sends.
	MessageSending NotificationState = "sending"
	// MessageSent is one that its channel has.
	MessageSent NotificationState = "sent"
	// MessageFailed is a dead letter: it was given up, and can be sent again.
	MessageFailed NotificationState = "failed"
	// MessageDigested is one that its channel has as a part of a digest.
	MessageDigested NotificationState = "digested"
)

// AllNotificationStates lists all states.
func AllNotificationStates() []NotificationState {
	return []NotificationState{MessagePending, MessageSending, MessageSent, MessageFailed, MessageDigested}
}

// NotificationMessage is one message in a channel.
type NotificationMessage struct {
	ID, ChannelID int64
	// RouteID is 0 for what is sent by default, RolloutID for what is about none.
	RouteID, RolloutID int64
	// MemberID is the member whose own message it is; 0 for one to the channel itself.
	MemberID int64
	// Key is unique in the channel: what has the same key updates the message.
	Key      string
	Severity NotificationSeverity
	// NotificationIDs are what it is about, oldest first, and LeftOut how many more there were.
	NotificationIDs []int64
	LeftOut         int
	// Revision counts what it was to say; SentRevision and SentCount are what the channel has of it, BegunRevision and BegunCount what the
	// present run sends.
	Revision, SentRevision, SentCount, BegunRevision, BegunCount int
	State                                                        NotificationState
	// DueAt is when it is sent, or looked at again.
	DueAt time.Time
	// Quiet are the quiet hours of the route or subscription that made it last: what is not of high severity is not sent within them. It is
	// nil for none.
	Quiet json.RawMessage
	// Slotted is that DueAt is its turn among the messages to all members of its channel.
	Slotted bool
	// Attempts counts the failed runs since it was last sent, Run all runs.
	Attempts, Run int
	// Started reports whether the engine has the present run, Inputs what that run was begun with.
	Started bool
	Inputs  json.RawMessage
	// Ref is how the channel calls it; empty where it cannot be updated.
	Ref, Title string
	// Error is why the last run sent nothing.
	Error string
	// TemplateError is why a template of the channel could not be filled in, so that the default was sent; empty if it could.
	TemplateError string
	SentAt        *time.Time
	CreatedAt     time.Time
}

// Question is what a message asks people for (D63): an approval of a gate, or of a call of a Function.
type Question struct {
	// RolloutID is the rollout that it is about; 0 for a call of a run that belongs to none.
	RolloutID int64 `json:"rollout,omitempty"`
	// GateID is the gate; empty for a call.
	GateID string `json:"gate,omitempty"`
	// RequestID is the row of the journal that requests the approval of a gate, or the call request. A gate that asks again has another one.
	RequestID int64 `json:"request"`
}

// NotificationOpening records that a member has opened the link of a message.
type NotificationOpening struct {
	MessageID int64
	// Run is the run of the message that sent the link.
	Run int
	Question
	MemberID int64
	// Member is what the member was called then.
	Member   string
	OpenedAt time.Time
	// AnsweredAt is when the member answered the question afterwards; nil if they did not.
	AnsweredAt *time.Time
}
