package core

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/policy"
)

// RollbackPolicy is what an application does by itself about a rollout that failed, or whose services degrade (E74).
type RollbackPolicy struct {
	ApplicationID int64
	// OnFailed rolls back at once, however the rollout failed: a service that degraded is a failure like any other.
	OnFailed bool
	// OnDegraded rolls back when a service has been degraded for DegradedAfter, by the health cache, rollout or not (D13):
	// people may still want to look, or to fix it.
	OnDegraded    bool
	DegradedAfter time.Duration
	// InFull promotes a rollback at once, without the gates by weight (D14), where its target has been live before. Argo does that by itself
	// only where the target is what still serves.
	InFull bool
}

// DefaultRollbackPolicy is that of an application that has none of its own.
func DefaultRollbackPolicy(application int64) RollbackPolicy {
	return RollbackPolicy{ApplicationID: application, OnFailed: true, OnDegraded: true, DegradedAfter: 30 * time.Minute}
}

// AutomaticRollback is a rollback that a policy wants.
type AutomaticRollback struct {
	ID, RolloutID int64
	Cause         string
	// MadeRolloutID or Outcome is what came of it.
	MadeRolloutID int64
	Outcome       string
}

// The causes.
const (
	CauseFailed   = "failed"
	CauseDegraded = "degraded"
)

// NewerPolicy is what happens to a version set that is to be promoted while a rollout of the application is active.
type NewerPolicy string

// The policies.
const (
	// NewerRefused refuses it: one at a time (R14).
	NewerRefused NewerPolicy = "refuse"
	// NewerQueued begins it when the active one is over; of several the latest asked for.
	NewerQueued NewerPolicy = "queue"
	// NewerSupersedes ends an older one that is parked, and begins it. One that moves is not interrupted.
	NewerSupersedes NewerPolicy = "supersede"
)

// FailurePolicy is what happens to the deployments under way when a rollout fails.
type FailurePolicy string

// The policies.
const (
	// FailureStops leaves everything as it is, for people to look at (E67); the rollback policy continues from there.
	FailureStops FailurePolicy = "stop"
	// FailureAborts takes them back to the version that was stable before.
	FailureAborts FailurePolicy = "abort"
	// FailureRollsBack rolls back at once, however it failed.
	FailureRollsBack FailurePolicy = "rollback"
)

// RolloutPolicy is how an application's rollouts deal with failures and with each other.
type RolloutPolicy struct {
	ApplicationID int64
	OnFailure     FailurePolicy
	OnNewer       NewerPolicy
}

// DefaultRolloutPolicy is that of an application that has none of its own.
func DefaultRolloutPolicy(application int64) RolloutPolicy {
	return RolloutPolicy{ApplicationID: application, OnFailure: FailureStops, OnNewer: NewerRefused}
}

// What the rollback policy of an application is about to do is no secret: when, why, and with a way to stop it.

// RollbackOutlook is an automatic rollback as people see it.
type RollbackOutlook struct {
	AutomaticRollback
	// DueAt is when it begins; nil once it has been settled.
	DueAt *time.Time
	// Why says for people why it is due, or was.
	Why string
}

// RollbackState is the outcome of an automatic rollback.
type RollbackState string

// The states.
const (
	// RollbackDue is one that begins at its time.
	RollbackDue RollbackState = "due"
	// RollbackStarted has made a rollout.
	RollbackStarted RollbackState = "started"
	// RollbackDropped will not happen: its outcome says why.
	RollbackDropped RollbackState = "dropped"
)

// State is its outcome.
func (r AutomaticRollback) State() RollbackState {
	switch {
	case r.MadeRolloutID != 0:
		return RollbackStarted
	case r.Outcome != "":
		return RollbackDropped
	default:
		return RollbackDue
	}
}

