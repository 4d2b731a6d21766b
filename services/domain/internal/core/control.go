package core

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/fault"
)

// An environment under change control has its controls changed by two people: one proposes, another one who may configure there confirms
// (D50). It is one mechanism for all of them. A use case runs as always, with all of its checks, until it records what it has changed.
// Record finds that this concerns an environment under change control and refuses; the transaction is rolled back, and the change is kept
// as a proposal with the input of the use case. A confirmation calls the same use case with the same input again, in the name of the
// one who proposed it, and Record lets exactly that change pass.

// ProposalState is the outcome of a proposed change.
type ProposalState string

// The states. A proposal whose time is over is ProposalExpired, also where its row still says that it is open.
const (
	ProposalOpen      ProposalState = "open"
	ProposalConfirmed ProposalState = "confirmed"
	ProposalForced    ProposalState = "forced"
	ProposalRejected  ProposalState = "rejected"
	ProposalWithdrawn ProposalState = "withdrawn"
	ProposalExpired   ProposalState = "expired"
)

// ProposalLife is how long a proposal can be confirmed.
const ProposalLife = 7 * 24 * time.Hour

// The bounds of proposals: how many an organization has open at once, and the size of an input in bytes.
const (
	MaxProposals     = 200
	maxProposalInput = 1 << 20
)

// ProposedChange is a change of a control that a second person has to confirm.
type ProposedChange struct {
	ID int64
	// Change is what it would record: the proposer, the action, the subject, before and after.
	Change
	// Environments are those under change control that it concerns.
	Environments []int64
	// Input is what the use case is called with again; never shown.
	Input     json.RawMessage
	State     ProposalState
	ExpiresAt time.Time
	// DecidedAt, Decider, DeciderName and Decision are when, by whom and why it was decided; nil and zero while it is open.
	DecidedAt   *time.Time
	Decider     Principal
	DeciderName string
	Decision    string
}

// StateAt is its state at an instant.
func (p ProposedChange) StateAt(at time.Time) ProposalState {
	if p.State == ProposalOpen && !at.Before(p.ExpiresAt) {
		return ProposalExpired
	}
	return p.State
}

// Name is the proposal for people.
func (p ProposedChange) Name() string { return fmt.Sprintf("proposedchange_%d", p.ID) }

// Forcible reports whether break-glass may pass the proposal: what gives more permissions, and turning change control off, may not,
// because that is what makes everything else hold.
func (p ProposedChange) Forcible() bool {
	return p.Action != ActionSetChangeControl && !slices.Contains(widening(), p.Action)
}

// Confirmation lets one proposed change pass.
type Confirmation struct {
	Proposal ProposedChange
	// By is who confirms it, and Reason why; Forced reports whether it is passed by break-glass.
	By     Actor
	Reason string
	Forced bool
}

// ControlTx is the part of a transaction that knows change control.
type ControlTx interface {
	// ControlledEnvironments are all environments of the organization under change control, also archived ones, by number.
	ControlledEnvironments(ctx context.Context) (map[int64]Environment, error)
	// EnvironmentsConcerned are those of some environments, and of those that an application goes to, that share an agent with an
	// environment, or where the approval of the environment or of a pipeline names a group; zero values concern nothing.
	EnvironmentsConcerned(ctx context.Context, application, sharing int64, group string) ([]int64, error)
	// AddProposedChange keeps a proposal, or answers the open one of the same person with the same input. Refused beyond MaxProposals.
	AddProposedChange(ctx context.Context, p ProposedChange) (ProposedChange, error)
	// SettleProposedChange decides an open proposal whose time is not over; Refused for any other.
	SettleProposedChange(ctx context.Context, id int64, to ProposalState, by Actor, reason string) error
}

// environmentControls are the actions that change a control of environments.
func environmentControls() []Action {
	return []Action{
		ActionSetEnvironmentApproval, ActionSetDirectChanges, ActionSetChangeControl, ActionArchiveEnvironment, ActionRestoreEnvironment,
		ActionCreateEnvironment, ActionCreateFlowDefinition, ActionSetRollbackPolicy, ActionSetRolloutPolicy, ActionSetEnvironmentChecks,
		ActionUpdateEnvironment, ActionEndFreeze, ActionUnpinEnvironment, ActionPutPolicySet, ActionSetLabels,
		ActionSetDetails, ActionRenameApplication, ActionRenameEnvironment, ActionRenameService,
	}
}

// widening are the actions that may give more permissions.
func widening() []Action {
	return []Action{ActionGrantPermissions, ActionSetMemberRole, ActionCreateMember, ActionCreateGroup, ActionSetGroupMembers}
}

// ProposableActions are all actions whose change may need a second person.
func ProposableActions() []Action { return append(environmentControls(), widening()...) }

// Wider is what a change of access gives. Only that concerns environments: what it takes away does not wait for a second person.
type Wider struct {
	// Grants are the permissions and where they hold.
	Grants []Grant
	// Group is the group that gets members; empty for none.
	Group string
}

