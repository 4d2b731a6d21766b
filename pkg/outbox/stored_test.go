package outbox_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/lockstep-cd/lockstep/pkg/event"
	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/outbox"
	"github.com/lockstep-cd/lockstep/pkg/pg"
)

// rewrite puts another text in the place of a stored event.
func (s *stage) rewrite(id, text string) {
	s.t.Helper()
	_, err := s.from.Exec(s.t.Context(), `UPDATE outbox SET event = $2::json WHERE event_id = $1`, id, text)
	s.must(err)
}

// What an earlier version has stored, as the SDK writes it, is published as what this one stores.
func TestARowOfAnEarlierVersionIsPublished(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.add("old", "new")
	text, err := json.Marshal(started("old"))
	s.must(err)
	s.rewrite("old", string(text))
	s.round()
	messages := s.stream.take()
	same(t, "message ids", ids(messages), []string{"old", "new"})
	same(t, "positions", positions(t, messages), []int{1, 2})
	for i, m := range messages {
		want := started(m.id)
		for _, name := range []string{outbox.ExtensionSender, outbox.ExtensionEpoch, outbox.ExtensionPosition, outbox.ExtensionBase} {
			want.SetExtension(name, event.Extension(m.event, name))
			if event.Extension(m.event, name) == "" {
				t.Errorf("%s has no %s", m.id, name)
			}
		}
		if diff := cmp.Diff(want.String(), m.event.String()); diff != "" {
			t.Errorf("message %d (-want +got):\n%s", i, diff)
		}
	}
	s.deliver(messages...)
	s.confirm()
	same(t, "held", s.held(), []string{})
}

// A row that is not an event is postponed, with the reason, and the others continue.
func TestARowThatIsNoEventIsPostponed(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct{ text, reason string }{
		"no event": {`{"a":1}`, "not a CloudEvent"},
		"a list":   {`[1]`, "not a CloudEvent"},
		"of no catalogue": {
			`{"specversion":"1.0","type":"com.example.x","id":"bad","source":"/services/workflow","data":{}}`,
			"not in the event catalogue",
		},
		"of no schema": {
			`{"specversion":"1.0","id":"bad","source":"/services/workflow","type":"` + event.TypeRolloutStarted +
				`","organizationid":"1","data":{"rollout_id":0}}`,
			"data.rollout_id",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStage(t)
			s.add("a", "bad", "b")
			s.rewrite("bad", tt.text)
			s.round()
			same(t, "message ids", ids(s.stream.take()), []string{"a", "b"})
			var reason string
			var attempts int
			s.must(s.from.QueryRow(t.Context(), `SELECT last_error, attempts FROM outbox WHERE event_id = 'bad'`).Scan(&reason, &attempts))
			if !strings.Contains(reason, tt.reason) || attempts != 1 {
				t.Errorf("after %d attempts the reason is %q, want one with %q", attempts, reason, tt.reason)
			}
		})
	}
}

// An event that already has a place, because a received event is forwarded, is published with the place that it has here.
func TestAnEventsOwnPlaceGivesWay(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	e := started("handed on")
	e.SetExtension(outbox.ExtensionSender, "registry")
	e.SetExtension(outbox.ExtensionPosition, "77")
	s.must(pg.InTx(t.Context(), s.from, func(tx pgx.Tx) error { return outbox.Add(t.Context(), tx, sealed(e)...) }))
	s.round()
	messages := s.stream.take()
	same(t, "positions", positions(t, messages), []int{1})
	same(t, "sender", event.Extension(messages[0].event, outbox.ExtensionSender), "workflow")
	s.deliver(messages...)
	s.confirm()
	same(t, "held", s.held(), []string{})
}

func TestNoEventIsRefused(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	for name, add := range map[string]func() error{
		"Add": func() error {
			return pg.InTx(t.Context(), s.from, func(tx pgx.Tx) error { return outbox.Add(t.Context(), tx, event.Sealed{}) })
		},
		"AddNumbered": func() error {
			return pg.InTx(t.Context(), s.from, func(tx pgx.Tx) error { return outbox.AddNumbered(t.Context(), tx, event.Sealed{}) })
		},
		"AddNew": func() error {
			return pg.InTx(t.Context(), s.from, func(tx pgx.Tx) error { return outbox.AddNew(t.Context(), tx, event.Sealed{}) })
		},
	} {
		if err := add(); !fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), "event") {
			t.Errorf("%s answered %v", name, err)
		}
	}
}

// What an event holds comes to the receiver to the byte of its data, whatever is in it.
func TestTheDataOfAnEventIsKept(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	data := `{"rollout_id": 7, "note": "\u0000 ä \"outboxposition\":\"9\",", "more": [{"data": null}, 1e400]}`
	e, err := event.Make(event.Header{ID: "any", Source: "/services/workflow", Organization: 1, Time: time.Unix(0, 1)},
		event.Raw{Type: event.TypeRolloutStarted, JSON: json.RawMessage(data)})
	s.must(err)
	s.must(pg.InTx(t.Context(), s.from, func(tx pgx.Tx) error { return outbox.AddNumbered(t.Context(), tx, e) }))
	s.round()
	messages := s.stream.take()
	same(t, "positions", positions(t, messages), []int{1})
	same(t, "data", string(messages[0].event.Data()), data)
}
