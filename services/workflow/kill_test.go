package workflow_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"

	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/pkg/outbox"
	"github.com/lockstep-cd/lockstep/pkg/pg"
	"github.com/lockstep-cd/lockstep/pkg/testkit/pgtest"
	autoflowv1 "github.com/lockstep-cd/lockstep/proto/lockstep/autoflow/v1"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/activity"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/agent"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/control"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/execution"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/history"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/program"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/events"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/script"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/store"
)

// engineCommand makes the test's binary a process with an engine, configured by engineVariable.
const (
	engineCommand  = "engine"
	engineVariable = "LOCKSTEP_TEST_ENGINE"
)

// engineOrder is what such a process does.
type engineOrder struct {
	Database pg.Config
	// World is where its Functions are carried out and its calls sent: the parent.
	World     string
	Functions []string
	// Organization has the agent that is called.
	Organization int64
	// At is the number of the commit at which it kills itself with signal 9, Applied whether that comes after the commit.
	At      int
	Applied bool
	// Deadly is a Function that kills the process.
	Deadly string
	// Now is the time; later ones come as lines.
	Now time.Time
}

// engineProcess is the process: an engine, and nothing else, until it is killed or its input ends.
func engineProcess() int {
	if err := runEngine(); err != nil {
		_, _ = fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

func runEngine() error {
	var order engineOrder
	if err := json.Unmarshal([]byte(os.Getenv(engineVariable)), &order); err != nil {
		return err
	}
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	wall := &steppedClock{}
	wall.now.Store(&order.Now)
	go func() {
		defer stop()
		for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
			if now, err := time.Parse(time.RFC3339Nano, lines.Text()); err == nil {
				wall.now.Store(&now)
			}
		}
	}()
	pool, err := pg.Open(ctx, order.Database)
	if err != nil {
		return err
	}
	defer pool.Close()
	var functions []activity.Function
	for _, name := range order.Functions {
		functions = append(functions, remote{name, order.World})
	}
	if order.Deadly != "" {
		functions = append(functions, deadly(order.Deadly))
	}
	relay := &remoteRelay{world: order.World}
	a, err := assemble(assembly{
		organization: order.Organization, pool: pool, wall: wall,
		log:       slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError})),
		functions: functions, crash: crash{at: order.At, applied: order.Applied}, die: func() { relay.whole.Lock(); killMyself() },
		sender: func(*control.Service) agent.CallSender { return relay },
		calls:  func(s Store) Store { return counted{s, relay} },
	})
	if err != nil {
		return err
	}
	return a.run(ctx)
}

// killMyself is kill -9: nothing is run any more, deferred or not.
func killMyself() {
	_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	select {}
}

// deadly is a Function that kills the process.
type deadly string

func (d deadly) Name() string { return string(d) }

func (deadly) Location() activity.Location { return activity.InProcess }

func (deadly) Effect() activity.Effect { return activity.Reads }

func (deadly) Call(context.Context, activity.Call) (any, error) {
	killMyself()
	return nil, nil //nolint:nilnil // it does not come this far
}

// steppedClock has the time that was set last, and timers of the real one.
type steppedClock struct{ now atomic.Pointer[time.Time] }

func (c *steppedClock) Now() time.Time { return *c.now.Load() }

func (*steppedClock) NewTimer(d time.Duration) clock.Timer { return clock.System().NewTimer(d) }

// remote is a Function that the parent carries out.
type remote struct{ name, world string }

func (r remote) Name() string { return r.name }

func (remote) Location() activity.Location { return activity.InProcess }

func (remote) Effect() activity.Effect { return activity.Reads }

func (r remote) Call(ctx context.Context, c activity.Call) (any, error) {
	var done outcome
	if err := ask(ctx, r.world+"/act", agent.OutgoingCall{ID: c.ID, Function: c.Function}, &done); err != nil {
		return nil, err
	}
	if done.Error != nil {
		return nil, done.Error
	}
	return done.Value, nil
}

// outcome is the result of a Function.
type outcome struct {
	Value json.RawMessage
	Error *history.FunctionError
}

// remoteRelay hands calls to the parent.
type remoteRelay struct {
	world string
	// whole is held from the count of an attempt to its sending. What a kill in between loses, the next attempt makes up for, which in
	// the scenario's time never comes (see steady).
	whole sync.Mutex
	// left are the calls that were counted and not sent yet; the dispatcher's own goroutine has it.
	left int
}

func (r *remoteRelay) Send(ctx context.Context, c agent.OutgoingCall) error {
	err := ask(ctx, r.world+"/send", c, &struct{}{})
	if r.left--; r.left == 0 {
		r.whole.Unlock()
	}
	return err
}

