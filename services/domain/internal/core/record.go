package core

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/policy"
)

// Change is a row of the journal of changes to controls (D50). It is only ever added to.
type Change struct {
	// ID is its position; the rollouts' journals are numbered by the same sequence.
	ID int64
	Principal
	// PrincipalName is what the principal was called then.
	PrincipalName string
	Action        Action
	Subject       AccessSubject
	// ApplicationID and EnvironmentID are what the change concerns; 0 for none.
	ApplicationID, EnvironmentID int64
	// Reason is the one that was given with the request.
	Reason string
	// Detail is what was changed, for people; never a secret.
	Detail string
	// Before and After are the control as JSON, without secrets; nil where there was, or is, none.
	Before, After json.RawMessage
	// Environments are others that the change concerns, and Wider the permissions that it gives; for change control only.
	Environments []int64
	Wider        *Wider
	// Stricter reports whether the change can only make a control stricter, and so needs no second person.
	Stricter bool
	// TraceID is the trace of the request; empty where it was not traced.
	TraceID   string
	CreatedAt time.Time
}

// ChangeTx is the part of a transaction that records changes to controls.
type ChangeTx interface {
	// AddChange adds a row to the journal of changes, with the time and the trace of the transaction.
	AddChange(ctx context.Context, c Change) error
	ControlTx
	ChangePolicyTx
}

// Record writes that an actor has changed a control, in the transaction that changes it. Before and after are what the control was and is;
// nil for none. Values that look like secrets are replaced. Where a second person has to confirm the change, the error says so, and the
// transaction has to be rolled back: By and Within keep the change as a proposal then.
func Record(ctx context.Context, tx ChangeTx, a Actor, c Change, before, after any) error {
	c.Principal, c.PrincipalName = a.Principal(), a.DisplayName()
	var err error
	if c.Before, err = withoutSecrets(before); err == nil {
		c.After, err = withoutSecrets(after)
	}
	if err != nil {
		return fmt.Errorf("record %s of %s %d: %w", c.Action, c.Subject.Kind, c.Subject.ID, err)
	}
	if err := guard(ctx, tx, a, &c); err != nil {
		return err
	}
	if err := judgeChange(ctx, tx, a, &c); err != nil {
		return err
	}
	return tx.AddChange(ctx, c)
}

// RecordIfAllowed is Record for what comes with another change, which continues without it where policies deny it: their decision is kept
// in the same transaction, and it answers false.
func RecordIfAllowed(ctx context.Context, tx ChangeTx, a Actor, c Change, before, after any) (bool, error) {
	err := Record(ctx, tx, a, c, before, after)
	var denied *deniedChange
	if !errors.As(err, &denied) {
		return err == nil, err
	}
	_, err = tx.AddPolicyDecision(ctx, denied.decision)
	return false, err
}

// RecordDifference is Record for a control that is kept outside of this service: before is what was recorded last, nil for none, and
// nothing is written where the control is still the same.
func RecordDifference(ctx context.Context, tx ChangeTx, a Actor, c Change, before json.RawMessage, after any) error {
	is, err := withoutSecrets(after)
	if err != nil {
		return fmt.Errorf("encode %s: %w", c.Subject.Kind, err)
	}
	var was, now any
	if before != nil {
		if err := json.Unmarshal(before, &was); err != nil {
			return fmt.Errorf("decode %s as it was recorded: %w", c.Subject.Kind, err)
		}
	}
	if is != nil {
		if err := json.Unmarshal(is, &now); err != nil {
			return fmt.Errorf("decode %s: %w", c.Subject.Kind, err)
		}
	}
	if reflect.DeepEqual(was, now) {
		return nil
	}
	return Record(ctx, tx, a, c, was, after)
}

// removed stands in the journal where a secret was.
const removed = "[removed]"

var (
	// secretKey matches the names of members whose values are secrets, unless they are references.
	secretKey = regexp.MustCompile(`(?i)(passw|secret|token|credential|api_?key|private_?key|seed|authorization)`)
	// reference matches what names a secret and is none (D27).
	reference = regexp.MustCompile(`^(k8s|env|file|vault):`)
	// issued matches what Lockstep and agents sign in with, wherever it stands.
	issued = regexp.MustCompile(`lockstep_[A-Z2-7]{20,}|\bSU[A-Z2-7]{56}\b`)
)

