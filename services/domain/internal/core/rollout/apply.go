package rollout

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/id"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/policy"
)

// Change is what an event from a workflow says has happened. Each applies itself in the transaction that claims the event.
type Change interface {
	apply(ctx context.Context, u *UseCases, tx Tx, c cause, in core.Inbound) error
	// reporter is who may report it (D47).
	reporter() reporter
}

// Apply records what an event reports, once however often it arrives (D16). Repeated and terminal states absorb it. The error of an event
// that can never be applied is Invalid, NotFound or Refused.
func (u *UseCases) Apply(ctx context.Context, in core.Inbound, ch Change) error {
	var reported []checkOutcome
	err := u.store.In(ctx, in.Organization, func(ctx context.Context, tx Tx) error {
		reported = nil // the transaction may run again
		// The claim and what it leads to are one commit (D16): a crash before it leaves the event to come again, and one
		// after it finds the event claimed.
		first, err := tx.Claim(ctx, in)
		if err != nil || !first {
			return err
		}
		c := u.causeOf(in)
		c.reported = &reported
		if err := mayReport(ctx, tx, c, in, ch); err != nil {
			return err
		}
		return ch.apply(ctx, u, tx, c, in)
	})
	u.checks.count(err, reported)
	// Also after an error: a commit whose answer was lost may have happened, and a needless wake-up costs one query.
	u.wake()
	return err
}

// Noted is an event that changes nothing here: it is sent from one workflow to another.
type Noted struct{}

func (Noted) apply(context.Context, *UseCases, Tx, cause, core.Inbound) error { return nil }

// Moved moves a rollout.
type Moved struct {
	RolloutID int64
	Verb      core.Verb
	Reason    string
}

func (m Moved) apply(ctx context.Context, u *UseCases, tx Tx, c cause, _ core.Inbound) error {
	t, err := lockTree(ctx, tx, c, m.RolloutID)
	if err != nil {
		return err
	}
	if m.Verb == core.VerbComplete && !t.rollout.State.Terminal() {
		if ok, err := u.claimsEnd(ctx, t); err != nil || !ok {
			return err
		}
		return u.complete(ctx, t, m.Reason)
	}
	return t.moveRollout(ctx, m.Verb, m.Reason)
}

// EnvironmentMoved moves an environment of a rollout.
type EnvironmentMoved struct {
	RolloutID, EnvironmentID int64
	Verb                     core.Verb
	Reason                   string
}

func (m EnvironmentMoved) apply(ctx context.Context, u *UseCases, tx Tx, c cause, _ core.Inbound) error {
	t, err := lockTree(ctx, tx, c, m.RolloutID)
	if err != nil {
		return err
	}
	b, err := t.environment(m.EnvironmentID)
	if err != nil {
		return err
	}
	switch m.Verb {
	case core.VerbStart:
		// Drivers of earlier releases report it before they request the passage.
		if entered, err := t.entered(ctx, b); err != nil || !entered {
			return err
		}
	case core.VerbComplete:
		if ok, err := u.claimsWeights(ctx, t, b, aboveAll, "a healthy environment"); err != nil || !ok {
			return err
		}
		if ok, err := u.claimsWaves(ctx, t, b, "a healthy environment"); err != nil || !ok {
			return err
		}
	default: // a failure claims nothing
	}
	return t.moveEnvironment(ctx, b, m.Verb, m.Reason)
}

// DeploymentMoved moves a deployment.
type DeploymentMoved struct {
	DeploymentID int64
	Verb         core.Verb
	Reason       string
}

func (m DeploymentMoved) apply(ctx context.Context, u *UseCases, tx Tx, c cause, _ core.Inbound) error {
	t, b, dep, err := lockDeployment(ctx, tx, c, m.DeploymentID)
	if err != nil {
		return err
	}
	if m.Verb != core.VerbFail {
		if ok, err := u.claims(ctx, t, b, "a deployment"); err != nil || !ok {
			return err
		}
	}
	return t.moveDeployment(ctx, b, dep, m.Verb, m.Reason)
}

// GatePassage is a deployment that has come to a gate, or goes past it. Whatever the order of events, a deployment at a gate has
// started. It is recorded for one that has ended, too, since the journal says where it was.
type GatePassage struct {
	DeploymentID int64
	// Verb is reach_gate or pass_gate.
	Verb   core.Verb
	Weight int
}

