package domain

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/event"
	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/access"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/rollout"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/setup"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/view"
)

// person is a user of an organization, who belongs to groups.
func person(id int64, groups ...string) core.Actor {
	return core.Actor{Organization: org, Type: core.PrincipalUser, ID: id, Permissions: core.RoleOwner.Permissions(), Groups: groups}
}

// asking replaces the shop's pipeline: staging, then an approval step, then production with an approval before it and at 50%.
func (s *shop) asking(step, entry, half string) {
	s.t.Helper()
	_, err := s.setup.CreateFlowDefinition(s.t.Context(), user(),
		setup.NewFlowDefinition{ApplicationID: s.application.ID, Definition: asks(step, entry, half)})
	s.ok(err)
	s.makeReady()
}

func asks(step, entry, half string) json.RawMessage {
	return json.RawMessage(fmt.Sprintf(`{"steps":[
		{"type":"deploy","environment":"staging","config":%s},
		{"type":"approval","name":"release"%s},
		{"type":"deploy","environment":"production","approval":{%s},"gates":[{"weight":50,"approval":{%s}}],"config":%s}]}`,
		appEnvConfig("staging"), step, entry, half, appEnvConfig("production")))
}

// group makes one with members of its own.
func (s *shop) group(name string, members int) {
	s.t.Helper()
	ids := make([]int64, members)
	for i := range ids {
		m, err := s.access.CreateMember(s.t.Context(), user(),
			access.NewMember{Name: fmt.Sprintf("%s-%d", name, i), Kind: core.PrincipalUser, Role: core.RoleApprover})
		s.ok(err)
		ids[i] = m.ID
	}
	_, err := s.access.CreateGroup(s.t.Context(), user(), name, ids)
	s.ok(err)
}

func (s *shop) approve(a core.Actor, r core.Rollout, gate string) error {
	_, err := s.rollouts.ApproveGate(s.t.Context(), a, rollout.Resolution{RolloutID: r.ID, GateID: gate})
	return err
}

// gates are those that are open.
func (s *shop) gates(r core.Rollout) map[string]core.Gate {
	s.t.Helper()
	open, err := s.view.OpenGates(s.t.Context(), org, []int64{r.ID})
	s.ok(err)
	found := map[string]core.Gate{}
	for _, g := range open[r.ID] {
		found[g.GateID] = g
	}
	return found
}

// resolved are the answers that workflows wait for, in order.
func (s *shop) resolved() []string {
	s.t.Helper()
	rows, err := s.pool.Query(s.t.Context(), `SELECT event->'data'->>'gate_id', event->'data'->>'resolution', event->'data'->>'principal_type'
		FROM outbox WHERE event->>'type' = $1 ORDER BY id`, event.TypeApprovalResolved)
	s.ok(err)
	defer rows.Close()
	all := []string{}
	for rows.Next() {
		var gate, resolution, by string
		s.ok(rows.Scan(&gate, &resolution, &by))
		all = append(all, gate+" "+resolution+" by "+by)
	}
	s.ok(rows.Err())
	return all
}

func TestAGateTakesItsQuorumOfDifferentPeopleOfItsGroup(t *testing.T) { // D24
	t.Parallel()
	s := newShop(t)
	s.group("release-managers", 2)
	s.asking("", "", `"quorum":2,"group":"release-managers","reason":"half of the traffic"`)
	r := s.rollout(s.set)
	for _, gate := range []event.ApprovalRequested{
		{RolloutID: r.ID, GateID: "production/50", EnvironmentID: s.production.ID, Weight: 50}, {RolloutID: r.ID, GateID: "release"},
	} {
		s.report(gate)
	}

	ann, bob := person(7, "release-managers"), person(8, "qa", "release-managers")
	s.refused(s.approve(person(9), r, "production/50"), `is for the group "release-managers" to answer; user 9 is not in it`)
	s.ok(s.approve(ann, r, "production/50"))
	s.refused(s.approve(ann, r, "production/50"), "has approved gate \"production/50\" of rollout_1 already; 1 of 2 have")
	// asked again: nothing is forgotten
	s.report(event.ApprovalRequested{RolloutID: r.ID, GateID: "production/50", EnvironmentID: s.production.ID})
	gate := s.gates(r)["production/50"]
	if len(gate.Approvals) != 1 || gate.Approvals[0].ID != 7 || gate.Quorum != 2 {
		t.Errorf("after one of two: %+v", gate)
	}
	s.want(s.resolved(), []string{})
	if got := s.reload(r); !got.AwaitingApproval {
		t.Errorf("two gates are open: %+v", got)
	}
	s.ok(s.approve(bob, r, "production/50"))
	s.want(s.resolved(), []string{"production/50 approved by user"})
	s.refused(s.approve(bob, r, "production/50"), `is not open; open: release`)
	s.ok(s.approve(person(9), r, "release"))
	if got := s.gates(r); len(got) > 0 {
		t.Errorf("all are answered: %+v", got)
	}
	s.verifyJournal(r)
}