// Explain says for people why it is due. A newer rollout keeps one waiting that is about degradation.
func (o RollbackOutlook) Explain(policy RollbackPolicy, active Rollout) string {
	if o.Cause == CauseFailed {
		return "the rollout failed, and the application's rollback policy rolls back at once"
	}
	why := "a service that the rollout deployed is degraded; the application's rollback policy rolls back after " +
		forPeopleToRead(policy.DegradedAfter)
	if o.State() == RollbackDue && active.ID != 0 {
		why += fmt.Sprintf(", and not before rollout_%d, which is %s, has ended", active.ID, active.State.Words())
	}
	return why
}

// forPeopleToRead is a duration without the zeros that Go writes.
func forPeopleToRead(d time.Duration) string {
	switch {
	case d == 0:
		return "no time"
	case d%time.Hour == 0:
		return fmt.Sprintf("%d h", int(d/time.Hour))
	case d%time.Minute == 0:
		return fmt.Sprintf("%d min", int(d/time.Minute))
	default:
		return fmt.Sprintf("%d s", int(d/time.Second))
	}
}

// Closing is a rollout whose end was heard of before everything under it.
type Closing struct {
	ID, RolloutID int64
	// Reason is why it failed, or why it fails if it has not ended by itself.
	Reason string
}

// GateExpiry is a question whose time is over.
type GateExpiry struct {
	ID, RolloutID int64
	GateID        string
	// AskedAt says which request it was.
	AskedAt time.Time
	// Outcome is what came of it: approve, reject, or answered, when a person was quicker.
	Outcome string
}

// PolicyMode decides whether a version of a policy set counts.
type PolicyMode string

// The modes.
const (
	PolicyEnforced PolicyMode = "enforce"
	// PolicyDryRun records what the set would have decided; it decides nothing.
	PolicyDryRun PolicyMode = "dry_run"
	PolicyOff    PolicyMode = "off"
)

// MaxPolicyRequest is how large the request of a recorded decision is, in bytes of JSON: a larger one is denied, and kept without its
// content.
const MaxPolicyRequest = policy.MaxRequest

// MaxCallRequest is the same of a call of a Function.
const MaxCallRequest = policy.MaxCall

// MaxPolicySets is how many policy sets an organization has, those that are off included.
const MaxPolicySets = 100

// PolicySet is one version of a named set of policies (D51).
type PolicySet struct {
	ID   int64
	Name string
	// ApplicationID, EnvironmentID or Labels is its scope, the latter for the applications with these labels; without any, it is the
	// organization's.
	ApplicationID, EnvironmentID int64
	Labels                       map[string]string
	// Installation means that the operator has given it: it concerns every organization, and is in no table.
	Installation bool
	Version      int
	Mode         PolicyMode
	// TimeZone is where the days and hours that its policies see are.
	TimeZone string
	Text     string
	// Reason and Author are those of the version, and CreatedAt is when it was made.
	Reason    string
	Author    Author
	CreatedAt time.Time
}

// ConcerningPolicy is a policy set that concerns a rollout.
type ConcerningPolicy struct {
	PolicySet
	// Latest reports whether it is the present version, and Pinned whether the rollout was created with it.
	Latest, Pinned bool
}

// Permits reports whether policies allow what was asked.
func (d PolicyDecision) Permits() bool { return d.Verdict == policy.Allow }

// PolicyDecision is what policies decided about a rollout, as it was recorded.
type PolicyDecision struct {
	ID, RolloutID int64
	// GateID is the passage; empty for the creation of the rollout.
	GateID string
	policy.Decision
	Request   policy.Request
	CreatedAt time.Time
}

// Name is what people call it.
func (d PolicyDecision) Name() string { return fmt.Sprintf("policydecision_%d", d.ID) }

// PolicyGate is the gate of an approval that a policy requires at a passage. Rule changes of a policy under way ask under a name of their
// own.
func PolicyGate(gate, name string, variant int) string {
	id := gate + policyGateMark + name
	if variant > 0 {
		id = fmt.Sprintf("%s/%d", id, variant+1)
	}
	return id
}

// policyGateMark is between the passage and the policy.
const policyGateMark = "/policy/"

// CallState is the outcome of a call of a Function that policies did not permit at once.
type CallState string

