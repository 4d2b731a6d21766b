package graph_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/vektah/gqlparser/v2/ast"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/services/domain/internal/api/graph/contract"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/rollout"
)

func schemaOf(t *testing.T) *ast.Schema {
	t.Helper()
	schema, err := contract.Load("schema")
	if err != nil {
		t.Fatal(err)
	}
	return schema
}

// TestEveryMutationIsSomebodysToDo goes through the schema, so that no mutation is added without saying who may (D28).
func TestEveryMutationIsSomebodysToDo(t *testing.T) {
	t.Parallel()
	everybody := core.Actor{Organization: ours, Type: core.PrincipalUser, Permissions: core.PermissionsOf(core.AllPermissions()...)}
	for _, m := range schemaOf(t).Mutation.Fields {
		action := core.Action(m.Name)
		if err := everybody.May(action); err != nil {
			t.Errorf("%s: %v", m.Name, err)
		}
		if err := (core.Actor{Organization: ours}).May(action); !fault.Is(err, fault.Denied) {
			t.Errorf("%s: a caller without permission gets %v; want it denied", m.Name, err)
		}
	}
	if err := everybody.May("burnItDown"); !fault.Is(err, fault.Denied) {
		t.Errorf("what nobody has thought of: found %v; want it denied", err)
	}
}

// TestRoles is who may do what.
func TestRoles(t *testing.T) {
	t.Parallel()
	may := map[core.Role]string{
		core.RoleViewer:     "read",
		core.RoleApprover:   "read approve",
		core.RoleDeployer:   "read deploy",
		core.RoleMaintainer: "read deploy approve configure break_glass freeze bypass report nudge",
		core.RoleOwner:      "read deploy approve configure administer break_glass freeze bypass report nudge",
		"stranger":          "",
	}
	for role, want := range may {
		var got []string
		for _, p := range role.Permissions().List() {
			got = append(got, p.String())
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%s may %s, want %s", role, got, want)
		}
	}
}

// ability is what viewerCan says of one action.
type ability struct {
	Action  string
	Allowed bool
	Reason  *string
}

// TestViewerCanAgreesWithTheMutations tries every action on rollouts in different states as every role, and compares what
// was announced with what came of it: one source for both.
func TestViewerCanAgreesWithTheMutations(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.story() // rollout_1 has failed, rollout_2 waits at the gate "production"
	paused := f.application(ours, "paused", "api")
	f.pipeline(ours, paused, f.environment(ours, "qa", core.TierQA))
	third := f.rollout(ours, paused)
	f.apply(ours, rollout.ApprovalRequested{RolloutID: third.ID, GateID: "qa"})
	must(f.rollouts.PauseRollout(t.Context(), actor(ours), third.ID, "hold"))(t)

	input := func(action, rollout string) map[string]any {
		in := map[string]any{"rolloutId": rollout, "reason": ""}
		if strings.HasSuffix(action, "Gate") {
			in["gateId"] = map[string]string{"rollout_2": "production", "rollout_3": "qa"}[rollout]
		}
		if strings.HasSuffix(action, "Wave") {
			in["environment"], in["wave"] = map[string]string{"rollout_1": "staging", "rollout_2": "production", "rollout_3": "qa"}[rollout], 1
		}
		return in
	}
	allowed, refused := 0, 0
	for _, role := range []core.Role{core.RoleViewer, core.RoleApprover, core.RoleDeployer, core.RoleOwner} {
		f.as = role.Permissions()
		for _, rollout := range []string{"rollout_1", "rollout_2", "rollout_3"} {
			var data struct{ Rollout struct{ ViewerCan []ability } }
			f.ask(ours, fmt.Sprintf(`{ rollout(id: %q) { viewerCan { action allowed reason } } }`, rollout), nil).into(t, &data)
			if len(data.Rollout.ViewerCan) < 6 {
				t.Fatalf("%s: viewerCan has %d actions", rollout, len(data.Rollout.ViewerCan))
			}
			for _, can := range data.Rollout.ViewerCan {
				if can.Allowed {
					allowed++
					continue // done below, once: it changes the state
				}
				refused++
				p := f.change(ours, can.Action, "rollout", "id", input(can.Action, rollout))
				if len(p.Errors) != 1 || !slices.Contains([]string{"DENIED", "REFUSED"}, p.Errors[0].Code) || p.Errors[0].Message != *can.Reason {
					t.Errorf("%s as %s on %s: announced as %q, answered %+v", can.Action, role, rollout, *can.Reason, p.Errors)
				}
			}
		}
	}
	if allowed < 8 || refused < 20 {
		t.Errorf("%d allowed and %d refused: the test shows little", allowed, refused)
	}
	// And what is announced as allowed is done: as the owner, in an order in which one does not end the next.
	for _, action := range []string{"resumeRollout", "pauseRollout", "approveGate", "cancelRollout"} {
		var data struct{ Rollout struct{ ViewerCan []ability } }
		f.ask(ours, `{ rollout(id: "rollout_3") { viewerCan { action allowed reason } } }`, nil).into(t, &data)
		i := slices.IndexFunc(data.Rollout.ViewerCan, func(a ability) bool { return a.Action == action })
		p := f.change(ours, action, "rollout", "id", input(action, "rollout_3"))
		if !data.Rollout.ViewerCan[i].Allowed || len(p.Errors) != 0 {
			t.Errorf("%s: announced %+v, answered %+v", action, data.Rollout.ViewerCan[i], p.Errors)
		}
	}
}

