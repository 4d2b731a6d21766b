package simulation

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/activity"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/agent"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/control"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/execution"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/history"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/program"
)

// world is what lies outside of the processes: Functions and relays, which know what they did under which key, and the bus.
type world struct {
	gate   *gate
	memory *Memory

	mu sync.Mutex
	// effects are by activity id, labelled those of one label of a program. running counts Functions under way.
	effects  map[string]effect
	labelled map[string]string
	rounds   map[string]int
	running  int
	bus      []*message
	sent     int
	answered int
	wrong    []string
}

// effect is what was done under an activity id: once, and the same answer comes back for ever.
type effect struct {
	args   string
	answer json.RawMessage
	err    *history.FunctionError
}

// message is on the bus until it has been taken as often as it comes: at least once, in any order.
type message struct {
	name   string
	copies int
	// handle takes it in; an error has it come again. inFlight is set meanwhile.
	handle   func(ctx context.Context, p *process) error
	inFlight bool
	// local is set if no process is needed.
	local bool
}

func (w *world) put(m *message) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.sent++
	w.bus = append(w.bus, m)
}

// idle are the messages that can be delivered, by name.
func (w *world) idle() []*message {
	w.mu.Lock()
	defer w.mu.Unlock()
	idle := slices.DeleteFunc(slices.Clone(w.bus), func(m *message) bool { return m.inFlight })
	slices.SortStableFunc(idle, func(a, b *message) int { return strings.Compare(a.name, b.name) })
	return idle
}

// deliver hands a message to a process, and takes it from the bus when that is well and it was the last copy.
func (w *world) deliver(m *message, p *process) {
	w.mu.Lock()
	m.inFlight = true
	w.mu.Unlock()
	go func() {
		err := m.handle(context.Background(), p)
		w.mu.Lock()
		defer w.mu.Unlock()
		m.inFlight = false
		if err != nil {
			return
		}
		if m.copies--; m.copies <= 0 {
			w.bus = slices.DeleteFunc(w.bus, func(other *message) bool { return other == m })
		}
	}()
}

// drop loses a message of which the sender has more.
func (w *world) drop(m *message) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.bus = slices.DeleteFunc(w.bus, func(other *message) bool { return other == m })
}

// violation notes something that must not be. The world's lock is held.
func (w *world) violation(format string, args ...any) {
	w.wrong = append(w.wrong, fmt.Sprintf(format, args...))
}

// plain is an activity id with the workflow's id for the handle, which differs from run to run of one seed.
func (w *world) plain(key string) string {
	handle, op, _ := strings.Cut(key, "/")
	if e := w.byRef(handle); e != nil && e.parent != nil {
		return fmt.Sprintf("child %d", e.ID) + strings.TrimPrefix(handle, e.Ref) + "/" + op
	} else if e != nil {
		return e.Workflow + strings.TrimPrefix(handle, e.Ref) + "/" + op
	}
	return "?/" + op
}

// byRef finds a run by the handle that activity ids of one of its generations begin with.
func (w *world) byRef(handle string) *stored {
	ref, _, _ := strings.Cut(handle, "~")
	w.memory.mu.Lock()
	defer w.memory.mu.Unlock()
	for _, e := range w.memory.executions {
		if e.Ref == ref {
			return e
		}
	}
	return nil
}

// carryOut has an effect once for each key.
func (w *world) carryOut(key string, args json.RawMessage) (json.RawMessage, *history.FunctionError) {
	e := w.byRef(key[:strings.Index(key, "/")])
	w.mu.Lock()
	defer w.mu.Unlock()
	if done, known := w.effects[key]; known {
		if done.args != string(args) {
			w.violation("activity %s was asked for %s, and before for %s", key, args, done.args)
		}
		return done.answer, done.err
	}
	var asked struct {
		Label, Token string
		Fail, Poll   bool
	}
	if err := json.Unmarshal(args, &asked); err != nil {
		w.violation("activity %s has arguments %s", key, args)
	}
	w.durable(e, key)
	// A poll has an activity for each round; the label belongs to the operation.
	operation := key
	if asked.Poll {
		operation = key[:strings.LastIndex(key, ".")]
	}
	if before, known := w.labelled[asked.Label]; known && before != operation {
		w.violation("what %s does was done as %s and as %s", asked.Label, before, operation)
	}
	w.labelled[asked.Label] = operation
	w.rounds[asked.Label]++
	done := effect{args: string(args)}
	if asked.Fail {
		done.err = &history.FunctionError{Code: "no", Message: "it is to fail"}
	} else {
		done.answer = json.RawMessage(fmt.Sprintf(`{"label":%q,"n":%d}`, asked.Label, w.rounds[asked.Label]))
	}
	if asked.Token != "" {
		w.reply(asked.Label, asked.Token)
	}
	w.effects[key] = done
	return done.answer, done.err
}

