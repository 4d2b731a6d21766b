package graph_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/access"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/control"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/freeze"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/policy"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/setup"
)

// member makes one of ours and acts as it.
func (f *fixture) member(name string, kind core.PrincipalType, role core.Role) core.Actor {
	f.t.Helper()
	m := must(f.access.CreateMember(f.t.Context(), actor(ours), access.NewMember{Name: name, Kind: kind, Role: role}))(f.t)
	return core.ActorOf(ours, m, nil, nil)
}

// proposed is the proposal that an error names; the test fails without one.
func (f *fixture) proposed(err error) core.ProposedChange {
	f.t.Helper()
	var p *core.Proposed
	if !errors.As(err, &p) || !fault.Is(err, fault.Refused) {
		f.t.Fatalf("found %v; want a proposed change, as a refusal", err)
	}
	return p.Change
}

func approval(quorum int) *core.EnvironmentApproval {
	return &core.EnvironmentApproval{
		Reason: fmt.Sprint(quorum), GateRule: core.GateRule{Quorum: min(quorum, 2), OnExpiry: core.ExpiryRejects},
	}
}

// later is a clock that is ahead.
type later struct {
	clock.Clock
	by time.Duration
}

func (l later) Now() time.Time { return l.Clock.Now().Add(l.by) }

// proposing leaves so many changes of environment 1 proposed by member 1, without a row of the journal for each.
func (f *fixture) proposing(count int) {
	f.t.Helper()
	_, err := f.owner.Exec(f.t.Context(), `INSERT INTO cd_proposed_changes (organization_id, proposer_id, proposer_name, action, subject_kind,
		subject_number, subject_name, environments, input, expires_at)
		SELECT $1, 1, 'one', 'setDirectChanges', 'environment', 1, 'staging', '{1}', '{}', now() + interval '1 day'
		FROM generate_series(1, $2)`, ours, count)
	if err != nil {
		f.t.Fatal(err)
	}
}

// controlled is an environment under change control, with two owners, a viewer and a machine that owns as well.
type controlled struct {
	*fixture
	production, staging core.Environment
	shop                core.Application
	alice, bob, carol   core.Actor
	machine             core.Actor
}

func newControlled(t *testing.T) controlled {
	t.Helper()
	f := newFixture(t)
	f.story()
	c := controlled{
		fixture: f, alice: f.member("alice", core.PrincipalUser, core.RoleOwner), carol: f.member("carol", core.PrincipalUser, core.RoleViewer),
		production: must(f.view.EnvironmentByName(t.Context(), ours, "production"))(t),
		staging:    must(f.view.EnvironmentByName(t.Context(), ours, "staging"))(t),
		shop:       must(f.view.ApplicationByName(t.Context(), ours, "shop"))(t),
	}
	// One person alone could never end it.
	_, err := f.setup.SetChangeControl(t.Context(), c.alice, c.production.ID, true, "audit")
	if !fault.Is(err, fault.Refused) || !strings.Contains(err.Error(), "this would leave 1") {
		t.Fatalf("change control with one person: %v", err)
	}
	c.bob = f.member("bob", core.PrincipalUser, core.RoleOwner)
	c.machine = f.member("bot", core.PrincipalAgent, core.RoleOwner)
	must(f.setup.SetChangeControl(t.Context(), c.alice, c.production.ID, true, "audit"))(t)
	return c
}

func (c controlled) approvals() core.EnvironmentApproval {
	c.t.Helper()
	return must(c.view.EnvironmentApprovals(c.t.Context(), ours, []int64{c.production.ID}))(c.t)[c.production.ID]
}

