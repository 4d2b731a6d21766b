package simulation

import (
	"bytes"
	"cmp"
	"encoding/json"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/agent"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/engine"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/execution"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/history"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/program"
)

// Defect is a rule that a Memory does not keep, to show that the simulation would notice.
type Defect int

// The defects. None is the store as it should be.
const (
	None Defect = iota
	// NoFence lets a former owner write.
	NoFence
	// ParksBlindly parks an execution to which something has come since it last looked.
	ParksBlindly
	// ForgetsEarlyEvents delivers an event only to waits that are open when it arrives: the naive matching.
	ForgetsEarlyEvents
	// CountsDuplicates stores an event again when it comes again.
	CountsDuplicates
	// ClosesTooMuch removes everything that an execution has open when one operation of it is over.
	ClosesTooMuch
	// LeavesTimers does not remove the timers of an execution that has ended.
	LeavesTimers
	// EmitsTwice repeats the events of a turn.
	EmitsTwice
	// ReplaysShort is a defect of the machine and not of the store: a replay leaves out the last entry of a long history.
	ReplaysShort
	// RepeatsHandles has a generation's activities have the ids of the one before.
	RepeatsHandles
	// TrustsEverySource delivers events whose source cannot have emitted them (D47).
	TrustsEverySource
	// ForgetsChildren leaves the children of a run that has ended alone.
	ForgetsChildren
	// StealsExecutions must do no harm: a claim takes executions of owners with a live lease. The lease only saves work.
	StealsExecutions
)

// Memory is a store in memory: the rules of internal/store without PostgreSQL. Each method is one transaction, because the
// scheduler lets one call through at a time; mu is for those who only look.
type Memory struct {
	mu         sync.Mutex
	defect     Defect
	executions []*stored
	events     []history.Event
	// heard finds an event by its name, channels a run by its channel's token.
	heard    map[string]bool
	channels map[string]*stored
	leases   map[string]lease
	outbox   []history.Emit
	// arrived numbers deliveries in the order in which they came, begun counts runs that were stored with their first turn.
	arrived, begun int
	// ended is the event about the run that was ended from outside last.
	ended []history.Event
	// trouble is what no store should ever be asked for.
	trouble []string
}

type lease struct {
	epoch int64
	until time.Time
	// trial is the suspect that the process runs. ended is set when the process ended in order, unexplained when the one before died
	// without a suspect.
	trial              int64
	ended, unexplained bool
}

// execution is a row with everything that belongs to it.
type stored struct {
	execution.Execution

	// parent has started it, attached is set if it ends with that, and orphaned if it is to.
	parent             *stored
	attached, orphaned bool
	// changed is set if it was given another program.
	changed bool

	start       execution.Start
	digests     execution.Digests
	startEvent  int64
	turn, wakes int64
	crashes     int
	owner       *engine.Lease
	heldUntil   time.Time
	// statuses are what the run reports of itself, by key.
	statuses map[string]string
	// history has the entries of all generations, each with its number. continuations are what those behind the first began with.
	history       []history.Entry
	continuations []json.RawMessage
	timers        map[history.OpRef]*timer
	waits         map[history.OpRef][]history.Want
	calls         map[history.OpRef]*call
	polls         map[history.OpRef]engine.Polling
	deliveries    map[history.OpRef]*delivery
}

type timer struct {
	due   time.Time
	fired bool
}

type call struct {
	agent.OutgoingCall

	op      history.OpRef
	cluster bool
	noRetry bool
	retry   *history.RetryPolicy
	refused int
	nextAt  time.Time
}

type delivery struct {
	engine.Arrival

	order int
}

// NewMemory makes an empty store.
func NewMemory(defect Defect) *Memory {
	return &Memory{defect: defect, heard: map[string]bool{}, channels: map[string]*stored{}, leases: map[string]lease{}}
}

func (m *Memory) find(organization int64, workflow string) *stored {
	for _, e := range m.executions {
		if e.Organization == organization && e.Workflow == workflow {
			return e
		}
	}
	return nil
}

// isOpen reports whether a channel is one of a run that takes messages. The inbox of a run is open until it ends, and no row.
func (m *Memory) isOpen(token string) bool {
	for _, e := range m.executions {
		if token == history.InboxToken(e.Ref) {
			return !e.State.Ended()
		}
	}
	return m.channels[token] != nil
}