// durable looks whether everything that the branch did before is stored: nothing leaves before the commit of the turn that
// wants it (package engine).
func (w *world) durable(e *stored, key string) {
	var branch, index int
	handle, op, _ := strings.Cut(key, "/")
	if _, err := fmt.Sscanf(op, "%d.%d", &branch, &index); err != nil || e == nil {
		w.violation("activity %s is of no run", key)
		return
	}
	w.memory.mu.Lock()
	defer w.memory.mu.Unlock()
	stored := 0
	for _, entry := range e.history {
		if history.Handle(e.Ref, 1, entry.Generation) == handle && entry.Op.Branch == branch && entry.Op.Index < index {
			stored++
		}
	}
	if stored < index {
		w.violation("activity %s began when %d of the %d operations before it were stored", key, stored, index)
	}
}

// reply answers a channel. The caller holds the world's lock.
func (w *world) reply(label, token string) {
	w.sent++
	m := history.Message{Organization: organization, Token: token, ID: "reply to " + label, Data: json.RawMessage(`"yes"`)}
	if len(label)%2 == 0 {
		w.bus = append(w.bus, &message{name: "call " + m.ID, copies: 3, handle: func(ctx context.Context, p *process) error {
			return w.call(ctx, p, m)
		}})
		return
	}
	w.bus = append(w.bus, &message{name: "send " + m.ID, copies: 2, handle: func(ctx context.Context, p *process) error {
		_, err := p.service.SendToChannel(ctx, m)
		if fault.Is(err, fault.NotFound) {
			return nil // the run has ended
		}
		return err
	}})
}

// call is a caller who looks once for the answer, and calls again. Who is answered is answered with what was sent.
func (w *world) call(ctx context.Context, p *process, m history.Message) error {
	answer, err := p.service.CallChannel(ctx, m, control.Wait{})
	switch {
	case fault.Is(err, fault.NotFound), fault.Is(err, fault.Refused), errors.Is(err, context.DeadlineExceeded):
		return nil
	case err != nil:
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.answered++
	if string(answer.Value) != string(m.Data) {
		w.violation("the call %s was answered %s", m.ID, answer.Value)
	}
	return nil
}

// event is an event from outside, once or several times.
func (w *world) event(workflow string, k, copies int) {
	w.receive("event ", copies, history.Event{
		Organization: organization, Source: "/outside", ID: fmt.Sprintf("%s-%d", workflow, k), Type: typeGo,
		Data: json.RawMessage(fmt.Sprintf(`{"wf":%q,"k":%d}`, workflow, k)), Time: clock.System().Now(),
	})
}

// forge is an event from outside that claims to be one of another run.
func (w *world) forge(workflow string, k int) {
	w.receive("forged event ", 1, history.Event{
		Organization: organization, Source: "/outside", ID: fmt.Sprintf("forged-%s-%d", workflow, k), Type: typePeer,
		Data: json.RawMessage(fmt.Sprintf(`{"to":%q}`, workflow)), Time: clock.System().Now(),
	})
}

func (w *world) receive(what string, copies int, e history.Event) {
	w.put(&message{name: what + e.ID, copies: copies, handle: func(ctx context.Context, p *process) error {
		_, _, err := p.service.Receive(ctx, e)
		return err
	}})
}

// start is a caller who starts a program and starts it again until it knows that it has been started, perhaps with a message.
func (w *world) start(pl plan) {
	w.put(&message{name: "start " + pl.workflow, copies: 2, handle: func(ctx context.Context, p *process) error {
		start := execution.Start{Organization: organization, Workflow: pl.workflow, Program: program.Program{Source: []byte(pl.first())}}
		if pl.greeted {
			start.Message = &history.Message{ID: "start of " + pl.workflow, Data: json.RawMessage(`"greeting"`)}
		}
		_, err := p.service.Start(ctx, start)
		if err != nil && !fault.Is(err, fault.Unavailable) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.violation("start of %s: %v", pl.workflow, err)
		}
		return err
	}})
}

