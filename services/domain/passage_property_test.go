package domain

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/lockstep-cd/lockstep/pkg/bus"
	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/pkg/event"
	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/testkit/pgtest"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/rollout"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/setup"
	"github.com/lockstep-cd/lockstep/services/domain/internal/events"
)

// passageReference is what a passage needs, written down as plainly as possible: what the use cases are compared with (D46). It knows of no
// journal, no event and no transaction.
type passageReference struct {
	rules map[string]core.GateRule
	// also is what the environment asks beside the pipeline's rule, by approval.
	also map[string]core.GateRule
	// own are the approvals that the program has requested and that no pipeline has.
	own map[string]bool
	// groups are those of the people and machines.
	groups map[core.Principal][]string
	// Since the last abort: the passages that are requested, and open; the approvals that people are asked for, who has approved what,
	// and what was passed by break-glass.
	requested   []string
	open, asked map[string]bool
	approvals   map[string][]core.Principal
	glass       map[string]bool
	// ever is what was opened at any time.
	ever                         map[string]bool
	hold, aborted, ended, broken bool
	// rows are the openings so far, as the journal has to have them.
	rows []string
}

func (m *passageReference) leave() {
	m.requested, m.open, m.asked = nil, map[string]bool{}, map[string]bool{}
	m.approvals, m.glass = map[string][]core.Principal{}, map[string]bool{}
}

// needs are the approvals of a passage. It is a first deployment, so the weight is skipped, and the entrance needs its approval.
func (m *passageReference) needs(gate string) []string {
	switch gate {
	case "release", "production/50":
		return []string{gate}
	case "production":
		if m.ever["release"] {
			return []string{"production", "production/50"}
		}
		return []string{"release", "production", "production/50"}
	}
	return nil
}

func (m *passageReference) given(approval string) bool {
	return m.glass[approval] || !m.asked[approval] && m.enough(approval)
}

// enough reports whether those who have approved satisfy what the pipeline asks, and what the environment does. A rule
// without a group counts people.
func (m *passageReference) enough(approval string) bool {
	own := m.also[approval]
	for _, rule := range []core.GateRule{m.rules[approval], own} {
		count := 0
		for _, by := range m.approvals[approval] {
			person := by.Type == core.PrincipalUser
			if rule.Group == "" && person || rule.Group != "" && slices.Contains(m.groups[by], rule.Group) {
				count++
			}
		}
		if count < rule.Quorum {
			return false
		}
	}
	return true
}

// ask has people asked, who answer at once where the glass was broken.
func (m *passageReference) ask(approval string) {
	m.asked[approval], m.approvals[approval], m.glass[approval] = !m.broken, nil, m.broken
}

// settle asks for what is missing, and opens what has everything.
func (m *passageReference) settle() {
	if m.ended || m.aborted {
		return
	}
	for _, gate := range m.requested {
		for _, approval := range m.needs(gate) {
			if !m.given(approval) && !m.asked[approval] {
				m.ask(approval)
			}
		}
	}
	for approval := range m.own {
		if m.asked[approval] {
			return
		}
	}
	if m.hold {
		return
	}
	var opened []string
	for _, gate := range m.requested {
		row, complete := []string{gate}, true
		for _, approval := range m.needs(gate) {
			complete = complete && m.given(approval)
			row = append(row, m.evidence(approval))
		}
		if complete {
			opened = append(opened, gate)
			m.rows = append(m.rows, strings.Join(row, " "))
		}
	}
	for _, gate := range opened {
		m.requested = slices.DeleteFunc(m.requested, func(other string) bool { return other == gate })
		m.open[gate], m.ever[gate] = true, true
		if gate == "production" {
			m.ever["production/50"] = true
		}
	}
}

// evidence is what satisfied an approval.
func (m *passageReference) evidence(approval string) string {
	if m.glass[approval] {
		return approval + "=glass"
	}
	return fmt.Sprintf("%s=%v", approval, m.approvals[approval])
}

