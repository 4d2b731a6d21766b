package simulation

import (
	"cmp"
	"encoding/json"
	"slices"
	"sync"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core"
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
	// ForgetsEarlyEvents hands an event only to waits that are there when it comes: the naive matching (B6).
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
	// StealsExecutions is none that may do harm: a claim takes what others with a live lease have. The lease only saves work.
	StealsExecutions
)

// Memory is a store in memory: the rules of internal/store without PostgreSQL. Each method is one transaction, because the
// scheduler lets one call through at a time; mu is for those who only look.
type Memory struct {
	mu         sync.Mutex
	defect     Defect
	executions []*execution
	events     []core.Event
	// heard finds an event by its name, channels a run by its channel's token.
	heard    map[string]bool
	channels map[string]*execution
	leases   map[string]lease
	outbox   []core.Emit
	// arrived numbers deliveries in the order in which they came, begun counts runs that were stored with their first turn.
	arrived, begun int
	// trouble is what no store should ever be asked for.
	trouble []string
}

type lease struct {
	epoch int64
	until time.Time
	// trial is the suspect in hand. ended says that the process ended in order, unexplained that the one before died without a suspect.
	trial              int64
	ended, unexplained bool
}

// execution is a row with everything that belongs to it.
type execution struct {
	core.Execution

	start       core.Start
	digests     core.Digests
	startEvent  int64
	turn, wakes int64
	crashes     int
	owner       *core.Lease
	// history has the entries of all generations, each with its number. continuations are what those behind the first began with.
	history       []core.Entry
	continuations []json.RawMessage
	timers        map[core.OpRef]*timer
	waits         map[core.OpRef][]core.Want
	calls         map[core.OpRef]*call
	polls         map[core.OpRef]core.Polling
	deliveries    map[core.OpRef]*delivery
}

type timer struct {
	due   time.Time
	fired bool
}

type call struct {
	core.OutgoingCall

	op      core.OpRef
	cluster bool
	noRetry bool
	retry   *core.RetryPolicy
	refused int
	nextAt  time.Time
}

type delivery struct {
	core.Arrival

	order int
}

// NewMemory makes an empty store.
func NewMemory(defect Defect) *Memory {
	return &Memory{defect: defect, heard: map[string]bool{}, channels: map[string]*execution{}, leases: map[string]lease{}}
}

func (m *Memory) find(organization int64, workflow string) *execution {
	for _, e := range m.executions {
		if e.Organization == organization && e.Workflow == workflow {
			return e
		}
	}
	return nil
}

func (m *Memory) byID(id int64) (*execution, error) {
	if id < 1 || id > int64(len(m.executions)) {
		return nil, fault.New(fault.NotFound, "there is no execution %d", id)
	}
	return m.executions[id-1], nil
}

func (m *Memory) create(n core.NewExecution) core.Created {
	if e := m.find(n.Organization, n.Workflow); e != nil {
		return core.Created{ID: e.ID, Ref: e.Ref, Existing: e.digests}
	}
	digests, err := n.Digests()
	if err != nil {
		panic(err) // the Service has checked the inputs
	}
	e := &execution{
		Execution: core.Execution{
			ID: int64(len(m.executions) + 1), Ref: n.Ref, Organization: n.Organization, Workflow: n.Workflow,
			CreatedAt: n.At, UpdatedAt: n.At, Attempt: 1, Generation: 1, Program: core.Hex(n.Digest),
		},
		start: n.Start, digests: digests, startEvent: int64(len(m.events)),
		timers: map[core.OpRef]*timer{}, waits: map[core.OpRef][]core.Want{}, calls: map[core.OpRef]*call{},
		polls: map[core.OpRef]core.Polling{}, deliveries: map[core.OpRef]*delivery{},
	}
	if n.Owner != nil {
		owner := *n.Owner
		e.owner = &owner
	}
	m.executions = append(m.executions, e)
	return core.Created{ID: e.ID, Ref: e.Ref, Created: true}
}

func (m *Memory) acquire(instance string, until time.Time) int64 {
	former := m.leases[instance]
	l := lease{epoch: former.epoch + 1, until: until, unexplained: former.epoch > 0 && !former.ended && former.trial == 0}
	m.leases[instance] = l
	return l.epoch
}

