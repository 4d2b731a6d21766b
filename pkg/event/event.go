// Package event is the catalogue of CloudEvents that Lockstep's services exchange, and the only way to make or read one. An outgoing event
// is sealed: checked and encoded once, however often it is stored or sent.
// Every type has one Go type, one JSON Schema (schema/), one golden file (testdata/) and one entry in Catalogue that
// says who emits it, when and why. The names are the published contract (decisions D1 to D3): they are never renamed, a
// field is never reused, and a breaking change is a new type beside the old one.
//
// It is not the bus: it knows subjects, but no connections.
package event

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	cloudevents "github.com/cloudevents/sdk-go/v2/event"

	"github.com/lockstep-cd/lockstep/pkg/fault"
)

// Event is a CloudEvent 1.0.
type Event = cloudevents.Event

// Prefix begins the name of every type.
const Prefix = "com.gitlab.cd."

// The extension attributes that Lockstep's events carry (D3).
const (
	// ExtensionOrganization is the organization that an event belongs to, as a decimal number. Every event on the domain
	// path has it; on the registry path it narrows who may match, and is often absent.
	ExtensionOrganization = "organizationid"
	// ExtensionTraceParent is the W3C trace context of the producer.
	ExtensionTraceParent = "traceparent"
	// ExtensionCorrelation groups the events of one rollout or one webhook delivery.
	ExtensionCorrelation = "correlationid"
	// ExtensionCausation is the id of the event or request that led to this one.
	ExtensionCausation = "causationid"
)

// Path is one of the three event paths, which never cross (E13).
type Path string

// The paths.
const (
	// PathRegistry carries notifications of registries, from the registry service to the domain.
	PathRegistry Path = "registry"
	// PathCluster carries calls to, and answers and observations from, the relays. Only the workflow service reads it.
	PathCluster Path = "cluster"
	// PathDomain carries what happened, in terms of continuous delivery, never of Kubernetes (E14).
	PathDomain Path = "domain"
)

// Header is what New needs beside type and data.
type Header struct {
	// ID identifies the event: unique per source, generated once, and reused whenever the event is sent again.
	ID string
	// Source is the emitter, as a URI reference: "/services/workflow", "/agents/42".
	Source string
	// Organization owns the event; 0 for none.
	Organization int64
	// Correlation and Causation may be empty.
	Correlation, Causation string
	// Trace is the W3C trace context of the producer; "" for none.
	Trace string
	// Time is when it happened.
	Time time.Time
}

// New creates an event of data's type and checks it against the type's schema. The error is Invalid.
func New(h Header, data Data) (Event, error) {
	e, err := unchecked(h, data)
	if err != nil {
		return Event{}, err
	}
	return e, Validate(e)
}

// unchecked creates an event without checking it.
func unchecked(h Header, data Data) (Event, error) {
	e := cloudevents.New()
	e.SetType(data.EventType())
	e.SetID(h.ID)
	e.SetSource(h.Source)
	e.SetTime(h.Time)
	if h.Organization != 0 {
		e.SetExtension(ExtensionOrganization, strconv.FormatInt(h.Organization, 10))
	}
	if h.Correlation != "" {
		e.SetExtension(ExtensionCorrelation, h.Correlation)
	}
	if h.Causation != "" {
		e.SetExtension(ExtensionCausation, h.Causation)
	}
	if h.Trace != "" {
		e.SetExtension(ExtensionTraceParent, h.Trace)
	}
	if raw, isRaw := data.(Raw); isRaw {
		e.SetDataContentType(cloudevents.ApplicationJSON)
		e.DataEncoded = raw.JSON
	} else if err := e.SetData(cloudevents.ApplicationJSON, data); err != nil {
		return Event{}, fmt.Errorf("encode %s: %w", data.EventType(), err)
	}
	return e, nil
}

// Data is the payload of one type. Only this package's types implement it.
type Data interface {
	// EventType is the CloudEvents type that the payload belongs to.
	EventType() string
}

// Raw is a payload whose type is known only at run time. It is checked against the schema of its type, like any other.
type Raw struct {
	// Type is the CloudEvents type.
	Type string
	// JSON is the encoded payload.
	JSON json.RawMessage
}

// EventType returns the given type.
func (r Raw) EventType() string { return r.Type }