// mayApprove is who may approve what people are asked for.
func (m *passageReference) mayApprove(a core.Actor, approval string) bool {
	rule, own := m.rules[approval], m.also[approval]
	inGroup := slices.Contains(a.Groups, rule.Group) || slices.Contains(a.Groups, own.Group)
	return !m.ended && m.asked[approval] && (rule.Group == "" && own.Group == "" || inGroup) && (a.Type == core.PrincipalUser || inGroup) &&
		(rule.RequesterMayApprove || a.Principal() != user().Principal()) && !slices.Contains(m.approvals[approval], a.Principal())
}

// crash lets a number of statements through, and then none until it is disarmed, as if the process had died there.
type crash struct {
	left atomic.Int64
	// happened are the crashes, openings and aborts so far, for people.
	happened struct{ crashes, openings, aborts int }
}

var errCrashed = errors.New("crashed")

func (c *crash) next(ctx context.Context) context.Context {
	if left := c.left.Load(); left == 0 || left > 1 && c.left.Add(-1) > 0 {
		return ctx
	}
	c.left.Store(1) // the last one, and every one behind it
	ctx, cancel := context.WithCancelCause(ctx)
	cancel(errCrashed)
	return ctx
}

func (c *crash) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	return c.next(ctx)
}

func (*crash) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

func (c *crash) TraceBatchStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceBatchStartData) context.Context {
	return c.next(ctx)
}

func (*crash) TraceBatchQuery(context.Context, *pgx.Conn, pgx.TraceBatchQueryData) {}
func (*crash) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData)     {}

// rounds are the sequences of the property test: a few each time, and for LOCKSTEP_PASSAGES (a duration) at night.
func rounds(t *testing.T) func(n int) bool {
	t.Helper()
	text := os.Getenv("LOCKSTEP_PASSAGES")
	if text == "" {
		return func(n int) bool { return n < 6 }
	}
	long, err := time.ParseDuration(text)
	if err != nil {
		t.Fatalf("LOCKSTEP_PASSAGES: found %q, expected a duration: %v", text, err)
	}
	end := time.Now().Add(long)
	return func(int) bool { return time.Now().Before(end) }
}

