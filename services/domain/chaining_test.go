package domain

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/bus"
	"github.com/lockstep-cd/lockstep/pkg/event"
	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/rollout"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/setup"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/trigger"
	"github.com/lockstep-cd/lockstep/services/domain/internal/events"
)

// another is a second application with one service, in the environments of the shop and with a version set.
func (w winter) another(name string, digest int) winter {
	w.t.Helper()
	s := &shop{fixture: w.fixture, application: w.fixture.application(name, "api"), staging: w.staging, production: w.production}
	_, err := s.setup.CreateFlowDefinition(s.t.Context(), user(),
		setup.NewFlowDefinition{ApplicationID: s.application.ID, Definition: pipeline("staging", "production")})
	s.ok(err)
	s.makeReady()
	s.publish(s.artifact("registry.test/"+name+"/api", "1.0", digest, time.Unix(1_700_000_000, 0)))
	s.set = s.sets()[0]
	return winter{s, w.now}
}

// follow has an application follow others.
func (w winter) follow(names ...string) {
	w.t.Helper()
	config, err := json.Marshal(map[string]any{"follows": names})
	w.ok(err)
	w.ok(w.chain("follow", string(config)))
}

func (w winter) chain(name, config string) error {
	_, err := w.triggers.PutTrigger(w.t.Context(), user(), trigger.NewTrigger{
		ApplicationID: w.application.ID, Name: name, Kind: core.TriggerChain, Config: json.RawMessage(config), Enabled: true,
	})
	return err
}

// drawn are the chains that rollouts of the application began, the latest first, each with its applications as "block name state:
// sentence".
func (w winter) drawn() (chains []core.Chain, graph []string) {
	w.t.Helper()
	all, err := w.triggers.ChainsByApplication(w.t.Context(), org, []int64{w.application.ID})
	w.ok(err)
	chains = all[w.application.ID]
	for _, c := range chains {
		nodes, err := w.triggers.ChainNodes(w.t.Context(), org, []int64{c.ID})
		w.ok(err)
		for _, n := range nodes[c.ID] {
			a, err := w.view.ApplicationsByID(w.t.Context(), org, []int64{n.ApplicationID})
			w.ok(err)
			state, why := n.Standing()
			graph = append(graph, strings.TrimSuffix(fmt.Sprintf("%d %s %s: %s", n.Block, a[n.ApplicationID].Name, state, why), ": "))
		}
	}
	return chains, graph
}

// states are those of the graph, without sentences.
func (w winter) states() []string {
	w.t.Helper()
	_, graph := w.drawn()
	for i, line := range graph {
		graph[i], _, _ = strings.Cut(line, ":")
	}
	return graph
}

// fail plays a rollout that fails in its first environment.
func (w winter) fail(r core.Rollout) {
	w.t.Helper()
	w.report(event.RolloutStarted{RolloutID: r.ID})
	e := w.stops(r)[0]
	w.report(event.RolloutEnvironmentStarted{RolloutID: r.ID, EnvironmentID: e.EnvironmentID})
	w.report(event.RolloutEnvironmentFailed{RolloutID: r.ID, EnvironmentID: e.EnvironmentID, Reason: "crash loop"})
	w.report(event.RolloutFailed{RolloutID: r.ID, Reason: "crash loop"})
}

// family is a shop that four applications follow, in three blocks: blog and cart, mail, docs.
func family(t *testing.T) (shop, blog, cart, mail, docs winter) {
	t.Helper()
	shop = clocked(t)
	blog, cart, mail, docs = shop.another("blog", 501), shop.another("cart", 502), shop.another("mail", 503), shop.another("docs", 504)
	for _, w := range []winter{blog, cart, mail, docs} {
		w.follow("shop")
	}
	shop.ok(shop.chain("then", `{"blocks":[{"applications":["blog","cart"]},{"applications":["m*"]},{"applications":["docs"]}]}`))
	return shop, blog, cart, mail, docs
}