// The states.
const (
	// CallDenied is a call that policies deny.
	CallDenied CallState = "denied"
	// CallPending is one that waits for an approval.
	CallPending CallState = "pending"
	// CallApproved is one that people have approved; the engine asks the policies again.
	CallApproved CallState = "approved"
	// CallPermitted means that the policies permitted it: after an approval, or at once where those that are tried out would not have.
	CallPermitted CallState = "permitted"
	// CallRefused is one that people have refused.
	CallRefused CallState = "refused"
	// CallExpired means that nobody answered in time.
	CallExpired CallState = "expired"
	// CallWithdrawn is one whose run has ended.
	CallWithdrawn CallState = "withdrawn"
)

// MaxPendingCalls is how many calls of an organization wait for approvals at once. More are refused.
const MaxPendingCalls = 200

// MaxTriedCalls is how many calls of a run are kept that only policies which are tried out would not have permitted.
const MaxTriedCalls = 100

// MaxSampledCalls is how many calls of an organization are kept in a day that all policies permit at once.
const MaxSampledCalls = 200

// CallRequest is what policies decided about a call of a Function (D51). Of the calls that all of them permit at once there are few.
type CallRequest struct {
	ID int64
	// WorkflowID is the run, and RolloutID the rollout that it belongs to; 0 for none.
	WorkflowID string
	RolloutID  int64
	// CallID is what the engine calls the decision.
	CallID   string
	Function string
	State    CallState
	// Policy is the policy that decided, with its set, and Reason says what it decided and why.
	Policy, Reason string
	// Group, Quorum and RequesterMay are the rule of the approval.
	Group        string
	Quorum       int
	RequesterMay bool
	ExpiresAt    *time.Time
	Decision     policy.Decision
	// Request is everything that the policies could ask of, without secrets.
	Request json.RawMessage
	// Sampled reports whether all policies permitted it at once, and it is one of the few that are kept for simulations. It is in no list.
	Sampled   bool
	CreatedAt time.Time
}

// Tried reports whether the call was permitted at once, and policies that are tried out would not have permitted it.
func (r CallRequest) Tried() bool {
	return r.State == CallPermitted && r.Quorum == 0 && !r.Sampled && r.Decision.Verdict == policy.Allow && r.Decision.WouldBe != "" &&
		r.Decision.WouldBe != policy.Allow && !slices.ContainsFunc(r.Decision.Rulings, func(one policy.Ruling) bool { return one.Given })
}

// CallAnswer is the answer of a member.
type CallAnswer struct {
	Author   Author
	Approves bool
	Reason   string
	At       time.Time
}

// Name is what people call it.
func (r CallRequest) Name() string { return fmt.Sprintf("callrequest_%d", r.ID) }

// StateAt is its state at an instant: what nobody has answered in time has expired, whether or not the engine has said so.
func (r CallRequest) StateAt(at time.Time) CallState {
	if r.State == CallPending && r.ExpiresAt != nil && !at.Before(*r.ExpiresAt) {
		return CallExpired
	}
	return r.State
}

// requester is who requested the rollout that the run belongs to; the zero value for nobody with a number.
func (r CallRequest) requester() policy.Principal {
	var asked struct {
		Principal policy.Principal `json:"principal"`
	}
	_ = json.Unmarshal(r.Request, &asked) // without it, nobody is the requester
	return asked.Principal
}

// requestedBy reports whether an actor requested the rollout that the run belongs to.
func (r CallRequest) requestedBy(a Actor) bool {
	kind := map[PrincipalType]policy.PrincipalKind{PrincipalUser: policy.User, PrincipalAgent: policy.Machine}[a.Type]
	p := r.requester()
	return kind != "" && p.Kind == kind && p.ID == policy.MemberID(a.ID)
}