func (m *Memory) byID(id int64) (*stored, error) {
	if id < 1 || id > int64(len(m.executions)) {
		return nil, fault.New(fault.NotFound, "there is no execution %d", id)
	}
	return m.executions[id-1], nil
}

func (m *Memory) create(n engine.NewExecution) engine.Created {
	if e := m.find(n.Organization, n.Workflow); e != nil {
		return engine.Created{ID: e.ID, Ref: e.Ref, Existing: e.digests}
	}
	digests, err := n.Digests()
	if err != nil {
		panic(err) // the Service has checked the inputs
	}
	e := &stored{
		Execution: execution.Execution{
			ID: int64(len(m.executions) + 1), Ref: n.Ref, Organization: n.Organization, Workflow: n.Workflow,
			CreatedAt: n.At, UpdatedAt: n.At, Attempt: 1, Generation: 1, Program: program.Hex(n.Digest),
		},
		start: n.Start, digests: digests, startEvent: int64(len(m.events)),
		statuses: map[string]string{},
		timers:   map[history.OpRef]*timer{}, waits: map[history.OpRef][]history.Want{}, calls: map[history.OpRef]*call{},
		polls: map[history.OpRef]engine.Polling{}, deliveries: map[history.OpRef]*delivery{},
	}
	if n.Owner != nil {
		owner := *n.Owner
		e.owner = &owner
	}
	m.executions = append(m.executions, e)
	if n.Message != nil {
		message, err := n.Message.Event()
		if err != nil {
			panic(err) // the Service has checked the message
		}
		m.save(message)
	}
	return engine.Created{ID: e.ID, Ref: e.Ref, Created: true}
}

func (m *Memory) acquire(instance string, until time.Time) int64 {
	former := m.leases[instance]
	l := lease{epoch: former.epoch + 1, until: until, unexplained: former.epoch > 0 && !former.ended && former.trial == 0}
	m.leases[instance] = l
	return l.epoch
}

func (m *Memory) due(r engine.Round) (due engine.Due, err error) {
	l := m.leases[r.Lease.Instance]
	if l.epoch != r.Lease.Epoch {
		return due, engine.ErrFenced
	}
	if !r.Until.IsZero() {
		l.until = r.Until
		m.leases[r.Lease.Instance] = l
	}
	for _, e := range m.executions {
		due.Orphans = due.Orphans || e.orphaned
		due.Executions = due.Executions || m.claimable(e, r.Lease, r.Now, r.Here)
		for _, t := range e.timers {
			due.Timers = due.Timers || !t.fired && t.due.Before(r.Soon)
		}
		for _, c := range e.calls {
			due.Calls = due.Calls || c.due(r.Now)
		}
	}
	return due, nil
}

// claimable reports whether an execution runs, and is in nobody's hands as far as the lease's holder knows.
func (m *Memory) claimable(e *stored, l engine.Lease, now time.Time, here []int64) bool {
	if e.State != execution.Running || slices.Contains(here, e.ID) || e.heldUntil.After(now) {
		return false
	}
	if e.owner == nil || e.owner.Instance == l.Instance {
		return true
	}
	owner := m.leases[e.owner.Instance]
	return owner.epoch != e.owner.Epoch || !owner.until.After(now) || m.defect == StealsExecutions
}

func (m *Memory) claim(c engine.Claim) (claimed []engine.Claimed) {
	if m.leases[c.Lease.Instance].epoch != c.Lease.Epoch {
		return nil // a process whose name was taken takes nothing back
	}
	for _, e := range m.executions {
		if len(claimed) == c.Limit {
			break
		}
		if !m.claimable(e, c.Lease, c.Now, c.Here) {
			continue
		}
		crashes := e.crashes
		if e.owner != nil && (e.owner.Instance != c.Lease.Instance || e.owner.Epoch < c.Lease.Epoch) {
			crashes++
		}
		if (crashes >= c.Suspicious) != c.Suspected {
			continue
		}
		owner := c.Lease
		if e.owner == nil || *e.owner != owner {
			e.turn++
		}
		e.owner, e.crashes = &owner, crashes
		claimed = append(claimed, engine.Claimed{
			Woken: engine.Woken{ID: e.ID, Turn: e.turn, Ours: true}, Organization: e.Organization, Workflow: e.Workflow, Crashes: crashes,
		})
	}
	return claimed
}

