package workflow_test

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/rogpeppe/go-internal/txtar"

	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/pkg/clock/clocktest"
	"github.com/lockstep-cd/lockstep/pkg/outbox"
	"github.com/lockstep-cd/lockstep/pkg/testkit/bustest"
	"github.com/lockstep-cd/lockstep/pkg/testkit/emitters"
	"github.com/lockstep-cd/lockstep/pkg/testkit/pgtest"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/activity"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/agent"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/control"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/engine"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/execution"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/history"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/program"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/events"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/offline"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/script"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/store"
)

var update = flag.Bool("update", false, "rewrite the histories of the scenarios")

// TestScenarios runs testdata/scenarios/*.txtar: a program with its inputs (main.star, inputs.json, modules), the answers
// of Functions (answers.json: name → list, the last one repeats; {"$error": …} fails, with "$times" so often and then answers sha), and a
// script of what happens whenever the run is parked (script.txt: "event TYPE DATA", "send CHANNEL ID DATA", "advance DURATION", "cancel
// REASON"). What is recorded must be history.txt.
//
// Each scenario runs again for every commit of its first run, once with a crash before that commit and once with a
// crash after it that hides the answer. Every such run must record the same, and no effect may happen twice.
func TestScenarios(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/scenarios/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatal("no scenarios", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			t.Parallel()
			archive, err := txtar.ParseFile(file)
			if err != nil {
				t.Fatal(err)
			}
			pool, _ := pgtest.New(t, pgtest.Migration{Name: "outbox", FS: outbox.Migrations()},
				pgtest.Migration{Name: "workflow", FS: store.Migrations()})
			organization := int64(1)
			commits, got, kept := play(t, pool, organization, archive, crash{})
			if *update {
				rewrite(t, file, archive, got)
				keep(t, file, kept)
			} else if diff := cmp.Diff(section(archive, "history.txt"), got); diff != "" {
				t.Fatalf("history (-want +got):\n%s", diff)
			}
			for at := 1; at <= commits; at++ {
				for _, applied := range []bool{false, true} {
					organization++
					_, again, _ := play(t, pool, organization, archive, crash{at: at, applied: applied})
					if diff := cmp.Diff(got, again); diff != "" {
						t.Errorf("crash at commit %d, applied %t (-first +again):\n%s", at, applied, diff)
					}
				}
			}
		})
	}
}

func section(a *txtar.Archive, name string) string {
	for _, f := range a.Files {
		if f.Name == name {
			return string(f.Data)
		}
	}
	return ""
}

func rewrite(t *testing.T, file string, a *txtar.Archive, history string) {
	t.Helper()
	a.Files = slices.DeleteFunc(a.Files, func(f txtar.File) bool { return f.Name == "history.txt" })
	a.Files = append(a.Files, txtar.File{Name: "history.txt", Data: []byte(history)})
	if err := os.WriteFile(file, txtar.Format(a), 0o600); err != nil {
		t.Fatal(err)
	}
}

// crash is the end of a process: before commit number at, or right after it; 0 for none.
type crash struct {
	at      int
	applied bool
}

var errCrashed = errors.New("the process is gone")

// crashing is a store whose process dies once.
type crashing struct {
	Store
	crash
	mu      sync.Mutex
	commits int
	dead    bool
	die     context.CancelFunc
}

func (c *crashing) Commit(ctx context.Context, commit engine.Commit) (engine.Committed, error) {
	c.mu.Lock()
	if c.dead {
		c.mu.Unlock()
		return engine.Committed{}, errCrashed
	}
	c.commits++
	dies := c.commits == c.at
	if dies {
		c.dead = true
	}
	c.mu.Unlock()
	if dies {
		defer c.die()
		if !c.applied {
			return engine.Committed{}, errCrashed
		}
	}
	done, err := c.Store.Commit(context.WithoutCancel(ctx), commit)
	if dies {
		return engine.Committed{}, errCrashed
	}
	return done, err
}

// steady is a store for the dispatcher: a crash between the count of an attempt and its sending is made up for by the
// next attempt, which in the scenario's time never comes.
type steady struct{ Store }

func (s steady) NextCalls(ctx context.Context, now time.Time, limit int) ([]agent.OutgoingCall, error) {
	return s.Store.NextCalls(context.WithoutCancel(ctx), now, limit)
}