// TestViewerCanAgreesWithArchiving compares what is announced of archiving and restoring with the outcome.
func TestViewerCanAgreesWithArchiving(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.story() // "shop" has a rollout that waits
	busy := f.application(ours, "busy", "api")
	f.pipeline(ours, busy, f.environment(ours, "qa", core.TierQA))
	f.rollout(ours, busy)
	f.application(ours, "idle", "api")
	f.environment(ours, "lab", core.TierDevelopment)
	type thing struct {
		ID, Name  string
		ViewerCan []ability
	}
	can := func(one thing, action string) ability {
		i := slices.IndexFunc(one.ViewerCan, func(a ability) bool { return a.Action == action })
		if i < 0 {
			t.Fatalf("%s: nothing is announced about %s", one.Name, action)
		}
		return one.ViewerCan[i]
	}
	allowed, refused := 0, 0
	for _, kind := range []struct{ list, field, input, archive, restore string }{
		{"applications", "application", "application", "archiveApplication", "restoreApplication"},
		{"environments", "environment", "environmentId", "archiveEnvironment", "restoreEnvironment"},
	} {
		var data map[string]struct{ Nodes []thing }
		f.ask(ours, fmt.Sprintf(`{ %s { nodes { id name viewerCan { action allowed reason } } } }`, kind.list), nil).into(t, &data)
		for _, one := range data[kind.list].Nodes {
			ability := can(one, kind.archive)
			p := f.change(ours, kind.archive, kind.field, "id", map[string]any{kind.input: one.ID})
			if ability.Allowed != (len(p.Errors) == 0) || !ability.Allowed && p.Errors[0].Message != *ability.Reason {
				t.Errorf("%s of %s: announced %t, answered %+v", kind.archive, one.Name, ability.Allowed, p.Errors)
			}
			if !ability.Allowed {
				refused++
				continue
			}
			allowed++
			var after struct{ Node thing }
			f.ask(ours, fmt.Sprintf(`{ node(id: %q) { ... on Application { id name viewerCan { action allowed reason } } ... on Environment { id name viewerCan { action allowed reason } } } }`, one.ID), nil).into(t, &after)
			ability = can(after.Node, kind.restore)
			p = f.change(ours, kind.restore, kind.field, "id", map[string]any{kind.input: one.ID})
			if !ability.Allowed || len(p.Errors) != 0 {
				t.Errorf("%s of %s: announced %+v, answered %+v", kind.restore, one.Name, ability, p.Errors)
			}
		}
	}
	if allowed < 2 || refused < 2 {
		t.Errorf("%d allowed and %d refused: the test shows little", allowed, refused)
	}
}