// MayAnswer is nil, or a Refused that says why this actor may not approve or refuse the call. The rules are those of approvals.
func (r CallRequest) MayAnswer(a Actor, approve bool, answers []CallAnswer, at time.Time) error {
	switch state := r.StateAt(at); {
	case state == CallPending:
	case r.Quorum == 0:
		outcome := "denied"
		if state == CallPermitted {
			outcome = "permitted"
		}
		return fault.New(fault.Refused, "%s asks nobody: policies %s the call of %s", r.Name(), outcome, r.Function)
	default:
		return fault.New(fault.Refused, "%s is %s; only one that is pending can be answered", r.Name(), state)
	}
	if r.Group != "" && !slices.Contains(a.Groups, r.Group) {
		return fault.New(fault.Refused, "%s is for the group %q to answer; %s is not in it", r.Name(), r.Group, a.DisplayName())
	}
	if !approve {
		return nil
	}
	if a.Type == PrincipalAgent && r.Group == "" {
		return fault.New(
			fault.Refused, "%s is for people to approve, and %s is a machine; a machine counts where the policy names a group that it is in",
			r.Name(), a.DisplayName(),
		)
	}
	if r.requestedBy(a) && !r.RequesterMay {
		return fault.New(
			fault.Refused, "%s requested the rollout that calls %s, so someone else must approve %s", a.DisplayName(), r.Function, r.Name(),
		)
	}
	for _, one := range answers {
		if one.Author.Principal == a.Principal() {
			return fault.New(
				fault.Refused, "%s has approved %s already; %d of %d have, and it takes different people", a.DisplayName(), r.Name(), len(answers),
				r.Quorum,
			)
		}
	}
	return nil
}

// PolicyEngine decides by stored policies. It keeps what it has parsed. It is safe for concurrent use; its zero value is ready.
type PolicyEngine struct {
	mu     sync.Mutex
	parsed map[[sha256.Size]byte]PolicyText
}

// maxParsed is how many texts a PolicyEngine keeps.
const maxParsed = 512

// PolicyText is the text of a set as it was read. With problems there is no document.
type PolicyText struct {
	Document *policy.Document
	Problems []policy.Problem
}

// Read is a text, parsed and validated.
func (e *PolicyEngine) Read(text string) PolicyText {
	key := sha256.Sum256([]byte(text))
	e.mu.Lock()
	known, ok := e.parsed[key]
	e.mu.Unlock()
	if ok {
		return known
	}
	known.Document, known.Problems = policy.Parse(text)
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.parsed == nil || len(e.parsed) >= maxParsed {
		e.parsed = map[[sha256.Size]byte]PolicyText{}
	}
	e.parsed[key] = known
	return known
}

// Decide decides about a request that concerns an environment, or none, by the latest policies and by those that are pinned: the stricter
// verdict holds, so that weakening a policy changes nothing for rollouts under way. Of an application's sets there are only those of the
// request's in sets.
func (e *PolicyEngine) Decide(sets []ConcerningPolicy, environment int64, r policy.Request) policy.Decision {
	var latest, pinned []PolicySet
	for _, s := range sets {
		if s.EnvironmentID != 0 && s.EnvironmentID != environment {
			continue
		}
		if s.Latest {
			latest = append(latest, s.PolicySet)
		}
		if s.Pinned {
			pinned = append(pinned, s.PolicySet)
		}
	}
	d := e.decide(latest, environment, r)
	if len(pinned) == 0 {
		return d
	}
	return d.With(e.decide(pinned, environment, r))
}

func (e *PolicyEngine) decide(sets []PolicySet, environment int64, r policy.Request) policy.Decision {
	entered := map[int64]string{}
	if r.Environment != nil {
		entered[environment] = r.Environment.Name
	}
	return decideBy(r)(e.Combined(r.Action, sets, r.Application, entered))
}

// decideBy decides about a request by policies, or by the denial where they cannot be used.
func decideBy(r policy.Request) func(*policy.Set, *policy.Decision) policy.Decision {
	return func(set *policy.Set, failed *policy.Decision) policy.Decision {
		if failed != nil {
			return *failed
		}
		return set.Decide(r)
	}
}