// hold keeps executions from claims.
func (m *Memory) hold(l engine.Lease, holdings []engine.Holding) (held []engine.Holding) {
	for _, h := range holdings {
		e, err := m.byID(h.Execution)
		if err != nil || e.State != execution.Running || e.owner == nil || *e.owner != l {
			continue
		}
		e.heldUntil = h.Until
		held = append(held, h)
	}
	return held
}

func (m *Memory) absolve(l engine.Lease, id int64) error {
	e, err := m.byID(id)
	if err == nil && e.owner != nil && *e.owner == l {
		e.crashes = 0
	}
	return err
}

func (m *Memory) exonerate(l engine.Lease, suspicious int, now time.Time) {
	if own := m.leases[l.Instance]; own.epoch != l.Epoch || !own.unexplained {
		return
	}
	for _, e := range m.executions {
		if e.State != execution.Running || e.crashes < suspicious {
			continue
		}
		if e.owner != nil {
			if owner := m.leases[e.owner.Instance]; owner.epoch == e.owner.Epoch && owner.until.After(now) {
				continue
			}
		}
		e.crashes, e.owner = suspicious, nil
	}
}

func (m *Memory) try(l engine.Lease, execution int64) {
	if own := m.leases[l.Instance]; own.epoch == l.Epoch {
		own.trial = execution
		m.leases[l.Instance] = own
	}
}

func (m *Memory) release(l engine.Lease) {
	if own := m.leases[l.Instance]; own.epoch == l.Epoch {
		own.ended = true
		m.leases[l.Instance] = own
	}
	for _, e := range m.executions {
		if e.State == execution.Running && e.owner != nil && *e.owner == l {
			e.owner = nil
		}
	}
}

func (m *Memory) load(id int64) (engine.Loaded, error) {
	e, err := m.byID(id)
	if err != nil {
		return engine.Loaded{}, err
	}
	if e.State.Ended() {
		return engine.Loaded{}, engine.ErrFenced
	}
	l := engine.Loaded{
		Execution: e.Execution, Program: e.start.Program, Inputs: e.start.Inputs, Secrets: e.start.Secrets,
		History: slices.Clone(e.generation(e.Generation)), Turn: e.turn, Wakes: e.wakes, Arrived: e.arrivals(),
	}
	if m.defect != RepeatsHandles {
		l.Ref = history.Handle(e.Ref, 1, e.Generation)
	}
	if e.Generation > 1 {
		l.Continuation = e.continuations[e.Generation-2]
	}
	for _, ref := range refs(e.timers) {
		l.Open = append(l.Open, engine.Opened{Op: ref, Deadline: e.timers[ref].due})
	}
	for _, ref := range refs(e.polls) {
		l.Polls = append(l.Polls, e.polls[ref])
	}
	return l, nil
}

// generation is the part of the history that a generation has recorded.
func (e *stored) generation(number int) (entries []history.Entry) {
	for _, entry := range e.history {
		if entry.Generation == number {
			entries = append(entries, entry)
		}
	}
	return entries
}

// arrivals are what arrived for open operations: events and answers in their order, then timers by time.
func (e *stored) arrivals() []engine.Arrival {
	deliveries := slices.SortedFunc(maps.Values(e.deliveries), func(a, b *delivery) int { return a.order - b.order })
	var arrived []engine.Arrival
	for _, d := range deliveries {
		arrived = append(arrived, d.Arrival)
	}
	fired := slices.DeleteFunc(refs(e.timers), func(r history.OpRef) bool { return !e.timers[r].fired })
	slices.SortStableFunc(fired, func(a, b history.OpRef) int { return e.timers[a].due.Compare(e.timers[b].due) })
	for _, ref := range fired {
		arrived = append(arrived, engine.Arrival{Op: ref, Kind: engine.TimerArrived})
	}
	return arrived
}

func (m *Memory) look(id int64) (engine.Standing, []engine.Arrival, error) {
	e, err := m.byID(id)
	if err != nil {
		return engine.Standing{}, nil, err
	}
	if e.State.Ended() {
		return engine.Standing{State: e.State, Wakes: e.wakes}, nil, engine.ErrFenced
	}
	return engine.Standing{State: e.State, Wakes: e.wakes}, e.arrivals(), nil
}