func (m GatePassage) apply(ctx context.Context, u *UseCases, tx Tx, c cause, _ core.Inbound) error {
	t, b, dep, err := lockDeployment(ctx, tx, c, m.DeploymentID)
	if err != nil {
		return err
	}
	below := m.Weight
	if m.Verb == core.VerbPassGate {
		below++
	}
	if ok, err := u.claimsWeights(ctx, t, b, below, fmt.Sprintf("a deployment at %d %%", m.Weight)); err != nil || !ok {
		return err
	}
	if err := t.moveDeployment(ctx, b, dep, core.VerbStart, ""); err != nil {
		return err
	}
	gate := t.gateName(b, m.Weight)
	// A gate is no state of a deployment, so the row's To is its From (D17). The same gate reported twice, under two event
	// ids, makes two rows; readers take the first of each kind.
	row := t.row(core.Subject{Kind: core.SubjectDeployment, ID: dep.ID}, m.Verb)
	state := core.State(dep.State)
	row.From, row.To, row.GateID = state, state, gate
	return tx.Record(ctx, row)
}

// lockDeployment locks the rollout that a deployment belongs to, and finds the deployment in it.
func lockDeployment(ctx context.Context, tx Tx, c cause, id int64) (*tree, *branch, *core.Deployment, error) {
	rollout, err := rolloutOf(ctx, tx, c, id)
	if err != nil {
		return nil, nil, nil, err
	}
	t, err := lockTree(ctx, tx, c, rollout)
	if err != nil {
		return nil, nil, nil, err
	}
	b, dep, err := t.deployment(id)
	return t, b, dep, err
}

// rolloutOf is the rollout that a deployment belongs to.
func rolloutOf(ctx context.Context, tx Tx, c cause, deployment int64) (int64, error) {
	if c.known != nil {
		if rollout, ok := c.known.of[deployment]; ok {
			return rollout, nil
		}
	}
	return tx.RolloutOfDeployment(ctx, deployment)
}

// DeploymentCommitted keeps what is being deployed, by each attempt (E46, D53).
type DeploymentCommitted struct {
	DeploymentID              int64
	CommitSHA, ManifestDigest string
	Parameters                json.RawMessage
	Changes                   []core.FileChange
}

func (m DeploymentCommitted) apply(ctx context.Context, u *UseCases, tx Tx, c cause, in core.Inbound) error {
	t, b, dep, err := lockDeployment(ctx, tx, c, m.DeploymentID)
	if err != nil {
		return err
	}
	if ok, err := u.claims(ctx, t, b, "a commit"); err != nil || !ok {
		return err
	}
	s := core.Snapshot{
		DeploymentID: m.DeploymentID, CommitSHA: m.CommitSHA, ManifestDigest: m.ManifestDigest, Parameters: m.Parameters, Changes: m.Changes,
		ReportedAt: in.At,
	}
	if s.ReportedAt.IsZero() { // CloudEvents may leave it out
		s.ReportedAt = c.at
	}
	if len(s.Parameters) == 0 {
		s.Parameters = json.RawMessage("{}")
	}
	return u.keepAttempt(ctx, t, b, dep, s)
}

// DeploymentSubmitted keeps what a deployment is outside of Lockstep (D53). It claims nothing: it may come before the passage, and
// after the rollout's end, when what is left behind is closed.
type DeploymentSubmitted struct{ Link core.DeploymentLink }

func (m DeploymentSubmitted) apply(ctx context.Context, _ *UseCases, tx Tx, c cause, _ core.Inbound) error {
	if _, _, _, err := lockDeployment(ctx, tx, c, m.Link.DeploymentID); err != nil {
		return err
	}
	return tx.SaveDeploymentLink(ctx, m.Link)
}

// ApprovalRequested opens a gate (D24). A rollout that is over, and a gate that is open already, absorb it.
type ApprovalRequested struct {
	RolloutID int64
	GateID    string
	// EnvironmentID is what the gate guards; 0 where it guards none in particular.
	EnvironmentID int64
	Reason        string
}

