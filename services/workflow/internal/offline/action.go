package offline

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/history"
)

// act carries out a step.
func (w *world) act(r *run, a Action) error {
	switch {
	case a.Event != nil:
		e := history.Event{
			Organization: 1, Source: a.Event.Source, ID: a.Event.ID, Type: a.Event.Type, Data: a.Event.Data, Time: w.now,
		}
		if e.Source == "" {
			e.Source = sourceOf(e.Type)
		}
		if e.ID == "" {
			e.ID = fmt.Sprintf("event-%d", len(w.events)+1)
		}
		if w.receive(e) {
			return fmt.Errorf("the event %s of %s was sent before", e.ID, e.Source)
		}
		w.receive(e) // at least once
	case a.Advance != "":
		d, err := time.ParseDuration(a.Advance)
		if err != nil {
			return fmt.Errorf("advance: %w", err)
		}
		return w.pass(w.now.Add(d))
	case a.Send != nil:
		token := history.InboxToken(r.ref)
		if a.Send.Channel != nil {
			tokens := r.tokens()
			if n := *a.Send.Channel; n < 0 || n >= len(tokens) {
				return fmt.Errorf("send: found channel %d, expected 0 to %d", n, len(tokens)-1)
			}
			token = tokens[*a.Send.Channel]
		}
		return w.send(history.Message{Token: token, ID: a.Send.ID, Data: a.Send.Data})
	case a.Call != nil:
		m := history.Message{Token: history.InboxToken(r.ref), ID: a.Call.ID, Data: a.Call.Data, Call: true}
		if a.Call.Answer == nil && a.Call.Error == "" {
			return w.send(m)
		}
		if err := w.send(m); err != nil {
			return err
		}
		if err := w.settle(); err != nil {
			return err
		}
		got, is := w.replies[[2]string{m.Token, m.ID}]
		if !is || got.Error != a.Call.Error || (a.Call.Answer != nil && !holds(a.Call.Answer, got.Value)) {
			return fmt.Errorf("call %s: answered %s%s, expected %s%s", a.Call.ID, got.Value, got.Error, a.Call.Answer, a.Call.Error)
		}
	case a.Cancel != nil:
		return w.cancel(r, *a.Cancel)
	case a.Change != "":
		if err := w.change(r, a.changed); err != nil {
			return fmt.Errorf("change: %s: %w", a.Change, err)
		}
	}
	return nil
}

// change gives a run that waits another program. Its history must replay under it, and lead to the same waits.
func (w *world) change(r *run, source []byte) error {
	was := r.machine.Pending()
	r.program.Source = source
	if err := w.scripts.Check(r.program, r.inputs); err != nil {
		return err
	}
	differs, is, err := w.replay(r)
	switch ended, failure := r.machine.Outcome(); {
	case err != nil:
		return err
	case is:
		return fmt.Errorf("the program does not fit entry %d of the history: %w", differs.Seq, differs)
	case ended && failure != nil:
		return fmt.Errorf("the program does not fit: it would fail: %w", failure)
	case ended:
		return errors.New("the program does not fit: it would end")
	}
	if entries, _ := r.machine.Take(); len(entries) > 0 {
		return fmt.Errorf("the program does not fit behind entry %d of the history: it would first record %s", len(r.entries),
			title(entries[0].Kind, entries[0].Name))
	}
	if is := r.machine.Pending(); !slices.EqualFunc(was, is, sameOp) {
		return fmt.Errorf("the program does not fit behind entry %d of the history: it would wait for %s, where the run waits for %s", len(r.entries),
			named(is), named(was))
	}
	return nil
}

// sameOp reports whether two operations are the same one.
func sameOp(a, b history.Op) bool {
	return a.Ref == b.Ref && a.Kind == b.Kind && a.Name == b.Name && a.Hash == b.Hash
}

// pass lets time pass, in which what is due happens in its order.
func (w *world) pass(until time.Time) error {
	for {
		next := w.nextTime()
		if next.IsZero() || next.After(until) {
			w.now = until
			return nil
		}
		w.now = next
		if err := w.settle(); err != nil {
			return err
		}
		if w.turns++; w.turns > maxTurns {
			return errOver
		}
	}
}

func (w *world) send(m history.Message) error {
	m.Organization, m.Time = 1, w.now
	if m.ID == "" {
		m.ID = fmt.Sprintf("message-%d", len(w.events)+1)
	}
	e, err := m.Event()
	if err != nil {
		return err
	}
	w.receive(e)
	return nil
}

// tokens are those of the channels of a run, in the order in which it has made them.
func (r *run) tokens() (all []string) {
	for _, e := range r.entries {
		if e.Kind == history.KindChannel {
			all = append(all, strings.Trim(string(e.Value), `"`))
		}
	}
	return all
}

// narrative is what the run has led to.
func (w *world) narrative(r *run) Narrative {
	n := Narrative{Ref: r.ref, Entries: r.entries, Effects: w.effects}
	for _, other := range w.runs {
		n.Sent = append(n.Sent, other.sent...)
	}
	return n
}

// waits are what the run is blocked on, for people.
func (r *run) waits() string { return named(r.machine.Pending()) }

func named(ops []history.Op) string {
	var all []string
	for _, op := range ops {
		name := op.Name
		if op.Kind == history.KindWait {
			name = history.Describe(op.Types, op.Filter)
		}
		all = append(all, fmt.Sprintf("%s at %s", title(op.Kind, name), op.Position))
	}
	slices.Sort(all)
	return strings.Join(all, ", ")
}