// withoutSecrets is a value as JSON in which everything that looks like a secret was replaced: values under names such as password, unless
// they refer to a secret elsewhere, users' passwords in URLs, tokens and seeds.
func withoutSecrets(v any) (json.RawMessage, error) {
	if v == nil {
		return nil, nil
	}
	plain, err := json.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("encode: %w", err)
	}
	decoder := json.NewDecoder(strings.NewReader(string(plain)))
	decoder.UseNumber()
	var tree any
	if err := decoder.Decode(&tree); err != nil {
		return nil, fmt.Errorf("decode: %w", err)
	}
	return json.Marshal(cleaned("", tree))
}

func cleaned(key string, v any) any {
	switch v := v.(type) {
	case map[string]any:
		for k, one := range v {
			v[k] = cleaned(k, one)
		}
		return v
	case []any:
		for i, one := range v {
			v[i] = cleaned(key, one)
		}
		return v
	case string:
		if secretKey.MatchString(key) && v != "" && !reference.MatchString(v) {
			return removed
		}
		if u, err := url.Parse(v); err == nil && u.User != nil {
			u.User = url.User(removed)
			v = u.String()
		}
		return issued.ReplaceAllString(v, removed)
	default:
		return v
	}
}

// Policies decide about changes of controls (control.change, D51) where every change comes by: when it is recorded. A denial rolls the
// change back; what was decided is then recorded in a transaction of its own. What the system and an identity provider change was decided
// elsewhere, and so is what the operator of the installation changes by a command of the service, which is how a policy is replaced that
// denies its own change.

// ChangeGate is the gate of recorded decisions about changes of controls. They belong to no rollout.
const ChangeGate = string(policy.ChangeControl)

// A change must not decide about itself: who changes a policy, or the members of a group, is judged by the policies and groups of before.
// So they are read when the use case begins.

// ChangeRules are the policies that may decide about the changes of a use case, as they were before it.
type ChangeRules struct {
	// Sets are those of the organization that are not off and may name control.change.
	Sets []PolicySet
	// Groups are those of the member who makes the change; only with sets.
	Groups []string
}

// ChangePlaces are what a change is about.
type ChangePlaces struct {
	// Application is its name, with its labels and its owner, and Environments are those of the change by number.
	Application  string
	Labels       map[string]string
	Owner        string
	Environments map[int64]policy.Environment
	At           time.Time
}

// PolicyPlace is an environment as policies see it.
type PolicyPlace = policy.Environment

// PolicyAgent is an agent as policies see it.
type PolicyAgent = policy.Agent

// MayMentionChanges reports whether a text may have policies about changes of controls.
func MayMentionChanges(text string) bool { return policy.Mentions(text, policy.ChangeControl) }

// MentionsAttribute reports whether a text may have policies that ask of an attribute of an entity.
func MentionsAttribute(text, attribute string) bool { return policy.MentionsAttribute(text, attribute) }

// PlacesOfChange asks what a change is about.
type PlacesOfChange struct {
	// Application is what it names, and GoesTo an application all of whose environments it is about; 0 for none.
	Application, GoesTo int64
	Environments        []int64
	// Everywhere asks for all environments.
	Everywhere bool
}

// AddEnvironment adds an environment of the change.
func (p *ChangePlaces) AddEnvironment(id int64, e policy.Environment) {
	if p.Environments == nil {
		p.Environments = map[int64]policy.Environment{}
	}
	p.Environments[id] = e
}

// ChangePolicyTx is the part of a transaction that knows policies about changes of controls.
type ChangePolicyTx interface {
	ChangeRules(ctx context.Context, member int64) (ChangeRules, error)
	ChangePlaces(ctx context.Context, c PlacesOfChange) (ChangePlaces, error)
	// AddPolicyDecision records a decision, and answers its number.
	AddPolicyDecision(ctx context.Context, d PolicyDecision) (int64, error)
}

