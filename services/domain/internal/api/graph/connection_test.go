package graph_test

import (
	"cmp"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/access"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/rollout"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/setup"
)

// relay is a connection as its specification has it.
type relay struct {
	Edges []struct {
		Cursor string
		Node   json.RawMessage
	}
	Nodes    []json.RawMessage
	PageInfo struct {
		HasNextPage, HasPreviousPage bool
		StartCursor, EndCursor       *string
	}
	TotalCount int
}

// items are the nodes of the edges.
func (r relay) items() []string {
	all := []string{}
	for _, e := range r.Edges {
		all = append(all, string(e.Node))
	}
	return all
}

// place is where a list is in the schema: what is around its field, and what distinguishes its items.
type place struct{ around, node string }

// listed are all connections of the schema. One that is not here fails the test, so that a new one cannot be forgotten.
var listed = map[string]place{
	"Query.applications":    {`%s`, `{ name }`},
	"Query.environments":    {`%s`, `{ name }`},
	"Query.rollouts":        {`%s`, `{ id }`},
	"Query.matrix":          {`%s`, `{ application { name } }`},
	"Query.gatesForMe":      {`%s`, `{ gateId requestedAt }`},
	"Query.journal":         {`%s`, `{ cursor }`},
	"Query.members":         {`%s`, `{ name }`},
	"Query.groups":          {`%s`, `{ name }`},
	"Query.agents":          {`%s`, `{ name }`},
	"Query.organizations":   {`%s`, `{ name }`},
	"Query.audit":           {`%s`, `{ action subject subjectName createdAt }`},
	"Query.proposedChanges": {`%s`, `{ id reason createdAt }`},
	"Query.accessChanges":   {`%s`, `{ action subject subjectName }`},
	"Query.artifactSources": {`%s`, `{ id }`},
	"Query.freezes":         {`%s`, `{ id reason }`},

	"Application.versionSets": {`at: application(name: "a0") { %s }`, `{ name }`},
	"Application.rollouts":    {`at: application(name: "a0") { %s }`, `{ id }`},
	"ArtifactSource.versions": {`at: node(id: "artifactsource_1") { ... on ArtifactSource { %s } }`, `{ name }`},
	"Rollout.journal":         {`at: rollout(id: "rollout_6") { %s }`, `{ subject event toState gateId createdAt }`},

	// It has no orderBy, for its order is that of the states (TestTargetsAreAConnection).
	"Query.rolloutTargets": {},

	// The engine's are read from the front only, and nobody counts them (TestWorkflows).
	"Query.workflows": {}, "Query.workflowSchedules": {}, "Workflow.children": {}, "Workflow.history": {}, "Workflow.logs": {},
}

// page asks for one page of a list.
func (p place) page(f *fixture, field, arguments, extra string) relay {
	f.t.Helper()
	return p.pages(f, field, []string{arguments}, extra)[0]
}

// pages asks for several of one list at once.
func (p place) pages(f *fixture, field string, arguments []string, extra string) []relay {
	f.t.Helper()
	var query strings.Builder
	for i, one := range arguments {
		if one != "" {
			one = "(" + one + ")"
		}
		fmt.Fprintf(&query, `l%d: %s%s { edges { cursor node %s } nodes %s pageInfo { hasNextPage hasPreviousPage startCursor endCursor } %s } `,
			i, field, one, p.node, p.node, extra)
	}
	var data map[string]json.RawMessage
	f.ask(ours, "{ "+fmt.Sprintf(p.around, query.String())+" }", nil).into(f.t, &data)
	if at, nested := data["at"]; nested {
		if err := json.Unmarshal(at, &data); err != nil {
			f.t.Fatal(err)
		}
	}
	all := make([]relay, len(arguments))
	for i := range all {
		if err := json.Unmarshal(data[fmt.Sprintf("l%d", i)], &all[i]); err != nil {
			f.t.Fatal(err)
		}
	}
	return all
}