func (m ApprovalRequested) apply(ctx context.Context, u *UseCases, tx Tx, c cause, _ core.Inbound) error {
	t, err := lockTree(ctx, tx, c, m.RolloutID)
	if err != nil || t.rollout.State.Terminal() {
		return err
	}
	p, err := t.passages(ctx)
	if err != nil {
		return err
	}
	// A retry asks again under a new event id. A second row would be harmless to the state, but the journal would have the record
	// of a request that nobody made, and forget the approvals so far.
	if p.open[m.GateID] {
		return nil
	}
	rule, err := t.rule(ctx, p.rules, m)
	if err != nil {
		return err
	}
	// What a passage has asked already is not asked again: the answer is repeated for the program that waits for it.
	if _, given := p.hold.Answers[m.GateID].Satisfies(m.GateID, rule.GateRule); given && t.rollout.Passages && !rule.Own {
		return u.answer(ctx, t, m.GateID, true, "")
	}
	if err := t.moveRollout(ctx, core.VerbStart, ""); err != nil {
		return err
	}
	if rule.Reason == "" {
		rule.Reason = m.Reason
	}
	if err := u.ask(ctx, t, m.GateID, rule, p.hold); err != nil {
		return err
	}
	if p.hold.Broken != nil {
		return u.decide(ctx, t)
	}
	counted, err := u.countMerges(ctx, t)
	if err != nil {
		return err
	}
	if counted {
		if err := u.decide(ctx, t); err != nil {
			return err
		}
		if p.hold, err = t.hold(ctx); err != nil || !p.hold.Stands() {
			return err
		}
	}
	if err := u.reportStuck(ctx, t, m.GateID); err != nil {
		return err
	}
	return t.stand(ctx, p.hold)
}

// EnvironmentReadiness is what an onboarding has found.
type EnvironmentReadiness struct {
	EnvironmentID int64
	Ready         bool
	Reason        string
}

func (m EnvironmentReadiness) apply(ctx context.Context, u *UseCases, tx Tx, c cause, in core.Inbound) error {
	return u.readiness.Onboarded(ctx, tx, c.Organization, in.Correlation, m.EnvironmentID, m.Ready, m.Reason)
}

// ApplicationEnvironmentReadiness is what a setup has found.
type ApplicationEnvironmentReadiness struct {
	ApplicationEnvironmentID int64
	Ready                    bool
	Reason                   string
	Discovered               json.RawMessage
}

func (m ApplicationEnvironmentReadiness) apply(ctx context.Context, u *UseCases, tx Tx, c cause, in core.Inbound) error {
	return u.readiness.SetupFound(ctx, tx, c.Organization, in.Correlation, m.ApplicationEnvironmentID, m.Ready, m.Reason, m.Discovered)
}

// WorkflowEnded is the engine's event about the end of a run (D36): whatever its program had the time to report, its subject does
// not stay open.
type WorkflowEnded struct {
	WorkflowID string
	// Verb is complete, fail or cancel.
	Verb   core.Verb
	Reason string
}

// PullRead is what a run has read of a pull request, as the event has it.
type PullRead struct {
	PullID  int64
	Run     int
	Reading []byte
}

func (m PullRead) apply(ctx context.Context, _ *UseCases, tx Tx, c cause, _ core.Inbound) error {
	return tx.SaveForgePullReading(ctx, m.PullID, m.Run, m.Reading, c.at)
}

func (m WorkflowEnded) apply(ctx context.Context, u *UseCases, tx Tx, c cause, _ core.Inbound) error {
	if err := tx.WithdrawCallRequests(ctx, m.WorkflowID); err != nil {
		return err
	}
	return u.workflowEnded(ctx, tx, c, m.WorkflowID, m.Verb, m.Reason)
}

// StartRefused closes what a workflow was to be run for that the engine refused to start.
func (u *UseCases) StartRefused(ctx context.Context, tx Tx, organization int64, workflowID, reason string) error {
	c := cause{
		Actor: core.Actor{Organization: organization, Type: core.PrincipalSystem}, triggeredBy: "handoff " + workflowID, at: u.clock.Now(),
	}
	return u.workflowEnded(ctx, tx, c, workflowID, core.VerbFail, "the workflow could not be started: "+reason)
}