// R4-12, D58: rollouts of five applications follow one another in blocks, and a failure in the middle stops the later ones, and says so.
func TestAChainOfFiveApplicationsStopsWhereItFails(t *testing.T) {
	t.Parallel()
	shop, blog, cart, mail, docs := family(t)
	first := shop.rollout(shop.set)
	shop.succeed(first)
	lines := shop.decide()
	shop.want(lines[0], "waiting: chain_1 follows rollout_1: block 1 of 3 waits for blog, cart")
	shop.want(slices.Contains(lines, "began: set-1 is the newest version set when block 1 of chain_1 began, which follows rollout_1"), true)
	shop.want(shop.states(), []string{"1 blog running", "1 cart running", "2 mail waiting", "3 docs waiting"})
	by, why := blog.created(blog.active())
	shop.want([]string{by, why}, []string{"policy", "trigger follow (chain): block 1 of chain_1, which follows rollout_1"})
	shop.now.Advance(time.Minute)
	blog.succeed(blog.active())
	shop.want(shop.decide(), []string{"waiting: chain_1 follows rollout_1: block 1 of 3 waits for cart"}) // at once, not after half a minute
	cart.succeed(cart.active())
	shop.decide()
	shop.want(shop.states(), []string{"1 blog completed", "1 cart completed", "2 mail running", "3 docs waiting"})
	mail.fail(mail.active())
	shop.want(shop.decide(), []string{`declined: chain_1: after block 2 of 3 no block begins, for "mail" failed (rollout_4 failed)`})
	chains, graph := shop.drawn()
	shop.want(chains[0].State, core.ChainStopped)
	shop.want(graph[2:], []string{"2 mail failed: rollout_4 failed", `3 docs stopped: after block 2 of 3 no block begins, for "mail" failed (rollout_4 failed)`})
	shop.now.Advance(time.Hour)
	shop.want(shop.decide(), []string{})
	shop.want(shop.countOf(`SELECT count(*) FROM cd_rollouts`), 4)
	_, err := docs.rollouts.CreateRollout(t.Context(), user(), rollout.NewRollout{VersionSetID: docs.set.ID})
	shop.ok(err) // people continue
}

// D58: a chain runs to its end, once, although every event comes twice; what is live already needs no rollout, and what does not follow is
// skipped with the reason.
func TestAChainRunsToItsEndOnce(t *testing.T) {
	t.Parallel()
	shop, blog, cart, mail, docs := family(t)
	_, err := mail.triggers.RemoveTrigger(t.Context(), user(), mail.application.ID, "follow", "")
	shop.ok(err)
	shop.ok(shop.chain("then", `{"environment":"staging","blocks":[{"applications":["blog","mail"]},{"applications":["*"]}]}`))
	docs.succeed(docs.rollout(docs.set))
	twice := func(w winter, r core.Rollout) {
		w.succeed(r)
		w.succeed(r)
		shop.decide()
	}
	r := shop.rollout(shop.set)
	shop.report(event.RolloutStarted{RolloutID: r.ID})
	shop.want(shop.decide(), []string{})
	twice(shop, r)
	twice(blog, blog.active())
	twice(cart, cart.active())
	chains, graph := shop.drawn()
	shop.want(
		[]any{len(chains), chains[0].State, chains[0].Reason}, []any{1, core.ChainCompleted, "chain_1, which follows rollout_2, is complete"},
	)
	shop.want(shop.states(), []string{"1 blog completed", "1 mail skipped", "2 cart completed", "2 docs unchanged"})
	shop.want(graph[1], `1 mail skipped: "mail" does not follow "shop": none of its triggers of kind chain that are on says so`)
	shop.want(graph[3], "2 docs unchanged: set-1 is live already wherever the trigger goes")
	shop.want(shop.rolloutCount(), 4)
	all, err := shop.triggers.Triggers(t.Context(), org, []int64{shop.application.ID})
	shop.ok(err)
	last, err := shop.triggers.TriggerDecisions(t.Context(), org, []int64{all[shop.application.ID][1].ID})
	shop.ok(err)
	shop.want(last[all[shop.application.ID][1].ID][0].Outcome, core.TriggerDone)
}