// many makes a handful of everything that there are lists of.
func (f *fixture) many() {
	f.t.Helper()
	const some = 5
	var members []int64
	for i := range some {
		m := must(f.access.CreateMember(f.t.Context(), actor(ours),
			access.NewMember{Name: fmt.Sprintf("m%d", (i*3)%some), Kind: core.PrincipalUser, Role: core.RoleViewer}))(f.t)
		members = append(members, m.ID)
		if _, _, err := f.access.CreateOrganization(f.t.Context(), actor(ours),
			access.NewOrganization{Name: fmt.Sprintf("o%d", (i*3)%some), Owner: "owner"}); err != nil {
			f.t.Fatal(err)
		}
		must(f.access.CreateGroup(f.t.Context(), actor(ours), fmt.Sprintf("g%d", (i*3)%some), members))(f.t)
		if _, _, err := f.access.RegisterAgent(f.t.Context(), actor(ours), fmt.Sprintf("r%d", (i*3)%some)); err != nil {
			f.t.Fatal(err)
		}
	}
	for i := range some {
		n := (i * 3) % some
		e := f.environment(ours, fmt.Sprintf("e%d", n), core.TierQA)
		a := f.application(ours, fmt.Sprintf("a%d", n), "api")
		f.pipeline(ours, a, e)
		r := f.rollout(ours, a)
		if i == 0 {
			// One application with some of everything that hangs below one; the last rollout stays.
			for v := range some {
				f.publish(ours, "a0/api", fmt.Sprintf("2.%d", v), 100+v)
				f.apply(ours, rollout.Moved{RolloutID: r.ID, Verb: core.VerbFail, Reason: "for the test"})
				r = f.rollout(ours, a)
			}
		}
		// Two gates of one rollout, between which pages end.
		f.apply(ours, rollout.ApprovalRequested{RolloutID: r.ID, GateID: "one"})
		f.apply(ours, rollout.ApprovalRequested{RolloutID: r.ID, GateID: "two"})
	}
}

// TestEveryListIsAConnection walks every list of the schema in every order, from both ends, as Relay's specification of
// connections says that it can be.
func TestEveryListIsAConnection(t *testing.T) { //nolint:tparallel // lists are walked one by one: they share the fixture and its test
	t.Parallel()
	f := newFixture(t)
	f.many()
	f.freezing(5)
	f.proposing(5)
	schema := schemaOf(t)
	for _, def := range schema.Types { //nolint:paralleltest // as above
		for _, field := range def.Fields {
			if !strings.HasSuffix(field.Type.Name(), "Connection") {
				continue
			}
			name := def.Name + "." + field.Name
			p, known := listed[name]
			if !known {
				t.Errorf("%s is a list that no test walks: say in listed where it hangs", name)
			}
			if p.around == "" {
				continue
			}
			order := field.Arguments.ForName("orderBy")
			if order == nil {
				t.Errorf("%s cannot be sorted", name)
				continue
			}
			t.Run(name, func(t *testing.T) {
				usual := p.page(f, field.Name, "first: 200", "totalCount")
				orders := map[string][]string{}
				for _, value := range schema.Types[order.Type.Name()].EnumValues {
					orders[value.Name] = walk(t, f, p, field.Name, value.Name)
				}
				if diff := gocmp.Diff(orders[order.DefaultValue.Raw], usual.items()); diff != "" {
					t.Errorf("without an order it is not as its schema says (-want +got):\n%s", diff)
				}
				if usual.TotalCount != len(usual.Edges) || usual.TotalCount < 5 {
					t.Errorf("%d items, a total of %d; expected the same, and at least 5", len(usual.Edges), usual.TotalCount)
				}
				for name, all := range orders {
					if turned, ok := orders[name+"_DESC"]; ok {
						slices.Reverse(turned)
						if diff := gocmp.Diff(all, turned); diff != "" {
							t.Errorf("%s_DESC is not %s turned round (-want +got):\n%s", name, name, diff)
						}
					}
				}
			})
		}
	}
}

