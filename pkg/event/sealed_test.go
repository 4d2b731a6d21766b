package event_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	cloudevents "github.com/cloudevents/sdk-go/v2/event"
	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/lockstep-cd/lockstep/pkg/event"
	"github.com/lockstep-cd/lockstep/pkg/fault"
)

const trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"

// canonical returns e as the SDK writes it after having read it.
func canonical(t rapid.TB, e event.Event) string {
	t.Helper()
	for range 2 { // the second round writes what the first has read
		text, err := json.Marshal(e)
		if err != nil {
			t.Fatal(err)
		}
		e = event.Event{}
		if err := json.Unmarshal(text, &e); err != nil {
			t.Fatal(err)
		}
	}
	text, err := json.Marshal(e)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func opened(t rapid.TB, s event.Sealed) event.Event {
	t.Helper()
	e, err := s.Event()
	if err != nil {
		t.Fatalf("%s: %v", s.JSON(), err)
	}
	return e
}

// attributes returns what a Sealed knows without its text.
func attributes(s event.Sealed) []string {
	return []string{s.Type(), s.ID(), s.Source(), s.Subject(), s.Trace(), string(s.Path())}
}

// drawEvent draws a valid event of one of the three paths, with arbitrary text wherever that is allowed.
func drawEvent(t *rapid.T) event.Event {
	id := rapid.StringMatching(`\S.{0,20}\S`).Draw(t, "id")
	h := event.Header{
		ID: id, Source: rapid.SampledFrom([]string{"/services/workflow", "/ä b", "https://x.example/?a=\"b\"", "urn:x"}).Draw(t, "source"),
		Organization: rapid.Int64Range(1, 1<<62).Draw(t, "organization"), Correlation: rapid.String().Draw(t, "correlation"),
		Trace: rapid.SampledFrom([]string{"", trace}).Draw(t, "trace"),
		Time:  time.Unix(rapid.Int64Range(0, 1<<34).Draw(t, "time"), rapid.Int64Range(0, 999).Draw(t, "ns")),
	}
	data := rapid.SampledFrom([]event.Data{
		event.RolloutStarted{RolloutID: 7},
		event.RolloutFailed{RolloutID: 7, Reason: "r" + rapid.String().Draw(t, "reason")},
		event.ArtifactPublished{Image: "a/b", Digest: digest, Tag: rapid.StringN(0, 200, -1).Draw(t, "tag")},
		event.FunctionCompleted{
			AgentID: 42, CallID: "\"outboxbase\":", Attempt: 1,
			Value: json.RawMessage(`{ "a": [1, {"data": "}"}], "outboxbase":"7" }`),
		},
		event.Raw{Type: event.TypeRolloutStarted, JSON: json.RawMessage("{\n \"rollout_id\" : 7, \"data\":{\"type\":\"x\"}}")},
	}).Draw(t, "data")
	e, err := event.New(h, data)
	if err != nil {
		t.Fatal(err)
	}
	for name, value := range rapid.MapOfN(rapid.StringMatching(`x[a-z0-9]{1,8}`), rapid.OneOf(
		rapid.String().AsAny(), rapid.Int32().AsAny(), rapid.Bool().AsAny(), rapid.SliceOf(rapid.Byte()).AsAny(),
	), 0, 4).Draw(t, "extensions") {
		e.SetExtension(name, value)
	}
	if rapid.Bool().Draw(t, "placed before") {
		e.SetExtension("outboxbase", rapid.String().Draw(t, "base"))
	}
	if rapid.Bool().Draw(t, "subject") {
		e.SetSubject("s" + rapid.String().Draw(t, "of"))
	}
	if rapid.IntRange(0, 9).Draw(t, "base64") == 0 {
		e.DataBase64 = true
	}
	if rapid.IntRange(0, 9).Draw(t, "content type") == 0 {
		e.SetDataContentType("application/json; charset=utf-8")
	}
	return e
}

// TestASealedEventIsTheEvent: sealing, storing and restoring any event, and adding attributes to its text, gives the same as decoding,
// setting attributes and encoding.
func TestASealedEventIsTheEvent(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		e := drawEvent(t)
		sealed, err := event.Seal(e)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(canonical(t, e), canonical(t, opened(t, sealed))); diff != "" {
			t.Fatalf("sealed (-want +got):\n%s", diff)
		}
		subject, err := event.Subject(e)
		if err != nil || subject != sealed.Subject() {
			t.Fatalf("subject %q, want %q, %v", sealed.Subject(), subject, err)
		}
		ofSDK, err := json.Marshal(e)
		if err != nil {
			t.Fatal(err)
		}
		var placed []event.Attribute
		for _, name := range []string{"outboxsender", "outboxbase", "outboxposition"} {
			placed = append(placed, event.Attribute{Name: name, Value: rapid.String().Draw(t, name)})
			e.SetExtension(name, placed[len(placed)-1].Value)
		}
		for name, kept := range map[string][]byte{
			"own text": sealed.JSON(), "text of an earlier version": ofSDK,
			"text with space around it": []byte(" " + string(sealed.JSON()) + "\n"),
		} {
			restored, err := event.Restore(kept)
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			if diff := cmp.Diff(attributes(sealed), attributes(restored)); diff != "" {
				t.Fatalf("%s, attributes (-want +got):\n%s", name, diff)
			}
			before := string(restored.JSON())
			with, err := restored.With(placed...)
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			if diff := cmp.Diff(canonical(t, e), canonical(t, opened(t, with))); diff != "" {
				t.Fatalf("%s, with attributes (-want +got):\n%s", name, diff)
			}
			if string(restored.JSON()) != before {
				t.Fatalf("%s: With has changed what it was asked of", name)
			}
			if again, err := with.With(placed...); err != nil || canonical(t, opened(t, again)) != canonical(t, e) {
				t.Fatalf("%s: a second time it is another event: %s, %v", name, again.JSON(), err)
			}
		}
	})
}

