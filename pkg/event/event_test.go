package event_test

import (
	"strings"
	"testing"
	"time"

	cloudevents "github.com/cloudevents/sdk-go/v2/event"
	"github.com/google/go-cmp/cmp"

	"github.com/lockstep-cd/lockstep/pkg/event"
	"github.com/lockstep-cd/lockstep/pkg/fault"
)

const digest = "sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"

func header() event.Header {
	return event.Header{ID: "e1", Source: "/services/example", Organization: 3, Time: time.Unix(0, 0)}
}

func TestDecodeUndoesNew(t *testing.T) {
	t.Parallel()
	want := event.RolloutGateReached{RolloutID: 7, EnvironmentID: 3, Weight: 25}
	e, err := event.New(header(), want)
	if err != nil {
		t.Fatal(err)
	}
	got, err := event.Decode[event.RolloutGateReached](e)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("payload (-want +got):\n%s", diff)
	}
	if org, err := event.Organization(e); org != 3 || err != nil {
		t.Errorf("organization = %d, %v", org, err)
	}
}

func TestSubjects(t *testing.T) {
	t.Parallel()
	tests := []struct {
		data event.Data
		want string
	}{
		{event.ArtifactPublished{Image: "a/b", Digest: digest}, "cd.registry.artifact.published"},
		{event.AgentHeartbeat{AgentID: 42, StartedAt: "2026-03-25T09:00:00Z", ObservedAt: "2026-03-25T09:00:00Z"}, "cd.cluster.42.heartbeat"},
		{event.FunctionCompleted{AgentID: 42, CallID: "1", Attempt: 1}, "cd.cluster.42.result"},
		{event.RolloutGateReached{RolloutID: 1, EnvironmentID: 1, Weight: 5}, "cd.domain.3.rollout.gate_reached"},
		{event.ApplicationEnvironmentReady{ApplicationEnvironmentID: 1}, "cd.domain.3.application_environment.ready"},
	}
	for _, tt := range tests {
		t.Run(tt.want, func(t *testing.T) {
			t.Parallel()
			e, err := event.New(header(), tt.data)
			if err != nil {
				t.Fatal(err)
			}
			if got, err := event.Subject(e); got != tt.want || err != nil {
				t.Errorf("subject = %q, %v; want %q", got, err, tt.want)
			}
		})
	}
}

func TestInvalidEventsNameTheField(t *testing.T) {
	t.Parallel()
	artifact := func(data string) event.Event {
		e := cloudevents.New()
		e.SetID("e1")
		e.SetSource("/ci")
		e.SetType(event.TypeArtifactPublished)
		_ = e.SetData(cloudevents.ApplicationJSON, []byte(data))
		return e
	}
	tests := []struct {
		name  string
		event event.Event
		want  string
	}{
		{"no digest", artifact(`{"image":"a/b"}`), "digest"},
		{"digest of the wrong form", artifact(`{"image":"a/b","digest":"latest"}`), "data.digest"},
		{"image of the wrong type", artifact(`{"image":7,"digest":"` + digest + `"}`), "data.image"},
		{"time of the wrong form", artifact(`{"image":"a","digest":"` + digest + `","published_at":"yesterday"}`), "data.published_at"},
		{"not JSON", artifact(`{"image"`), "data"},
		{"unknown type", func() event.Event { e := artifact(`{}`); e.SetType("com.example.x"); return e }(), "type"},
		{"no id", func() event.Event { e := artifact(`{}`); e.SetID(""); return e }(), "id"},
		{"bad organization", func() event.Event {
			e := artifact(`{"image":"a","digest":"` + digest + `"}`)
			e.SetExtension("organizationid", "acme")
			return e
		}(), "organizationid"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			err := event.Validate(tt.event)
			if !fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error = %v (%v), want an invalid one that names %q", err, fault.ClassOf(err), tt.want)
			}
		})
	}
}

func TestDecodeRefusesAnotherType(t *testing.T) {
	t.Parallel()
	e, err := event.New(header(), event.RolloutStarted{RolloutID: 1})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := event.Decode[event.RolloutHealthy](e); !fault.Is(err, fault.Invalid) {
		t.Errorf("decoding another type answered %v", err)
	}
}

func TestUnknownFieldsAreKept(t *testing.T) {
	t.Parallel()
	e, err := event.New(header(), event.RolloutStarted{RolloutID: 1})
	if err != nil {
		t.Fatal(err)
	}
	if err := e.SetData(cloudevents.ApplicationJSON, []byte(`{"rollout_id":1,"added_later":true}`)); err != nil {
		t.Fatal(err)
	}
	if _, err := event.Decode[event.RolloutStarted](e); err != nil {
		t.Errorf("a newer producer's field is refused: %v", err)
	}
}
