package model

import (
	"cmp"
	"encoding/json"
	"strconv"
	"strings"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/id"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/evidence"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/planner"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/rollout"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/setup"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/view"
)

// Organization is the schema's type of that name, as are all types below.
type Organization struct{ core.Organization }

// Application wraps the domain's.
type Application struct{ core.Application }

// Service wraps the domain's.
type Service struct{ core.Service }

// ArtifactSource wraps the domain's.
type ArtifactSource struct{ core.ArtifactSource }

// MissingVersion wraps the domain's.
type MissingVersion struct{ core.MissingSource }

// CuratedVersionSet wraps the domain's.
type CuratedVersionSet struct{ core.Curated }

// PrincipalType is what kind of principal has put it together.
func (c CuratedVersionSet) PrincipalType() string { return string(c.Type) }

// ArtifactSourceState wraps the domain's.
type ArtifactSourceState struct{ setup.SourceState }

// ArtifactSender wraps the domain's.
type ArtifactSender struct{ setup.ArtifactSender }

// Refused is what was left out of its deliveries.
func (s ArtifactSender) Refused() []ArtifactRefusal {
	all := make([]ArtifactRefusal, len(s.ArtifactSender.Refused))
	for i, r := range s.ArtifactSender.Refused {
		all[i] = ArtifactRefusal{r}
	}
	return all
}

// ArtifactRefusal wraps the domain's.
type ArtifactRefusal struct{ setup.ArtifactRefusal }

// ArtifactSourceKind wraps the domain's.
type ArtifactSourceKind struct{ setup.SourceKind }

// Version wraps the domain's.
type Version struct{ core.Version }

// VersionSet wraps the domain's.
type VersionSet struct{ core.VersionSet }

// VersionSetEntry wraps the domain's.
type VersionSetEntry struct{ core.VersionSetEntry }

// FlowDefinition wraps the domain's.
type FlowDefinition struct{ core.FlowDefinition }

// Environment wraps the domain's.
type Environment struct{ core.Environment }

// DriverBinding wraps the domain's.
type DriverBinding struct{ core.DriverBinding }

// ApplicationEnvironment wraps the domain's, with all that is shown of it: its fields wait for nothing, since a page of the
// matrix has thousands of them.
type ApplicationEnvironment struct{ core.Cell }

// Rollout wraps the domain's.
type Rollout struct {
	core.Rollout
	application *core.Application
}

// ReadApplication is its application, if that was read along.
func (r Rollout) ReadApplication() (Application, bool) {
	if r.application == nil {
		return Application{}, false
	}
	return WrapApplication(*r.application), true
}

// RolloutEnvironment wraps the domain's.
type RolloutEnvironment struct{ core.RolloutEnvironment }

// Deployment wraps the domain's.
type Deployment struct{ core.Deployment }

// DeploymentSnapshot wraps the domain's.
type DeploymentSnapshot struct{ core.Snapshot }

// RollbackPolicy wraps the domain's.
type RollbackPolicy struct{ core.RollbackPolicy }

// DegradedAfterSeconds is the wait as a number.
func (p RollbackPolicy) DegradedAfterSeconds() int { return int(p.DegradedAfter / time.Second) }

// DeploymentGate wraps the domain's.
type DeploymentGate struct{ core.DeploymentGate }

// Weight is the number at the end of the gate's name; 0 should there be none.
func (g DeploymentGate) Weight() int {
	weight, err := strconv.Atoi(g.GateID[strings.LastIndexByte(g.GateID, '/')+1:])
	if err != nil {
		return 0
	}
	return weight
}

// AutomaticRollback wraps the domain's.
type AutomaticRollback struct{ core.RollbackOutlook }

// Outcome is null unless it was dropped.
func (r AutomaticRollback) Outcome() *string { return orNull(r.RollbackOutlook.Outcome) }

// RolloutDeadline wraps the domain's.
type RolloutDeadline struct{ view.Deadline }

// Kind is what it is about.
func (d RolloutDeadline) Kind() RolloutDeadlineKind {
	return RolloutDeadlineKind(strings.ToUpper(string(d.Deadline.Kind)))
}

// Action is what happens when it passes.
func (d RolloutDeadline) Action() RolloutDeadlineAction {
	return RolloutDeadlineAction(strings.ToUpper(string(d.Deadline.Action)))
}