// end ends an execution that does not end by itself.
func (m *Memory) end(
	organization int64, workflow string, as execution.State, kind history.Kind, reason string, at time.Time,
) (bool, int64, error) {
	e := m.find(organization, workflow)
	if e == nil {
		return false, 0, fault.New(fault.NotFound, "there is no workflow %q", workflow)
	}
	if e.State.Ended() {
		return false, 0, nil
	}
	data, err := json.Marshal(map[string]string{"workflow_id": workflow, "reason": reason})
	if err != nil {
		return false, 0, err
	}
	e.State, e.Error, e.EndedAt, e.owner = as, reason, at, nil
	e.LastSeq, e.turn = e.LastSeq+1, e.turn+1
	e.history = append(e.history, history.Entry{
		Seq: e.LastSeq, Op: history.OpRef{Branch: -1}, Kind: kind, Value: data, At: at,
		Generation: e.Generation,
	})
	m.closeAll(e)
	m.orphan(e)
	m.ended = m.emit([]history.Emit{{
		ID: history.Handle(e.Ref, 1, e.Generation) + "/" + string(kind), Organization: organization, Workflow: workflow,
		Type: history.TypeCancelled, Data: data, Time: at,
	}})
	return true, e.ID, nil
}

// sendCancellation has an execution call what it has deferred; false if it has deferred nothing.
func (m *Memory) sendCancellation(organization int64, workflow, reason string, l *engine.Lease) (sent bool, woken []engine.Woken) {
	e := m.find(organization, workflow)
	if e == nil || e.State.Ended() {
		return false, nil
	}
	defers := e.Generation > 1 && bytes.Contains(e.continuations[e.Generation-2], []byte(`"deferred":`))
	for _, entry := range e.generation(e.Generation) {
		defers = defers || entry.Kind == history.KindDefer
	}
	if !defers {
		return false, nil
	}
	data, err := json.Marshal(history.CancelledEnd{Workflow: workflow, Reason: reason})
	if err != nil {
		panic(err) // two strings
	}
	if e.deliveries[history.Cancellation] == nil {
		m.deliver(e, history.Cancellation, engine.Arrival{Op: history.Cancellation, Kind: engine.AnswerArrived, Value: data})
	}
	return true, m.wake(e, l)
}

// closeAll removes everything that an execution has open.
func (m *Memory) closeAll(e *stored) {
	if m.defect != LeavesTimers {
		clear(e.timers)
	}
	clear(e.waits)
	clear(e.calls)
	clear(e.polls)
	clear(e.deliveries)
	for token, owner := range m.channels {
		if owner == e {
			delete(m.channels, token)
		}
	}
}

func (m *Memory) fireTimers(now time.Time, l *engine.Lease) (fired int, next time.Time, woken []engine.Woken) {
	for _, e := range m.executions {
		var due []history.OpRef
		for ref, t := range e.timers {
			switch {
			case t.fired:
			case !t.due.After(now):
				t.fired, due = true, append(due, ref)
				fired++
			case next.IsZero() || t.due.Before(next):
				next = t.due
			}
		}
		if len(due) == 0 {
			continue
		}
		for _, w := range m.wake(e, l) {
			if len(due) == 1 {
				w.Wakeup = &engine.Wakeup{Wakes: e.wakes, Arrival: engine.Arrival{Op: due[0], Kind: engine.TimerArrived}}
			}
			woken = append(woken, w)
		}
	}
	return fired, next, woken
}

// wake makes an execution continue. A parked one is then owned by the caller.
func (m *Memory) wake(e *stored, l *engine.Lease) []engine.Woken {
	if e.State.Ended() {
		return nil
	}
	e.wakes++
	if e.State == execution.Parked {
		e.State, e.owner = execution.Running, nil
		if l != nil {
			owner := *l
			e.owner = &owner
		}
	}
	return []engine.Woken{{ID: e.ID, Turn: e.turn, Ours: l != nil && e.owner != nil && *e.owner == *l}}
}

// refs are the keys of a map of operations, in order.
func refs[T any](of map[history.OpRef]T) []history.OpRef {
	all := make([]history.OpRef, 0, len(of))
	for ref := range of {
		all = append(all, ref)
	}
	slices.SortFunc(all, compareRefs)
	return all
}

func compareRefs(a, b history.OpRef) int {
	return cmp.Or(a.Branch-b.Branch, a.Index-b.Index)
}
