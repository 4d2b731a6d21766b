package simulation

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/activity"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/agent"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/engine"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/execution"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/history"
)

// commit ends a turn (internal/store/commit.go): the fence first, then entries, what is closed and opened, what is emitted, and
// the matches of new events and waits.
func (m *Memory) commit(c engine.Commit, l *engine.Lease) (engine.Committed, []engine.Woken, error) {
	e, err := m.byID(c.Execution.ID)
	if err != nil {
		return engine.Committed{}, nil, err
	}
	owned := e.owner != nil && *e.owner == c.Lease && e.turn == c.Turn
	if (!owned && m.defect != NoFence) || e.State != execution.Running {
		return engine.Committed{}, nil, engine.ErrFenced
	}
	// The history's primary key, and the uniqueness of consumed events.
	for i, entry := range c.Entries {
		if entry.Seq <= int64(len(e.history)) && m.defect != NoFence {
			return engine.Committed{}, nil, engine.ErrFenced
		}
		if entry.Seq != int64(len(e.history)+i+1) {
			m.refuse("%s: entry %d after %d entries", e.Workflow, entry.Seq, len(e.history)+i)
		}
	}
	if len(c.Entries) == 0 && c.LastSeq < e.LastSeq && m.defect != NoFence {
		return engine.Committed{}, nil, engine.ErrFenced
	}
	if c.LastSeq != e.LastSeq+int64(len(c.Entries)) {
		m.refuse("%s: the history ends with %d after %d and %d entries", e.Workflow, c.LastSeq, e.LastSeq, len(c.Entries))
	}
	if c.LastSeq > e.LastSeq || c.Next == execution.Parked {
		e.crashes = 0
	}
	// A turn that continues need not be numbered anew: its entries say how far it is.
	if c.Next != execution.Running || c.Turn == 0 || len(c.Entries) == 0 || c.Continue != nil {
		e.turn++
	}
	e.LastSeq, e.UpdatedAt = c.LastSeq, c.At
	for _, entry := range c.Entries {
		entry.Generation = e.Generation
		e.history = append(e.history, entry)
		if entry.Kind == history.KindStatus {
			e.statuses[entry.Name] = string(entry.Value)
		}
	}
	done := engine.Committed{Turn: e.turn, State: c.Next}
	if c.Next == execution.Parked && e.wakes != c.Wakes && m.defect != ParksBlindly {
		done.State = execution.Running
	}
	if e.State = done.State; e.State != execution.Running {
		e.heldUntil = time.Time{}
		e.owner = nil
	}
	if e.State.Ended() {
		e.Error, e.EndedAt = c.Error, c.At
	}
	if err := m.openChannels(e, c.Entries); err != nil {
		return engine.Committed{}, nil, err
	}
	m.close(e, c)
	if c.Continue != nil {
		m.continueAsNew(e, c)
	}
	opened, err := m.open(e, c)
	if err != nil {
		return engine.Committed{}, nil, err
	}
	for _, entry := range c.Entries {
		// An event may have been handed to a wait that has given up: it is available to the others now.
		if gaveUp := entry.Event == 0 && (entry.Kind == history.KindWait || entry.Kind == history.KindReceive); gaveUp && !c.Next.Ended() {
			opened = nil
			for _, ref := range refs(e.waits) {
				opened = append(opened, waiting{e, ref})
			}
			break
		}
	}
	born := m.startChildren(e, c.Starts)
	if done.State.Ended() {
		m.orphan(e)
	}
	woken := append(m.match(m.emit(c.Emits), opened, l), born...)
	var others []engine.Woken
	for _, w := range woken {
		if w.ID == e.ID && w.Ours && done.State == execution.Parked {
			done.State = execution.Running
			continue
		}
		others = append(others, w)
	}
	return done, others, nil
}

// continueAsNew begins the next generation of a run, in the transaction that ends the one before.
func (m *Memory) continueAsNew(e *stored, c engine.Commit) {
	left := len(e.timers) + len(e.waits) + len(e.calls) + len(e.polls) + len(e.deliveries)
	if e.deliveries[history.Cancellation] != nil {
		left-- // it is of the run, and the next generation finds it
	}
	if left+len(c.Open) > 0 && m.defect == None {
		m.refuse("%s: generation %d ends, and %d things of it are open", e.Workflow, e.Generation, left+len(c.Open))
	}
	e.continuations = append(e.continuations, c.Continue)
	e.Generation, e.Base = e.Generation+1, c.LastSeq
}

// refuse notes what no engine may ask of a store.
func (m *Memory) refuse(format string, args ...any) {
	m.trouble = append(m.trouble, fmt.Sprintf(format, args...))
}