func TestAMachineCountsOnlyInAGroupThatTheRuleNames(t *testing.T) { // D50
	t.Parallel()
	s := newShop(t)
	s.group("bots", 1)
	s.asking("", `"group":"bots"`, "")
	r := s.rollout(s.set)
	for gate, environment := range map[string]int64{"release": 0, "production": s.production.ID} {
		s.report(event.ApprovalRequested{RolloutID: r.ID, GateID: gate, EnvironmentID: environment})
	}
	machine := person(8, "bots")
	machine.Type = core.PrincipalAgent
	s.refused(s.approve(machine, r, "release"), "is for people to approve, and agent 8 is a machine")
	s.ok(s.approve(machine, r, "production"))
	s.ok(s.approve(person(9), r, "release"))
	s.verifyJournal(r)
}

func TestMachinesDoNotMakeARuleAnswerable(t *testing.T) { // D50
	t.Parallel()
	s := newShop(t)
	s.people(1)
	for name, kind := range map[string]core.PrincipalType{"ann": core.PrincipalUser, "ci": core.PrincipalAgent} {
		_, err := s.access.CreateMember(t.Context(), user(), access.NewMember{Name: name, Kind: kind, Role: core.RoleApprover})
		s.ok(err)
	}
	rule := func(quorum int) error {
		_, err := s.setup.SetEnvironmentApproval(t.Context(), user(), s.production.ID,
			&core.EnvironmentApproval{GateRule: core.GateRule{Quorum: quorum, OnExpiry: core.ExpiryRejects}})
		return err
	}
	s.ok(rule(2))
	if err := rule(3); err == nil || !strings.Contains(err.Error(), "expected at most 2, as no more people of the organization may approve") {
		t.Errorf("a quorum of 3 with two people and a machine: %v", err)
	}
}

func TestTheRequesterOfARolloutDoesNotApproveItInProduction(t *testing.T) { // D28
	t.Parallel()
	s := newShop(t)
	s.asking("", "", `"requester_may_approve":true`)
	r := s.rollout(s.set) // by user 1
	for _, gate := range []event.ApprovalRequested{
		{RolloutID: r.ID, GateID: "production", EnvironmentID: s.production.ID},
		{RolloutID: r.ID, GateID: "production/50", EnvironmentID: s.production.ID},
		{RolloutID: r.ID, GateID: "release"},
		{RolloutID: r.ID, GateID: "the program's own"},
		{RolloutID: r.ID, GateID: "the program's own in staging", EnvironmentID: s.staging.ID},
	} {
		s.report(gate)
	}
	for _, gate := range []string{"production", "release", "the program's own"} {
		s.refused(s.approve(user(), r, gate), "user 1 requested rollout_1, so someone else must approve")
		s.ok(s.approve(person(2), r, gate))
	}
	s.ok(s.approve(user(), r, "production/50"))
	s.ok(s.approve(user(), r, "the program's own in staging"))
	s.report(event.ApprovalRequested{RolloutID: r.ID, GateID: "production/75", EnvironmentID: s.production.ID})
	_, err := s.rollouts.RejectGate(t.Context(), user(), rollout.Resolution{RolloutID: r.ID, GateID: "production/75"})
	s.ok(err) // to take one's own back is everybody's right
}