// Seconds is how long it is.
func (d RolloutDeadline) Seconds() int { return int(d.After / time.Second) }

// State is where it stands.
func (d RolloutDeadline) State() RolloutDeadlineState {
	return RolloutDeadlineState(strings.ToUpper(string(d.Deadline.State)))
}

// RemainingSeconds is null unless something is left.
func (d RolloutDeadline) RemainingSeconds() *int {
	if d.Deadline.State != view.DeadlineRunning && d.Deadline.State != view.DeadlineWaiting {
		return nil
	}
	n := int(max(0, d.Left) / time.Second)
	return &n
}

// BreakGlass wraps the domain's.
type BreakGlass struct{ core.BrokenGlass }

// SkippedEnvironment wraps the domain's.
type SkippedEnvironment struct{ core.SkippedEnvironment }

// BreakGlass is null where nobody has broken the glass.
func (r Rollout) BreakGlass() *BreakGlass {
	if r.Glass == nil {
		return nil
	}
	return &BreakGlass{*r.Glass}
}

// Gate wraps the domain's.
type Gate struct{ core.Gate }

// Group is null for anybody.
func (g Gate) Group() *string { return orNull(g.GateRule.Group) }

// Approvals are those so far.
func (g Gate) Approvals() []GateApproval {
	all := make([]GateApproval, len(g.Gate.Approvals))
	for i, a := range g.Gate.Approvals {
		all[i] = GateApproval{a}
	}
	return all
}

// GateApproval wraps the domain's.
type GateApproval struct{ core.GateApproval }

// PrincipalType is user, agent, policy, schedule or system.
func (a GateApproval) PrincipalType() string { return string(a.Type) }

// PrincipalID is null where the principal has no number.
func (a GateApproval) PrincipalID() *int64 {
	if a.ID == 0 {
		return nil
	}
	return &a.ID
}

// Reason is null where none was given.
func (a GateApproval) Reason() *string { return orNull(a.GateApproval.Reason) }

// ApprovedAt is when.
func (a GateApproval) ApprovedAt() time.Time { return a.At }

// JournalCheck wraps the domain's.
type JournalCheck struct {
	rollout.JournalCheck
	// Behind reports whether it is not the first page.
	Behind bool
}

// Differences are those found.
func (c JournalCheck) Differences() []JournalDifference {
	all := make([]JournalDifference, len(c.JournalCheck.Differences))
	for i, d := range c.JournalCheck.Differences {
		all[i] = JournalDifference{d}
	}
	return all
}

// PageInfo is where the next page begins.
func (c JournalCheck) PageInfo() PageInfo {
	return PageInfo{HasNextPage: c.Next != "", HasPreviousPage: c.Behind, EndCursor: orNull(c.Next)}
}

// JournalDifference wraps the domain's.
type JournalDifference struct{ rollout.JournalDifference }

// SubjectID is the identifier of what differs.
func (d JournalDifference) SubjectID() string {
	return id.Format(string(d.Subject.Kind), d.Subject.ID)
}

// RolloutPolicy wraps the domain's.
type RolloutPolicy struct{ core.RolloutPolicy }

// QueuedRollout wraps the domain's.
type QueuedRollout struct{ core.QueuedRollout }

// GlobalID is queuedrollout_<number>.
func (q QueuedRollout) GlobalID() string { return id.Format(KindQueuedRollout, q.ID) }

// State knows that a member has cancelled it.
func (q QueuedRollout) State() QueuedRolloutState {
	if q.Cancelled() {
		return QueuedRolloutStateCancelled
	}
	return QueuedRolloutState(strings.ToUpper(string(q.QueuedRollout.State)))
}

// PrincipalType is who has asked for it.
func (q QueuedRollout) PrincipalType() string { return string(q.Requester.Type) }

// PrincipalID is null where the principal has no number.
func (q QueuedRollout) PrincipalID() *int64 {
	if q.Requester.ID == 0 {
		return nil
	}
	return &q.Requester.ID
}

// EnvironmentApproval wraps the domain's.
type EnvironmentApproval struct{ core.EnvironmentApproval }

// Group is null for anybody.
func (a EnvironmentApproval) Group() *string { return orNull(a.GateRule.Group) }

// ExpiresAfterSeconds is 0 for never.
func (a EnvironmentApproval) ExpiresAfterSeconds() int { return int(a.ExpiresAfter / time.Second) }

