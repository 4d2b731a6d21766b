// Package control holds the use cases about change control: what happens to a change of a control that a second person has to confirm
// (D50). Which changes those are, and how they become proposals, is in package core.
package control

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/access"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/freeze"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/policy"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/setup"
)

// Store keeps what this package needs. Its errors have the classes of pkg/fault.
type Store interface {
	core.Transactions[Tx]
	Reads
	// ProposedChanges are newest first, where no other order is asked for; only those open at an instant, or all.
	ProposedChanges(ctx context.Context, organization int64, f Filter, p core.Page) (core.Slice[core.ProposedChange], error)
	CountProposedChanges(ctx context.Context, organization int64, f Filter) (int, error)
}

// Reads is what is looked up outside of transactions and within them.
type Reads interface {
	core.GrantReads
	// MembersByID finds removed ones as well.
	MembersByID(ctx context.Context, organization int64, ids []int64) (map[int64]core.Member, error)
	GroupsByMember(ctx context.Context, organization int64, members []int64) (map[int64][]core.Group, error)
	EnvironmentsByID(ctx context.Context, organization int64, ids []int64) (map[int64]core.Environment, error)
	ProposedChangesByID(ctx context.Context, organization int64, ids []int64) (map[int64]core.ProposedChange, error)
}

// Tx is what a use case may do in its transaction.
type Tx interface {
	Reads
	core.ChangeTx
}

// Replay calls a use case again with the input that it had.
type Replay func(ctx context.Context, a core.Actor, input json.RawMessage) error

// The use cases whose changes are proposed.
type (
	// Access says who may do what.
	Access interface {
		CreateMember(ctx context.Context, a core.Actor, n access.NewMember) (core.Member, error)
		SetMemberRole(ctx context.Context, a core.Actor, member int64, role core.Role) (core.Member, error)
		GrantPermissions(ctx context.Context, a core.Actor, n access.NewGrant) (core.Grant, error)
		CreateGroup(ctx context.Context, a core.Actor, name string, members []int64) (core.Group, error)
		SetGroupMembers(ctx context.Context, a core.Actor, group int64, members []int64) (core.Group, error)
	}
	// Setup prepares deployments.
	Setup interface {
		SetEnvironmentApproval(ctx context.Context, a core.Actor, environment int64, n *core.EnvironmentApproval) (core.Environment, error)
		SetEnvironmentChecks(ctx context.Context, a core.Actor, environment int64, checks json.RawMessage) (core.Environment, error)
		SetDirectChanges(ctx context.Context, a core.Actor, environment int64, allowed bool, reason string) (core.Environment, error)
		SetChangeControl(ctx context.Context, a core.Actor, environment int64, on bool, reason string) (core.Environment, error)
		CreateEnvironment(ctx context.Context, a core.Actor, n setup.NewEnvironment) (core.Environment, error)
		UpdateEnvironment(ctx context.Context, a core.Actor, n setup.ChangedEnvironment) (core.Environment, error)
		SetLabels(ctx context.Context, a core.Actor, n setup.ChangedLabels) error
		SetDetails(ctx context.Context, a core.Actor, n setup.ChangedDetails) error
		RenameApplication(ctx context.Context, a core.Actor, n setup.Renaming) (core.Application, error)
		RenameEnvironment(ctx context.Context, a core.Actor, n setup.Displaying) (core.Environment, error)
		RenameService(ctx context.Context, a core.Actor, n setup.Displaying) (core.Service, error)
		ArchiveEnvironment(ctx context.Context, a core.Actor, environment int64, reason string) (core.Environment, error)
		RestoreEnvironment(ctx context.Context, a core.Actor, environment int64, reason string) (core.Environment, error)
		CreateFlowDefinition(ctx context.Context, a core.Actor, n setup.NewFlowDefinition) (core.FlowDefinition, error)
	}
	// Rollouts has the policies.
	Rollouts interface {
		SetRollbackPolicy(ctx context.Context, a core.Actor, p core.RollbackPolicy) (core.Application, error)
		SetRolloutPolicy(ctx context.Context, a core.Actor, p core.RolloutPolicy) (core.Application, error)
	}
)

// Freezes ends what stops passages.
type Freezes interface {
	EndFreeze(ctx context.Context, a core.Actor, id int64, reason string) (core.Freeze, error)
	UnpinEnvironment(ctx context.Context, a core.Actor, environment int64, reason string) (core.Environment, error)
}

// Policies has the policy sets.
type Policies interface {
	PutPolicySet(ctx context.Context, a core.Actor, n policy.NewPolicySet) (core.PolicySet, error)
}