func TestAnUnansweredGateExpires(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.asking(`,"expires_after":60,"on_expiry":"approve"`, `"expires_after":120`, "")
	r := s.rollout(s.set)
	for _, gate := range []string{"release", "production", "production/50"} {
		s.report(event.ApprovalRequested{RolloutID: r.ID, GateID: gate})
	}
	s.nothingExpires()
	if at := s.gates(r)["release"].ExpiresAt(); at == nil || s.gates(r)["production/50"].ExpiresAt() != nil {
		t.Errorf("expires: %v", at)
	}
	s.elapse()
	done := s.expire()
	s.want(done.GateID+" "+done.Outcome, "release approve")
	done = s.expire()
	s.want(done.GateID+" "+done.Outcome, "production reject")
	s.nothingExpires()
	s.want(s.resolved(), []string{"release approved by schedule", "production rejected by schedule"})
	if got := s.reload(r); got.State != core.RolloutCancelled {
		t.Errorf("after the rejection: %+v", got)
	}
	s.want(s.ownStory(r)[2:], []string{
		"rollout request_approval in_progress→in_progress", "rollout request_approval in_progress→in_progress",
		"rollout request_approval in_progress→in_progress",
		"rollout expire in_progress→in_progress", "rollout expire in_progress→in_progress", "rollout cancel in_progress→cancelled",
	})
	s.verifyJournal(r)
}

func TestAnAnsweredGateDoesNotExpire(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.asking(`,"expires_after":60`, "", "")
	r := s.rollout(s.set)
	s.report(event.ApprovalRequested{RolloutID: r.ID, GateID: "release"})
	s.ok(s.approve(person(2), r, "release"))
	s.elapse()
	s.want(s.expire().Outcome, "answered")
	s.nothingExpires()
	if got := s.reload(r); got.State != core.RolloutInProgress {
		t.Errorf("after a late expiry: %+v", got)
	}
}

// elapse brings every gate's end forward.
func (s *shop) elapse() {
	s.t.Helper()
	_, err := s.pool.Exec(s.t.Context(), `UPDATE cd_gate_expiries SET due_at = now() - interval '1 second'`)
	s.ok(err)
}

func (s *shop) expire() core.GateExpiry {
	s.t.Helper()
	done, worked, err := s.rollouts.ExpireDue(s.t.Context())
	s.ok(err)
	if !worked {
		s.t.Error("nothing was due")
	}
	return done
}

func (s *shop) nothingExpires() {
	s.t.Helper()
	if done, worked, err := s.rollouts.ExpireDue(s.t.Context()); worked || err != nil {
		s.t.Errorf("expired: %+v, %v", done, err)
	}
}

func TestAnEnvironmentsApprovalAppliesWhateverThePipeline(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.group("platform", 3)
	asked := core.EnvironmentApproval{
		Reason:   "the platform team's",
		GateRule: core.GateRule{Quorum: 2, Group: "platform", ExpiresAfter: time.Hour, OnExpiry: core.ExpiryRejects},
	}
	for _, e := range []core.Environment{s.staging, s.production} {
		_, err := s.setup.SetEnvironmentApproval(t.Context(), user(), e.ID, &asked)
		s.ok(err)
	}
	_, err := s.setup.SetEnvironmentApproval(t.Context(),
		core.Actor{Organization: 2, Type: core.PrincipalUser, ID: 1, Permissions: core.RoleOwner.Permissions()}, s.staging.ID, nil)
	if !fault.Is(err, fault.NotFound) {
		t.Errorf("another organization's environment: %v", err)
	}
	_, err = s.setup.SetEnvironmentApproval(t.Context(), user(), s.staging.ID, &core.EnvironmentApproval{})
	if !fault.Is(err, fault.Invalid) {
		t.Errorf("a quorum of nobody: %v", err)
	}
	s.asking("", `"reason":"ours","quorum":3,"expires_after":60,"requester_may_approve":true`, "")
	r := s.rollout(s.set)
	s.handOver()
	var in struct {
		Rollout struct {
			Environments []struct {
				Approval *core.Approval `json:"approval"`
			} `json:"environments"`
		} `json:"rollout"`
	}
	s.ok(json.Unmarshal(s.engine.started[len(s.engine.started)-1].Inputs, &in))
	s.want(in.Rollout.Environments[0].Approval, &core.Approval{Reason: "the platform team's", ExpiresAfter: 3600})
	s.want(in.Rollout.Environments[1].Approval.ExpiresAfter, 60)

	s.report(event.ApprovalRequested{RolloutID: r.ID, GateID: "staging", EnvironmentID: s.staging.ID})
	s.report(event.ApprovalRequested{RolloutID: r.ID, GateID: "production", EnvironmentID: s.production.ID})
	s.want(s.gates(r)["staging"].GateRule, asked.GateRule)
	s.want(s.gates(r)["production"].GateRule, core.GateRule{
		Quorum: 3, Group: "platform", ExpiresAfter: time.Minute,
		OnExpiry: core.ExpiryRejects, Also: []core.Requirement{{Quorum: 3}},
	})
	// A replica of a release that knows one requirement only finds a group that nobody is in, and does not open the passage with half of them.
	var group, also string
	pinned := s.pool.QueryRow(t.Context(), `SELECT approver_group, also::text FROM cd_rollout_gates
		WHERE rollout_id = $1 AND gate_id = 'production'`, r.ID)
	s.ok(pinned.Scan(&group, &also))
	s.want([]string{group, also}, []string{"(several)", `[{"group": "platform", "quorum": 3}, {"quorum": 3}]`})

	_, err = s.setup.SetEnvironmentApproval(t.Context(), user(), s.staging.ID, nil)
	s.ok(err)
	s.want(s.gates(r)["staging"].Quorum, 2)                                                     // what a rollout has pinned stays
	_, err = s.rollouts.CancelRollout(t.Context(), user(), r.ID, "nobody has to agree to that") // R41
	s.ok(err)
	r = s.rollout(s.set)
	s.report(event.ApprovalRequested{RolloutID: r.ID, GateID: "staging", EnvironmentID: s.staging.ID})
	s.want(s.gates(r)["staging"].GateRule, core.GateRule{Quorum: 1, RequesterMayApprove: true, OnExpiry: core.ExpiryRejects})
}

