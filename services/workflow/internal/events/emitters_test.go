package events

import (
	"encoding/json"
	"log/slog"
	"testing"

	"github.com/lockstep-cd/lockstep/pkg/bus"
	"github.com/lockstep-cd/lockstep/pkg/event"
	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/testkit/emitters"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/history"
)

// TestProgramsEmitOnlyWhatIsTheirs (D47) walks the catalogue by emitter at run("emit"): no program can answer an approval,
// grant a passage, or report the end of a run.
func TestProgramsEmitOnlyWhatIsTheirs(t *testing.T) {
	t.Parallel()
	emitters.Walk(t, func(d event.Definition, by event.Emitter, may bool) {
		if by != event.EmitterProgram {
			return
		}
		data, err := json.Marshal(d.Example)
		if err != nil {
			t.Fatal(err)
		}
		refusal := CheckEmit(history.Emit{ID: "e/0.1", Organization: 1, Workflow: "w", Type: d.Type, Data: data, Time: noon})
		if may != (refusal == nil) {
			t.Errorf("%s: %v, expected that a program may emit it is %t", d.Type, refusal, may)
		}
		if checked := CheckType(d.Type); (checked == nil) != may {
			t.Errorf("%s: %v in a check of the program, expected that a program may emit it is %t", d.Type, checked, may)
		}
		if refusal != nil && refusal.Code != history.CodeInvalid {
			t.Errorf("%s: found code %s, expected %s", d.Type, refusal.Code, history.CodeInvalid)
		}
	})
}

// TestTheBusIsReadFromTheRightSenders (D47) walks the catalogue by emitter at the two inboxes. What has the source of this service is its
// own, which it has matched when it stored it.
func TestTheBusIsReadFromTheRightSenders(t *testing.T) {
	t.Parallel()
	emitters.Walk(t, func(d event.Definition, by event.Emitter, may bool) {
		e, err := event.New(event.Header{ID: "1", Source: emitters.Source(by), Organization: 4, Time: noon}, d.Example)
		if err != nil {
			t.Fatal(err)
		}
		subject, err := event.Subject(e)
		if err != nil {
			t.Fatal(err)
		}
		i := &inbox{}
		switch d.Path {
		case event.PathDomain:
			domain := Domain{Receiver: i, Policies: i, Inbox: i, Log: slog.New(slog.DiscardHandler)}
			err = domain.Handle(t.Context(), bus.Delivery{Event: e, Subject: subject})
			if own := e.Source() == Source; own && (err != nil || len(i.received) > 0) || !own && may != (len(i.received) == 1) {
				t.Errorf("%s from %s: %v, and %d received; expected that it may is %t", d.Type, e.Source(), err, len(i.received), may)
			}
			if !may && e.Source() != Source && !fault.Is(err, fault.Invalid) {
				t.Errorf("%s from %s: %v, expected a refusal", d.Type, e.Source(), err)
			}
		case event.PathCluster:
			if may || e.Source() == Source {
				return // what a relay may send has tests of its own, and this service does not read what it sends itself
			}
			err = Cluster{Log: slog.New(slog.DiscardHandler)}.Handle(t.Context(), bus.Delivery{Event: e, Subject: subject})
			if !fault.Is(err, fault.Invalid) {
				t.Errorf("%s from %s: %v, expected a refusal", d.Type, e.Source(), err)
			}
		case event.PathRegistry:
		}
	})
}
