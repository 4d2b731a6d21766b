package graph_test

import (
	"fmt"
	"testing"

	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/access"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/rollout"
)

// lists are all fields that show a list, each with everything that can hang below its items.
const (
	rolloutFields = `id application { name } versionSet { name entries { service { name } artifactSource { id } version { name } } } flowDefinition { version }
		openGates { gateId viewerCan { allowed } } waitingOn { kind environment { name } service { name } } viewerCan { allowed } journal(first: 3) { nodes { event } pageInfo { hasNextPage } } environments { environment { name } driverBinding { version } previousVersionSet { name }
			deployments { service { name } versions { name } snapshot { commitSha } } }`
	applicationFields = `name services { name artifactSources { id versions(first: 2) { nodes { name digestSeen deletedAt } } } } versionSets(first: 2) { nodes { name } } newestVersionSet { name }
		flowDefinition { version } environments { environment { name driverBindings { version } } live { name } liveSince latest { state rollout { id } } } activeRollout { id } rollouts(first: 2) { nodes { id } } viewerCan { allowed }`
)

// TestAListCostsAsManyQueriesAsItHasLevels compares what a short list costs with what a long one does.
func TestAListCostsAsManyQueriesAsItHasLevels(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	const many = 8
	var members []int64
	for i := range many {
		m := must(f.access.CreateMember(t.Context(), actor(ours),
			access.NewMember{Name: fmt.Sprintf("m%d", i), Kind: core.PrincipalUser, Role: core.RoleViewer}))(t)
		members = append(members, m.ID)
		must(f.access.CreateGroup(t.Context(), actor(ours), fmt.Sprintf("g%d", i), members))(t)
	}
	for i := range many {
		e := f.environment(ours, fmt.Sprintf("e%d", i), core.TierQA)
		a := f.application(ours, fmt.Sprintf("a%d", i), "api", "web")
		f.pipeline(ours, a, e)
		r := f.rollout(ours, a)
		f.apply(ours, rollout.ApprovalRequested{RolloutID: r.ID, GateID: "g"})
		if _, _, err := f.access.RegisterAgent(t.Context(), actor(ours), fmt.Sprintf("r%d", i)); err != nil {
			t.Fatal(err)
		}
	}
	lists := map[string]string{
		"applications": `{ applications(first: %d) { nodes { ` + applicationFields + ` } } }`,
		"environments": `{ environments(first: %d) { nodes { name driverBindings { version } } } }`,
		"rollouts":     `{ rollouts(first: %d) { nodes { ` + rolloutFields + ` } } }`,
	}
	lists["matrix"] = `{ matrix(first: %d, filter: {waiting: true}) { nodes { application { name } newest { name } cells { environment { name } live { name } latestVersionSet { name } state health
		gates { gateId viewerCan { allowed } } latest { rollout { id } } reconciliation { drift } } } } }`
	lists["waiting for me"] = `{ gatesForMe(first: %d) { nodes { gateId rollout { id application { name } } viewerCan { allowed } } } }`
	lists["journal"] = `{ journal(first: %d) { nodes { cursor rollout { id } transition { event principal { name } } } } }`
	// Each rollout's journal has rows of every kind, which are named over as many levels.
	lists["names in journals"] = `{ rollouts(first: %d) { nodes { journal(first: 20) { nodes { subject environment { name } service { name } } } } } }`
	lists["members"] = `{ members(first: %d) { nodes { name groups { name } tokens { name } } } }`
	lists["groups"] = `{ groups(first: %d) { nodes { name members { name } } } }`
	lists["agents"] = `{ agents(first: %d, withRevoked: true) { nodes { name connected keys { id } environments { name } viewerCan { allowed } } } }`
	lists["access changes"] = `{ accessChanges(first: %d) { nodes { action principal { name } } } }`
	lists["artifact sources"] = `{ artifactSources(first: %d) { nodes { id service { name application { name } } state { polled } versions(first: 2) { nodes { name } totalCount } } } }`
	lists["totals"] = `{ applications(first: %d) { nodes { versionSets(first: 1) { totalCount } rollouts(first: 1) { totalCount nodes { journal(first: 1) { totalCount } } } } } }`
	cost := func(query string, items int) int64 {
		before := f.queries.n.Load()
		if a := f.ask(ours, fmt.Sprintf(query, items), nil); len(a.Errors) > 0 {
			t.Fatalf("%v", a.Errors)
		}
		return f.queries.n.Load() - before
	}
	for name, query := range lists {
		short, long := cost(query, 1), cost(query, many)
		t.Logf("%s: %d queries for one item, %d for %d", name, short, long, many)
		// A busy machine may tear a batch in pieces, now and then; one query for each item costs as much every time.
		for tries := 1; long > short+many/2 && tries < 10; tries++ {
			long = min(long, cost(query, many))
		}
		if short == 0 || long > short+many/2 {
			t.Errorf("%s: one item costs %d queries, %d cost %d", name, short, many, long)
		}
	}
}