// Replays are those of every action whose change can be proposed.
func Replays(people Access, places Setup, rollouts Rollouts, freezes Freezes, policies Policies) map[core.Action]Replay {
	return map[core.Action]Replay{
		core.ActionCreateMember: again(func(ctx context.Context, a core.Actor, in access.NewMember) error {
			return only(people.CreateMember(ctx, a, in))
		}),
		core.ActionSetMemberRole: again(func(ctx context.Context, a core.Actor, in access.RoleInput) error {
			return only(people.SetMemberRole(ctx, a, in.Member, in.Role))
		}),
		core.ActionGrantPermissions: again(func(ctx context.Context, a core.Actor, in access.NewGrant) error {
			return only(people.GrantPermissions(ctx, a, in))
		}),
		core.ActionCreateGroup: again(func(ctx context.Context, a core.Actor, in access.GroupInput) error {
			return only(people.CreateGroup(ctx, a, in.Name, in.Members))
		}),
		core.ActionSetGroupMembers: again(func(ctx context.Context, a core.Actor, in access.GroupInput) error {
			return only(people.SetGroupMembers(ctx, a, in.Group, in.Members))
		}),
		core.ActionSetEnvironmentApproval: again(func(ctx context.Context, a core.Actor, in setup.ApprovalInput) error {
			return only(places.SetEnvironmentApproval(ctx, a, in.Environment, in.Approval))
		}),
		core.ActionSetDirectChanges: again(func(ctx context.Context, a core.Actor, in setup.SwitchInput) error {
			return only(places.SetDirectChanges(ctx, a, in.Environment, in.On, in.Reason))
		}),
		core.ActionSetEnvironmentChecks: again(func(ctx context.Context, a core.Actor, in setup.ChecksInput) error {
			return only(places.SetEnvironmentChecks(ctx, a, in.Environment, in.Checks))
		}),
		core.ActionSetChangeControl: again(func(ctx context.Context, a core.Actor, in setup.SwitchInput) error {
			return only(places.SetChangeControl(ctx, a, in.Environment, in.On, in.Reason))
		}),
		core.ActionCreateEnvironment: again(func(ctx context.Context, a core.Actor, in setup.NewEnvironment) error {
			return only(places.CreateEnvironment(ctx, a, in))
		}),
		core.ActionUpdateEnvironment: again(func(ctx context.Context, a core.Actor, in setup.ChangedEnvironment) error {
			return only(places.UpdateEnvironment(ctx, a, in))
		}),
		core.ActionSetLabels: again(func(ctx context.Context, a core.Actor, in setup.ChangedLabels) error {
			return places.SetLabels(ctx, a, in)
		}),
		core.ActionSetDetails: again(func(ctx context.Context, a core.Actor, in setup.ChangedDetails) error {
			return places.SetDetails(ctx, a, in)
		}),
		core.ActionRenameApplication: again(func(ctx context.Context, a core.Actor, in setup.Renaming) error {
			return only(places.RenameApplication(ctx, a, in))
		}),
		core.ActionRenameEnvironment: again(func(ctx context.Context, a core.Actor, in setup.Displaying) error {
			return only(places.RenameEnvironment(ctx, a, in))
		}),
		core.ActionRenameService: again(func(ctx context.Context, a core.Actor, in setup.Displaying) error {
			return only(places.RenameService(ctx, a, in))
		}),
		core.ActionArchiveEnvironment: again(func(ctx context.Context, a core.Actor, in setup.ArchivingInput) error {
			return only(places.ArchiveEnvironment(ctx, a, in.ID, in.Reason))
		}),
		core.ActionRestoreEnvironment: again(func(ctx context.Context, a core.Actor, in setup.ArchivingInput) error {
			return only(places.RestoreEnvironment(ctx, a, in.ID, in.Reason))
		}),
		core.ActionCreateFlowDefinition: again(func(ctx context.Context, a core.Actor, in setup.NewFlowDefinition) error {
			return only(places.CreateFlowDefinition(ctx, a, in))
		}),
		core.ActionSetRollbackPolicy: again(func(ctx context.Context, a core.Actor, in core.RollbackPolicy) error {
			return only(rollouts.SetRollbackPolicy(ctx, a, in))
		}),
		core.ActionPutPolicySet: again(func(ctx context.Context, a core.Actor, in policy.NewPolicySet) error {
			return only(policies.PutPolicySet(ctx, a, in))
		}),
		core.ActionSetRolloutPolicy: again(func(ctx context.Context, a core.Actor, in core.RolloutPolicy) error {
			return only(rollouts.SetRolloutPolicy(ctx, a, in))
		}),
		core.ActionEndFreeze: again(func(ctx context.Context, a core.Actor, in freeze.EndInput) error {
			return only(freezes.EndFreeze(ctx, a, in.Freeze, in.Reason))
		}),
		core.ActionUnpinEnvironment: again(func(ctx context.Context, a core.Actor, in freeze.UnpinInput) error {
			return only(freezes.UnpinEnvironment(ctx, a, in.Environment, in.Reason))
		}),
	}
}