// walk goes through a list in an order, from the front and from the back, and answers its items.
func walk(t *testing.T, f *fixture, p place, field, order string) []string {
	t.Helper()
	by := ", orderBy: " + order
	whole := p.page(f, field, "first: 200"+by, "")
	all := whole.items()
	if whole.PageInfo.HasNextPage || whole.PageInfo.HasPreviousPage {
		t.Errorf("%s: the whole list says that there is more: %+v", order, whole.PageInfo)
	}
	check := func(what string, page relay, from, to int) {
		t.Helper()
		if diff := gocmp.Diff(all[from:to], page.items()); diff != "" {
			t.Errorf("%s, %s (-want +got):\n%s", order, what, diff)
		}
		nodes := []string{}
		for _, n := range page.Nodes {
			nodes = append(nodes, string(n))
		}
		if diff := gocmp.Diff(page.items(), nodes); diff != "" {
			t.Errorf("%s, %s: nodes are not those of the edges:\n%s", order, what, diff)
		}
		if page.PageInfo.HasPreviousPage != (from > 0) || page.PageInfo.HasNextPage != (to < len(all)) {
			t.Errorf("%s, %s: %+v; expected previous %t, next %t", order, what, page.PageInfo, from > 0, to < len(all))
		}
		if n := len(page.Edges); n > 0 && (*page.PageInfo.StartCursor != page.Edges[0].Cursor ||
			*page.PageInfo.EndCursor != page.Edges[n-1].Cursor) {
			t.Errorf("%s, %s: the page's cursors are not those of its ends", order, what)
		}
	}
	if len(all) < 5 {
		t.Fatalf("%s: %d items; the test wants at least 5", order, len(all))
	}
	// What is asked for, and between which items it is.
	type stretch struct {
		arguments string
		from, to  int
	}
	ends := fmt.Sprintf("after: %q, before: %q", whole.Edges[0].Cursor, whole.Edges[3].Cursor)
	asked := []stretch{
		{"first: 3", 0, 3}, {"last: 3", len(all) - 3, len(all)}, {"first: 5, " + ends, 1, 3}, {"last: 1, " + ends, 2, 3},
	}
	for i := range all {
		asked = append(asked,
			stretch{fmt.Sprintf("first: 1, after: %q", whole.Edges[i].Cursor), i + 1, min(i+2, len(all))},
			stretch{fmt.Sprintf("last: 2, before: %q", whole.Edges[i].Cursor), max(i-2, 0), i})
	}
	for some := range slices.Chunk(asked, 20) {
		arguments := make([]string, len(some))
		for i, one := range some {
			arguments[i] = one.arguments + by
		}
		for i, page := range p.pages(f, field, arguments, "") {
			check(some[i].arguments, page, min(some[i].from, len(all)), some[i].to)
		}
	}
	return all
}

// TestATotalIsCountedOnlyWhenAskedFor counts the statements of a list with and without.
func TestATotalIsCountedOnlyWhenAskedFor(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.many()
	for name, p := range listed {
		if p.around == "" {
			continue
		}
		field := name[strings.IndexByte(name, '.')+1:]
		cost := func(extra string) int64 {
			before := f.queries.n.Load()
			p.page(f, field, "first: 2", extra)
			return f.queries.n.Load() - before
		}
		without, with := cost(""), cost("totalCount")
		// Gates are counted by looking at those that ask. A busy machine may tear a batch in two, now and then, with the total or without.
		for tries := 1; (with <= without || with > without+3) && tries < 10; tries++ {
			without, with = min(without, cost("")), min(with, cost("totalCount"))
		}
		t.Logf("%s: %d statements, %d with the total", name, without, with)
		if with <= without || with > without+3 {
			t.Errorf("%s: %d statements, %d with the total; expected one more or a few", name, without, with)
		}
	}
}

