package event_test

import (
	"strings"
	"testing"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/event"
	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/testkit/emitters"
)

// TestWhoMayEmitWhat (D47) walks catalogue by emitter: what the doors ask, and that a refusal names who was found and who was expected.
func TestWhoMayEmitWhat(t *testing.T) {
	t.Parallel()
	bySource := map[string]map[string]bool{}
	emitters.Walk(t, func(d event.Definition, by event.Emitter, may bool) {
		err := event.CheckEmitter(d.Type, by)
		if may != (err == nil) {
			t.Errorf("%s from %s: %v, expected that it may is %t", d.Type, by, err, may)
		}
		if err != nil && (!fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), d.Type) ||
			!strings.Contains(err.Error(), by.Describe()) || !strings.Contains(err.Error(), d.EmittedBy[0].Describe())) {
			t.Errorf("%s from %s: found %v, expected the type, who it is from, and who it is expected from", d.Type, by, err)
		}
		if bySource[d.Type] == nil {
			bySource[d.Type] = map[string]bool{}
		}
		if by != event.EmitterCaller {
			bySource[d.Type][emitters.Source(by)] = bySource[d.Type][emitters.Source(by)] || may
		}
	})
	for eventType, sources := range bySource {
		for _, source := range []string{"", "/ci", "/services", "/services/domain/x", "/services/relay", "/channels/x"} {
			sources[source] = false
		}
		for source, may := range sources {
			if err := event.CheckSource(eventType, source); may != (err == nil) {
				t.Errorf("%s from source %q: %v, expected that it may is %t", eventType, source, err, may)
			}
		}
	}
}

// TestCallersHaveTypesAndSourcesOfTheirOwn (D47).
func TestCallersHaveTypesAndSourcesOfTheirOwn(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ eventType, source, want string }{
		{"com.example.tick", "/ci", ""},
		{"com.example.tick", "/services/checkout", ""},
		{"com.example.tick", "https://ci.example.com", ""},
		{event.TypeArtifactPublished, "/ci", ""},
		{"com.example.tick", event.SourceDomain, "source"},
		{"com.example.tick", event.SourceWorkflow, "source"},
		{"com.example.tick", event.SourceRegistry, "source"},
		{"com.example.tick", "/agents/42", "source"},
		{"com.example.tick", "/channels/ch_A", "source"},
		{"com.gitlab.cd.unknown.thing", "/ci", "type"},
		{"com.gitlab.cd.workflow.message", "/ci", "type"},
		{event.TypeApprovalResolved, event.SourceDomain, "type source"},
	} {
		e := event.Event{}
		e.SetSpecVersion("1.0")
		e.SetType(tt.eventType)
		e.SetSource(tt.source)
		e.SetTime(time.Unix(0, 0))
		var names []string
		for _, f := range fault.FieldsOf(event.CheckCaller(e)) {
			names = append(names, f.Name)
		}
		if got := strings.Join(names, " "); got != tt.want {
			t.Errorf("%s from %s: found a refusal of %q, expected %q", tt.eventType, tt.source, got, tt.want)
		}
	}
}

// TestWhatAnEarlierReleaseStoredFits (D47).
func TestWhatAnEarlierReleaseStoredFits(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		eventType, source string
		want              bool
	}{
		{event.TypeApprovalResolved, event.SourceDomain, true},
		{event.TypeApprovalResolved, event.SourceWorkflow, false},
		{event.TypeApprovalResolved, "/ci", false},
		{event.TypeRolloutHealthy, "/ci", false},
		{event.TypeRolloutHealthy, event.SourceWorkflow, true},
		{event.TypeObjectChanged, "/agents/42", true},
		{event.TypeArtifactPublished, "/ci", true},
		{"com.example.tick", "/ci", true},
		{"com.gitlab.cd.workflow.message", "/channels/ch_A", true},
		{"com.gitlab.cd.workflow.message", "/ci", false},
		{event.TypeApprovalResolved, "/channels/ch_A", false},
		{"com.example.tick", "/channels/ch_A", false},
		{"com.gitlab.cd.newer.thing", event.SourceDomain, true},
	} {
		if got := event.Fits(tt.eventType, tt.source); got != tt.want {
			t.Errorf("%s from %s: found %t, expected %t", tt.eventType, tt.source, got, tt.want)
		}
	}
}