// JournalEntry wraps the domain's.
type JournalEntry struct {
	core.JournalEntry
	rollout *Rollout
}

// ReadRollout is what the row belongs to, if that was read along.
func (e JournalEntry) ReadRollout() (Rollout, bool) {
	if e.rollout == nil {
		return Rollout{}, false
	}
	return *e.rollout, true
}

// Cursor is the entry's position, for the next request.
func (e JournalEntry) Cursor() string { return core.CursorOf(e.ID) }

// Transition is the row itself.
func (e JournalEntry) Transition() Transition { return Transition{e.JournalEntry.Transition} }

// Member wraps the domain's.
type Member struct{ core.Member }

// Group wraps the domain's.
type Group struct{ core.Group }

// ProposedChange wraps the domain's.
type ProposedChange struct{ core.ProposedChange }

// Action is the mutation.
func (p ProposedChange) Action() string { return string(p.Change.Action) }

// SubjectID is what it changes.
func (p ProposedChange) SubjectID() string { return id.Format(string(p.Subject.Kind), p.Subject.ID) }

// SubjectName is what that is called.
func (p ProposedChange) SubjectName() string { return p.Subject.Name }

// ProposerName is what the proposer was called then.
func (p ProposedChange) ProposerName() string { return p.PrincipalName }

// Grant wraps the domain's.
type Grant struct{ core.Grant }

// Permits are what it gives.
func (g Grant) Permits() []core.Permission { return g.Permissions.List() }

// AccessToken wraps the domain's.
type AccessToken struct{ core.AccessToken }

// Scopes are what it is good for.
func (t AccessToken) Scopes() []core.Permission { return t.AccessToken.Scopes.List() }

// Agent wraps the domain's.
type Agent struct{ core.Agent }

// Number is what configurations name it by.
func (a Agent) Number() int64 { return a.ID }

// AgentKey wraps the domain's.
type AgentKey struct{ core.AgentKey }

// AuditEntry wraps the domain's.
type AuditEntry struct{ evidence.Entry }

// Position is its number among the rows of all journals.
func (e AuditEntry) Position() int64 { return e.ID }

// PrincipalType says what kind of actor it was.
func (e AuditEntry) PrincipalType() string { return string(e.Type) }

// PrincipalID is null where the principal has no number.
func (e AuditEntry) PrincipalID() *int64 { return orNone(e.Principal.ID) }

// Action is the mutation, or the verb.
func (e AuditEntry) Action() string { return string(e.Change.Action) }

// SubjectID is null for what has no number.
func (e AuditEntry) SubjectID() *string {
	if e.Subject.ID == 0 {
		return nil
	}
	global := id.Format(string(e.Subject.Kind), e.Subject.ID)
	return &global
}

// SubjectName is what it was called then.
func (e AuditEntry) SubjectName() string { return e.Subject.Name }

// TraceID is null where the request was not traced.
func (e AuditEntry) TraceID() *string { return orNone(e.Change.TraceID) }

// orNone is null for a zero value.
func orNone[T comparable](v T) *T {
	var zero T
	if v == zero {
		return nil
	}
	return &v
}

// JournalChain wraps the domain's.
type JournalChain struct{ evidence.Chain }

// Block is the last one that is right.
func (c JournalChain) Block() int64 { return c.Check.Block }

// Problem is null for nothing.
func (c JournalChain) Problem() *string { return orNone(c.Check.Problem) }

// JournalChainCheck wraps the domain's.
type JournalChainCheck struct{ evidence.Check }

// Problem is null for nothing.
func (c JournalChainCheck) Problem() *string { return orNone(c.Check.Problem) }

// AccessChange wraps the domain's.
type AccessChange struct{ core.AccessChange }

// PrincipalType says what kind of actor it was.
func (c AccessChange) PrincipalType() string { return string(c.Type) }

// PrincipalID is null where the principal has no number.
func (c AccessChange) PrincipalID() *int64 {
	if c.Principal.ID == 0 {
		return nil
	}
	return &c.Principal.ID
}

// Action is the mutation that did it.
func (c AccessChange) Action() string { return string(c.AccessChange.Action) }

// SubjectID is the identifier of whose access it is.
func (c AccessChange) SubjectID() string { return id.Format(string(c.Subject.Kind), c.Subject.ID) }

// SubjectName is what it was called then.
func (c AccessChange) SubjectName() string { return c.Subject.Name }