// world is what a scenario acts on: the functions, which keep what they did under its key, and the clock.
type world struct {
	t            *testing.T
	pool         *pgxpool.Pool
	organization int64
	clock        *clocktest.Clock
	mu           sync.Mutex
	answers      map[string][]json.RawMessage
	// answered are the functions that have answers.
	answered []string
	effects  []string
	done     map[string]json.RawMessage
	// failures counts the attempts that failed because the scenario says how many do.
	failures map[string]int
}

// carryOut has the effect once for each key, and answers the same again for the same key.
func (w *world) carryOut(function, key string) (json.RawMessage, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	answer, known := w.done[key]
	if !known {
		list := w.answers[function]
		if len(list) == 0 {
			w.t.Errorf("no answer for %s", function)
			return nil, &history.FunctionError{Code: "unscripted"}
		}
		answer = list[0]
		if len(list) > 1 {
			w.answers[function] = list[1:]
		}
		w.done[key] = answer
		handle, op, _ := strings.Cut(key, "/")
		_, generation, _ := strings.Cut(handle, "~")
		if generation != "" {
			op = generation + ":" + op
		}
		w.effects = append(w.effects, function+" "+op)
	}
	var failed struct {
		Error *history.FunctionError `json:"$error"`
		Times int                    `json:"$times"`
		SHA   string                 `json:"sha"`
	}
	if json.Unmarshal(answer, &failed) != nil || failed.Error == nil {
		return answer, nil
	}
	if failed.Times == 0 {
		return nil, failed.Error
	}
	// A repeat under one key is an attempt more at the same thing. What has succeeded keeps its answer.
	if w.failures[key]++; w.failures[key] <= failed.Times {
		return nil, failed.Error
	}
	return json.RawMessage(`"` + failed.SHA + `"`), nil
}

// shown is the scenario's clock with timers of the real one, so that loops go on while the scenario's time stands.
type shown struct{ *clocktest.Clock }

func (shown) NewTimer(d time.Duration) clock.Timer { return clock.System().NewTimer(d) }

type function struct {
	name string
	*world
}

func (f function) Name() string { return f.name }

func (f function) Location() activity.Location { return activity.InProcess }

func (function) Effect() activity.Effect { return activity.Reads }

func (f function) Call(_ context.Context, call activity.Call) (any, error) {
	return f.carryOut(call.Function, call.ID)
}

// relay answers calls at once, and twice; calls of functions without answers it never answers.
type relay struct {
	*world
	service *control.Service
}

func (r relay) Send(ctx context.Context, call agent.OutgoingCall) error {
	if !slices.Contains(r.answered, call.Function) {
		return nil
	}
	ctx = context.WithoutCancel(ctx) // see steady
	value, err := r.carryOut(call.Function, call.ID)
	answer := agent.Answer{Call: call.ID, Agent: call.Agent, Value: value}
	if err != nil {
		answer.Error = history.AsFunctionError(err)
	}
	return errors.Join(r.service.Answer(ctx, answer), r.service.Answer(ctx, answer))
}

// process is one life of the service: everything but the bus and the API.
type process struct {
	store   *crashing
	service *control.Service
	gone    <-chan struct{}
	stop    func()
	// setTime sets the present time.
	setTime func(time.Time)
	// quit ends a process of its own and shows its stacks; nil for one within the test.
	quit func()
}

func (w *world) boot(c crash) process {
	ctx, cancel := context.WithCancel(w.t.Context())
	var functions []activity.Function
	for _, name := range w.answered {
		if !onCluster(name) {
			functions = append(functions, function{name, w})
		}
	}
	a, err := assemble(assembly{
		organization: w.organization, pool: w.pool, wall: shown{w.clock}, log: bustest.Log(w.t), functions: functions, crash: c, die: cancel,
		sender: func(s *control.Service) agent.CallSender { return relay{w, s} },
	})
	if err != nil {
		w.t.Fatal(err)
	}
	var parts sync.WaitGroup
	parts.Go(func() {
		if err := a.run(ctx); err != nil && ctx.Err() == nil {
			w.t.Error(err)
		}
	})
	return process{store: a.store, service: a.service, gone: ctx.Done(), stop: func() { cancel(); parts.Wait() }, setTime: func(time.Time) {}}
}

// onCluster reports whether a relay carries the Function out.
func onCluster(name string) bool {
	return strings.HasPrefix(name, "k8s.") || strings.HasPrefix(name, "argo.")
}