// The approvers must exist when the rule is written; later the rollout continues with those who are left.
func TestAQuestionThatNobodyCouldAnswerIsRefused(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.group("two", 2)
	refused := func(err error, want ...fault.Field) {
		t.Helper()
		if !fault.Is(err, fault.Invalid) {
			t.Errorf("got %v, want it to be refused", err)
		}
		s.want(fault.FieldsOf(err), want)
	}
	pipeline := func(step, entry, half string) error {
		_, err := s.setup.CreateFlowDefinition(t.Context(), user(),
			setup.NewFlowDefinition{ApplicationID: s.application.ID, Definition: asks(step, entry, half)})
		fields, checkErr := s.setup.CheckFlowDefinition(t.Context(), user(), asks(step, entry, half))
		s.ok(checkErr)
		if len(fields) != len(fault.FieldsOf(err)) {
			t.Errorf("checked: %v, authored: %v", fields, err)
		}
		return err
	}
	const none = `found "tow"; expected a group that exists`
	const few = `found 3; expected at most 2, as no more members of group "two" may approve`
	refused(pipeline(`,"group":"tow"`, `"group":"two","quorum":3`, `"group":"tow"`),
		fault.Field{Name: "/definition/steps/1/group", Problem: none}, fault.Field{Name: "/definition/steps/2/approval/quorum", Problem: few},
		fault.Field{Name: "/definition/steps/2/gates/0/approval/group", Problem: none})
	s.ok(pipeline(`,"group":"two"`, `"group":"two","quorum":2`, `"quorum":1`))

	environment := func(group string, quorum int) error {
		_, err := s.setup.SetEnvironmentApproval(t.Context(), user(), s.production.ID,
			&core.EnvironmentApproval{GateRule: core.GateRule{Quorum: quorum, Group: group, OnExpiry: core.ExpiryRejects}})
		return err
	}
	refused(environment("tow", 1), fault.Field{Name: "/group", Problem: none})
	refused(environment("two", 3), fault.Field{Name: "/quorum", Problem: few})
	s.ok(environment("two", 2))

	// Each can be answered by itself, and both together cannot: more people than the group has that the other one asks. Two groups can: each
	// has to agree.
	s.group("three", 3)
	s.ok(pipeline(`,"group":"two"`, `"group":"three","quorum":3`, `"quorum":2`))
	refused(pipeline(`,"group":"two"`, `"quorum":3`, `"quorum":2`),
		fault.Field{Name: "/definition/steps/2/approval/quorum", Problem: `with what environment "production" asks: ` + few})
	s.ok(environment("three", 3))
	s.ok(pipeline(`,"group":"two"`, `"quorum":3`, `"quorum":2`))
	refused(environment("two", 1), fault.Field{Name: "/quorum", Problem: `with what the pipeline of "shop" asks: ` + few})
	s.ok(environment("", 1))
	s.ok(pipeline(`,"group":"two"`, `"group":"two","quorum":2`, `"quorum":1`))
	refused(environment("", 3), fault.Field{Name: "/quorum", Problem: `with what the pipeline of "shop" asks: ` + few})
	s.ok(environment("two", 2))

	s.makeReady()
	_, err := s.access.SetGroupMembers(t.Context(), user(), 1, nil)
	s.ok(err)
	s.rollout(s.set) // fails the test where it is refused
}