// Decode decodes the payload of e as T, after Validate. The error is Invalid and names the field.
func Decode[T Data](e Event) (T, error) {
	var data T
	if want := data.EventType(); e.Type() != want {
		return data, fault.InvalidFields(fault.Field{Name: "type", Problem: fmt.Sprintf("found %q, expected %q", e.Type(), want)})
	}
	if err := Validate(e); err != nil {
		return data, err
	}
	d := json.NewDecoder(bytes.NewReader(e.Data()))
	if err := d.Decode(&data); err != nil {
		return data, fault.Because(err, fault.Invalid, "data of %s is not the expected JSON", e.Type())
	}
	return data, nil
}

// Organization returns the organization of e; 0 if it has none. The error is Invalid.
func Organization(e Event) (int64, error) {
	v, ok := extension(e, ExtensionOrganization)
	if !ok {
		return 0, nil
	}
	return parseOrganization(fmt.Sprint(v))
}

func parseOrganization(s string) (int64, error) {
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || n <= 0 {
		return 0, fault.InvalidFields(fault.Field{Name: ExtensionOrganization, Problem: fmt.Sprintf("found %q, expected a number above zero", s)})
	}
	return n, nil
}

// Extension returns an extension attribute of e as text; "" if it has none.
func Extension(e Event, name string) string {
	v, ok := extension(e, name)
	if !ok {
		return ""
	}
	if text, isText := v.(string); isText {
		return text
	}
	return fmt.Sprint(v)
}

// extension returns an extension attribute of e. For events of the current version it avoids the SDK's copy of all attributes.
func extension(e Event, name string) (value any, ok bool) {
	if c, current := e.Context.(*cloudevents.EventContextV1); current {
		value, ok = c.Extensions[name]
	} else {
		value, ok = e.Extensions()[name]
	}
	return value, ok
}

// Subject returns the subject that e is published on: cd.registry.artifact.published, cd.cluster.<agent>.result,
// cd.domain.<organization>.<entity>.<verb>. Cluster events name their agent in their payload.
func Subject(e Event) (string, error) {
	d, ok := Lookup(e.Type())
	if !ok {
		return "", unknownType(e.Type())
	}
	organization, err := Organization(e)
	if err != nil && d.Path == PathDomain {
		return "", err
	}
	return d.subject(organization, e.Data())
}

// external is the last token of ExternalSubject.
const external = ".external"

// ExternalSubject returns the subject for events of types outside the catalogue, for programs of the organization that wait for them:
// cd.domain.<organization>.external. Their own type names may contain characters that a subject cannot.
func ExternalSubject(organization int64) string {
	return domainSubject + strconv.FormatInt(organization, 10) + external
}

// IsExternal reports whether a subject is an organization's ExternalSubject.
func IsExternal(subject string) bool {
	return strings.HasPrefix(subject, domainSubject) && strings.HasSuffix(subject, external) && strings.Count(subject, ".") == 3
}

// domainSubject is the prefix of the subjects of the domain path.
const domainSubject = "cd.domain."

// subject returns the subject for an event of this type with this organization, 0 for none, and this data.
func (d Definition) subject(organization int64, data []byte) (string, error) {
	switch d.Path {
	case PathRegistry:
		return "cd.registry." + d.Entity + "." + d.Verb, nil
	case PathCluster:
		var agent struct {
			ID int64 `json:"agent_id"`
		}
		if err := json.Unmarshal(data, &agent); err != nil || agent.ID <= 0 {
			return "", fault.InvalidFields(fault.Field{Name: "data.agent_id", Problem: "missing; expected a number above zero"})
		}
		return ClusterSubject(agent.ID, d.channel), nil
	case PathDomain:
		if organization == 0 {
			return "", fault.InvalidFields(fault.Field{Name: ExtensionOrganization, Problem: "missing; expected on every domain event"})
		}
		return domainSubject + strconv.FormatInt(organization, 10) + "." + d.Entity + "." + d.Verb, nil
	default:
		panic("event: not a path: " + string(d.Path))
	}
}

// The channels of an agent on the cluster path.
const (
	ChannelCall      = "call"
	ChannelResult    = "result"
	ChannelEvent     = "event"
	ChannelHeartbeat = "heartbeat"
)

// ClusterSubject returns the subject of one channel of an agent.
func ClusterSubject(agent int64, channel string) string {
	return fmt.Sprintf("cd.cluster.%d.%s", agent, channel)
}

// split splits "com.gitlab.cd.rollout.gate_reached" into entity and verb; an entity may itself contain dots.
func split(eventType string) (entity, verb string) {
	rest := strings.TrimPrefix(eventType, Prefix)
	i := strings.LastIndexByte(rest, '.')
	return rest[:i], rest[i+1:]
}

func unknownType(t string) error {
	return fault.InvalidFields(fault.Field{Name: "type", Problem: fmt.Sprintf("found %q, which is not in the event catalogue", t)})
}