func (m *Memory) openChannels(e *stored, entries []history.Entry) error {
	for _, entry := range entries {
		if entry.Kind != history.KindChannel {
			continue
		}
		var token string
		if err := json.Unmarshal(entry.Value, &token); err != nil {
			return fmt.Errorf("token of channel %s: %w", entry.Op, err)
		}
		m.channels[token] = e
	}
	return nil
}

func (m *Memory) close(e *stored, c engine.Commit) {
	if c.Next.Ended() {
		if !c.Bare {
			m.closeAll(e)
		}
		return
	}
	if m.defect == ClosesTooMuch && len(c.Closed) > 0 {
		m.closeAll(e)
	}
	for _, ref := range c.Closed {
		delete(e.timers, ref)
		delete(e.waits, ref)
		delete(e.calls, ref)
		delete(e.polls, ref)
		delete(e.deliveries, ref)
	}
}

// waiting is a wait that has to be matched.
type waiting struct {
	execution *stored
	op        history.OpRef
}

func (m *Memory) open(e *stored, c engine.Commit) ([]waiting, error) {
	var waits []waiting
	for _, o := range c.Open {
		ref := o.Op.Ref
		if _, there := e.timers[ref]; there {
			m.refuse("%s: operation %s is opened twice", e.Workflow, ref)
			return nil, fault.New(fault.Conflict, "operation %s is open", ref)
		}
		e.timers[ref] = &timer{due: o.Due}
		if wants := o.Op.Wants(); len(wants) > 0 {
			e.waits[ref] = wants
			waits = append(waits, waiting{e, ref})
		}
		if o.Poll != nil {
			e.polls[ref] = *o.Poll
		}
		if o.Op.Kind == history.KindRun || o.Poll != nil && o.Poll.Calling {
			e.calls[ref] = newCall(e, o, c.At)
		}
	}
	return waits, nil
}

func newCall(e *stored, o engine.Opening, at time.Time) *call {
	sent := &call{
		op: o.Op.Ref, cluster: o.Location == activity.Cluster, noRetry: o.Op.NoRetry || o.Poll != nil, retry: o.Op.Retry,
		OutgoingCall: agent.OutgoingCall{
			ID: o.Op.Activity(history.Handle(e.Ref, 1, e.Generation)), Agent: o.Agent, Function: o.Op.Name, Args: o.Op.Args, Deadline: o.Due,
			Workflow: e.Workflow, Organization: e.Organization,
		},
	}
	if sent.cluster {
		sent.nextAt = at
	}
	return sent
}

// The intervals between attempts at a call of a relay, as internal/store has them.
const (
	firstResend   = 2 * time.Second
	longestResend = 2 * time.Minute
)

// due reports whether the call is to be sent now.
func (c *call) due(now time.Time) bool {
	return c.cluster && !c.nextAt.IsZero() && !c.nextAt.After(now) && c.Deadline.After(now)
}

func (m *Memory) nextCalls(now time.Time, limit int) (calls []agent.OutgoingCall) {
	for _, e := range m.executions {
		for _, ref := range refs(e.calls) {
			c := e.calls[ref]
			if len(calls) == limit || !c.due(now) {
				continue
			}
			c.nextAt = now.Add(min(longestResend, firstResend<<min(c.Attempt, 20)))
			c.Attempt++
			calls = append(calls, c.OutgoingCall)
		}
	}
	return calls
}

// answer takes a relay's answer: the first one stays.
func (m *Memory) answer(a agent.Answer, retryAt, now time.Time, l *engine.Lease) ([]engine.Woken, error) {
	for _, e := range m.executions {
		for _, ref := range refs(e.calls) {
			c := e.calls[ref]
			if c.ID != a.Call {
				continue
			}
			if !c.cluster || c.Agent != a.Agent {
				return nil, fault.New(fault.Denied, "agent %d answered call %q, which is not its own", a.Agent, a.Call)
			}
			again := true
			if a.Error != nil && c.retry != nil {
				var pause time.Duration
				pause, again = c.retry.Pause(c.refused+1, a.Error.Code)
				retryAt = now.Add(pause)
			}
			if a.Error != nil && a.Error.Retryable && !c.noRetry && again && retryAt.Before(c.Deadline) {
				c.nextAt = retryAt
				c.refused++
				return nil, nil
			}
			if e.deliveries[ref] != nil {
				return nil, nil
			}
			m.deliver(e, ref, engine.Arrival{Op: ref, Kind: engine.AnswerArrived, Value: a.Value, Error: a.Error})
			c.nextAt = time.Time{}
			return m.wake(e, l), nil
		}
	}
	return nil, nil
}

func (m *Memory) deliver(e *stored, ref history.OpRef, a engine.Arrival) {
	m.arrived++
	e.deliveries[ref] = &delivery{Arrival: a, order: m.arrived}
}