// Wait wraps the domain's.
type Wait struct{ view.Wait }

// GateID is null where it is at no gate.
func (w Wait) GateID() *string { return orNull(w.Wait.GateID) }

// NeededPermission is null where no person ends it.
func (w Wait) NeededPermission() *core.Permission {
	if w.Needs == 0 {
		return nil
	}
	return &w.Needs
}

// Transition wraps the domain's.
type Transition struct{ core.Transition }

// Driver wraps the domain's.
type Driver struct{ core.Driver }

// ArtifactDigest is null for a driver that came in no artifact.
func (d Driver) ArtifactDigest() *string { return orNull(d.Driver.ArtifactDigest) }

// DriverOrigin wraps the domain's.
type DriverOrigin struct{ core.DriverOrigin }

// Digest is null for what is no artifact, and until one has been pulled.
func (o DriverOrigin) Digest() *string { return orNull(o.DriverOrigin.Digest) }

// Problem is null when all is well.
func (o DriverOrigin) Problem() *string { return orNull(o.DriverOrigin.Problem) }

// ProblemCode is null when all is well.
func (o DriverOrigin) ProblemCode() *DriverProblemCode {
	if o.Trouble == "" {
		return nil
	}
	code := DriverProblemCode(strings.ToUpper(string(o.Trouble)))
	return &code
}

// Drivers is never null.
func (o DriverOrigin) Drivers() []string { return append([]string{}, o.DriverOrigin.Drivers...) }

// WorkflowRef is null until the rollout has been handed over.
func (r Rollout) WorkflowRef() *string { return orNull(r.Rollout.WorkflowRef) }

// Strategy is null for rollouts of releases that did not plan.
func (r Rollout) Strategy() *RolloutStrategy {
	if r.Plan.Strategy == "" {
		return nil
	}
	s := RolloutStrategy(strings.ToUpper(string(r.Plan.Strategy)))
	return &s
}

// StrategyReason is null with it.
func (r Rollout) StrategyReason() *string { return orNull(r.Plan.Why) }

// Inputs are an empty object for none.
func (r Rollout) Inputs() json.RawMessage { return orObject(r.Rollout.Inputs) }

// Inputs are an empty object for none.
func (q QueuedRollout) Inputs() json.RawMessage { return orObject(q.QueuedRollout.Inputs) }

func orObject(encoded json.RawMessage) json.RawMessage {
	if len(encoded) == 0 {
		return json.RawMessage(`{}`)
	}
	return encoded
}

// Strategy is what was chosen.
func (q QueuedRollout) Strategy() StrategyChoice {
	return StrategyChoice(strings.ToUpper(string(cmp.Or(q.QueuedRollout.Strategy, planner.Auto))))
}

// Chosen is the domain's name of a choice; nil is auto.
func (c *StrategyChoice) Chosen() planner.Choice {
	if c == nil {
		return planner.Auto
	}
	return planner.Choice(strings.ToLower(string(*c)))
}

// SubjectID is the identifier of what changed.
func (t Transition) SubjectID() string {
	return id.Format(string(t.Subject.Kind), t.Subject.ID)
}

// FromState is null for the creation.
func (t Transition) FromState() *string { return orNull(string(t.From)) }

// ToState is the state after the transition.
func (t Transition) ToState() string { return string(t.To) }

// Event is the verb.
func (t Transition) Event() string { return string(t.Verb) }

// GateID is null for most.
func (t Transition) GateID() *string { return orNull(t.Transition.GateID) }

// PrincipalType says what kind of actor it was.
func (t Transition) PrincipalType() string { return string(t.Transition.PrincipalType) }

// PrincipalID is null where the principal has no number.
func (t Transition) PrincipalID() *int64 {
	if t.Transition.PrincipalID == 0 {
		return nil
	}
	return &t.Transition.PrincipalID
}

// Reason is null where none was given.
func (t Transition) Reason() *string { return orNull(t.Transition.Reason) }

// TriggeredBy is null where nothing else led to it.
func (t Transition) TriggeredBy() *string { return orNull(t.Transition.TriggeredBy) }

func orNull(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

// Archiving wraps the domain's.
type Archiving struct{ core.Archiving }

// PrincipalType says what kind of actor it was.
func (a Archiving) PrincipalType() string { return string(a.Type) }

// PrincipalID is the actor's number.
func (a Archiving) PrincipalID() int64 { return a.Principal.ID }