type changeRulesKey struct{}

// withRules is a context with the policies that decide about the changes of a use case.
func withRules(ctx context.Context, tx any, a Actor, action Action) (context.Context, error) {
	reads, ok := tx.(ChangePolicyTx)
	if !ok || !judged(a, action) {
		return ctx, nil
	}
	rules, err := reads.ChangeRules(ctx, a.ID)
	return context.WithValue(ctx, changeRulesKey{}, rules), err
}

// judged reports whether policies may decide about what an actor does.
func judged(a Actor, action Action) bool {
	return (a.Type == PrincipalUser || a.Type == PrincipalAgent) && !slices.Contains(noControls(), action)
}

// noControls are the actions in the journal of changes that change no control: decisions about one rollout, message or run, and what
// members do to what is their own. Whatever is not among them is decided.
func noControls() []Action {
	return []Action{
		ActionAnswerCall, ActionBypassFreeze, ActionBreakGlass, ActionDecideCheck, ActionReleasePromotionHold, ActionCancelChain,
		ActionCancelQueuedRollout,
		ActionTestNotifyRoute, ActionRetryNotification, ActionRetryMyNotification, ActionPutMyNotification, ActionRemoveMyNotification,
		ActionRetryForgeStatus, ActionLinkChatAccount, ActionUnlinkChatAccount, ActionMakeForgeCode, ActionLinkForgeAccount,
		ActionUnlinkForgeAccount, ActionRetryOnboarding, ActionRetrySetup, ActionRetryWorkflow, ActionCancelWorkflow, ActionTriggerSchedule,
		ActionBackfillSchedule, ActionReconcile,
		// What takes access away, so that no policy is in the way of who answers an incident.
		ActionRevokeToken, ActionRevokeAgentKey, ActionRevokeAgent, ActionRevokeCredential, ActionRemoveMember, ActionRevokeGrant,
	}
}

// Judged is a context in which no change is decided: what was decided already is recorded once more, with what came of it.
func Judged(ctx context.Context) context.Context {
	return context.WithValue(ctx, changeRulesKey{}, ChangeRules{})
}

// deniedChange is the error of a change that policies do not allow.
type deniedChange struct{ decision PolicyDecision }

// Error implements error.
func (d *deniedChange) Error() string {
	text := "policies do not allow the change: " + d.decision.Sentence()
	if d.decision.ID != 0 {
		text += fmt.Sprintf(" (%s)", d.decision.Name())
	}
	return text
}

// Unwrap makes it a Refused.
func (d *deniedChange) Unwrap() error { return fault.New(fault.Refused, "%s", d.Error()) }

// judgeChange is nil where policies allow a change of a control, or none is about it. The row of the change names the decision.
func judgeChange(ctx context.Context, tx ChangeTx, a Actor, c *Change) error {
	if !judged(a, c.Action) {
		return nil
	}
	var err error
	rules, known := ctx.Value(changeRulesKey{}).(ChangeRules)
	if !known { // it changes neither policies nor groups
		rules, err = tx.ChangeRules(ctx, a.ID)
	}
	if err != nil || len(rules.Sets) == 0 {
		return err
	}
	places, err := c.places(ctx, tx)
	if err != nil {
		return err
	}
	texts := make([]string, len(rules.Sets))
	for i, s := range rules.Sets {
		texts[i] = s.Text
	}
	d := PolicyDecision{GateID: ChangeGate, Request: changeRequest(a, *c, rules, places).Short(texts...), CreatedAt: places.At}
	names := make(map[int64]string, len(places.Environments))
	for id, e := range places.Environments {
		names[id] = e.Name
	}
	var sets []PolicySet
	for _, s := range rules.Sets {
		if s.Concerns(c.ApplicationID, places.Labels) {
			sets = append(sets, s)
		}
	}
	d.Decision = ownPolicies.DecideOwn(sets, names, d.Request)
	switch {
	case d.Verdict != policy.Allow:
		return &deniedChange{d}
	case len(d.Rulings) == 0:
		return nil
	}
	if d.ID, err = tx.AddPolicyDecision(ctx, d); err != nil {
		return err
	}
	if c.Detail != "" {
		c.Detail += "; "
	}
	c.Detail += "allowed by " + d.Name()
	return nil
}