// assembly is what a life of the service is made of, and assembled the outcome.
type assembly struct {
	// organization has the agent 7.
	organization int64
	pool         *pgxpool.Pool
	wall         clock.Clock
	log          *slog.Logger
	functions    []activity.Function
	sender       func(*control.Service) agent.CallSender
	crash        crash
	die          func()
	// calls is the store of the dispatcher; nil for one that a crash does not interrupt.
	calls func(Store) Store
}

type assembled struct {
	store   *crashing
	service *control.Service
	// run drives executions and sends calls until ctx ends.
	run func(ctx context.Context) error
}

// declared is what the domain service has said of agents: of the one that the scenarios call, and of another organization's.
type declared struct {
	agent.RegistryStore

	organization int64
}

func (d declared) Agents(context.Context) ([]agent.Agent, error) {
	return []agent.Agent{{ID: 7, Organization: d.organization}, {ID: 8, Organization: d.organization + 1}}, nil
}

func assemble(a assembly) (assembled, error) {
	var runner *engine.Engine
	large := 0
	if a.crash.applied { // half of the crashes meet values that are stored by digest (issue 18, point 8)
		large = 100
	}
	kept := store.New(store.Deps{
		Large: large,
		Pool:  a.pool, Encode: events.Encode, Add: outbox.AddNumbered, AddNew: outbox.AddNew, Committed: func() {},
		Woken: func(woken engine.Woken) { runner.Wake(woken) }, Clock: a.wall, Log: a.log,
	})
	crashing := &crashing{Store: kept, crash: a.crash, die: a.die}
	scripts := script.New(script.Limits{})
	all := append([]activity.Function{activity.OnCluster("k8s.get"), activity.OnCluster("argo.sync"), activity.OnCluster("argo.promote")},
		a.functions...)
	registry, err := activity.NewFunctions(all...)
	if err != nil {
		return assembled{}, err
	}
	runner = engine.New(engine.Deps{
		Store: crashing, Scripts: scripts, Functions: registry, Agents: agent.NewRegistry(declared{organization: a.organization}, a.wall, a.log),
		CheckEmit: events.CheckEmit, Clock: a.wall, Log: a.log,
		Settings: engine.Settings{
			Instance: "scenario", Lease: time.Hour, Poll: 20 * time.Millisecond, CallTimeout: time.Minute, WaitTimeout: 24 * time.Hour,
			Live: 10, Cache: 1 << 20, Activities: 10, History: 1000, Crashes: 3, Retention: 24 * time.Hour,
		},
	})
	service := control.NewService(kept, scripts, a.wall, runner)
	if a.calls == nil {
		a.calls = func(s Store) Store { return steady{s} }
	}
	dispatcher := agent.Dispatcher{
		Store: a.calls(kept), Sender: a.sender(service), Clock: a.wall, Log: a.log, Woken: runner.Calls(),
	}
	return assembled{store: crashing, service: service, run: func(ctx context.Context) error {
		var parts sync.WaitGroup
		defer parts.Wait()
		parts.Go(func() { _ = dispatcher.Run(ctx) })
		return runner.Run(ctx, func() {})
	}}, nil
}

// play runs a scenario to its end, in an organization of its own. It answers how many commits there were, and what was
// recorded.
func play(t *testing.T, pool *pgxpool.Pool, organization int64, a *txtar.Archive, c crash) (commits int, history string, kept []recording) {
	t.Helper()
	return playIn(t, pool, organization, a, func(w *world) process { return w.boot(c) })
}

// playIn is play with a first process of its own.
func playIn(
	t *testing.T, pool *pgxpool.Pool, organization int64, a *txtar.Archive, boot func(*world) process,
) (commits int, history string, kept []recording) {
	t.Helper()
	w := &world{
		t: t, pool: pool, organization: organization,
		clock: clocktest.New(time.Date(2026, 3, 25, 10, 0, 0, 0, time.UTC)), done: map[string]json.RawMessage{}, failures: map[string]int{},
	}
	if err := json.Unmarshal([]byte(section(a, "answers.json")), &w.answers); err != nil {
		t.Fatal(err)
	}
	w.answered = slices.Sorted(maps.Keys(w.answers))
	p := boot(w)
	defer func() { p.stop() }()
	if _, err := p.service.Start(t.Context(), w.startOf(a)); err != nil {
		t.Fatal(err)
	}
	steps := strings.Split(strings.TrimSpace(section(a, "script.txt")), "\n")
	for {
		e, crashed := w.settle(p)
		switch {
		case crashed:
			p.stop()
			p = w.boot(crash{})
		case e.State.Ended():
			w.nothingIsLeft(e)
			return p.store.commits, w.recorded(p.service, e), w.recordings(p.service, a, e)
		case len(steps) == 0 || steps[0] == "":
			_, waiting, _ := p.service.Get(t.Context(), organization, "scenario")
			t.Fatalf("the script is over, but the run %v", waiting)
		default:
			w.act(p.service, steps[0])
			p.setTime(w.clock.Now())
			steps = steps[1:]
		}
	}
}

