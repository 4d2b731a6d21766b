package api

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"strings"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/trigger"
)

// EventsPath is the path to which systems send CloudEvents for triggers of kind event: POST by the HTTP protocol binding of CloudEvents
// 1.0, with the attributes in headers or beside the data, or a list of such with their attributes.
const EventsPath = "/v1/triggers/events"

const (
	// maxEvent is how many bytes the body of an event may have: its data and its attributes.
	maxEvent = 128 << 10
	// maxEvents is how many bytes a list of events may have.
	maxEvents = 1 << 20
	// inBody is the type of a body that has the attributes beside the data.
	inBody = "application/cloudevents+json"
	// inBatch is the type of a body that is a list of events.
	inBatch = "application/cloudevents-batch+json"
	// dataType is the attribute for the type of the data.
	dataType = "datacontenttype"
	// version is that of CloudEvents.
	version = "1.0"
)

// Triggers takes events.
type Triggers interface {
	SendEvent(ctx context.Context, a core.Actor, e trigger.Event) (trigger.Delivery, error)
	SendEvents(ctx context.Context, a core.Actor, all []trigger.Event) ([]trigger.Delivery, error)
}

// delivery is where an event went, in the answer.
type delivery struct {
	Triggers int `json:"triggers"`
	Full     int `json:"full"`
}

// eventsHandler gives events to the triggers that they match. It is idempotent: an event is decided about once.
func eventsHandler(t Triggers) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		actor, ok := core.ActorFrom(r.Context())
		if !ok {
			unauthenticated(w, "found no token; expected a token")
			return
		}
		if r.Method != http.MethodPost {
			w.Header().Set("Allow", http.MethodPost)
			http.Error(w, "found method "+r.Method+"; expected POST", http.StatusMethodNotAllowed)
			return
		}
		kind, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type")) // what cannot be read is no batch, and refused below
		send := sendOne
		if kind == inBatch {
			send = sendBatch
		}
		answer, err := send(t, w, r, actor)
		if !known(w, "event", err) {
			return
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusAccepted)
		_ = json.NewEncoder(w).Encode(answer) // a client that is gone needs no answer
	})
}

// sendOne sends one event, and returns the answer.
func sendOne(t Triggers, w http.ResponseWriter, r *http.Request, actor core.Actor) (any, error) {
	e, err := readEvent(w, r)
	if err != nil {
		return nil, err
	}
	sent, err := t.SendEvent(r.Context(), actor, e)
	return delivery(sent), err
}

// sendBatch sends a batch, and returns the answer.
func sendBatch(t Triggers, w http.ResponseWriter, r *http.Request, actor core.Actor) (any, error) {
	all, err := readBatch(w, r)
	if err != nil {
		return nil, err
	}
	sent, err := t.SendEvents(r.Context(), actor, all)
	answer := struct {
		Events []delivery `json:"events"`
	}{make([]delivery, len(sent))}
	for i, d := range sent {
		answer.Events[i] = delivery(d)
	}
	return answer, err
}

// readBatch reads a batch of events. Its errors are Invalid.
func readBatch(w http.ResponseWriter, r *http.Request) ([]trigger.Event, error) {
	body, err := readBody(w, r, maxEvents)
	if err != nil {
		return nil, err
	}
	var raw []json.RawMessage
	if err := json.Unmarshal(body, &raw); err != nil || raw == nil {
		return nil, fault.New(fault.Invalid, "found no JSON list; expected one of events, each with specversion, id, source, type and data")
	}
	if len(raw) > trigger.MaxBatch {
		return nil, fault.New(fault.Invalid, "found %d events; expected 1 to %d", len(raw), trigger.MaxBatch)
	}
	all := make([]trigger.Event, len(raw))
	for i, one := range raw {
		e, err := eventOf(one)
		if err != nil {
			return nil, trigger.Numbered(err, i)
		}
		all[i] = e
	}
	return all, nil
}

// readEvent reads an event. Its errors are Invalid.
func readEvent(w http.ResponseWriter, r *http.Request) (trigger.Event, error) {
	body, err := readBody(w, r, maxEvent)
	if err != nil {
		return trigger.Event{}, err
	}
	given := r.Header.Values("Content-Type")
	kind := ""
	if len(given) > 0 {
		if kind, _, err = mime.ParseMediaType(given[0]); err != nil || len(given) > 1 {
			return trigger.Event{}, fault.New(fault.Invalid, "found content type %.100q; expected one such as application/json, or %s",
				strings.Join(given, ", "), inBody)
		}
	}
	switch {
	case kind == inBody:
		return eventOf(body)
	case strings.HasPrefix(kind, "application/cloudevents"):
		return trigger.Event{}, fault.New(fault.Invalid, "found content type %s; expected %s, or one event with its attributes in headers",
			kind, inBody)
	}
	return eventIn(r.Header, kind, body)
}

