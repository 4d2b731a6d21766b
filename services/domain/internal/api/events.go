package api

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strings"

	"github.com/cloudevents/sdk-go/v2/binding"
	cehttp "github.com/cloudevents/sdk-go/v2/protocol/http"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/trigger"
)

// EventsPath is the path to which systems send CloudEvents for triggers of kind event: POST by the HTTP protocol binding of CloudEvents 1.0,
// with the attributes in headers or beside the data.
const EventsPath = "/v1/triggers/events"

const (
	// maxEvent is how many bytes the body of an event may have: its data and its attributes.
	maxEvent = 128 << 10
	// inBody is the type of a body that has the attributes beside the data.
	inBody = "application/cloudevents+json"
	// dataType is the attribute for the type of the data.
	dataType = "datacontenttype"
	// version is that of CloudEvents.
	version = "1.0"
)

// Triggers takes events.
type Triggers interface {
	SendEvent(ctx context.Context, a core.Actor, e trigger.Event) (int, error)
}

// eventsHandler gives one event to the triggers that it matches. It is idempotent: an event is decided about once.
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
		e, err := readEvent(w, r)
		if !known(w, "event", err) {
			return
		}
		many, err := t.SendEvent(r.Context(), actor, e)
		if !known(w, "event", err) {
			return
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusAccepted)
		_ = json.NewEncoder(w).Encode(map[string]int{"triggers": many}) // a client that is gone needs no answer
	})
}

// readEvent reads an event. Its errors are Invalid.
func readEvent(w http.ResponseWriter, r *http.Request) (trigger.Event, error) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxEvent))
	if long := (*http.MaxBytesError)(nil); errors.As(err, &long) {
		return trigger.Event{}, fault.New(fault.Invalid, "found more than %d bytes; expected at most that", maxEvent)
	}
	if err != nil {
		return trigger.Event{}, fault.Because(err, fault.Invalid, "the body ended early")
	}
	kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	switch {
	case err == nil && kind == inBody:
		return eventOf(body)
	case err == nil && strings.HasPrefix(kind, "application/cloudevents"):
		return trigger.Event{}, fault.New(fault.Invalid, "found content type %s; expected %s, or one event with its attributes in headers", kind, inBody)
	}
	if found := r.Header.Get("Ce-Specversion"); found != version {
		return trigger.Event{}, fault.New(fault.Invalid, "found ce-specversion %.20q and content type %.100q; expected ce-specversion %s, or content type %s",
			found, r.Header.Get("Content-Type"), version, inBody)
	}
	e, err := binding.ToEvent(r.Context(), cehttp.NewMessage(r.Header, io.NopCloser(bytes.NewReader(body))))
	if err != nil {
		return trigger.Event{}, fault.Because(err, fault.Invalid, "the headers are not those of a CloudEvent: %s", err.Error())
	}
	data, err := objectOf(body, e.DataContentType())
	return trigger.Event{ID: e.ID(), Source: e.Source(), Type: e.Type(), Data: data}, err
}

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
	}{{"specversion", &found}, {"id", &e.ID}, {"source", &e.Source}, {"type", &e.Type}, {dataType, &kind}, {"data_base64", &coded}} {
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