// R4-12: a block selects the applications that one of its drivers deploys somewhere; with names and labels, all have to match.
func TestAChainSelectsByDriver(t *testing.T) {
	t.Parallel()
	shop, blog, _, _, docs := family(t)
	files, err := shop.setup.CreateEnvironment(t.Context(), user(), setup.NewEnvironment{
		Name: "files", Tier: core.TierStaging, DriverRef: "git@1", DriverConfig: json.RawMessage(`{}`),
	})
	shop.ok(err)
	for _, w := range []winter{blog, docs} {
		only := deployStep("files", strings.Replace(fmt.Sprintf(inFiles, "files"), "tool\",\"file", "api\",\"file", 1), "")
		_, err := w.setup.CreateFlowDefinition(t.Context(), user(),
			setup.NewFlowDefinition{ApplicationID: w.application.ID, Definition: json.RawMessage(`{"steps":[` + only + `]}`)})
		w.ok(err)
	}
	shop.report(event.EnvironmentReady{EnvironmentID: files.ID})
	blog.makeReady()
	for config, problem := range map[string]string{
		`{"blocks":[{"drivers":[]}]}`:    "/config/blocks/0",
		`{"blocks":[{"drivers":[""]}]}`:  "/config/blocks/0/drivers/0",
		`{"blocks":[{"drivers":"git"}]}`: "/config/blocks/drivers",
	} {
		if fields := fault.FieldsOf(shop.chain("wrong", config)); len(fields) != 1 || fields[0].Name != problem {
			t.Errorf("%s: found %v; want a problem of %s", config, fields, problem)
		}
	}
	shop.ok(shop.chain("then", `{"blocks":[{"drivers":["git@*"],"applications":["b*","cart"]},{"drivers":["paper@1"]}]}`))
	shop.succeed(shop.rollout(shop.set))
	shop.decide()
	shop.want(shop.states(), []string{"1 blog running", "1 cart skipped", "2 mail waiting"})
	_, graph := shop.drawn()
	shop.want(graph[1], `1 cart skipped: no environment of "cart" has one of the drivers of the block`)
	// A driver closes a circle as a name does.
	blog.ok(blog.chain("then", `{"blocks":[{"drivers":["paper@*"]}]}`))
	shop.refused(shop.chain("after", `{"follows":["blog"]}`), "chains would come back to where they began: shop → blog → shop")
}

// D58: a process that is killed at any statement while a chain runs loses nothing and begins nothing twice.
func TestAChainSurvivesAKillAtEachStatement(t *testing.T) {
	long(t)
	t.Parallel()
	shop := clocked(t)
	blog, docs := shop.another("blog", 501), shop.another("docs", 502)
	blog.follow("shop")
	docs.follow("shop")
	shop.ok(shop.chain("then", `{"blocks":[{"applications":["blog"]},{"applications":["docs"]}]}`))
	mortal, died := shop.mortal(shop.now)
	on := events.New(mortal.intake, mortal.rollouts, mortal.forges, mortal.chats, mortal.inbox)
	r := shop.rollout(shop.set)
	// killed has the process die at each statement of a piece of work, one after the other, until the work gets through.
	killed := func(do func(ctx context.Context) error) {
		t.Helper()
		for n := int64(2); n < 400; n++ {
			died.left.Store(n)
			err := do(t.Context())
			through := died.left.Load() > 1
			died.left.Store(0)
			if err == nil && through {
				return
			}
		}
		t.Fatal("the work does not get through")
	}
	decide := func() {
		for range 30 {
			more := false
			killed(func(ctx context.Context) error {
				_, worked, err := mortal.triggers.DecideDue(ctx)
				more = worked
				return err
			})
			if !more && shop.countOf(`SELECT count(*) FROM cd_trigger_signals WHERE state = 'pending' AND outcome = ''`) == 0 {
				return
			}
			shop.now.Advance(2 * time.Minute) // a decision that failed is tried again
		}
	}
	last := func(w winter, r core.Rollout) {
		e := w.emit(event.RolloutHealthy{RolloutID: r.ID}, "")
		killed(func(ctx context.Context) error {
			return errors.Join(on.Domain(ctx, []bus.Delivery{{Event: e, Attempt: 1}})...)
		})
	}
	play := func(w winter, r core.Rollout) {
		w.report(event.RolloutStarted{RolloutID: r.ID})
		for _, e := range w.stops(r) {
			w.report(event.RolloutEnvironmentHealthy{RolloutID: r.ID, EnvironmentID: e.EnvironmentID})
		}
		last(w, r)
		decide()
	}
	play(shop, r)
	for _, w := range []winter{blog, docs} {
		play(w, w.active())
	}
	shop.now.Advance(time.Hour)
	decide()
	shop.want(shop.states(), []string{"1 blog completed", "2 docs completed"})
	shop.want(shop.rolloutCount(), 3)
	shop.want(shop.countOf(`SELECT count(*) FROM cd_chains`), 1)
}