// Without a group, too, a question takes no more people than may approve; and when they leave, the rollout that waits says so.
func TestAQuorumOfMoreThanMayApproveIsRefusedAndReported(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.group("two", 2) // with nobody else in the organization who may approve
	for name, author := range map[string]func() error{
		"a step":      func() error { return s.author(asks(`,"quorum":3`, "", "")) },
		"an entry":    func() error { return s.author(asks("", `"quorum":3`, "")) },
		"a weight":    func() error { return s.author(asks("", "", `"quorum":3`)) },
		"environment": func() error { return s.ask(3, "") },
	} {
		if err := author(); !fault.Is(err, fault.Invalid) ||
			!strings.Contains(err.Error(), "found 3; expected at most 2, as no more people of the organization may approve") {
			t.Errorf("%s: %v", name, err)
		}
	}
	viewer, err := s.access.CreateMember(t.Context(), user(), access.NewMember{Name: "looks", Kind: core.PrincipalUser, Role: core.RoleViewer})
	s.ok(err)
	_, err = s.access.CreateGroup(t.Context(), user(), "viewers", []int64{viewer.ID})
	s.ok(err)
	if err := s.ask(1, "viewers"); !fault.Is(err, fault.Invalid) ||
		!strings.Contains(err.Error(), `no more members of group "viewers" may approve`) {
		t.Errorf("a group of viewers: %v", err)
	}

	s.ok(s.ask(2, ""))
	made, err := s.rollouts.CreateRollout(t.Context(), person(99), rollout.NewRollout{VersionSetID: s.set.ID})
	s.ok(err)
	r := *made.Rollout
	s.report(event.ApprovalRequested{RolloutID: r.ID, GateID: "production", EnvironmentID: s.production.ID})
	waits := func() string {
		t.Helper()
		all, err := s.view.Waits(t.Context(), org, []int64{r.ID})
		s.ok(err)
		return all[r.ID][0].Detail
	}
	if got := waits(); strings.Contains(got, "nobody") {
		t.Errorf("while it can be answered: %s", got)
	}
	member, err := s.view.MemberByName(t.Context(), org, "two-0")
	s.ok(err)
	_, err = s.access.RemoveMember(t.Context(), user(), member.ID)
	s.ok(err)
	if got := waits(); !strings.Contains(got, "nobody can answer it: it needs 2 more, and only 1") {
		t.Errorf("when one has left: %s", got)
	}
	s.unanswerable(
		fmt.Sprintf(`production of rollout_%d: rollout_%d waits for it: gate "production" asks for approval`, r.ID, r.ID),
		`production: the approval "production" cannot be given: found 2; expected at most 1`,
	)
}

// What a program requests was never checked, as a pipeline is; that nobody can give it is reported at once.
func TestAnApprovalOfAProgramThatNobodyCanGiveIsReportedAtOnce(t *testing.T) {
	t.Parallel()
	s := guarded(t)
	requester, err := s.access.CreateMember(t.Context(), user(), access.NewMember{
		Name: "alone", Kind: core.PrincipalUser, Role: core.RoleOwner,
	})
	s.ok(err)
	made, err := s.rollouts.CreateRollout(t.Context(), person(requester.ID), rollout.NewRollout{VersionSetID: s.set.ID})
	s.ok(err)
	r := *made.Rollout
	s.handOver()
	const warning = "requested approval cannot be met: too few eligible approvers"
	s.report(event.ApprovalRequested{RolloutID: r.ID, GateID: "looks-good", EnvironmentID: s.staging.ID})
	if strings.Contains(s.log.String(), warning) {
		t.Error("found a warning about an approval that the requester may give")
	}
	s.report(event.ApprovalRequested{RolloutID: r.ID, GateID: "really", EnvironmentID: s.production.ID})
	if !strings.Contains(s.log.String(), warning) || !strings.Contains(s.log.String(), "gate=really") {
		t.Errorf("found the log %q; expected a warning about the approval that only the requester could give", s.log)
	}
	s.unanswerable(fmt.Sprintf(`really of rollout_%d: `, r.ID), `production of the pipeline: the approval "production" cannot be given: everyone`)
}