// D46: whatever people and a program do, in whatever order events come and however often, and wherever the process dies: a passage is
// opened when the reference says so, once, with a row that names what satisfied each condition. LOCKSTEP_PASSAGES_SEED repeats a run.
func TestPassagesKeepToTheReference(t *testing.T) {
	long(t)
	t.Parallel()
	seed := uint64(time.Now().UnixNano())
	if text := os.Getenv("LOCKSTEP_PASSAGES_SEED"); text != "" {
		if _, err := fmt.Sscan(text, &seed); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("LOCKSTEP_PASSAGES_SEED=%d", seed)
	s := guarded(t)
	died := &crash{}
	config := pgtest.As(t, s.db, role).Config()
	config.ConnConfig.Tracer = died
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	s.ok(err)
	t.Cleanup(pool.Close)
	begin := func() {
		drivers, err := givenDrivers(t.Context(), Config{DriverDir: filepath.Join("testdata", "drivers")}, slog.New(slog.DiscardHandler))
		s.ok(err)
		s.service, err = assemble(pool, noBus{}, drivers, nil, clock.System(), Config{}, slog.New(slog.DiscardHandler))
		s.ok(err)
		s.on = events.New(s.intake, s.rollouts, s.forges, s.chats, s.inbox)
	}
	begin()
	for _, name := range []string{"platform", "managers"} {
		s.group(name, 6)
	}
	again, n := rounds(t), 0
	for ; again(n) && !t.Failed(); n++ {
		//nolint:gosec // seeded on purpose
		s.keepsToTheReference(rand.New(rand.NewPCG(seed, uint64(n))), n, died, begin)
	}
	t.Logf("%d rollouts: %+v", n, died.happened)
}

// keepsToTheReference is one random rollout.
func (s *shop) keepsToTheReference(rng *rand.Rand, n int, died *crash, begin func()) {
	t := s.t
	one := func(all ...string) string { return all[rng.IntN(len(all))] }
	m := &passageReference{
		rules: map[string]core.GateRule{}, also: map[string]core.GateRule{}, own: map[string]bool{}, ever: map[string]bool{},
		groups: map[core.Principal][]string{},
	}
	m.leave()
	s.randomRules(rng, m)
	r := s.rollout(s.release(n + 1))
	var history []string
	if rng.IntN(2) == 0 { // only what has begun is aborted
		s.enter(r, "staging")
		s.report(event.DeploymentStarted{DeploymentID: s.deployments(s.stops(r)[0])[0].ID})
		m.open["staging"], m.ever["staging"], m.rows = true, true, []string{"staging"}
	}
	m.rules["smoke"] = core.GateRule{Quorum: 1, OnExpiry: core.ExpiryRejects}

	people := []core.Actor{user()}
	for i, groups := range [][]string{
		nil, nil, nil, {"platform"}, {"managers"}, {"platform", "managers"}, {"platform", "managers"}, {"platform", "managers"},
	} {
		people = append(people, person(int64(50+i), groups...))
	}
	for i, groups := range [][]string{nil, {"platform", "managers"}} {
		machine := person(int64(70+i), groups...)
		machine.Type = core.PrincipalAgent
		people = append(people, machine)
	}
	people[0].Groups = []string{"platform", "managers"}
	for _, a := range people {
		m.groups[a.Principal()] = a.Groups
	}

	var waiting, applied []event.Event
	effects := map[string]func(){} // by the event's id
	emit := func(data event.Data, effect func()) {
		e := s.emit(data, "")
		effects[e.ID()] = effect
		waiting = append(waiting, e)
	}
	for range 60 {
		var what string
		do, effect := func(context.Context) error { return nil }, func() {}
		command := func(call func(context.Context, core.Actor, int64, string) (core.Rollout, error), then func()) {
			do = func(ctx context.Context) error {
				_, err := call(ctx, user(), r.ID, "why")
				return err
			}
			effect = then
		}
		paused := s.reload(r).State == core.RolloutPaused
		expected := 0 // 1: it has to be done; -1: it has to be refused; 0: either, and the effect follows what was answered
		switch k := rng.IntN(40); {
		case k < 10: // the program requests a passage, or an approval of its own: the event is delivered later
			gate := one("staging", "release", "release", "production", "production", "production", "production/50")
			what = "emit request " + gate
			emit(event.RolloutPassageRequested{RolloutID: r.ID, GateID: gate}, func() {
				if !m.ended && !m.aborted && !m.open[gate] && !slices.Contains(m.requested, gate) {
					m.requested = append(m.requested, gate)
					m.settle()
				}
			})
		case k < 12:
			gate := one("smoke", "production")
			what = "emit own " + gate
			emit(event.ApprovalRequested{RolloutID: r.ID, GateID: gate, EnvironmentID: s.production.ID}, func() {
				if m.ended || m.asked[gate] || gate != "smoke" && m.given(gate) {
					return
				}
				if gate == "smoke" {
					m.own[gate] = true
				}
				m.ask(gate)
				if m.broken {
					m.settle()
				}
			})
		case k == 12 && m.ever["staging"]:
			what = "emit started"
			emit(event.DeploymentStarted{DeploymentID: s.deployments(s.stops(r)[0])[0].ID}, func() {})
		case k < 20: // events come in any order, several at once, and again
			rng.Shuffle(len(waiting), func(i, j int) { waiting[i], waiting[j] = waiting[j], waiting[i] })
			batch := slices.Clone(waiting[:min(len(waiting), 1+rng.IntN(3))])
			waiting = waiting[len(batch):]
			if len(applied) > 0 && rng.IntN(2) == 0 {
				batch = append(batch, applied[rng.IntN(len(applied))])
			}
			what = fmt.Sprintf("deliver %d", len(batch))
			deliveries := make([]bus.Delivery, len(batch))
			for i, e := range batch {
				deliveries[i] = bus.Delivery{Event: e, Attempt: 1}
			}
			do = func(ctx context.Context) error { return errors.Join(s.on.Domain(ctx, deliveries)...) }
			effect = func() {
				for _, e := range batch {
					if then := effects[e.ID()]; then != nil {
						then()
					}
					delete(effects, e.ID())
					applied = append(applied, e)
				}
			}
			expected = 1
		case k < 33:
			who := people[rng.IntN(len(people))]
			approval := one("release", "production", "production", "production/50", "smoke")
			if open := slices.Sorted(maps.Keys(m.asked)); len(open) > 0 && rng.IntN(4) > 0 {
				approval = one(open...)
			}
			what = fmt.Sprintf("approve %s by %s", approval, who.DisplayName())
			do = func(ctx context.Context) error {
				_, err := s.rollouts.ApproveGate(ctx, who, rollout.Resolution{RolloutID: r.ID, GateID: approval})
				return err
			}
			expected = -1
			if m.mayApprove(who, approval) {
				expected = 1
			}
			effect = func() {
				m.approvals[approval] = append(m.approvals[approval], who.Principal())
				if m.enough(approval) {
					m.asked[approval] = false
					m.settle()
				}
			}
		case k < 35:
			what = "hold"
			command(s.rollouts.PauseRollout, func() { m.hold = true })
		case k < 37:
			what = "resume"
			command(s.rollouts.ResumeRollout, func() { m.hold = false; m.settle() })
		case k == 37 && !m.aborted:
			what = "abort"
			command(s.rollouts.AbortRollout, func() { m.aborted = true; m.leave() })
		case k <= 38 && m.aborted:
			what = "retry"
			command(s.rollouts.RetryRollout, func() { m.aborted, m.hold = false, m.hold && !paused; m.settle() })
		case k == 39 && rng.IntN(8) == 0:
			what = "break glass"
			command(s.rollouts.BreakGlass, func() {
				m.broken = true
				for approval, open := range m.asked {
					if open {
						m.ask(approval)
					}
				}
				m.settle()
			})
		case k == 39 && rng.IntN(8) == 0:
			approval := one("release", "production", "smoke")
			what = "reject " + approval
			do = func(ctx context.Context) error {
				_, err := s.rollouts.RejectGate(ctx, person(60, "platform", "managers"), rollout.Resolution{RolloutID: r.ID, GateID: approval})
				return err
			}
			effect = func() { m.ended = true }
		default:
			what = "restart"
			do = func(context.Context) error { begin(); return nil }
		}
		if m.ended && what == "retry" {
			continue // it would begin another rollout
		}
		history = append(history, what)

		if rng.IntN(3) == 0 && what != "restart" { // it dies at one of its statements, and the next process does it
			before := s.rows()
			died.left.Store(int64(1 + rng.IntN(30)))
			err := do(t.Context())
			died.left.Store(0)
			if err == nil || fault.Is(err, fault.Refused) {
				history = append(history, "(without a crash)")
				do = func(context.Context) error { return err }
			} else {
				died.happened.crashes++
				begin()
				// It may have died behind its commit: then all of it was done, as the comparison shows. Repeated events change nothing.
				if s.rows() != before && !strings.HasPrefix(what, "deliver") {
					do = func(context.Context) error { return nil }
				}
			}
		}
		err := do(t.Context())
		if err == nil {
			effect()
			if what == "abort" {
				died.happened.aborts++
			}
		} else if !fault.Is(err, fault.Refused) {
			t.Errorf("%s: %v", what, err)
		}
		if expected > 0 != (err == nil) && expected != 0 {
			t.Errorf("%s: found %v, the reference says %d", what, err, expected)
		}
		s.want(s.openings(r), m.rows)
		if t.Failed() {
			t.Fatalf("round %d, rules %+v:\n%s", n, m.rules, strings.Join(history, "\n"))
		}
	}
	died.happened.openings += len(m.rows)
	s.verifyJournal(r)
	check, err := s.rollouts.CheckJournal(t.Context(), user(), core.Page{First: 1})
	s.ok(err)
	s.want(len(check.Differences), 0)
	if !m.ended {
		_, err := s.rollouts.CancelRollout(t.Context(), user(), r.ID, "next")
		s.ok(err)
	}
}

// randomRules gives the pipeline and the environment approvals of their own, and the reference what is the stricter of each.
func (s *shop) randomRules(rng *rand.Rand, m *passageReference) {
	s.t.Helper()
	type rule struct {
		Quorum    int    `json:"quorum"`
		Group     string `json:"group,omitempty"`
		Requester *bool  `json:"requester_may_approve,omitempty"`
	}
	random := func() rule {
		r := rule{Quorum: 1 + rng.IntN(3), Group: []string{"", "platform", "managers"}[rng.IntN(3)]}
		if may := rng.IntN(2) == 0; rng.IntN(3) > 0 {
			r.Requester = &may
		}
		return r
	}
	text := func(r rule) string {
		out, err := json.Marshal(r)
		s.ok(err)
		return strings.Trim(string(out), "{}")
	}
	step, entry, half, environment := random(), random(), random(), random()
	var own *core.EnvironmentApproval
	if rng.IntN(2) == 0 {
		may := environment.Requester != nil && *environment.Requester
		own = &core.EnvironmentApproval{GateRule: core.GateRule{
			Quorum: environment.Quorum, Group: environment.Group, RequesterMayApprove: may, OnExpiry: core.ExpiryRejects,
		}}
	}
	_, err := s.setup.SetEnvironmentApproval(s.t.Context(), user(), s.production.ID, own)
	s.ok(err)
	_, err = s.setup.CreateFlowDefinition(s.t.Context(), user(), setup.NewFlowDefinition{
		ApplicationID: s.application.ID, Definition: asks(","+text(step), text(entry), text(half)),
	})
	s.ok(err)
	s.makeReady()
	for gate, r := range map[string]rule{"release": step, "production": entry, "production/50": half} {
		// In production the requester does not approve it, unless the rule says so.
		m.rules[gate] = core.GateRule{
			Quorum: r.Quorum, Group: r.Group, RequesterMayApprove: r.Requester != nil && *r.Requester, OnExpiry: core.ExpiryRejects,
		}
	}
	if own != nil {
		pipeline := m.rules["production"]
		pipeline.RequesterMayApprove = pipeline.RequesterMayApprove && own.RequesterMayApprove
		m.rules["production"], m.also["production"] = pipeline, own.GateRule
	}
}

// openings are the rows that open passages, with what satisfied their approvals.
func (s *shop) openings(r core.Rollout) []string {
	s.t.Helper()
	j, err := s.view.Journal(s.t.Context(), org, r.ID, core.Page{First: 500})
	s.ok(err)
	var all []string
	for _, row := range j.Nodes {
		if row.Verb != core.VerbPassGate || row.Subject.Kind != core.SubjectRollout {
			continue
		}
		line := []string{row.GateID}
		for _, c := range row.Conditions {
			switch {
			case c.Kind != core.ConditionApproval:
			case c.Outcome == core.OutcomeBreakGlass:
				line = append(line, c.GateID+"=glass")
			default:
				by := []core.Principal{}
				for _, one := range c.By {
					by = append(by, core.Principal{Type: one.Type, ID: one.ID})
				}
				line = append(line, fmt.Sprintf("%s=%v", c.GateID, by))
			}
		}
		all = append(all, strings.Join(line, " "))
	}
	return all
}