// decisive are the permissions that decide about an environment.
func decisive() Permissions {
	return PermissionsOf(MayApprove, MayConfigure, MayAdminister, MayBreakGlass, MayBypass)
}

// Proposing is the actor in a use case whose change can be proposed: with the input that the use case is called with again.
func (a Actor) Proposing(input any) Actor {
	a.input = input
	return a
}

// Confirming is the actor who proposed a change, in the use case that is called again.
func (a Actor) Confirming(c Confirmation) Actor {
	a.confirmed = &c
	return a
}

// needsSecond is the error of a change that has to be proposed.
type needsSecond struct {
	change       Change
	environments []Environment
	input        any
}

// Error implements error.
func (n *needsSecond) Error() string { return "a second person has to confirm the change" }

// guard lets a change pass that concerns no environment under change control, or that was confirmed.
func guard(ctx context.Context, tx ControlTx, a Actor, c *Change) error {
	person := a.Type == PrincipalUser || a.Type == PrincipalAgent
	guarded := slices.Contains(environmentControls(), c.Action) || slices.Contains(widening(), c.Action)
	if !person || !guarded || c.Stricter {
		return nil // what an identity provider or the system decides was decided elsewhere
	}
	concerned, err := concerns(ctx, tx, *c)
	if err != nil {
		return err
	}
	if a.confirmed == nil {
		if len(concerned) == 0 {
			return nil
		}
		return &needsSecond{change: *c, environments: concerned, input: a.input}
	}
	p := a.confirmed.Proposal
	for _, e := range concerned {
		if !slices.Contains(p.Environments, e.ID) {
			return fault.New(fault.Refused, "%s concerns environment %q as well by now; withdraw it and propose it again", p.Name(), e.Name)
		}
	}
	if c.Action != p.Action || !sameDocument(c.Before, p.Before) || !sameDocument(c.After, p.After) {
		return fault.New(
			fault.Refused, "what %s would change has changed since it was proposed; withdraw it and propose it again", p.Name(),
		)
	}
	return a.confirmed.settle(ctx, tx, c)
}

// settle decides the proposal in the transaction of its change, whose row says who let it pass.
func (f *Confirmation) settle(ctx context.Context, tx ControlTx, c *Change) error {
	state, action, how := ProposalConfirmed, ActionConfirmChange, "confirmed"
	if f.Forced {
		state, action, how = ProposalForced, ActionForceChange, "passed by break-glass"
	}
	if err := tx.SettleProposedChange(ctx, f.Proposal.ID, state, f.By, f.Reason); err != nil {
		return err
	}
	c.Detail = strings.TrimPrefix(c.Detail+"; ", "; ") + fmt.Sprintf("%s, %s by %s", f.Proposal.Name(), how, f.By.DisplayName())
	if c.Reason == "" {
		c.Reason = f.Proposal.Reason
	}
	recorder, ok := tx.(ChangeTx)
	if !ok {
		return errors.New("the transaction records no changes")
	}
	return recorder.AddChange(ctx, f.Proposal.row(f.By, action, f.Reason))
}

// row is a row of the journal of changes about the proposal itself.
func (p ProposedChange) row(by Actor, action Action, reason string) Change {
	row := Change{
		Principal: by.Principal(), PrincipalName: by.DisplayName(), Action: action, ApplicationID: p.ApplicationID,
		EnvironmentID: p.EnvironmentID,
		Subject:       AccessSubject{Kind: ChangedProposal, ID: p.ID, Name: fmt.Sprintf("%s %s", p.Action, p.Subject.Name)}, Reason: reason,
		Detail: "proposed by " + p.PrincipalName,
	}
	if row.EnvironmentID == 0 && len(p.Environments) == 1 {
		row.EnvironmentID = p.Environments[0]
	}
	return row
}

// Decide records the decision about a proposal without making its change.
func (p ProposedChange) Decide(ctx context.Context, tx ChangeTx, by Actor, to ProposalState, action Action, reason string) error {
	if err := tx.SettleProposedChange(ctx, p.ID, to, by, reason); err != nil {
		return err
	}
	return tx.AddChange(ctx, p.row(by, action, reason))
}

// concerns are the environments under change control that a change concerns, by number.
func concerns(ctx context.Context, tx ControlTx, c Change) ([]Environment, error) {
	controlled, err := tx.ControlledEnvironments(ctx)
	if err != nil || len(controlled) == 0 {
		return nil, err
	}
	ids := append([]int64{c.EnvironmentID}, c.Environments...)
	if slices.Contains(environmentControls(), c.Action) {
		sharing := int64(0)
		if c.Action == ActionCreateEnvironment {
			sharing = c.EnvironmentID
		}
		application := c.ApplicationID
		if c.Action == ActionEndFreeze { // it names the environments of its scope, and may concern fewer than the application goes to
			application = 0
		}
		more, err := tx.EnvironmentsConcerned(ctx, application, sharing, "")
		if err != nil {
			return nil, err
		}
		ids = append(ids, more...)
	}
	if c.Wider != nil {
		more, err := c.Wider.reaches(ctx, tx, controlled)
		if err != nil {
			return nil, err
		}
		ids = append(ids, more...)
	}
	var all []Environment
	for _, id := range Distinct(ids) {
		if e, ok := controlled[id]; ok {
			all = append(all, e)
		}
	}
	return all, nil
}