// workflowEnded closes what a workflow was run for, unless its program has done so.
func (u *UseCases) workflowEnded(ctx context.Context, tx Tx, c cause, workflowID string, verb core.Verb, reason string) error {
	// A program that ends well has reported on its subject, but that event may arrive after this one. If it never arrives,
	// leaving a rollout open would block its application for ever (R14).
	completed := verb == core.VerbComplete
	if run := id.Check(workflowID); run != 0 {
		return u.checkRunEnded(ctx, tx, c, run, verb, reason)
	}
	if message, run := id.Notification(workflowID); message != 0 {
		return tx.HurryNotification(ctx, message, run, c.at)
	}
	if status, run := id.ForgeStatus(workflowID); status != 0 {
		return tx.HurryForgeStatus(ctx, status, run, c.at)
	}
	if pull, run := id.ForgePull(workflowID); pull != 0 {
		return tx.HurryForgePull(ctx, pull, run, c.at)
	}
	if completed {
		verb, reason = core.VerbFail, "the workflow ended without saying how it went"
	}
	if reason == "" {
		reason = "the workflow was stopped"
	}
	// The workflow id is the only link back: the engine knows its runs by the ids that were chosen here (D8, E19).
	if known, err := u.readiness.WorkflowStopped(ctx, tx, c.Organization, workflowID, reason); err != nil || known {
		return err
	}
	var n int64
	if _, err := fmt.Sscanf(workflowID, "preview-%d", &n); err == nil && workflowID == previewWorkflow(n) {
		return u.failPreview(ctx, tx, c, core.Preview{ID: n, State: core.PreviewFailed, Reason: reason})
	}
	// Sscanf takes whatever follows the number, so the whole id is compared. Any other id belongs to callers who run programs of their
	// own on the engine: nothing here was waiting for it, and nothing is wrong.
	_, _ = fmt.Sscanf(workflowID, "rollout-%d", &n)
	if workflowID != rolloutWorkflow(n) {
		return nil
	}
	if completed {
		t, err := lockTree(ctx, tx, c, n)
		if err != nil || t.rollout.State.Terminal() {
			return err
		}
		return tx.ScheduleClosing(ctx, n, reason, c.at.Add(closingGrace))
	}
	return Moved{n, verb, reason}.apply(ctx, u, tx, c, core.Inbound{})
}

// CallReported is what policies decided about a call of a Function in the engine (D51).
type CallReported struct{ core.CallRequest }

func (m CallReported) apply(ctx context.Context, _ *UseCases, tx Tx, c cause, _ core.Inbound) error {
	m.RolloutID, m.CreatedAt = id.Rollout(m.WorkflowID), c.at
	return policy.CallReported(ctx, tx, m.CallRequest)
}

// HealthSeen is a service's health as it was observed.
type HealthSeen struct{ core.ServiceHealth }

// Reconciled is what was observed to be in force of an application in an environment.
type Reconciled struct{ core.Reconciliation }

// ContactSeen reports whether the agent of an environment could be reached.
type ContactSeen struct{ core.Contact }

func (h HealthSeen) apply(ctx context.Context, _ *UseCases, tx Tx, c cause, _ core.Inbound) error {
	counts, err := tx.SaveHealth(ctx, h.ServiceHealth)
	if err != nil || !counts {
		return err
	}
	rollout, ok, err := tx.RolloutServing(ctx, h.ServiceID, h.EnvironmentID)
	if err != nil || !ok {
		return err
	}
	// Under the lock: of this word and the rollout's end, whichever comes second sees the other.
	t, err := lockTree(ctx, tx, c, rollout)
	if err != nil {
		return err
	}
	if !t.rollout.State.Terminal() {
		// The entrance of the next environment may depend on it.
		if err := tx.ReviewChecked(ctx, t.rollout.ID, h.EnvironmentID, c.at); err != nil {
			return err
		}
		if err := h.notify(ctx, t); err != nil {
			return err
		}
	}
	return t.runClock(ctx)
}

// notify stores that checks of kind health of a rollout fail or pass in the environment, each failure once however many services it is of.
func (h HealthSeen) notify(ctx context.Context, t *tree) error {
	at := slices.IndexFunc(t.environments, func(b *branch) bool {
		return b.EnvironmentID == h.EnvironmentID && b.State == core.RolloutCompleted
	})
	if at < 0 || h.Health != core.HealthDegraded && h.Health != core.HealthHealthy {
		return nil
	}
	checks, err := t.tx.Checks(ctx, t.rollout.ID, t.rollout.VersionSetID)
	if err != nil {
		return err
	}
	checks.Pinned = slices.DeleteFunc(checks.Pinned, func(p core.PinnedCheck) bool {
		return p.Kind != core.CheckHealth || p.EnvironmentID != h.EnvironmentID
	})
	if len(checks.Pinned) == 0 {
		return nil
	}
	if checks.Observed, err = core.ObservedIn(ctx, t.tx, t.cause.Organization, []int64{h.EnvironmentID}); err != nil {
		return err
	}
	if checks.Retired, err = t.retired(ctx); err != nil {
		return err
	}
	if checks.InForce, err = t.inForce(ctx, checks.Pinned); err != nil {
		return err
	}
	b := t.environments[at]
	place := core.CheckPlace{EnvironmentID: b.EnvironmentID, Completed: b.FinishedAt}
	for _, d := range b.deployments {
		place.Deployments = append(place.Deployments, *d)
	}
	for _, s := range checks.All([]core.CheckPlace{place}, t.cause.at) {
		n := core.Notification{
			Moment: core.MomentCheckFailed, At: h.ObservedAt, ApplicationID: t.rollout.ApplicationID, EnvironmentID: h.EnvironmentID,
			SubjectID: t.rollout.VersionSetID, Subject: s.Key, By: core.Principal{Type: core.PrincipalSystem}, Reason: s.Detail,
			Cause: fmt.Sprintf("health:%d:%d:%s:%d", t.rollout.ID, h.EnvironmentID, s.Key, h.ObservedAt.UnixNano()),
		}
		store := t.tx.CheckFailed
		if s.Phase == core.CheckSuccess {
			n.Moment, store = core.MomentCheckPassed, t.tx.CheckPassed
		} else if s.Phase != core.CheckFailure {
			continue
		}
		if err := store(ctx, n); err != nil {
			return err
		}
	}
	return nil
}