// Restore reads what Seal writes without decoding it: the golden text keeps the two in step, and stored rows readable for the next version.
func TestTheLayoutOfASealedEvent(t *testing.T) {
	t.Parallel()
	h := header()
	h.Correlation, h.Causation, h.Trace = "1:\"quoted\"", "c1", trace
	s, err := event.Make(h, event.RolloutGateReached{RolloutID: 7, EnvironmentID: 3, Weight: 25})
	if err != nil {
		t.Fatal(err)
	}
	want := `{"specversion":"1.0","type":"com.gitlab.cd.rollout.gate_reached","id":"e1","source":"/services/example","datacontenttype":"application/json",` +
		`"time":"1970-01-01T00:00:00Z","causationid":"c1","correlationid":"1:\"quoted\"","organizationid":"3","traceparent":"` + trace + `",` +
		`"data":{"rollout_id":7,"environment_id":3,"weight":25}}`
	if diff := cmp.Diff(want, string(s.JSON())); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	same, err := event.New(h, event.RolloutGateReached{RolloutID: 7, EnvironmentID: 3, Weight: 25})
	if err != nil || canonical(t, same) != canonical(t, opened(t, s)) {
		t.Errorf("New makes another event: %v, %v", same, err)
	}
	with, err := s.With(event.Attribute{Name: "outboxposition", Value: "5"})
	if err != nil {
		t.Fatal(err)
	}
	if want := strings.Replace(want, `{"specversion":"1.0",`, `{"specversion":"1.0","outboxposition":"5",`, 1); string(with.JSON()) != want {
		t.Errorf("with an attribute it is %s", with.JSON())
	}
}

func TestSealRefusesWhatValidateRefuses(t *testing.T) {
	t.Parallel()
	broken := func(change func(*event.Event)) event.Event {
		e, err := event.New(header(), event.RolloutStarted{RolloutID: 7})
		if err != nil {
			t.Fatal(err)
		}
		change(&e)
		return e
	}
	for name, tt := range map[string]struct {
		event event.Event
		want  string
	}{
		"unknown type": {broken(func(e *event.Event) { e.SetType("com.example.x") }), "type"},
		"no id":        {broken(func(e *event.Event) { e.SetID("") }), "id"},
		"no organization": {
			broken(func(e *event.Event) { e.SetExtension(event.ExtensionOrganization, nil) }),
			event.ExtensionOrganization,
		},
		"data against its schema": {broken(func(e *event.Event) { e.DataEncoded = []byte(`{"rollout_id":0}`) }), "data.rollout_id"},
		"data that is not JSON":   {broken(func(e *event.Event) { e.DataEncoded = []byte(`{"rollout_id":7}}`) }), "data"},
		"data of two values":      {broken(func(e *event.Event) { e.DataEncoded = []byte(`{"rollout_id":7},"outboxbase":"1"`) }), "data"},
		"data that is not UTF-8":  {broken(func(e *event.Event) { e.DataEncoded = []byte("{\"rollout_id\":7,\"x\":\"\xff\"}") }), "data"},
		"text that is not UTF-8":  {broken(func(e *event.Event) { e.SetExtension("correlationid", "\xff") }), "correlationid"},
	} {
		s, err := event.Seal(tt.event)
		if !fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), tt.want) || !s.IsZero() {
			t.Errorf("%s: %v, want an invalid one that names %q", name, err, tt.want)
		}
	}
	if _, err := event.Make(header(), event.RolloutStarted{}); !fault.Is(err, fault.Invalid) ||
		!strings.Contains(err.Error(), "data.rollout_id") {
		t.Errorf("Make answered %v", err)
	}
	if _, err := event.Make(header(), event.Raw{Type: event.TypeRolloutStarted}); !fault.Is(err, fault.Invalid) ||
		!strings.Contains(err.Error(), "data") {
		t.Errorf("Make without data answered %v", err)
	}
}