func only[T any](_ T, err error) error { return err }

// again reads an input as its use case wrote it.
func again[T any](call func(ctx context.Context, a core.Actor, in T) error) Replay {
	return func(ctx context.Context, a core.Actor, input json.RawMessage) error {
		var in T
		if err := json.Unmarshal(input, &in); err != nil {
			return fmt.Errorf("read the input of a proposed change: %w", err)
		}
		return call(ctx, a, in)
	}
}

// UseCases decides proposals. It is safe for concurrent use.
type UseCases struct {
	store   Store
	replays map[core.Action]Replay
	clock   clock.Clock
}

// Deps is what UseCases needs.
type Deps struct {
	Store   Store
	Replays map[core.Action]Replay
	Clock   clock.Clock
}

// New makes the use cases over their dependencies.
func New(d Deps) *UseCases { return &UseCases{store: d.Store, replays: d.Replays, clock: d.Clock} }

// Filter selects proposals.
type Filter struct {
	// Open is only those that can be decided; At is when, which the use cases fill in.
	Open bool
	At   time.Time
}

// ProposedChanges is a page of them, newest first.
func (u *UseCases) ProposedChanges(
	ctx context.Context, organization int64, f Filter, p core.Page,
) (core.Slice[core.ProposedChange], error) {
	f.At = u.clock.Now()
	return u.store.ProposedChanges(ctx, organization, f, p)
}

// CountProposedChanges is how many there are.
func (u *UseCases) CountProposedChanges(ctx context.Context, organization int64, f Filter) (int, error) {
	f.At = u.clock.Now()
	return u.store.CountProposedChanges(ctx, organization, f)
}

// ProposedChangesByID finds them by number.
func (u *UseCases) ProposedChangesByID(ctx context.Context, organization int64, ids []int64) (map[int64]core.ProposedChange, error) {
	return u.store.ProposedChangesByID(ctx, organization, ids)
}

// May is nil when an actor may decide a proposal that way now; Denied and Refused say why not. The use cases refuse by the same rule.
func (u *UseCases) May(ctx context.Context, a core.Actor, p core.ProposedChange, action core.Action) error {
	if err := u.mayDecide(ctx, u.store, a, p, action); err != nil {
		return err
	}
	if state := p.StateAt(u.clock.Now()); state != core.ProposalOpen {
		return fault.New(fault.Refused, "%s is %s", p.Name(), state)
	}
	return nil
}

func (u *UseCases) mayDecide(ctx context.Context, r Reads, a core.Actor, p core.ProposedChange, action core.Action) error {
	own := a.Principal() == p.Principal
	if action == core.ActionWithdrawChange {
		if !own {
			return fault.New(fault.Denied, "%s was proposed by %s, who may withdraw it; others who may configure there reject it", p.Name(), p.PrincipalName)
		}
		return a.May(action)
	}
	environments, err := r.EnvironmentsByID(ctx, a.Organization, p.Environments)
	if err != nil {
		return err
	}
	if err := a.MayIn(action, core.TargetsIn(0, p.Environments, environments)...); err != nil {
		return err
	}
	if action == core.ActionForceChange {
		if p.Forcible() {
			return nil
		}
		return fault.New(
			fault.Denied, "%s would %s, which break-glass does not pass: a second person has to confirm what makes change control hold", p.Name(),
			p.Action,
		)
	}
	if own {
		return fault.New(fault.Denied, "%s proposed %s, so another person has to decide", a.DisplayName(), p.Name())
	}
	return nil
}

// Confirm makes a proposed change true, as the second person. The use case of the change is called again with all of its checks, in the
// name of the member who proposed it, who must still be allowed to. Nothing changes where the control has become another one since.
func (u *UseCases) Confirm(ctx context.Context, a core.Actor, change int64, reason string) (core.ProposedChange, error) {
	return u.pass(ctx, a, change, reason, core.ActionConfirmChange)
}

// Force makes a proposed change true without a second person. It is for emergencies: it takes the permission break_glass and a reason, and
// the journal of changes has it under a name of its own.
func (u *UseCases) Force(ctx context.Context, a core.Actor, change int64, reason string) (core.ProposedChange, error) {
	if strings.TrimSpace(reason) == "" {
		return core.ProposedChange{}, fault.InvalidFields(fault.Field{
			Name: "/reason", Problem: "found none; expected why the change cannot wait for a second person: it is kept in the journal",
		})
	}
	return u.pass(ctx, a, change, reason, core.ActionForceChange)
}