// TestPagesStandStillWhenAListGrows adds items in front of, behind and between two pages.
func TestPagesStandStillWhenAListGrows(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	for _, name := range []string{"b", "d", "f", "h"} {
		f.application(ours, name, "api")
	}
	p := listed["Query.applications"]
	page := p.page(f, "applications", "first: 2, orderBy: NAME", "")
	for _, name := range []string{"a", "c", "e", "i"} {
		f.application(ours, name, "api")
	}
	next := p.page(f, "applications", fmt.Sprintf("first: 10, orderBy: NAME, after: %q", *page.PageInfo.EndCursor), "")
	got := append(page.items(), next.items()...)
	// What was added after the cursor is listed, what was added before it is not, and nothing is listed twice.
	want := []string{`{"name":"b"}`, `{"name":"d"}`, `{"name":"e"}`, `{"name":"f"}`, `{"name":"h"}`, `{"name":"i"}`}
	if diff := gocmp.Diff(want, got); diff != "" {
		t.Errorf("pages (-want +got):\n%s", diff)
	}
}

// TestTheNextToRollOutIsFoundBehindAnyNumber looks for the oldest application that was never rolled out, which stands behind others that
// were, and for environments by their readiness: what the console's way to a first rollout asks for.
func TestTheNextToRollOutIsFoundBehindAnyNumber(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.many()
	for _, name := range []string{"later", "latest"} {
		f.application(ours, name, "api")
	}
	f.application(theirs, "not-ours", "api")
	waiting := must(f.setup.CreateEnvironment(t.Context(), actor(ours), setup.NewEnvironment{
		Name: "unseen", Tier: core.TierQA, DriverRef: "argo-rollouts@1",
		DriverConfig: json.RawMessage(fmt.Sprintf(`{"cluster_agent_id": %d}`, f.clusterOf(ours))),
	}))(t)
	for arguments, want := range map[string]struct {
		field string
		names []string
		total int
	}{
		`first: 1, rolledOut: false`:                   {"applications", []string{"later"}, 2},
		`last: 5, rolledOut: false`:                    {"applications", []string{"later", "latest"}, 2},
		`first: 3, rolledOut: true`:                    {"applications", []string{"a0", "a3", "a1"}, 5},
		`last: 1`:                                      {"applications", []string{"latest"}, 7},
		`first: 1, readiness: [READY]`:                 {"environments", []string{"e0"}, 5},
		`first: 9, readiness: [PENDING]`:               {"environments", []string{waiting.Name}, 1},
		`last: 1, readiness: [PENDING, READY]`:         {"environments", []string{waiting.Name}, 6},
		`first: 1, readiness: [NOT_READY]`:             {"environments", []string{}, 0},
		`first: 9, readiness: [], tiers: [PRODUCTION]`: {"environments", []string{}, 0},
	} {
		page := listed["Query."+want.field].page(f, want.field, arguments, "totalCount")
		names := []string{}
		for _, node := range page.items() {
			var one struct{ Name string }
			if err := json.Unmarshal([]byte(node), &one); err != nil {
				t.Fatal(err)
			}
			names = append(names, one.Name)
		}
		if diff := gocmp.Diff(want.names, names); diff != "" || page.TotalCount != want.total {
			t.Errorf("%s(%s): total %d, expected %d; names (-want +got):\n%s", want.field, arguments, page.TotalCount, want.total, diff)
		}
	}
}

// TestWhatIsNoPageIsRefused names the argument.
func TestWhatIsNoPageIsRefused(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.application(ours, "shop", "api")
	byName := p64(f, "NAME")
	for arguments, field := range map[string]string{
		"first: 1, last: 1":  "last",
		"first: 0":           "first",
		"last: -1":           "last",
		`after: "nonsense"`:  "after",
		`before: "nonsense"`: "before",
		`before: "` + strings.Repeat("x", 600) + `"`:         "before",
		fmt.Sprintf("after: %q, orderBy: CREATED", byName):   "after",
		fmt.Sprintf("before: %q, orderBy: CREATED", byName):  "before",
		fmt.Sprintf("after: %q", p64(f, "CREATED")) + byDesc: "after",
	} {
		a := f.ask(ours, `{ applications(`+arguments+`) { nodes { name } } }`, nil)
		if len(a.Errors) != 1 || a.Errors[0].Extensions.Code != "INVALID" ||
			fmt.Sprint(a.Errors[0].Extensions.Fields[0]["field"]) != "["+field+"]" {
			t.Errorf("%s: answered %+v; expected INVALID at %s", arguments, a.Errors, field)
		}
	}
}