// TestMakeIsNewAndSeal: for any header and payload, Make returns what New and Seal would, to the byte, and refuses what they refuse.
// Reading its text gives the values that it reports itself.
func TestMakeIsNewAndSeal(t *testing.T) {
	t.Parallel()
	text := rapid.OneOf(rapid.SampledFrom([]string{"", " ", " a", "a ", "a\xff", "w-1", `q"\<&>`, "ä", "\n", trace}), rapid.String())
	rapid.Check(t, func(t *rapid.T) {
		h := event.Header{
			ID: text.Draw(t, "id"), Source: rapid.OneOf(rapid.SampledFrom([]string{
				"/services/workflow", "/agents/42", "//x", "/", "/a?b", "/ä b",
				"/%41", "https://x.example/", "/a:b",
			}), text).Draw(t, "source"),
			Organization: rapid.Int64Range(-1, 3).Draw(t, "organization"), Correlation: text.Draw(t, "correlation"),
			Causation: text.Draw(t, "causation"), Trace: text.Draw(t, "trace"),
		}
		if rapid.IntRange(0, 9).Draw(t, "timed") > 0 {
			h.Time = time.Unix(rapid.Int64Range(0, 1<<34).Draw(t, "time"),
				rapid.Int64Range(0, 999_999_999).Draw(t, "ns")).In(time.FixedZone("x", 3600))
		}
		data := rapid.OneOf(
			rapid.Map(text, func(id string) event.Data { return event.WorkflowCompleted{WorkflowID: id} }),
			rapid.Map(text, func(reason string) event.Data { return event.RolloutFailed{RolloutID: 7, Reason: reason} }),
			rapid.Map(rapid.SampledFrom([]string{
				`{"rollout_id":7}`, "{ \"rollout_id\" : 7 }\n", `{}`, `{"rollout_id":7}}`,
				`{"rollout_id":7,"x":"` + "\xff" + `"}`, ``, `null`,
			}), func(body string) event.Data {
				return event.Raw{Type: event.TypeRolloutStarted, JSON: json.RawMessage(body)}
			}),
			rapid.Just[event.Data](event.Raw{Type: "com.gitlab.cd.rollout.eaten", JSON: json.RawMessage(`{}`)}),
			rapid.Just[event.Data](event.ArtifactPublished{Image: "a/b", Digest: digest}),
			rapid.Just[event.Data](event.FunctionCompleted{AgentID: 42, CallID: "c", Attempt: 1, Value: json.RawMessage(`{ "a": [1] }`)}),
		).Draw(t, "data")
		var want event.Sealed
		e, refusal := event.New(h, data)
		if refusal == nil {
			want, refusal = event.Seal(e)
		}
		got, err := event.Make(h, data)
		// Which of several mistakes an error names varies.
		if fault.ClassOf(err) != fault.ClassOf(refusal) || (err == nil) != (refusal == nil) {
			t.Fatalf("answered %v, want %v", err, refusal)
		}
		if diff := cmp.Diff(append(attributes(want), string(want.JSON())), append(attributes(got), string(got.JSON()))); diff != "" {
			t.Fatalf("(-want +got):\n%s", diff)
		}
		if err != nil {
			return
		}
		restored, err := event.Restore(got.JSON())
		if diff := cmp.Diff(got, restored, cmp.AllowUnexported(event.Sealed{})); err != nil || diff != "" {
			t.Fatalf("restored, %v (-want +got):\n%s", err, diff)
		}
	})
}