// D58: chains that would come back to where they began are refused over all triggers of the organization, also for two authors at once.
func TestCirclesOfChainsAreRefused(t *testing.T) {
	t.Parallel()
	shop, blog, cart, _, _ := family(t)
	for name, problem := range map[string]string{"blog": "the application of the trigger", "nowhere": "which does not exist"} {
		err := blog.chain("then", fmt.Sprintf(`{"blocks":[{"applications":[%q]}]}`, name))
		if fields := fault.FieldsOf(err); len(fields) != 1 || fields[0].Name != "/config/blocks/0/applications" || !strings.Contains(fields[0].Problem, problem) {
			t.Errorf("a block with %s: found %v; want %q", name, err, problem)
		}
	}
	cart.ok(cart.chain("then", `{"blocks":[{"applications":["*"]}],"follows":["blog"]}`))
	blog.ok(blog.chain("then", `{"blocks":[{"applications":["c*"]}]}`))
	shop.refused(shop.chain("after", `{"follows":["cart"]}`), "chains would come back to where they began: shop → cart → shop")
	_, err := cart.triggers.PutTrigger(t.Context(), user(), trigger.NewTrigger{
		ApplicationID: cart.application.ID, Name: "then", Kind: core.TriggerChain, Config: json.RawMessage(`{"blocks":[{"applications":["*"]}]}`),
	})
	shop.ok(err) // off
	shop.ok(shop.chain("after", `{"follows":["cart"]}`))
	shop.refused(cart.chain("then", `{"blocks":[{"applications":["*"]}]}`), "cart → shop → cart")
	a, b := shop.another("a", 601), shop.another("b", 602)
	for i := range 10 {
		for _, w := range []winter{a, b} {
			_, _ = w.triggers.RemoveTrigger(t.Context(), user(), w.application.ID, "loop", "")
		}
		problems := make([]error, 2)
		var wg sync.WaitGroup
		wg.Go(func() { problems[0] = a.chain("loop", `{"blocks":[{"applications":["b"]}],"follows":["b"]}`) })
		wg.Go(func() { problems[1] = b.chain("loop", `{"blocks":[{"applications":["a"]}],"follows":["a"]}`) })
		wg.Wait()
		if (problems[0] == nil) == (problems[1] == nil) || !fault.Is(cmp.Or(problems[0], problems[1]), fault.Refused) {
			t.Fatalf("round %d: found %v; want that one of the two authors is refused", i, problems)
		}
	}
}

// D58: should a circle be in the tables nevertheless, the chain ends where it began.
func TestAChainDoesNotComeBack(t *testing.T) {
	t.Parallel()
	shop, blog, cart, _, _ := family(t)
	shop.ok(shop.chain("then", `{"blocks":[{"applications":["blog"]}]}`))
	blog.ok(blog.chain("then", `{"blocks":[{"applications":["cart"]}]}`))
	cart.follow("blog")
	_, err := shop.pool.Exec(t.Context(), `INSERT INTO cd_triggers (organization_id, application_id, name, kind, config, enabled, principal_type, principal_id, principal_name, changed_at)
		VALUES (1, $1, 'back', 'chain', '{"follows":["*"]}', true, 'user', 1, 'ann', now()), (1, $2, 'on', 'chain', '{"blocks":[{"applications":["*"]}]}', true, 'user', 1, 'ann', now())`,
		shop.application.ID, cart.application.ID)
	shop.ok(err)
	shop.succeed(shop.rollout(shop.set))
	shop.release(2) // so that there would be something to roll out
	shop.decide()
	for _, w := range []winter{blog, cart} {
		w.succeed(w.active())
		shop.decide()
	}
	shop.now.Advance(time.Hour)
	shop.decide()
	shop.want(shop.countOf(`SELECT count(*) FROM cd_rollouts WHERE application_id = `+fmt.Sprint(shop.application.ID)), 1)
	chains, _ := blog.drawn()
	shop.want([]int64{chains[0].ParentID, chains[0].ID}, []int64{1, 2}) // one graph
	shop.want(shop.countOf(`SELECT count(*) FROM cd_triggers t JOIN cd_trigger_signals s ON s.trigger_id = t.id WHERE t.name = 'on' AND s.outcome = 'declined'
		AND s.reason LIKE 'no application that the blocks select follows%'`), 1)
}