// counted is the store of a dispatcher that sends to relay.
type counted struct {
	Store
	relay *remoteRelay
}

func (c counted) NextCalls(ctx context.Context, now time.Time, limit int) ([]agent.OutgoingCall, error) {
	c.relay.whole.Lock()
	calls, err := c.Store.NextCalls(ctx, now, limit)
	if c.relay.left = len(calls); len(calls) == 0 {
		c.relay.whole.Unlock()
	}
	return calls, err
}

func ask(ctx context.Context, url string, question, answer any) error {
	body, err := json.Marshal(question)
	if err != nil {
		return err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	return json.NewDecoder(response.Body).Decode(answer)
}

// spawn starts a process with an engine, which is killed at a commit. killed counts the kills.
func (w *world) spawn(database pg.Config, c crash, killed *atomic.Int64) process {
	w.t.Helper()
	w.lowered = w.lowered || c.applied
	nobody := &engines{t: w.t} // who would be woken is in another process, and looks by itself
	kept := store.New(store.Deps{
		Pool: w.pool, Encode: events.Encode, Add: outbox.AddNumbered, AddNew: outbox.AddNew, Committed: func() {},
		Clock: shown{w.clock}, Log: slog.New(slog.DiscardHandler),
	})
	service := control.NewService(kept, script.New(script.Limits{}), shown{w.clock}, nobody)
	outside := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		var asked agent.OutgoingCall
		if err := json.NewDecoder(r.Body).Decode(&asked); err != nil {
			w.t.Error(err)
		}
		if r.URL.Path == "/send" {
			if err := (relay{w, service}).Send(r.Context(), asked); err != nil {
				w.t.Error(err)
			}
			_ = json.NewEncoder(rw).Encode(struct{}{})
			return
		}
		var done outcome
		value, err := w.carryOut(asked.Function, asked.ID)
		if done.Value = value; err != nil {
			done.Error = history.AsFunctionError(err)
		}
		_ = json.NewEncoder(rw).Encode(done)
	}))
	order := engineOrder{
		Database: database, World: outside.URL, Organization: w.organization, At: c.at, Applied: c.applied,
		Now: w.clock.Now(),
	}
	for _, name := range w.answered {
		if !onCluster(name) {
			order.Functions = append(order.Functions, name)
		}
	}
	input, gone, quit := spawnEngine(w.t, order, killed)
	return process{
		store: &crashing{Store: kept}, service: service, gone: gone,
		stop:    func() { _ = input.Close(); <-gone; outside.Close() },
		quit:    quit,
		setTime: func(now time.Time) { _, _ = fmt.Fprintln(input, now.Format(time.RFC3339Nano)) },
	}
}

// spawnEngine starts a process with an engine. It ends with its input, or is killed, which is counted. quit ends it with the stacks of its
// goroutines as the test's error.
func spawnEngine(t *testing.T, order engineOrder, killed *atomic.Int64) (input io.WriteCloser, gone <-chan struct{}, quit func()) {
	t.Helper()
	text, err := json.Marshal(order)
	if err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), self, engineCommand)
	cmd.Env = append(os.Environ(), engineVariable+"="+string(text))
	var output bytes.Buffer
	cmd.Stderr = &output
	if input, err = cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		err := cmd.Wait()
		var exit *exec.ExitError
		if errors.As(err, &exit) && exit.Sys().(syscall.WaitStatus).Signal() == syscall.SIGKILL {
			killed.Add(1)
		} else if err != nil && t.Context().Err() == nil {
			t.Errorf("the process ended with %v: %s", err, output.String())
		}
	}()
	return input, ended, func() { _ = cmd.Process.Signal(syscall.SIGQUIT); <-ended }
}

// TestKilledAtEveryRecordedStep has a real process run each scenario and kill itself with signal 9 at a commit: right before it,
// when the Functions of the turn have had their effects and nothing is recorded, and right after it, when it is recorded and
// nobody knows. It does so at every commit of every scenario. Another process takes over, and the history is the same, with each
// effect once under its key.
func TestKilledAtEveryRecordedStep(t *testing.T) {
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
			pool, database := pgtest.New(t, pgtest.Migration{Name: "outbox", FS: outbox.Migrations()},
				pgtest.Migration{Name: "workflow", FS: store.Migrations()})
			commits, want, _ := play(t, pool, 1, archive, crash{})
			var killed atomic.Int64
			organization := int64(1)
			for at := 1; at <= commits; at++ {
				for _, applied := range []bool{false, true} {
					organization++
					_, got, _ := playIn(t, pool, organization, archive, func(w *world) process {
						return w.spawn(database, crash{at: at, applied: applied}, &killed)
					})
					if diff := cmp.Diff(want, got); diff != "" {
						t.Errorf("killed at commit %d, applied %t (-undisturbed +killed):\n%s", at, applied, diff)
					}
				}
			}
			if killed.Load() == 0 {
				t.Error("no process was killed")
			}
			t.Logf("%d commits, %d processes killed", commits, killed.Load())
		})
	}
}