func (r Reconciled) apply(ctx context.Context, _ *UseCases, tx Tx, c cause, _ core.Inbound) error {
	if err := tx.SaveReconciliation(ctx, r.Reconciliation); err != nil {
		return err
	}
	if err := tx.ReviewInSync(ctx, r.ApplicationEnvironmentID, c.at); err != nil {
		return err
	}
	if len(r.Objects) == 0 {
		return tx.EndDrift(ctx, r.ApplicationEnvironmentID, c.at)
	}
	return tx.SignalDrift(ctx, r.ApplicationEnvironmentID, r.Objects.Key(), c.at)
}

func (o ContactSeen) apply(ctx context.Context, _ *UseCases, tx Tx, c cause, _ core.Inbound) error {
	news, err := tx.SaveContact(ctx, o.Contact)
	if err != nil || !news {
		return err
	}
	return tx.ReviewHealth(ctx, o.EnvironmentID, c.at)
}

// attemptsMost bounds how many attempts of a deployment are kept beside its snapshot, each by its commit and digest once, however often
// the targets of a fleet or retries come back to it. A program that reports more fails its rollout.
const attemptsMost = 200

// keepAttempt keeps what an attempt has committed (D53). The events of a run arrive in their order, so a later one is of a later attempt,
// and takes the place of the one before, which is kept. After the end of the deployment what was deployed stays as it is.
func (u *UseCases) keepAttempt(ctx context.Context, t *tree, b *branch, dep *core.Deployment, s core.Snapshot) error {
	found, err := t.tx.SnapshotsByDeployment(ctx, t.cause.Organization, []int64{s.DeploymentID})
	if err != nil {
		return err
	}
	latest, is := found[s.DeploymentID]
	switch {
	case !is:
		return t.tx.AddSnapshot(ctx, s)
	case sameAttempt(latest, s):
		return nil // reported again, or for another target of a fleet
	}
	ended := t.rollout.State.Terminal() || b.State.Terminal() || dep.State.Terminal()
	keep := t.tx.ReplaceSnapshot
	if ended {
		keep = t.tx.AddAttempt
	}
	if err := keep(ctx, s); err != nil {
		return err
	}
	kept, err := t.tx.CountAttempts(ctx, s.DeploymentID)
	switch {
	case err != nil || kept <= attemptsMost:
		return err
	case ended: // which takes it back
		return fault.New(fault.Refused, "deployment_%d has ended, and %d attempts of it are kept already", s.DeploymentID, kept-1)
	}
	reason := fmt.Sprintf("its program reported more than %d attempts of deployment_%d", attemptsMost+1, s.DeploymentID)
	if err := t.moveRollout(ctx, core.VerbFail, reason); err != nil {
		return err
	}
	return u.stopWorkflow(ctx, t, reason)
}

// sameAttempt reports whether two snapshots are of one attempt: of the same commit and manifest. The first counts, with its changes and
// parameters: the targets of a fleet have parameters of their own. Without a commit the parameters say what is deployed.
func sameAttempt(a, b core.Snapshot) bool {
	if a.CommitSHA != b.CommitSHA || a.ManifestDigest != b.ManifestDigest {
		return false
	}
	if a.CommitSHA != "" {
		return true
	}
	var one, other any
	return json.Unmarshal(a.Parameters, &one) == nil && json.Unmarshal(b.Parameters, &other) == nil && reflect.DeepEqual(one, other)
}