// TestACursorIsOfItsListAndOrder: every list refuses the cursors of other lists and of its other orders, and continues from those of the
// release before, which did not say what they were of. The journals of rollouts are parts of one journal, and the rollouts of an
// application of one list; the rows of the matrix are applications.
func TestACursorIsOfItsListAndOrder(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.many()
	f.freezing(1)
	f.proposing(5)
	same := map[string]string{
		"Rollout.journal": "Query.journal", "Application.rollouts": "Query.rollouts",
		"Query.matrix": "Query.applications",
	}
	listOf := func(name string) string { return cmp.Or(same[name], name) }
	orders := []string{"CREATED", "CREATED_DESC", "NAME", "NAME_DESC"}
	type from struct{ list, order, cursor string }
	var issued []from
	for name, p := range listed {
		for _, order := range orders {
			if p.around == "" || !p.has(f, name, order) {
				continue
			}
			field := name[strings.IndexByte(name, '.')+1:]
			page := p.page(f, field, "first: 1, orderBy: "+order, "")
			issued = append(issued, from{name, order, page.Edges[0].Cursor})
		}
	}
	for _, at := range issued {
		p, field := listed[at.list], at.list[strings.IndexByte(at.list, '.')+1:]
		for _, other := range issued {
			arguments := fmt.Sprintf("first: 1, orderBy: %s, after: %q", at.order, other.cursor)
			a := f.ask(ours, "{ "+fmt.Sprintf(p.around, fmt.Sprintf("%s(%s) { nodes %s }", field, arguments, p.node))+" }", nil)
			taken, want := len(a.Errors) == 0, listOf(at.list) == listOf(other.list) && at.order == other.order
			if taken != want || !taken && a.Errors[0].Extensions.Code != "INVALID" {
				t.Errorf("%s by %s with a cursor of %s by %s: %+v; expected it to be taken: %t", at.list, at.order, other.list,
					other.order, a.Errors, want)
			}
		}
		if raw, err := base64.RawURLEncoding.DecodeString(at.cursor); err != nil {
			t.Error(err)
		} else if parts := strings.SplitN(string(raw), "/", 3); len(parts) == 3 {
			old := base64.RawURLEncoding.EncodeToString([]byte(parts[2]))
			arguments := fmt.Sprintf("first: 1, orderBy: %s, after: ", at.order)
			if got, want := p.page(f, field, arguments+strconv.Quote(old), "").items(),
				p.page(f, field, arguments+strconv.Quote(at.cursor), "").items(); !slices.Equal(got, want) {
				t.Errorf("%s by %s with a cursor of the release before: %v; expected %v", at.list, at.order, got, want)
			}
		} else {
			t.Errorf("%s: cursor %q says no list", at.list, raw)
		}
	}
	if len(issued) < 15 {
		t.Errorf("only %d lists and orders have been tried", len(issued))
	}
}

// has reports whether a list has an order.
func (p place) has(f *fixture, name, order string) bool {
	f.t.Helper()
	field := name[strings.IndexByte(name, '.')+1:]
	a := f.ask(ours, "{ "+fmt.Sprintf(p.around, fmt.Sprintf("%s(first: 1, orderBy: %s) { nodes %s }", field, order, p.node))+" }", nil)
	return len(a.Errors) == 0
}

const byDesc = ", orderBy: NAME_DESC"

// p64 is the cursor of the one application in an order.
func p64(f *fixture, order string) string {
	f.t.Helper()
	return listed["Query.applications"].page(f, "applications", "first: 1, orderBy: "+order, "").Edges[0].Cursor
}