// R4-12, D58: a chain that is cancelled ends as a whole: blocks to come, rollouts in queues and under way, and the chains that they began.
func TestAChainIsCancelledAsAWhole(t *testing.T) {
	t.Parallel()
	shop, blog, cart, mail, docs := family(t)
	mail.follow("shop", "blog")
	blog.ok(blog.chain("then", `{"blocks":[{"applications":["mail"]}]}`))
	blog.ok(blog.chain("follow", `{"follows":["shop"],"until":"staging"}`))
	blog.ok(blog.chain("then", `{"environment":"staging","blocks":[{"applications":["mail"]}]}`))
	busy := cart.rollout(cart.set)
	cart.publish(cart.artifact("registry.test/cart/api", "1.1", 702, time.Unix(1_700_000_100, 0)))
	shop.succeed(shop.rollout(shop.set))
	shop.decide()
	blog.succeed(blog.active())
	shop.decide()
	shop.want(shop.states(), []string{"1 blog completed", "1 cart queued", "2 mail waiting", "3 docs waiting"})
	shop.want(blog.states(), []string{"1 mail running"})
	chains, _ := shop.drawn()
	viewer := user()
	viewer.Permissions = core.RoleViewer.Permissions()
	_, err := shop.triggers.CancelChain(t.Context(), viewer, chains[0].ID, "")
	shop.want(fault.Is(err, fault.Denied), true)
	partly := user() // may deploy the shop, and not mail, whose rollout is under way
	partly.Permissions = core.RoleViewer.Permissions()
	partly.Grants = []core.Grant{{Permissions: core.RoleOwner.Permissions(), Applications: []int64{shop.application.ID}}}
	_, err = shop.triggers.CancelChain(t.Context(), partly, chains[0].ID, "")
	shop.want(fault.Is(err, fault.Denied), true)
	stranger := core.Actor{Organization: 2, Type: core.PrincipalUser, ID: 1, Permissions: core.RoleOwner.Permissions()}
	_, err = shop.triggers.CancelChain(t.Context(), stranger, chains[0].ID, "")
	shop.want(fault.Is(err, fault.NotFound), true)
	under := mail.active()
	_, err = shop.triggers.CancelChain(t.Context(), user(), chains[0].ID, "wrong version")
	shop.ok(err)
	shop.want(shop.states(), []string{"1 blog completed", "1 cart cancelled", "2 mail cancelled", "3 docs cancelled"})
	shop.want(blog.states(), []string{"1 mail cancelled"})
	shop.want(mail.reload(under).State, core.RolloutCancelled)
	cart.succeed(busy)
	_, worked, err := cart.rollouts.BeginQueued(t.Context())
	shop.ok(err)
	shop.want(worked, false)
	shop.want(shop.decide(), []string{
		"declined: chain_1: cancelled by user 1: wrong version",
		"declined: chain_2: chain_1, which began it, was cancelled by user 1: wrong version",
	})
	shop.now.Advance(time.Hour)
	shop.want(shop.decide(), []string{})
	_, err = shop.triggers.CancelChain(t.Context(), user(), chains[0].ID, "")
	shop.refused(err, "chain_1 has ended: cancelled by user 1: wrong version")
	shop.want(shop.countOf(`SELECT count(*) FROM cd_changes WHERE action = 'cancelChain' AND principal_id = 1 AND before IS NOT NULL AND after IS NOT NULL`), 1)
	shop.verifyJournal(under)
	_ = docs
}

// D58: a rollback, what was live already, and a part of the pipeline begin no chain; neither does a trigger that is off, and one that is
// switched off meanwhile stops its chain.
func TestWhatBeginsNoChain(t *testing.T) {
	t.Parallel()
	shop, blog, _, _, _ := family(t)
	first := shop.rollout(shop.set)
	shop.succeed(first)
	shop.decide()
	_, err := shop.triggers.PutTrigger(t.Context(), user(), trigger.NewTrigger{
		ApplicationID: shop.application.ID, Name: "then", Kind: core.TriggerChain, Config: json.RawMessage(`{"blocks":[{"applications":["blog"]}]}`),
	})
	shop.ok(err)
	shop.now.Advance(time.Minute)
	shop.want(shop.decide(), []string{"declined: the trigger was switched off by user 1"})
	chains, _ := shop.drawn()
	shop.want([]any{chains[0].State, chains[0].Reason}, []any{core.ChainStopped, "the trigger was switched off by user 1"})
	shop.want(shop.states()[2:], []string{"2 mail stopped", "3 docs stopped"})
	blog.succeed(blog.active()) // what had begun continues
	shop.want(shop.decide(), []string{})
	shop.succeed(shop.rollout(shop.set)) // it is off
	shop.want(shop.decide(), []string{})
	shop.ok(shop.chain("then", `{"blocks":[{"applications":["blog"]}]}`))
	shop.succeed(shop.rollout(shop.set))
	shop.want(shop.decide(), []string{"declined: rollout_5 brought nothing new: its version set was live already"})
	set := shop.release(2)
	part, err := shop.rollouts.CreateRollout(t.Context(), user(), rollout.NewRollout{
		VersionSetID: set.ID, Scope: rollout.Scope{Only: []string{"staging"}},
	})
	shop.ok(err)
	shop.succeed(*part.Rollout)
	shop.want(shop.decide(), []string{`declined: rollout_6 did not go to "production", and a chain begins when the whole pipeline is complete, unless the trigger names an environment`})
	back, err := shop.rollouts.RollbackRollout(t.Context(), user(), rollout.Rollback{RolloutID: part.Rollout.ID, Reason: "errors"})
	shop.ok(err)
	shop.succeed(back)
	shop.want(shop.decide(), []string{"declined: rollout_7 is a rollback, and a chain follows only rollouts that go forward"})
}
