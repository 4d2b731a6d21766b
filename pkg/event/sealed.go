package event

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"unicode/utf8"

	cloudevents "github.com/cloudevents/sdk-go/v2/event"

	"github.com/lockstep-cd/lockstep/pkg/fault"
)

// Sealed is an outgoing event: checked against everything that Validate checks, addressed, and encoded, once. Storing and sending it use
// its JSON. The zero value is no event, and its methods never modify it.
type Sealed struct {
	text []byte // CloudEvents JSON; the first member is specversion
	// attributes is the length of the part of text before the data; all of text if unknown.
	attributes                         int
	eventType, id, source, trace, subj string
	organization, correlation          string
	path                               Path
}

// Seal checks and encodes e. The error is Invalid and names the field.
func Seal(e Event) (Sealed, error) {
	if err := Validate(e); err != nil {
		return Sealed{}, err
	}
	return seal(e)
}

// Restore returns the sealed event with a stored JSON. Text in Seal's layout was checked when it was sealed, and is only parsed; any other
// text, which another version may have written, is decoded, checked and sealed. The text must be valid JSON, which the type of its database
// column guarantees, and must not be modified later.
func Restore(text []byte) (Sealed, error) {
	if s, ok := read(text); ok {
		return s, nil
	}
	var e Event
	if err := json.Unmarshal(text, &e); err != nil {
		return Sealed{}, fault.Because(err, fault.Invalid, "not a CloudEvent: %s", err)
	}
	return Seal(e)
}

// Attribute is an extension attribute.
type Attribute struct {
	// Name consists of lower-case letters and digits.
	Name, Value string
}

// With returns s with extension attributes added or replaced. The rest of its JSON is unchanged. The error is Invalid.
func (s Sealed) With(attributes ...Attribute) (Sealed, error) {
	for _, a := range attributes {
		// Inside a string the first quote would be escaped.
		if bytes.Contains(s.text[:s.attributes], []byte(`,"`+a.Name+`":`)) {
			return s.instead(attributes)
		}
	}
	first := bytes.IndexByte(s.text, ',') + 1 // after specversion, which is a short string
	room := 0
	for _, a := range attributes {
		room += len(a.Name) + len(a.Value) + len(`"":"",`)
	}
	added := append(make([]byte, 0, len(s.text)+room), s.text[:first]...)
	for _, a := range attributes {
		added = append(appendMember(added, a.Name, a.Value), ',')
	}
	s.attributes += len(added) - first
	s.text = append(added, s.text[first:]...)
	return s, nil
}

// instead is With for an event that already has one of the attributes.
func (s Sealed) instead(attributes []Attribute) (Sealed, error) {
	e, err := s.Event()
	if err != nil {
		return Sealed{}, err
	}
	for _, a := range attributes {
		e.SetExtension(a.Name, a.Value)
	}
	return seal(e)
}

// IsZero reports whether s is no event.
func (s Sealed) IsZero() bool { return s.text == nil }

// Type is the CloudEvents type.
func (s Sealed) Type() string { return s.eventType }

// ID is the event's id.
func (s Sealed) ID() string { return s.id }

// Source is the emitter.
func (s Sealed) Source() string { return s.source }

// Trace is the W3C trace context of its producer; "" if it has none.
func (s Sealed) Trace() string { return s.trace }

// Organization is the organization that it is about, in digits; "" if it has none.
func (s Sealed) Organization() string { return s.organization }

// Correlation is what its producer groups it by, such as the id of a run; "" if it has none.
func (s Sealed) Correlation() string { return s.correlation }

// Path is the path that its type travels on.
func (s Sealed) Path() Path { return s.path }

// Subject is the subject it is published on, as the function Subject returns it.
func (s Sealed) Subject() string { return s.subj }

// JSON is the event in the JSON format of CloudEvents. It must not be modified.
func (s Sealed) JSON() []byte { return s.text }

// Event decodes the event. The error is Invalid if the text is not what Restore requires.
func (s Sealed) Event() (Event, error) {
	var e Event
	if err := json.Unmarshal(s.text, &e); err != nil {
		return Event{}, fault.Because(err, fault.Invalid, "not a CloudEvent: %s", err)
	}
	return e, nil
}

// seal encodes a checked event.
func seal(e Event) (Sealed, error) {
	d, _ := Lookup(e.Type()) // Validate knows the type
	organization, err := Organization(e)
	if err != nil {
		return Sealed{}, err
	}
	s := Sealed{
		eventType: e.Type(), id: e.ID(), source: e.Source(), trace: Extension(e, ExtensionTraceParent), path: d.Path,
		correlation: Extension(e, ExtensionCorrelation),
	}
	if organization != 0 {
		s.organization = strconv.FormatInt(organization, 10)
	}
	if s.subj, err = d.subject(organization, e.Data()); err != nil {
		return Sealed{}, err
	}
	if s.text, s.attributes = write(e); s.text == nil {
		var other bytes.Buffer
		if err := cloudevents.WriteJson(&e, &other); err != nil {
			return Sealed{}, fault.Because(err, fault.Invalid, "the event is not JSON")
		}
		if !json.Valid(other.Bytes()) {
			return Sealed{}, fault.New(fault.Invalid, "the event is not JSON")
		}
		s.text, s.attributes = other.Bytes(), other.Len()
	}
	if !utf8.Valid(s.text) {
		return Sealed{}, fault.InvalidFields(fault.Field{Name: notText(e), Problem: fmt.Sprintf("the text of event %q is not UTF-8", e.ID())})
	}
	return s, nil
}

// notText names the part of e that is not UTF-8.
func notText(e Event) string {
	switch {
	case !utf8.Valid(e.Data()):
		return "data"
	case !utf8.ValidString(e.ID()):
		return "id"
	case !utf8.ValidString(e.Source()):
		return "source"
	}
	for name := range e.Extensions() {
		if !utf8.ValidString(Extension(e, name)) {
			return name
		}
	}
	return "subject"
}