// mail is a message to the inbox of a run, by its id.
func (w *world) mail(workflow, label string) {
	w.put(&message{name: "mail " + label, copies: 2, handle: func(ctx context.Context, p *process) error {
		m, err := p.service.Inbox(ctx, history.Message{Organization: organization, ID: label, Data: json.RawMessage(`"letter"`)}, workflow)
		if fault.Is(err, fault.NotFound) {
			return nil // it has not begun
		}
		if err != nil {
			return err
		}
		return w.call(ctx, p, m)
	}})
}

func (w *world) cancel(workflow string) {
	w.put(&message{name: "cancel " + workflow, copies: 1, handle: func(ctx context.Context, p *process) error {
		return p.service.Cancel(ctx, organization, workflow, "no longer wanted")
	}})
}

// Send is the relay: it carries a call out some time after it was sent, and answers at least once.
func (w *world) Send(_ context.Context, sent agent.OutgoingCall) error {
	name := w.plain(sent.ID)
	if sent.Agent != agentID {
		w.mu.Lock()
		w.violation("the call %s has left for agent %d, which is another organization's", name, sent.Agent)
		w.mu.Unlock()
	}
	w.put(&message{name: "call " + name, copies: 1, local: true, handle: func(context.Context, *process) error {
		value, refusal := w.carryOut(sent.ID, sent.Args)
		a := agent.Answer{Call: sent.ID, Agent: sent.Agent, Value: value, Error: refusal}
		w.put(&message{name: "answer " + name, copies: 2, handle: func(ctx context.Context, p *process) error {
			return p.service.Answer(ctx, a)
		}})
		return nil
	}})
	return nil
}

// act is the one Function of the processes.
type act struct {
	*world

	process *process
}

func (act) Name() string { return "act" }

func (act) Location() activity.Location { return activity.InProcess }

// Effect is Reads: what it changes exists in the simulation only.
func (act) Effect() activity.Effect { return activity.Reads }

// Call waits at the gate as a call of the store does: it may be carried out, refused, carried out without its answer being
// heard, or be the last that its process did.
func (a act) Call(ctx context.Context, c activity.Call) (any, error) {
	a.count(1)
	defer a.count(-1)
	args, err := json.Marshal(c.Args)
	if err != nil {
		return nil, err
	}
	began := clock.System().Now()
	given, err := a.gate.pass(ctx, a.process, "act "+a.plain(c.ID))
	if err != nil && clock.System().Now().Equal(began) {
		return nil, err // it was given up by the turn that began it: whether it is called at all depends on the speed of goroutines
	}
	if err != nil {
		// It takes its time to stop. Of two that are cancelled at the same moment the scheduler decides which is first.
		_, _ = a.gate.pass(context.WithoutCancel(ctx), a.process, "give up "+a.plain(c.ID))
		return nil, err
	}
	if given == refuse || given == die {
		return nil, &history.FunctionError{Code: "busy", Message: "try again", Retryable: true}
	}
	answer, refusal := a.carryOut(c.ID, args)
	if given != apply {
		return nil, &history.FunctionError{Code: "lost", Message: "the answer was lost", Retryable: true}
	}
	if refusal != nil {
		return nil, refusal
	}
	return answer, nil
}

// checkpoint is a pure Function: it may be called before the start of its run is stored.
type checkpoint struct{}

func (checkpoint) Name() string { return "checkpoint" }

func (checkpoint) Location() activity.Location { return activity.InProcess }

// Effect is Reads: it changes nothing.
func (checkpoint) Effect() activity.Effect { return activity.Reads }

// Pure is what it is.
func (checkpoint) Pure() bool { return true }

// Call answers the state.
func (checkpoint) Call(_ context.Context, c activity.Call) (any, error) { return c.Args["state"], nil }

func (w *world) count(by int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.running += by
}

// process is one life of the service, with a clock that is wrong by skew.
type process struct {
	name string
	// life counts the processes of one name. dead and stalled are the gate's.
	life          int
	dead, stalled bool
	skew          time.Duration
	world         *world
	service       *control.Service
	stop          context.CancelFunc
}

// Now is the process's idea of the time.
func (p *process) Now() time.Time { return clock.System().Now().Add(p.skew) }

// NewTimer lasts as long for everybody.
func (p *process) NewTimer(d time.Duration) clock.Timer { return clock.System().NewTimer(d) }