// unanswerable are the rules that cannot be answered now, each of which begins as expected.
func (s *shop) unanswerable(want ...string) {
	s.t.Helper()
	found, err := s.view.UnanswerableRules(s.t.Context(), org, view.RulesOf{})
	s.ok(err)
	lines := []string{}
	for _, r := range found {
		line := r.GateID
		if r.RolloutID != 0 {
			line += fmt.Sprintf(" of rollout_%d", r.RolloutID)
		} else if r.ApplicationID != 0 {
			line += " of the pipeline"
		}
		lines = append(lines, line+": "+r.Problem)
	}
	if !slices.EqualFunc(lines, want, strings.HasPrefix) {
		s.t.Errorf("found %q; expected %q", lines, want)
	}
}

// A change of who may approve is made whatever waits for it, and reports what can no longer be approved: of the
// environment, of the pipeline, and only by who has requested the rollout.
func TestAChangeOfAccessReportsWhatCannotBeApprovedAnyMore(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.group("managers", 2)
	s.unanswerable()
	s.ok(s.author(asks(`,"quorum":2,"group":"managers"`, `"quorum":1,"group":"managers"`, "")))
	s.unanswerable()
	member, err := s.view.MemberByName(t.Context(), org, "managers-0")
	s.ok(err)
	_, err = s.access.SetMemberRole(t.Context(), user(), member.ID, core.RoleViewer)
	s.ok(err)
	s.unanswerable(`release of the pipeline: the approval "release" cannot be given: found 2; expected at most 1, as no more members`)
	// A grant within the limits of the gate is as good as the role.
	g, err := s.access.GrantPermissions(t.Context(), user(), access.NewGrant{
		MemberID: member.ID, Permissions: core.PermissionsOf(core.MayApprove), Applications: []int64{s.application.ID},
	})
	s.ok(err)
	s.unanswerable()
	_, err = s.access.RevokeGrant(t.Context(), user(), g.ID, "")
	s.ok(err)
	s.unanswerable(`release of the pipeline: `)

	// The only one who may deploy is the only one of a group: as the requester may not approve, nobody can.
	boss, err := s.access.CreateMember(t.Context(), user(), access.NewMember{Name: "boss", Kind: core.PrincipalUser, Role: core.RoleDeployer})
	s.ok(err)
	_, err = s.access.GrantPermissions(t.Context(), user(), access.NewGrant{
		MemberID: boss.ID, Permissions: core.PermissionsOf(core.MayApprove),
	})
	s.ok(err)
	_, err = s.access.CreateGroup(t.Context(), user(), "bosses", []int64{boss.ID})
	s.ok(err)
	s.ok(s.author(asks("", `"group":"bosses"`, "")))
	everyone, err := s.view.Members(t.Context(), org, core.Page{First: 100})
	s.ok(err)
	for _, m := range everyone.Nodes {
		if m.ID != boss.ID && m.Role.Permissions().Has(core.MayDeploy) {
			t.Logf("%s may deploy, too", m.Name)
		}
	}
	s.unanswerable(`production of the pipeline: the approval "production" cannot be given: everyone who may request`)
	_, err = s.access.CreateMember(t.Context(), user(), access.NewMember{Name: "ci", Kind: core.PrincipalAgent, Role: core.RoleDeployer})
	s.ok(err)
	s.unanswerable()
}

// author makes a pipeline of the shop.
func (s *shop) author(definition json.RawMessage) error {
	_, err := s.setup.CreateFlowDefinition(s.t.Context(), user(),
		setup.NewFlowDefinition{ApplicationID: s.application.ID, Definition: definition})
	return err
}

// ask has production ask by itself.
func (s *shop) ask(quorum int, group string) error {
	_, err := s.setup.SetEnvironmentApproval(s.t.Context(), user(), s.production.ID,
		&core.EnvironmentApproval{GateRule: core.GateRule{Quorum: quorum, Group: group, RequesterMayApprove: true, OnExpiry: core.ExpiryRejects}})
	return err
}