// ownPolicies has the policies about changes that were decided by lately: parsing them takes longer than deciding.
//
//nolint:gochecknoglobals // a cache by the digest of the text
var ownPolicies PolicyEngine

// places are what a change is about: its environments, those that its application goes to, and those about which new permissions decide.
func (c Change) places(ctx context.Context, tx ChangeTx) (ChangePlaces, error) {
	q := PlacesOfChange{Application: c.ApplicationID, GoesTo: c.ApplicationID, Environments: c.Environments, Everywhere: c.Wider != nil}
	if c.EnvironmentID != 0 {
		q.Environments = append([]int64{c.EnvironmentID}, c.Environments...)
	}
	if c.Action == ActionEndFreeze { // it names the environments of its scope
		q.GoesTo = 0
	}
	if q.Environments = Distinct(q.Environments); q.Environments == nil {
		q.Environments = []int64{}
	}
	places, err := tx.ChangePlaces(ctx, q)
	if err != nil || c.Wider == nil {
		return places, err
	}
	for id, e := range places.Environments {
		at := Target{EnvironmentID: id, Tier: Tier(e.Tier)}
		if !slices.Contains(q.Environments, id) && !slices.ContainsFunc(c.Wider.Grants, func(g Grant) bool {
			g.Applications = nil // for one application there is enough
			return g.Permissions&decisive() != 0 && g.Covers(at)
		}) {
			delete(places.Environments, id)
		}
	}
	return places, nil
}

// changeRequest is what policies see of a change of a control.
func changeRequest(a Actor, c Change, rules ChangeRules, places ChangePlaces) policy.Request {
	r := policy.Request{
		Action: policy.ChangeControl, Principal: PolicyPrincipal(a), Application: places.Application, Labels: places.Labels,
		Owner: places.Owner, Reason: c.Reason, At: places.At,
		Control: &policy.Control{
			Kind: string(c.Subject.Kind), ID: c.Subject.ID, Name: c.Subject.Name, Action: string(c.Action), Stricter: c.Stricter,
		},
	}
	r.Principal.Groups = rules.Groups
	if a.confirmed != nil {
		r.Control.Confirmed, r.Control.Forced = !a.confirmed.Forced, a.confirmed.Forced
	}
	for _, e := range places.Environments {
		r.Environments = append(r.Environments, e)
	}
	slices.SortFunc(r.Environments, func(a, b policy.Environment) int {
		if a.Name < b.Name {
			return -1
		}
		return 1
	})
	return r
}

// PolicyPrincipal is an actor as policies know it.
func PolicyPrincipal(a Actor) policy.Principal {
	switch a.Type {
	case PrincipalUser:
		return policy.Principal{Kind: policy.User, ID: policy.MemberID(a.ID), Name: a.Name, Groups: a.Groups}
	case PrincipalAgent:
		return policy.Principal{Kind: policy.Machine, ID: policy.MemberID(a.ID), Name: a.Name, Groups: a.Groups}
	default:
		return policy.Principal{Kind: policy.System, ID: string(a.Type)}
	}
}

// keepDenial records what was decided about a change that was rolled back, and answers the error for people. It is err itself for any
// other one.
func keepDenial[Tx any](ctx context.Context, store Transactions[Tx], a Actor, err error) error {
	var denied *deniedChange
	if !errors.As(err, &denied) {
		return err
	}
	kept := *denied // a repeated denial is the same one
	failed := store.In(ctx, a.Organization, func(ctx context.Context, tx Tx) error {
		recorder, ok := any(tx).(ChangePolicyTx)
		if !ok {
			return errors.New("the transaction records no decisions of policies")
		}
		var err error
		kept.decision.ID, err = recorder.AddPolicyDecision(ctx, denied.decision)
		return err
	})
	if failed != nil {
		return failed
	}
	return &kept
}