// readBody reads what was sent.
func readBody(w http.ResponseWriter, r *http.Request, limit int64) ([]byte, error) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, limit))
	if long := (*http.MaxBytesError)(nil); errors.As(err, &long) {
		return nil, fault.New(fault.Invalid, "found more than %d bytes; expected at most that", limit)
	}
	if err != nil {
		return nil, fault.Because(err, fault.Invalid, "the body ended early")
	}
	return body, nil
}

// eventIn reads an event that has its attributes in headers, and its data in the body.
func eventIn(header http.Header, kind string, data []byte) (trigger.Event, error) {
	var e trigger.Event
	var found string
	var wrong []fault.Field
	for _, one := range []struct {
		name string
		into *string
	}{{"specversion", &found}, {"id", &e.ID}, {"source", &e.Source}, {"type", &e.Type}, {"time", &e.Time}, {"subject", &e.Subject}} {
		var problem string
		if *one.into, problem = attribute(header.Values("Ce-" + one.name)); problem != "" {
			wrong = append(wrong, fault.Field{Name: "/" + one.name, Problem: problem})
		}
	}
	if len(wrong) > 0 {
		return e, fault.InvalidFields(wrong...)
	}
	if found != version {
		return e, fault.New(fault.Invalid, "found ce-specversion %.20q and content type %.100q; expected ce-specversion %s, or content type %s",
			found, kind, version, inBody)
	}
	if len(data) > 0 && kind == "" {
		return e, fault.InvalidFields(fault.Field{Name: "/" + dataType, Problem: "found no content type beside data; expected application/json"})
	}
	var err error
	e.Data, err = objectOf(data, kind)
	return e, err
}

// attribute reads the header of an attribute: its text, which may be quoted, is percent-encoded. The problem is empty if it can be read.
func attribute(values []string) (text, problem string) {
	if len(values) == 0 {
		return "", ""
	}
	text = values[0]
	if inner := strings.TrimSuffix(strings.TrimPrefix(text, `"`), `"`); len(inner) == len(text)-2 {
		text = unquoted.Replace(inner)
	}
	decoded, err := url.PathUnescape(text)
	switch {
	case len(values) > 1:
		return "", fmt.Sprintf("found %d headers; expected one", len(values))
	case err != nil:
		return "", fmt.Sprintf("found %.100q, which is not percent-encoded; expected %%25 for a percent sign", text)
	}
	return decoded, ""
}

// unquoted takes the escapes out of a quoted text.
//
//nolint:gochecknoglobals // a table
var unquoted = strings.NewReplacer(`\\`, `\`, `\"`, `"`)

// eventOf reads an event that has its attributes beside its data.
func eventOf(body []byte) (trigger.Event, error) {
	var all map[string]json.RawMessage
	if err := json.Unmarshal(body, &all); err != nil || all == nil {
		return trigger.Event{}, fault.New(fault.Invalid, "found no JSON object; expected one with specversion, id, source, type and data")
	}
	var e trigger.Event
	var kind, found, coded string
	var wrong []fault.Field
	for _, one := range []struct {
		name string
		into *string
	}{
		{"specversion", &found},
		{"id", &e.ID},
		{"source", &e.Source},
		{"type", &e.Type},
		{"time", &e.Time},
		{"subject", &e.Subject},
		{dataType, &kind},
		{"data_base64", &coded},
	} {
		if raw := all[one.name]; len(raw) > 0 && json.Unmarshal(raw, one.into) != nil {
			wrong = append(wrong, fault.Field{Name: "/" + one.name, Problem: fmt.Sprintf("found %.100s; expected a text", raw)})
		}
	}
	if len(wrong) > 0 {
		return e, fault.InvalidFields(wrong...)
	}
	if found != version {
		return e, fault.InvalidFields(fault.Field{Name: "/specversion", Problem: fmt.Sprintf("found %.20q; expected %q", found, version)})
	}
	data := []byte(all["data"])
	if coded != "" {
		if len(data) > 0 {
			return e, fault.InvalidFields(fault.Field{Name: "/data_base64", Problem: "found beside data; expected one of the two"})
		}
		var err error
		if data, err = base64.StdEncoding.DecodeString(coded); err != nil {
			return e, fault.InvalidFields(fault.Field{Name: "/data_base64", Problem: "found no base64"})
		}
	}
	var err error
	e.Data, err = objectOf(data, kind)
	return e, err
}

// objectOf is the data of an event, which is a JSON object or nothing.
func objectOf(data []byte, kind string) (json.RawMessage, error) {
	if len(data) == 0 {
		return nil, nil
	}
	media, _, err := mime.ParseMediaType(kind)
	if kind != "" && (err != nil || media != "application/json" && !strings.HasSuffix(media, "+json")) {
		return nil, fault.InvalidFields(fault.Field{Name: "/" + dataType, Problem: fmt.Sprintf("found %.100q; expected application/json", kind)})
	}
	return data, nil
}