func (m *Memory) due(r core.Round) (due core.Due, err error) {
	l := m.leases[r.Lease.Instance]
	if l.epoch != r.Lease.Epoch {
		return due, core.ErrFenced
	}
	if !r.Until.IsZero() {
		l.until = r.Until
		m.leases[r.Lease.Instance] = l
	}
	for _, e := range m.executions {
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
func (m *Memory) claimable(e *execution, l core.Lease, now time.Time, here []int64) bool {
	if e.State != core.Running || slices.Contains(here, e.ID) {
		return false
	}
	if e.owner == nil || e.owner.Instance == l.Instance {
		return true
	}
	owner := m.leases[e.owner.Instance]
	return owner.epoch != e.owner.Epoch || !owner.until.After(now) || m.defect == StealsExecutions
}

func (m *Memory) claim(c core.Claim) (claimed []core.Claimed) {
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
		claimed = append(claimed, core.Claimed{
			Woken: core.Woken{ID: e.ID, Turn: e.turn, Ours: true}, Organization: e.Organization, Workflow: e.Workflow, Crashes: crashes,
		})
	}
	return claimed
}

func (m *Memory) absolve(l core.Lease, id int64) error {
	e, err := m.byID(id)
	if err == nil && e.owner != nil && *e.owner == l {
		e.crashes = 0
	}
	return err
}

func (m *Memory) exonerate(l core.Lease, suspicious int, now time.Time) {
	if own := m.leases[l.Instance]; own.epoch != l.Epoch || !own.unexplained {
		return
	}
	for _, e := range m.executions {
		if e.State != core.Running || e.crashes < suspicious {
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

func (m *Memory) try(l core.Lease, execution int64) {
	if own := m.leases[l.Instance]; own.epoch == l.Epoch {
		own.trial = execution
		m.leases[l.Instance] = own
	}
}

func (m *Memory) release(l core.Lease) {
	if own := m.leases[l.Instance]; own.epoch == l.Epoch {
		own.ended = true
		m.leases[l.Instance] = own
	}
	for _, e := range m.executions {
		if e.State == core.Running && e.owner != nil && *e.owner == l {
			e.owner = nil
		}
	}
}

func (m *Memory) load(id int64) (core.Loaded, error) {
	e, err := m.byID(id)
	if err != nil {
		return core.Loaded{}, err
	}
	if e.State.Ended() {
		return core.Loaded{}, core.ErrFenced
	}
	l := core.Loaded{
		Execution: e.Execution, Program: e.start.Program, Inputs: e.start.Inputs, Secrets: e.start.Secrets,
		History: slices.Clone(e.generation(e.Generation)), Turn: e.turn, Wakes: e.wakes, Arrived: e.arrivals(),
	}
	if m.defect != RepeatsHandles {
		l.Ref = core.Handle(e.Ref, 1, e.Generation)
	}
	if e.Generation > 1 {
		l.Continuation = e.continuations[e.Generation-2]
	}
	for _, ref := range refs(e.timers) {
		l.Open = append(l.Open, core.Opened{Op: ref, Deadline: e.timers[ref].due})
	}
	for _, ref := range refs(e.polls) {
		l.Polls = append(l.Polls, e.polls[ref])
	}
	return l, nil
}

// generation is the part of the history that a generation has recorded.
func (e *execution) generation(number int) (entries []core.Entry) {
	for _, entry := range e.history {
		if entry.Generation == number {
			entries = append(entries, entry)
		}
	}
	return entries
}

// arrivals are what came for open operations: events and answers as they came, then timers by time.
func (e *execution) arrivals() []core.Arrival {
	var came []*delivery
	for _, d := range e.deliveries {
		came = append(came, d)
	}
	slices.SortFunc(came, func(a, b *delivery) int { return a.order - b.order })
	var arrived []core.Arrival
	for _, d := range came {
		arrived = append(arrived, d.Arrival)
	}
	fired := slices.DeleteFunc(refs(e.timers), func(r core.OpRef) bool { return !e.timers[r].fired })
	slices.SortStableFunc(fired, func(a, b core.OpRef) int { return e.timers[a].due.Compare(e.timers[b].due) })
	for _, ref := range fired {
		arrived = append(arrived, core.Arrival{Op: ref, Kind: core.TimerArrived})
	}
	return arrived
}

func (m *Memory) look(id int64) (core.Standing, []core.Arrival, error) {
	e, err := m.byID(id)
	if err != nil {
		return core.Standing{}, nil, err
	}
	if e.State.Ended() {
		return core.Standing{State: e.State, Wakes: e.wakes}, nil, core.ErrFenced
	}
	return core.Standing{State: e.State, Wakes: e.wakes}, e.arrivals(), nil
}

// end ends an execution that does not end by itself.
func (m *Memory) end(organization int64, workflow string, as core.State, kind core.Kind, reason string, at time.Time) (bool, int64, error) {
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
	e.history = append(e.history, core.Entry{Seq: e.LastSeq, Op: core.OpRef{Branch: -1}, Kind: kind, Value: data, At: at, Generation: e.Generation})
	m.closeAll(e)
	m.outbox = append(m.outbox, core.Emit{
		ID: core.Handle(e.Ref, 1, e.Generation) + "/" + string(kind), Organization: organization, Workflow: workflow, Type: core.TypeCancelled, Data: data, Time: at,
	})
	return true, e.ID, nil
}

// closeAll removes everything that an execution has open.
func (m *Memory) closeAll(e *execution) {
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

func (m *Memory) fireTimers(now time.Time, l *core.Lease) (fired int, next time.Time, woken []core.Woken) {
	for _, e := range m.executions {
		var due []core.OpRef
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
				w.Came = &core.Came{Wakes: e.wakes, Arrival: core.Arrival{Op: due[0], Kind: core.TimerArrived}}
			}
			woken = append(woken, w)
		}
	}
	return fired, next, woken
}

// wake has an execution go on. One that is parked becomes the caller's.
func (m *Memory) wake(e *execution, l *core.Lease) []core.Woken {
	if e.State.Ended() {
		return nil
	}
	e.wakes++
	if e.State == core.Parked {
		e.State, e.owner = core.Running, nil
		if l != nil {
			owner := *l
			e.owner = &owner
		}
	}
	return []core.Woken{{ID: e.ID, Turn: e.turn, Ours: l != nil && e.owner != nil && *e.owner == *l}}
}

// refs are the keys of a map of operations, in order.
func refs[T any](of map[core.OpRef]T) []core.OpRef {
	all := make([]core.OpRef, 0, len(of))
	for ref := range of {
		all = append(all, ref)
	}
	slices.SortFunc(all, compareRefs)
	return all
}

func compareRefs(a, b core.OpRef) int {
	return cmp.Or(a.Branch-b.Branch, a.Index-b.Index)
}
