package graph_test

import (
	"fmt"
	"testing"

	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/access"
)

// queued puts a rollout into the queue of the application of the last rollout of our organization; it answers its id.
func (f *fixture) queued() string {
	f.t.Helper()
	var number int64
	if err := f.owner.QueryRow(f.t.Context(), `INSERT INTO cd_queued_rollouts (organization_id, application_id, version_set_id, principal_type, principal_id,
			reason, requested_at)
		SELECT organization_id, application_id, version_set_id, 'user', 1, 'ticket 81', now() FROM cd_rollouts
		WHERE organization_id = $1 ORDER BY id DESC LIMIT 1
		RETURNING id`, ours).Scan(&number); err != nil {
		f.t.Fatal(err)
	}
	return fmt.Sprintf("queuedrollout_%d", number)
}

// R4-03, R4-05: what is pending says why, in the list and at its application, and is cancelled once; then it says what came of it.
func TestWhatIsPendingIsShownAndCancelled(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.story()
	for i := range 7 { // the last of them is who asks in these tests
		must(f.access.CreateMember(t.Context(), actor(ours),
			access.NewMember{Name: fmt.Sprintf("member-%d", i+1), Kind: core.PrincipalUser, Role: core.RoleOwner}))(t)
	}
	id := f.queued()
	type pending struct {
		ID, State, Why string
		WaitsFor       *string
		Application    struct{ Name string }
		Principal      struct{ Name string }
		CancelledBy    *struct{ ID string }
		EndedAt        *string
		ViewerCan      []struct {
			Action  string
			Allowed bool
		}
	}
	const fields = `id state why waitsFor application { name } principal { name } cancelledBy { id } endedAt viewerCan { action allowed }`
	var data struct {
		QueuedRollouts []pending
		Application    struct{ QueuedRollout, LastQueuedRollout *pending }
	}
	look := func() {
		t.Helper()
		data.QueuedRollouts, data.Application.QueuedRollout, data.Application.LastQueuedRollout = nil, nil, nil
		f.ask(ours, `{ queuedRollouts(application: "shop") { `+fields+` } application(name: "shop") { queuedRollout { `+fields+` } lastQueuedRollout { `+fields+` } } }`,
			nil).into(t, &data)
	}
	look()
	q := data.Application.QueuedRollout
	if len(data.QueuedRollouts) != 1 || q == nil || q.ID != id || q.State != "PENDING" || q.Why == "" || q.WaitsFor == nil || q.Application.Name != "shop" ||
		q.EndedAt != nil || len(q.ViewerCan) != 1 || !q.ViewerCan[0].Allowed || data.Application.LastQueuedRollout != nil {
		t.Fatalf("found %+v and %+v; want the one that waits, with why", data.QueuedRollouts, q)
	}
	input := map[string]any{"queuedRolloutId": id, "reason": "wrong version"}
	if p := f.change(theirs, "cancelQueuedRollout", "queuedRollout", "id", input); len(p.Errors) != 1 || p.Errors[0].Code != "NOT_FOUND" {
		t.Errorf("another organization cancels it: found %+v; want that it is not found", p.Errors)
	}
	for range 2 {
		if p := f.change(ours, "cancelQueuedRollout", "queuedRollout", "id", input); len(p.Errors) > 0 {
			t.Fatalf("%+v", p.Errors)
		}
	}
	look()
	last := data.Application.LastQueuedRollout
	if len(data.QueuedRollouts) != 0 || data.Application.QueuedRollout != nil || last == nil || last.State != "CANCELLED" ||
		last.WaitsFor != nil || last.CancelledBy == nil || last.CancelledBy.ID != "member_7" || last.EndedAt == nil {
		t.Errorf("found %+v and %+v; want that nothing waits, and who has cancelled it", data.QueuedRollouts, last)
	}
}