// Combined are the policies of sets that decide about an action, ready to decide, or the denial where one of them cannot be used.
// Environments are those that the sets of an environment are about, by number; sets of others are left out.
func (e *PolicyEngine) Combined(
	action policy.Action, sets []PolicySet, application string, environments map[int64]string,
) (*policy.Set, *policy.Decision) {
	levels := []policy.Level{{Name: "the installation"}, {Name: "the organization"}}
	groups := map[string]int{}
	for _, s := range sets {
		if s.Labels == nil {
			continue
		}
		if _, known := groups[Selector(s.Labels)]; !known {
			groups[Selector(s.Labels)] = 0
		}
	}
	for _, selector := range slices.Sorted(maps.Keys(groups)) {
		groups[selector] = len(levels)
		levels = append(levels, policy.Level{Name: "applications with " + selector})
	}
	ofApplication := len(levels)
	levels = append(levels, policy.Level{Name: fmt.Sprintf("application %q", application)})
	places := map[int64]int{}
	for _, id := range slices.Sorted(maps.Keys(environments)) {
		places[id] = len(levels)
		levels = append(levels, policy.Level{Name: fmt.Sprintf("environment %q", environments[id])})
	}
	var about []PolicySet
	for _, s := range sets {
		_, entered := environments[s.EnvironmentID]
		if (s.EnvironmentID == 0 || entered) && (!action.Own() || policy.Mentions(s.Text, action)) {
			about = append(about, s)
		}
	}
	place := func(s PolicySet) int {
		switch {
		case s.Installation:
			return 0
		case s.Labels != nil:
			return groups[Selector(s.Labels)]
		case s.ApplicationID != 0:
			return ofApplication
		case s.EnvironmentID != 0:
			return places[s.EnvironmentID]
		default:
			return 1
		}
	}
	if failed := e.fill(levels, about, place); failed != nil {
		return nil, failed
	}
	all, err := policy.CombineFor(action, levels...)
	if err != nil {
		failed := policy.Failed("all", err.Error())
		return nil, &failed
	}
	return all, nil
}

// DecideOwn decides about a request whose action policies name themselves (policy.Action.Own). Environments are those that the sets of an
// environment are about, by number. Sets that cannot be read and may be about the action deny it.
func (e *PolicyEngine) DecideOwn(sets []PolicySet, environments map[int64]string, r policy.Request) policy.Decision {
	return decideBy(r)(e.Combined(r.Action, sets, r.Application, environments))
}

// Selector is labels as people write them, by key: team=web,tier=critical.
func Selector(labels map[string]string) string {
	all := make([]string, 0, len(labels))
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		all = append(all, key+"="+labels[key])
	}
	return strings.Join(all, ",")
}

// Concerns reports whether a set that is no environment's concerns an application with some labels; 0 for none.
func (s PolicySet) Concerns(application int64, labels map[string]string) bool {
	if s.Labels != nil {
		return application != 0 && HasLabels(labels, s.Labels)
	}
	return s.ApplicationID == 0 || s.ApplicationID == application
}

// fill puts sets into the levels where place says. The answer is the denial where one of them cannot be used; nil if all can.
func (e *PolicyEngine) fill(levels []policy.Level, sets []PolicySet, place func(s PolicySet) int) *policy.Decision {
	for _, s := range sets {
		if s.Mode == PolicyOff {
			continue
		}
		text := e.Read(s.Text)
		zone, err := time.LoadLocation(s.TimeZone)
		switch {
		case len(text.Problems) > 0: // it was valid when it was written, and this release reads it otherwise
			failed := policy.Failed(s.Name, "the set cannot be read: "+text.Problems[0].String())
			return &failed
		case err != nil:
			failed := policy.Failed(s.Name, fmt.Sprintf("the time zone %q is not known here", s.TimeZone))
			return &failed
		}
		level := &levels[place(s)]
		level.Members = append(level.Members, policy.Member{
			Name: s.Name, Document: text.Document, Zone: zone, DryRun: s.Mode == PolicyDryRun,
		})
	}
	return nil
}

// AboutCalls reports whether a policy of a set is about calls of Functions. A text that cannot be read here is taken
// for one: the engine denies what it cannot read.
func (e *PolicyEngine) AboutCalls(s PolicySet) bool {
	read := e.Read(s.Text)
	return len(read.Problems) > 0 && strings.Contains(s.Text, `"function.call"`) || len(read.Problems) == 0 && read.Document.Calls()
}