func (u *UseCases) pass(ctx context.Context, a core.Actor, change int64, reason string, action core.Action) (core.ProposedChange, error) {
	if err := core.CheckReason(reason); err != nil {
		return core.ProposedChange{}, err
	}
	p, err := u.proposal(ctx, u.store, a, change)
	if err != nil {
		return p, err
	}
	if err := u.May(ctx, a, p, action); err != nil {
		return p, err
	}
	replay, known := u.replays[p.Action]
	if !known {
		return p, fault.New(fault.Refused, "%s would %s, which this release cannot do; withdraw it", p.Name(), p.Action)
	}
	proposer, err := u.proposer(ctx, a.Organization, p)
	if err != nil {
		return p, err
	}
	// The proposal is decided in the transaction of its change, under a condition on its row: of two who confirm at once, one does.
	confirmed := core.Confirmation{Proposal: p, By: a, Reason: reason, Forced: action == core.ActionForceChange}
	err = replay(ctx, proposer.Confirming(confirmed), p.Input)
	if err != nil {
		return p, err
	}
	after, err := u.proposal(ctx, u.store, a, change)
	if err != nil || after.State != core.ProposalOpen {
		return after, err
	}
	// The use case has changed and recorded nothing, because the change was made meanwhile.
	return u.settle(ctx, a, p, core.ProposalRejected, core.ActionRejectChange, core.Because("it is so already", reason))
}

// proposer is the member who proposed a change, with what that member may do now.
func (u *UseCases) proposer(ctx context.Context, organization int64, p core.ProposedChange) (core.Actor, error) {
	members, err := u.store.MembersByID(ctx, organization, []int64{p.Principal.ID})
	if err != nil {
		return core.Actor{}, err
	}
	m, ok := members[p.Principal.ID]
	if !ok || m.RemovedAt != nil {
		return core.Actor{}, fault.New(fault.Refused, "%s, who proposed %s, was removed from the organization", p.PrincipalName, p.Name())
	}
	grants, err := u.store.GrantsByMember(ctx, organization, []int64{m.ID})
	if err != nil {
		return core.Actor{}, err
	}
	groups, err := u.store.GroupsByMember(ctx, organization, []int64{m.ID})
	return core.ActorOf(organization, m, grants[m.ID], groups[m.ID]), err
}

// Reject ends a proposal, as another person who may configure there.
func (u *UseCases) Reject(ctx context.Context, a core.Actor, change int64, reason string) (core.ProposedChange, error) {
	return u.end(ctx, a, change, reason, core.ProposalRejected, core.ActionRejectChange)
}

// Withdraw ends a proposal, as its proposer.
func (u *UseCases) Withdraw(ctx context.Context, a core.Actor, change int64, reason string) (core.ProposedChange, error) {
	return u.end(ctx, a, change, reason, core.ProposalWithdrawn, core.ActionWithdrawChange)
}

func (u *UseCases) end(
	ctx context.Context, a core.Actor, change int64, reason string, to core.ProposalState, action core.Action,
) (core.ProposedChange, error) {
	if err := core.CheckReason(reason); err != nil {
		return core.ProposedChange{}, err
	}
	p, err := u.proposal(ctx, u.store, a, change)
	if err != nil {
		return p, err
	}
	if err := u.May(ctx, a, p, action); err != nil {
		return p, err
	}
	return u.settle(ctx, a, p, to, action, reason)
}

func (u *UseCases) settle(
	ctx context.Context, a core.Actor, p core.ProposedChange, to core.ProposalState, action core.Action, reason string,
) (core.ProposedChange, error) {
	err := u.store.In(ctx, a.Organization, func(ctx context.Context, tx Tx) error { return p.Decide(ctx, tx, a, to, action, reason) })
	if err != nil {
		return p, err
	}
	return u.proposal(ctx, u.store, a, p.ID)
}

func (u *UseCases) proposal(ctx context.Context, r Reads, a core.Actor, change int64) (core.ProposedChange, error) {
	if err := a.May(core.ActionWithdrawChange); err != nil { // those who may read
		return core.ProposedChange{}, err
	}
	known, err := r.ProposedChangesByID(ctx, a.Organization, []int64{change})
	if err != nil {
		return core.ProposedChange{}, err
	}
	p, ok := known[change]
	if !ok {
		return p, fault.New(fault.NotFound, "proposedchange_%d does not exist", change)
	}
	return p, nil
}