// TestAWorkflowThatKillsItsProcessesIsQuarantined has a Function kill the process that carries it out, with signal 9, and so every
// process that comes after it. The fourth is the last, and two of them have lived without it and died with it: the workflow is set aside,
// the others of the service continue, and RetryWorkflow resumes it where it was.
func TestAWorkflowThatKillsItsProcessesIsQuarantined(t *testing.T) {
	t.Parallel()
	s := start(t)
	s.down()
	database := pg.Config{URL: s.config.DatabaseURL, Schema: s.config.Schema, MaxConns: 4}
	pool, err := pg.Open(t.Context(), database)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	kept := store.New(store.Deps{
		Pool: pool, Encode: events.Encode, Add: outbox.AddNumbered, AddNew: outbox.AddNew, Committed: func() {},
		Clock: clock.System(), Log: slog.New(slog.DiscardHandler),
	})
	service := control.NewService(kept, script.New(script.Limits{}), clock.System(), &engines{t: t})
	state := func(id string) execution.State {
		e, err := kept.Get(t.Context(), organization, id)
		if err != nil {
			t.Fatal(err)
		}
		return e.State
	}
	tried := func() (is bool) {
		err := pool.QueryRow(t.Context(), `SELECT EXISTS (SELECT FROM lease JOIN execution e ON e.id = lease.trial WHERE e.workflow = 'poison')`).Scan(&is)
		if err != nil {
			t.Fatal(err)
		}
		return is
	}
	var killed atomic.Int64
	order := engineOrder{Database: database, Deadly: "act", Now: clock.System().Now()}
	for _, source := range []struct{ id, source string }{
		{"poison", "print('before')\nrun('act', {})\nprint('after')"},
		{"innocent", "for i in range(3):\n    print(run('checkpoint', {'state': {'i': i}}, on_error = 'return'))"},
	} {
		_, err := service.Start(t.Context(), execution.Start{
			Organization: organization, Workflow: source.id,
			Program: program.Program{Source: []byte(source.source)},
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	const most = 8
	for range most {
		input, gone, _ := spawnEngine(t, order, &killed)
		s.eventually("the process is killed, or the workflow set aside", func(context.Context) bool {
			select {
			case <-gone:
				return true
			default:
				if !tried() { // during its trial, a busy machine would let so much time pass that it is cleared
					order.Now = order.Now.Add(5 * time.Second) // the calm passes
					_, _ = fmt.Fprintln(input, order.Now.Format(time.RFC3339Nano))
				}
				return state("poison") == execution.Quarantined && state("innocent") == execution.Completed
			}
		})
		_ = input.Close()
		<-gone
		if state("poison") == execution.Quarantined {
			break
		}
	}
	if killed.Load() != 4 || state("poison") != execution.Quarantined || state("innocent") != execution.Completed {
		t.Fatalf("%d processes were killed, the poison is %s, the innocent %s; expected 4, quarantined, completed", killed.Load(),
			state("poison"), state("innocent"))
	}

	// The service itself has no such Function: what it continues fails at that, and no sooner.
	s.up()
	list, err := s.ListWorkflows(t.Context(), &autoflowv1.ListWorkflowsRequest{
		OrganizationId: organization, States: []autoflowv1.WorkflowState{autoflowv1.WorkflowState_WORKFLOW_STATE_QUARANTINED},
	})
	if err != nil || len(list.GetWorkflows()) != 1 || !strings.Contains(list.GetWorkflows()[0].GetError(), "4 processes in a row died") {
		t.Fatalf("listed %v, error %v", list, err)
	}
	s.await("poison", autoflowv1.WorkflowState_WORKFLOW_STATE_QUARANTINED)
	if _, err := s.RetryWorkflow(t.Context(), &autoflowv1.RetryWorkflowRequest{
		OrganizationId: organization,
		WorkflowId:     "poison",
	}); err != nil {
		t.Fatal(err)
	}
	w := s.await("poison", autoflowv1.WorkflowState_WORKFLOW_STATE_FAILED)
	history, err := s.GetHistory(t.Context(), &autoflowv1.GetHistoryRequest{OrganizationId: organization, WorkflowId: "poison"})
	if err != nil {
		t.Fatal(err)
	}
	if entries := history.GetEntries(); len(entries) != 3 || entries[0].GetKind() != "print" ||
		!strings.Contains(w.GetError(), "there is no function") {
		t.Errorf("after its release it recorded %v and failed with %q", entries, w.GetError())
	}
}