func (w *world) startOf(a *txtar.Archive) execution.Start {
	s := execution.Start{
		Organization: w.organization, Workflow: "scenario", Inputs: []byte(section(a, "inputs.json")),
		Program: program.Program{Modules: map[string][]byte{}},
	}
	for _, f := range a.Files {
		if f.Name == mainFile {
			s.Program.Source = f.Data
		} else if strings.HasSuffix(f.Name, ".star") {
			s.Program.Modules[f.Name] = f.Data
		}
	}
	return s
}

// settle waits until nothing happens without the script any more, or the process has crashed.
func (w *world) settle(p process) (e execution.Execution, crashed bool) {
	w.t.Helper()
	deadline := clock.System().Now().Add(within)
	for clock.System().Now().Before(deadline) {
		select {
		case <-p.gone:
			return e, true
		default:
		}
		var err error
		if e, err = p.store.Get(w.t.Context(), w.organization, "scenario"); err != nil {
			w.t.Fatal(err)
		}
		if e.State.Ended() || w.quiet(e) {
			return e, false
		}
		if clock.Sleep(w.t.Context(), clock.System(), time.Millisecond) != nil {
			break
		}
	}
	if p.quit != nil {
		p.quit()
	}
	waiting, _ := p.store.Waiting(w.t.Context(), e.ID)
	w.t.Fatalf("the run does not settle: it is %+v and waits for %+v", e, waiting)
	return e, false
}

// quiet reports whether the run is parked and waits for the script only: nothing is being matched, no timer is due and
// no relay is about to answer. It is one statement, so one moment.
func (w *world) quiet(e execution.Execution) (quiet bool) {
	w.t.Helper()
	err := w.pool.QueryRow(w.t.Context(), `
SELECT EXISTS (SELECT 1 FROM execution WHERE id = $1 AND state = 1)
   AND NOT EXISTS (SELECT 1 FROM timer WHERE execution = $1 AND due <= $2)
   AND NOT EXISTS (SELECT 1 FROM call WHERE execution = $1 AND function = ANY ($3))
   AND NOT EXISTS (SELECT 1 FROM execution WHERE organization = $4 AND state = 0)`, // a child
		e.ID, w.clock.Now(), w.answered, w.organization).Scan(&quiet)
	if err != nil {
		w.t.Fatal(err)
	}
	return quiet
}

func (w *world) act(service *control.Service, step string) {
	w.t.Helper()
	verb, rest, _ := strings.Cut(step, " ")
	switch verb {
	case "event":
		eventType, data, _ := strings.Cut(rest, " ")
		e := history.Event{
			Organization: w.organization, Source: emitters.SourceOf(eventType), ID: step, Type: eventType, Data: json.RawMessage(data),
			Time: w.clock.Now(),
		}
		for _, duplicate := range []bool{false, true} {
			_, found, err := service.Receive(w.t.Context(), e)
			if err != nil || found != duplicate {
				w.t.Fatalf("%s: duplicate %t, error %v", step, found, err)
			}
		}
	case "advance":
		d, err := time.ParseDuration(rest)
		if err != nil {
			w.t.Fatal(err)
		}
		w.clock.Advance(d)
	case "send": // N ID DATA: to the Nth channel that the run has made, counted from 0
		nth, message, _ := strings.Cut(rest, " ")
		id, data, _ := strings.Cut(message, " ")
		n, err := strconv.Atoi(nth)
		if err != nil {
			w.t.Fatal(err)
		}
		m := history.Message{Organization: w.organization, Token: w.tokens(service)[n], ID: id, Data: json.RawMessage(data)}
		for _, duplicate := range []bool{false, true} {
			if found, err := service.SendToChannel(w.t.Context(), m); err != nil || found != duplicate {
				w.t.Fatalf("%s: duplicate %t, error %v", step, found, err)
			}
		}
	case "call": // ID DATA: to the inbox of the run
		id, data, _ := strings.Cut(rest, " ")
		// The run may have answered already, or may answer later.
		if _, err := w.call(service, id, data); err != nil && !errors.Is(err, context.DeadlineExceeded) {
			w.t.Fatalf("%s: %v", step, err)
		}
	case "answered": // ID ANSWER: the same call again
		id, want, _ := strings.Cut(rest, " ")
		answer, err := w.call(service, id, "null")
		if got, _ := json.Marshal(answer); err != nil || string(got) != want {
			w.t.Fatalf("%s: found %s, error %v", step, got, err)
		}
	case "cancel":
		if err := service.Cancel(w.t.Context(), w.organization, "scenario", rest); err != nil {
			w.t.Fatal(err)
		}
	default:
		w.t.Fatalf("unknown step %q", step)
	}
}