// reaches are the environments of some about which the new permissions decide.
func (w Wider) reaches(ctx context.Context, tx ControlTx, among map[int64]Environment) ([]int64, error) {
	var ids []int64
	for id, e := range among {
		for _, g := range w.Grants {
			g.Applications = nil // for one application there is enough
			if g.Permissions&decisive() != 0 && g.Covers(e.Target(0)) {
				ids = append(ids, id)
			}
		}
	}
	if w.Group == "" {
		return ids, nil
	}
	named, err := tx.EnvironmentsConcerned(ctx, 0, 0, w.Group)
	return append(ids, named...), err
}

// propose keeps the change of a use case that was rolled back, and says so.
func propose(ctx context.Context, tx ControlTx, a Actor, n *needsSecond) error {
	names := make([]string, len(n.environments))
	p := ProposedChange{Change: n.change, State: ProposalOpen}
	if p.Action == ActionCreateEnvironment { // it was rolled back with the rest
		p.EnvironmentID = 0
	}
	for i, e := range n.environments {
		names[i] = fmt.Sprintf("%q", e.Name)
		p.Environments = append(p.Environments, e.ID)
	}
	where := strings.Join(names, ", ")
	if a.Type != PrincipalUser {
		return fault.New(
			fault.Refused, "environment %s is under change control: a person has to propose %s, and %s is a machine", where, n.change.Action,
			a.DisplayName(),
		)
	}
	if n.input == nil {
		return fault.New(fault.Refused, "environment %s is under change control, and %s cannot be proposed", where, n.change.Action)
	}
	input, err := json.Marshal(n.input)
	if err != nil {
		return fmt.Errorf("encode the input of %s: %w", n.change.Action, err)
	}
	if len(input) > maxProposalInput {
		return fault.New(fault.Refused, "found an input of %d bytes; expected at most %d in a proposed change", len(input), maxProposalInput)
	}
	p.Input = input
	made, err := tx.AddProposedChange(ctx, p)
	if err != nil {
		return err
	}
	recorder, ok := tx.(ChangeTx)
	if !ok {
		return errors.New("the transaction records no changes")
	}
	row := made.row(a, ActionProposeChange, p.Reason)
	row.Before, row.After = p.Before, p.After
	if err := recorder.AddChange(ctx, row); err != nil {
		return err
	}
	return &Proposed{Change: made, message: fmt.Sprintf(
		"environment %s is under change control: nothing has changed yet. It is proposed as %s; another person who may configure there confirms it "+
			"until %s", where, made.Name(), made.ExpiresAt.UTC().Format(time.RFC3339),
	)}
}

// Proposed is the outcome of a use case whose change waits for a second person.
type Proposed struct {
	Change  ProposedChange
	message string
}

// Error implements error.
func (p *Proposed) Error() string { return p.message }

// Unwrap makes it a Refused: nothing has changed.
func (p *Proposed) Unwrap() error { return fault.New(fault.Refused, "%s", p.message) }

// second runs a use case, and keeps its change as a proposal where it needs a second person.
func second[Tx any](
	ctx context.Context, store Transactions[Tx], a Actor, action Action, fn func(ctx context.Context, tx Tx) error,
) error {
	err := store.In(ctx, a.Organization, func(ctx context.Context, tx Tx) error {
		ctx, err := withRules(ctx, tx, a, action)
		if err != nil {
			return err
		}
		return fn(ctx, tx)
	})
	var needs *needsSecond
	if !errors.As(err, &needs) {
		return keepDenial(ctx, store, a, err)
	}
	var proposed error
	err = store.In(ctx, a.Organization, func(ctx context.Context, tx Tx) error {
		control, ok := any(tx).(ControlTx)
		if !ok {
			return errors.New("the transaction knows no change control")
		}
		proposed = propose(ctx, control, a, needs)
		var kept *Proposed
		if errors.As(proposed, &kept) {
			return nil
		}
		return proposed
	})
	if err != nil {
		return err
	}
	return proposed
}

// sameDocument reports whether two documents say the same, whatever their spaces and the order of their members.
func sameDocument(a, b json.RawMessage) bool {
	read := func(doc json.RawMessage) (value any) {
		if len(doc) == 0 {
			return nil
		}
		decoder := json.NewDecoder(bytes.NewReader(doc))
		decoder.UseNumber()
		if decoder.Decode(&value) != nil {
			return doc
		}
		return value
	}
	return reflect.DeepEqual(read(a), read(b))
}