func TestRestoreRefusesWhatIsNoEvent(t *testing.T) {
	t.Parallel()
	s, err := event.Make(header(), event.RolloutStarted{RolloutID: 7})
	if err != nil {
		t.Fatal(err)
	}
	whole := string(s.JSON())
	for name, text := range map[string]string{
		"null": `null`, "a list": `[]`, "empty": `{}`, "a number": `7`,
		"no data":         whole[:strings.Index(whole, `,"data"`)] + `}`,
		"unknown type":    strings.Replace(whole, event.TypeRolloutStarted, "com.gitlab.cd.rollout.eaten", 1),
		"no organization": strings.Replace(whole, `"organizationid":"3",`, ``, 1),
		"organization":    strings.Replace(whole, `"organizationid":"3",`, `"organizationid":"acme",`, 1),
		"no id":           strings.Replace(whole, `"id":"e1",`, ``, 1),
		"other version":   strings.Replace(whole, `"1.0"`, `"7.0"`, 1),
	} {
		if s, err := event.Restore([]byte(text)); !fault.Is(err, fault.Invalid) {
			t.Errorf("%s: answered %s, %v", name, s.JSON(), err)
		}
	}
}

// FuzzRestore: valid JSON stays valid, whatever is read from it.
func FuzzRestore(f *testing.F) {
	for _, d := range event.Catalogue() {
		s, err := event.Make(header(), d.Example)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(s.JSON())
		text, err := json.Marshal(opened(f, s))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		if !json.Valid(text) {
			return // a JSON column cannot contain it
		}
		s, err := event.Restore(text)
		if err != nil {
			if !fault.Is(err, fault.Invalid) {
				t.Errorf("error %v of class %v, want invalid", err, fault.ClassOf(err))
			}
			return
		}
		with, err := s.With(event.Attribute{Name: "outboxbase", Value: "\""})
		if err == nil && !json.Valid(with.JSON()) {
			t.Errorf("%s became %s", text, with.JSON())
		}
	})
}

// BenchmarkSeal measures an event from its payload to the text that is sent: created and checked once, restored from storage, and given
// attributes; and for comparison with the SDK alone, checked and encoded at every step.
func BenchmarkSeal(b *testing.B) {
	h := header()
	h.Correlation, h.Trace = "1:rollout:7", trace
	body := json.RawMessage(`{"workflow_id":"bench-123456"}`)
	place := []event.Attribute{{Name: "outboxsender", Value: "workflow"}, {
		Name:  "outboxepoch",
		Value: "0b5e4e4c-8f0e-4a3c-9d42-6f1d2c3b4a59",
	}, {Name: "outboxposition", Value: "123456"}, {Name: "outboxbase", Value: "1"}}
	b.Run("once", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			made, err := event.Make(h, event.Raw{Type: event.TypeWorkflowCompleted, JSON: body})
			if err != nil {
				b.Fatal(err)
			}
			kept, err := event.Restore(made.JSON())
			if err != nil {
				b.Fatal(err)
			}
			if _, err := kept.With(place...); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("restore and place", func(b *testing.B) {
		made, err := event.Make(h, event.Raw{Type: event.TypeWorkflowCompleted, JSON: body})
		if err != nil {
			b.Fatal(err)
		}
		b.ReportAllocs()
		for b.Loop() {
			kept, err := event.Restore(made.JSON())
			if err != nil {
				b.Fatal(err)
			}
			if _, err := kept.With(place...); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("at every step", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			e, err := event.New(h, event.Raw{Type: event.TypeWorkflowCompleted, JSON: body})
			if err != nil {
				b.Fatal(err)
			}
			if err := event.Validate(e); err != nil {
				b.Fatal(err)
			}
			text, err := json.Marshal(e)
			if err != nil {
				b.Fatal(err)
			}
			kept := cloudevents.Event{}
			if err := json.Unmarshal(text, &kept); err != nil {
				b.Fatal(err)
			}
			for _, a := range place {
				kept.SetExtension(a.Name, a.Value)
			}
			if err := event.Validate(kept); err != nil {
				b.Fatal(err)
			}
			if _, err := json.Marshal(kept); err != nil {
				b.Fatal(err)
			}
		}
	})
}