// TestAChangeTakesTwoPeople (D50) proposes a change, tries everybody who must not confirm it, confirms it, and tries it again.
func TestAChangeTakesTwoPeople(t *testing.T) {
	t.Parallel()
	c := newControlled(t)
	ctx := t.Context()
	set := func(a core.Actor, quorum int) error {
		_, err := c.setup.SetEnvironmentApproval(ctx, a, c.production.ID, approval(quorum))
		return err
	}
	p := c.proposed(set(c.alice, 2))
	if c.approvals().Quorum != 0 {
		t.Fatal("the change was made before anybody confirmed it")
	}
	if again := c.proposed(set(c.alice, 2)); again.ID != p.ID {
		t.Errorf("proposed twice: %s and %s", p.Name(), again.Name())
	}
	if err := set(c.machine, 2); !fault.Is(err, fault.Refused) || !strings.Contains(err.Error(), "a person has to propose") {
		t.Errorf("a machine proposes: %v", err)
	}
	narrow := c.bob.LimitedTo(core.PermissionsOf(core.MayRead, core.MayDeploy))
	for name, a := range map[string]core.Actor{"the proposer": c.alice, "a machine": c.machine, "a viewer": c.carol, "a narrow token": narrow} {
		if _, err := c.control.Confirm(ctx, a, p.ID, ""); !fault.Is(err, fault.Denied) {
			t.Errorf("%s confirms: %v; want it denied", name, err)
		}
		if err := c.control.May(ctx, a, p, core.ActionConfirmChange); !fault.Is(err, fault.Denied) {
			t.Errorf("viewerCan of %s: %v; want it denied", name, err)
		}
	}
	if _, err := c.control.Withdraw(ctx, c.bob, p.ID, ""); !fault.Is(err, fault.Denied) {
		t.Errorf("another person withdraws: %v", err)
	}
	late := control.New(control.Deps{
		Store: c.store.ForControl(), Replays: control.Replays(c.access, c.setup, c.rollouts, c.freezes, c.policies),
		Clock: later{clock.System(), core.ProposalLife + time.Minute},
	})
	if _, err := late.Confirm(ctx, c.bob, p.ID, ""); !fault.Is(err, fault.Refused) || !strings.Contains(err.Error(), "expired") {
		t.Errorf("confirmed after its time: %v", err)
	}
	done := must(c.control.Confirm(ctx, c.bob, p.ID, "reviewed"))(t)
	if done.State != core.ProposalConfirmed || done.Decider.ID != c.bob.ID || c.approvals().Quorum != 2 {
		t.Errorf("confirmed: %+v, approval %+v", done, c.approvals())
	}
	if _, err := c.control.Confirm(ctx, c.bob, p.ID, ""); !fault.Is(err, fault.Refused) {
		t.Errorf("confirmed twice: %v", err)
	}
	rows := c.audited(`environment: "production"`)
	for _, want := range []string{
		"change proposeChange -/production", "change confirmChange -/production", "change setEnvironmentApproval -/production",
		"change setChangeControl -/production",
	} {
		if n := len(slices.DeleteFunc(slices.Clone(rows), func(row string) bool { return row != want })); n == 0 {
			t.Errorf("the journal has no row %q: %q", want, rows)
		}
	}
	// What was confirmed is what was shown: of two proposals the second is not for the control as it is after the first.
	first, second := c.proposed(set(c.alice, 1)), c.proposed(set(c.bob, 3))
	must(c.control.Confirm(ctx, c.alice, second.ID, ""))(t)
	if _, err := c.control.Confirm(ctx, c.bob, first.ID, ""); !fault.Is(err, fault.Refused) || c.approvals().Reason != "3" {
		t.Errorf("confirmed what has changed since: %v, approval %+v", err, c.approvals())
	}
	must(c.control.Withdraw(ctx, c.alice, first.ID, "outdated"))(t)
	// A proposer who may no longer configure changes nothing, also not what was proposed before.
	third := c.proposed(set(c.alice, 4))
	dan := c.member2("dan")
	must(c.access.SetMemberRole(ctx, c.bob, c.alice.ID, core.RoleViewer))(t)
	if _, err := c.control.Confirm(ctx, c.bob, third.ID, ""); !fault.Is(err, fault.Denied) {
		t.Errorf("confirmed for a proposer who may no longer configure: %v", err)
	}
	must(c.control.Reject(ctx, dan, third.ID, "no"))(t)
}

// member2 makes an owner while change control is on: it takes two people as well.
func (c controlled) member2(name string) core.Actor {
	c.t.Helper()
	_, err := c.access.CreateMember(c.t.Context(), c.alice, access.NewMember{Name: name, Kind: core.PrincipalUser, Role: core.RoleOwner})
	must(c.control.Confirm(c.t.Context(), c.bob, c.proposed(err).ID, ""))(c.t)
	m := must(c.view.MemberByName(c.t.Context(), ours, name))(c.t)
	return core.ActorOf(ours, m, nil, nil)
}