// chained puts a chain into the tables that the last rollout of our organization began, with one application that waits; it answers its id.
func (f *fixture) chained() string {
	f.t.Helper()
	var rollout int64
	if err := f.owner.QueryRow(f.t.Context(), `SELECT max(id) FROM cd_rollouts WHERE organization_id = $1`, ours).Scan(&rollout); err != nil {
		f.t.Fatal(err)
	}
	if _, err := f.owner.Exec(f.t.Context(), `WITH t AS (
			INSERT INTO cd_triggers
				(organization_id, application_id, name, kind, config, enabled, principal_type, principal_id, principal_name, changed_at)
			SELECT $1, application_id, 'then', 'chain', '{"blocks":[{"applications":["*"]}],"follows":["*"]}', true, 'user', 1, 'ann', now() FROM cd_rollouts WHERE id = $2
			RETURNING id, application_id
		), c AS (
			INSERT INTO cd_chains (organization_id, trigger_id, application_id, rollout_id, block, blocks, began_at)
			SELECT $1, id, application_id, $2, 1, 2, now() FROM t RETURNING id, trigger_id, application_id
		)
		INSERT INTO cd_chain_nodes (organization_id, chain_id, block, application_id, trigger_id, state)
			SELECT $1, id, 2, application_id, trigger_id, 'waiting' FROM c`,
		ours, rollout); err != nil {
		f.t.Fatal(err)
	}
	return "chain_1"
}

// D58: a chain is read as one graph, from its application, from its rollout and by its id, and is cancelled as a whole.
func TestAChainIsOneGraph(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.story()
	id := f.chained()
	type node struct {
		Application   struct{ Name string }
		Block         int
		State, Reason string
		Rollout       *struct{ ID string }
		Chains        []struct{ ID string }
	}
	type chain struct {
		ID, State, Reason string
		Block, Blocks     int
		Application       struct{ Name string }
		Rollout           struct{ ID string }
		Parent            *struct{ ID string }
		EndedAt           *string
		Nodes             []node
	}
	const fields = `id state reason block blocks application { name } rollout { id } parent { id } endedAt
		nodes { application { name } block state reason rollout { id } chains { id } }`
	var data struct {
		Application struct{ Chains []chain }
		Rollout     struct{ Chains []chain }
		Node        chain
	}
	f.ask(ours, `query($id: ID!) { application(name: "shop") { chains { `+fields+` } } rollout(id: "rollout_2") { chains { `+fields+` } } node(id: $id) { ... on Chain { `+
		fields+` } } }`, map[string]any{"id": id}).into(t, &data)
	for _, found := range [][]chain{data.Application.Chains, data.Rollout.Chains, {data.Node}} {
		if len(found) != 1 || found[0].ID != id || found[0].State != "RUNNING" || found[0].Rollout.ID != "rollout_2" || found[0].Parent != nil ||
			len(found[0].Nodes) != 1 || found[0].Nodes[0].State != "WAITING" || found[0].Nodes[0].Block != 2 || found[0].Nodes[0].Rollout != nil {
			t.Errorf("found %+v; want the chain that runs, with an application that waits", found)
		}
	}
	if p := f.change(theirs, "cancelChain", "chain", "id", map[string]any{"chainId": id}); len(p.Errors) != 1 || p.Errors[0].Code != "NOT_FOUND" {
		t.Errorf("another organization cancels it: found %+v; want that it is not found", p.Errors)
	}
	if p := f.change(ours, "cancelChain", "chain", "id", map[string]any{"chainId": id, "reason": "wrong version"}); len(p.Errors) > 0 {
		t.Fatalf("%+v", p.Errors)
	}
	f.ask(ours, `query($id: ID!) { node(id: $id) { ... on Chain { `+fields+` } } }`, map[string]any{"id": id}).into(t, &data)
	if c := data.Node; c.State != "CANCELLED" || c.EndedAt == nil || c.Nodes[0].State != "CANCELLED" || c.Reason == "" {
		t.Errorf("found %+v; want it cancelled", c)
	}
	if p := f.change(ours, "cancelChain", "chain", "id", map[string]any{"chainId": id}); len(p.Errors) != 1 || p.Errors[0].Code != "REFUSED" {
		t.Errorf("cancelled twice: found %+v; want it refused", p.Errors)
	}
}