// call calls the run by its id, and looks once for the answer.
func (w *world) call(service *control.Service, id, data string) (history.Answer, error) {
	w.t.Helper()
	m, err := service.Inbox(w.t.Context(), history.Message{Organization: w.organization, ID: id, Data: json.RawMessage(data)}, "scenario")
	if err != nil {
		w.t.Fatal(err)
	}
	return service.CallChannel(w.t.Context(), m, control.Wait{})
}

// tokens are those of the run's channels, in the order of the history.
func (w *world) tokens(service *control.Service) (tokens []string) {
	w.t.Helper()
	entries, err := service.History(w.t.Context(), w.organization, "scenario", 0, 1000)
	if err != nil {
		w.t.Fatal(err)
	}
	for _, entry := range entries {
		if entry.Kind == history.KindChannel {
			tokens = append(tokens, strings.Trim(string(entry.Value), `"`))
		}
	}
	return tokens
}

// nothingIsLeft compares what an ended run has open with nothing: timers, waits, calls and what came for them, channels
// and polls end with their run.
func (w *world) nothingIsLeft(e execution.Execution) {
	w.t.Helper()
	for _, table := range []string{"timer", "wait", "call", "delivery", "channel", "poll"} {
		var left int
		if err := w.pool.QueryRow(w.t.Context(), `SELECT count(*) FROM `+table+` WHERE execution = $1`, e.ID).Scan(&left); err != nil {
			w.t.Fatal(err)
		}
		if left > 0 {
			w.t.Errorf("the run has ended and %d rows of %s are left", left, table)
		}
	}
}

// recordings is what is kept of a run for later engines, by generation.
func (w *world) recordings(service *control.Service, a *txtar.Archive, e execution.Execution) (generations []recording) {
	w.t.Helper()
	r := recording{Ref: e.Ref, Program: map[string]string{}, Inputs: json.RawMessage(section(a, "inputs.json"))}
	if len(r.Inputs) == 0 {
		r.Inputs = json.RawMessage("{}")
	}
	for _, f := range a.Files {
		if strings.HasSuffix(f.Name, ".star") {
			r.Program[f.Name] = string(f.Data)
		}
	}
	entries, err := service.History(w.t.Context(), w.organization, "scenario", 0, 1000)
	if err != nil {
		w.t.Fatal(err)
	}
	for i, entry := range entries {
		generation := entry.Generation
		entry.Generation = 0 // what is replayed has none
		r.History = append(r.History, entry)
		if i+1 < len(entries) && entries[i+1].Generation == generation {
			continue
		}
		generations = append(generations, r)
		r.History, r.Continuation = nil, entry.Value
	}
	return generations
}

// recorded is the history in the order of branches, since branches race, and what left the service.
func (w *world) recorded(service *control.Service, e execution.Execution) string {
	w.t.Helper()
	entries, err := service.History(w.t.Context(), w.organization, "scenario", 0, 1000)
	if err != nil {
		w.t.Fatal(err)
	}
	return offline.Narrative{Ref: e.Ref, Entries: entries, Effects: w.effects, Sent: w.sent()}.String()
}

// sent are the events that left.
func (w *world) sent() (all []history.Emit) {
	w.t.Helper()
	rows, err := w.pool.Query(w.t.Context(), `SELECT event->>'id', event->>'type', event->>'data' FROM outbox WHERE event->>'organizationid' = $1 ORDER BY id`, strconv.FormatInt(w.organization, 10))
	if err != nil {
		w.t.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var e history.Emit
		var data string
		if err := rows.Scan(&e.ID, &e.Type, &data); err != nil {
			w.t.Fatal(err)
		}
		e.Data = json.RawMessage(data)
		all = append(all, e)
	}
	return all
}