// TestNobodyGoesAroundChangeControl tries every other way to what a second person has to confirm (D50).
func TestNobodyGoesAroundChangeControl(t *testing.T) {
	t.Parallel()
	c := newControlled(t)
	ctx := t.Context()
	must(c.rollouts.CancelRollout(ctx, c.alice, 2, "in the way"))(t)
	pipeline := must(c.view.LatestFlowDefinitions(ctx, ours, []int64{c.shop.ID}))(t)[c.shop.ID]
	weaker := json.RawMessage(strings.Replace(string(pipeline.Definition), `"weight":25`, `"weight":50`, 1))
	must(c.access.CreateGroup(ctx, actor(ours), "release", []int64{c.alice.ID, c.bob.ID}))(t)
	groups := must(c.view.Groups(ctx, ours, core.Page{First: 5}))(t).Nodes
	_, err := c.setup.SetEnvironmentApproval(ctx, c.alice, c.production.ID, &core.EnvironmentApproval{
		GateRule: core.GateRule{Quorum: 2, Group: "release", OnExpiry: core.ExpiryRejects},
	})
	must(c.control.Confirm(ctx, c.bob, c.proposed(err).ID, ""))(t)
	of := func(_ any, err error) error { return err }
	everywhere, there := everything(), core.Grant{Environments: []int64{c.production.ID}}
	freezeOf := func(tier core.Tier) core.Freeze {
		return must(c.freezes.StartFreeze(ctx, c.alice, freeze.NewFreeze{
			Tiers: []core.Tier{tier}, Reason: "the quarter ends", EndsAt: clock.System().Now().Add(time.Hour),
		}))(t)
	}
	frozen := freezeOf(core.TierProduction)
	ways := map[string]func() error{
		"the approval":   func() error { return of(c.setup.SetEnvironmentApproval(ctx, c.alice, c.production.ID, nil)) },
		"direct changes": func() error { return of(c.setup.SetDirectChanges(ctx, c.alice, c.production.ID, true, "now")) },
		"ending it":      func() error { return of(c.setup.SetChangeControl(ctx, c.alice, c.production.ID, false, "now")) },
		"archiving":      func() error { return of(c.setup.ArchiveEnvironment(ctx, c.alice, c.production.ID, "")) },
		"a display name": func() error {
			return of(c.setup.RenameEnvironment(ctx, c.alice, setup.Displaying{ID: c.production.ID, DisplayName: "live"}))
		},
		"a rollback policy": func() error {
			return of(c.rollouts.SetRollbackPolicy(ctx, c.alice, core.RollbackPolicy{ApplicationID: c.shop.ID}))
		},
		"a rollout policy": func() error {
			return of(c.rollouts.SetRolloutPolicy(ctx, c.alice, core.RolloutPolicy{
				ApplicationID: c.shop.ID, OnFailure: core.FailureStops, OnNewer: core.NewerRefused,
			}))
		},
		"a pipeline": func() error {
			return of(c.setup.CreateFlowDefinition(ctx, c.alice, setup.NewFlowDefinition{ApplicationID: c.shop.ID, Definition: weaker}))
		},
		"another environment on the same cluster": func() error {
			return of(c.setup.CreateEnvironment(ctx, c.alice, setup.NewEnvironment{
				Name: "twin", Tier: core.TierDevelopment, DriverRef: "argo-rollouts@1",
				DriverConfig: json.RawMessage(fmt.Sprintf(`{"cluster_agent_id":%d}`, c.clusterOf(ours))),
			}))
		},
		"a grant": func() error {
			return of(c.access.GrantPermissions(ctx, c.alice, access.NewGrant{
				MemberID: c.carol.ID, Permissions: core.PermissionsOf(core.MayApprove), Environments: there.Environments,
			}))
		},
		"a grant to a group": func() error {
			return of(c.access.GrantPermissions(ctx, c.alice, access.NewGrant{GroupID: groups[0].ID, Permissions: everywhere}))
		},
		"a role": func() error { return of(c.access.SetMemberRole(ctx, c.alice, c.carol.ID, core.RoleApprover)) },
		"a new member": func() error {
			return of(c.access.CreateMember(ctx, c.alice, access.NewMember{Name: "puppet", Kind: core.PrincipalUser, Role: core.RoleOwner}))
		},
		"the end of a freeze": func() error { return of(c.freezes.EndFreeze(ctx, c.alice, frozen.ID, "over")) },
		"the end of a pin":    func() error { return of(c.freezes.UnpinEnvironment(ctx, c.alice, c.production.ID, "over")) },
		"a group that approves": func() error {
			return of(c.access.SetGroupMembers(ctx, c.alice, groups[0].ID, []int64{c.alice.ID, c.bob.ID, c.carol.ID}))
		},
	}
	must(c.freezes.PinEnvironment(ctx, c.alice, c.production.ID, "looked at by people"))(t) // what is stricter waits for nobody
	for name, do := range ways {
		var p *core.Proposed
		if err := do(); !errors.As(err, &p) {
			t.Errorf("%s needs no second person: found %v", name, err)
		}
	}
	open := must(c.control.ProposedChanges(ctx, ours, control.Filter{Open: true}, core.Page{First: 50}))(t)
	if len(open.Nodes) != len(ways) {
		t.Errorf("%d changes are proposed; want %d", len(open.Nodes), len(ways))
	}
	if got := must(c.view.LatestFlowDefinitions(ctx, ours, []int64{c.shop.ID}))(t)[c.shop.ID]; got.Version != pipeline.Version {
		t.Error("the pipeline has changed")
	}
	// What takes permissions away, or concerns other environments, waits for nobody.
	for name, err := range map[string]error{
		"staging": of(c.setup.SetEnvironmentApproval(ctx, c.alice, c.staging.ID, approval(1))),
		"a grant for staging": of(c.access.GrantPermissions(ctx, c.alice, access.NewGrant{
			MemberID: c.carol.ID, Permissions: everywhere, Tiers: []core.Tier{core.TierStaging},
		})),
		"to deploy":           of(c.access.GrantPermissions(ctx, c.alice, access.NewGrant{MemberID: c.carol.ID, Permissions: core.PermissionsOf(core.MayDeploy)})),
		"a freeze of staging": of(c.freezes.EndFreeze(ctx, c.alice, freezeOf(core.TierStaging).ID, "over")),
		"a smaller group":     of(c.access.SetGroupMembers(ctx, c.alice, groups[0].ID, []int64{c.alice.ID, c.bob.ID})),
	} {
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	// One of the two cannot be removed: nobody would be left to confirm.
	if _, err := c.access.RemoveMember(ctx, c.alice, c.bob.ID); !fault.Is(err, fault.Refused) {
		t.Errorf("the second person was removed: %v", err)
	}
	// Nor does a token make one person two.
	_, _, err = c.access.CreateToken(ctx, c.alice, access.NewToken{MemberID: c.bob.ID, Name: "mine"})
	if !fault.Is(err, fault.Refused) && !fault.Is(err, fault.Denied) {
		t.Errorf("a token of the second person: %v", err)
	}
	// Break-glass passes a control, with a reason and a name of its own, and never what makes change control hold.
	forced := map[core.Action]core.ProposedChange{}
	for _, p := range open.Nodes {
		forced[p.Action] = p
	}
	approvalChange := forced[core.ActionSetEnvironmentApproval]
	if _, err := c.control.Force(ctx, c.alice, approvalChange.ID, " "); !fault.Is(err, fault.Invalid) {
		t.Errorf("break-glass without a reason: %v", err)
	}
	holds := []core.Action{core.ActionSetChangeControl, core.ActionCreateMember, core.ActionSetMemberRole, core.ActionGrantPermissions}
	for _, action := range holds {
		if _, err := c.control.Force(ctx, c.alice, forced[action].ID, "fire"); !fault.Is(err, fault.Denied) {
			t.Errorf("break-glass passes %s: %v", action, err)
		}
	}
	done := must(c.control.Force(ctx, c.alice, approvalChange.ID, "fire"))(t)
	if done.State != core.ProposalForced || c.approvals().Quorum != 0 || len(c.audited(`action: "forceChange"`)) != 1 {
		t.Errorf("break-glass: %+v, approval %+v", done, c.approvals())
	}
	// What was shown is what ends, whenever it is confirmed.
	must(c.control.Confirm(ctx, c.bob, forced[core.ActionEndFreeze].ID, "over"))(t)
	must(c.control.Confirm(ctx, c.bob, forced[core.ActionUnpinEnvironment].ID, "over"))(t)
	if _, err := c.freezes.EndFreeze(ctx, c.alice, frozen.ID, ""); !fault.Is(err, fault.Refused) || !strings.Contains(err.Error(), "is over since") {
		t.Errorf("the freeze after its confirmed end: %v", err)
	}
	// And it ends with the second person, like everything else.
	must(c.control.Confirm(ctx, c.bob, forced[core.ActionSetChangeControl].ID, "over"))(t)
	if controlled := must(c.view.ChangeControlled(ctx, ours, []int64{c.production.ID}))(t); controlled[c.production.ID] {
		t.Error("change control has not ended")
	}
	must(c.setup.SetEnvironmentApproval(ctx, c.alice, c.production.ID, approval(1)))(t)
}

// TestEveryProposableActionCanBeReplayed keeps the table of replays complete.
func TestEveryProposableActionCanBeReplayed(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	replays := control.Replays(f.access, f.setup, f.rollouts, f.freezes, f.policies)
	for _, action := range core.ProposableActions() {
		if replays[action] == nil {
			t.Errorf("%s can be proposed and not confirmed", action)
		}
	}
	if len(replays) != len(core.ProposableActions()) {
		t.Errorf("%d replays for %d actions", len(replays), len(core.ProposableActions()))
	}
}

// TestProposedChangesByTheAPI is the mutation that answers a refusal, the list, and the decision.
func TestProposedChangesByTheAPI(t *testing.T) {
	t.Parallel()
	c := newControlled(t)
	// The viewer of these tests is nobody who is stored; proposals are people's.
	_, err := c.setup.SetDirectChanges(t.Context(), c.alice, c.production.ID, true, "restore")
	p := c.proposed(err)
	var data struct {
		ProposedChanges struct {
			TotalCount int
			Nodes      []json.RawMessage
		}
		Environment struct{ ChangeControl, DirectChanges bool }
	}
	query := `{ proposedChanges(open: true) { totalCount nodes { id state action subject subjectName application { name } environments { name }
		proposer { name } proposerName reason before after decision viewerCan { action allowed } } }
		environment(name: "production") { changeControl directChanges } }`
	c.ask(ours, query, nil).into(t, &data)
	want := fmt.Sprintf(`{"id":%q,"state":"OPEN","action":"setDirectChanges","subject":"environment_%d","subjectName":"production",`+
		`"application":null,"environments":[{"name":"production"}],"proposer":{"name":"alice"},"proposerName":"alice","reason":"restore",`+
		`"before":{"direct_changes":false},"after":{"direct_changes":true},"decision":"","viewerCan":[{"action":"confirmChange","allowed":true},`+
		`{"action":"rejectChange","allowed":true},{"action":"withdrawChange","allowed":false},{"action":"forceChange","allowed":true}]}`,
		p.Name(), c.production.ID)
	if data.ProposedChanges.TotalCount != 1 || string(data.ProposedChanges.Nodes[0]) != want {
		t.Errorf("found %d: %s\nwant     %s", data.ProposedChanges.TotalCount, data.ProposedChanges.Nodes, want)
	}
	if !data.Environment.ChangeControl || data.Environment.DirectChanges {
		t.Errorf("the environment: %+v", data.Environment)
	}
}

// Policies of the organization, and of an environment under change control, take a second person (D50, D51).
func TestPoliciesTakeTwoPeople(t *testing.T) {
	t.Parallel()
	c := newControlled(t)
	ctx := t.Context()
	put := func(n policy.NewPolicySet) error {
		n.Text, n.Reason, n.Mode = `@id("base") permit (principal, action, resource);`, "a test", core.PolicyEnforced
		_, err := c.policies.PutPolicySet(ctx, c.alice, n)
		return err
	}
	everywhere := c.proposed(put(policy.NewPolicySet{Name: "everywhere"}))
	c.proposed(put(policy.NewPolicySet{Name: "there", EnvironmentID: c.production.ID}))
	if err := put(policy.NewPolicySet{Name: "elsewhere", EnvironmentID: c.staging.ID}); err != nil {
		t.Errorf("found %v; staging is not under change control", err)
	}
	must(c.control.Confirm(ctx, c.bob, everywhere.ID, "reviewed"))(t)
	var names []string
	for _, s := range must(c.policies.PolicySets(ctx, c.bob))(t) {
		names = append(names, fmt.Sprintf("%s by %s", s.Name, s.Author.Name))
	}
	if got := strings.Join(names, ", "); got != "elsewhere by alice, everywhere by alice" {
		t.Errorf("found %s; expected what was confirmed and what needs no second person", got)
	}
}
