package event

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/lockstep-cd/lockstep/pkg/fault"
)

// Emitter is a kind of sender of events. The catalogue names, for each type, the emitters that may send it (D47), and every place where
// events enter checks them with CheckEmitter or CheckSource.
type Emitter string

// The emitters. There are no others.
const (
	// EmitterProgram is a run of a program, by run("emit").
	EmitterProgram Emitter = "program"
	// EmitterDomain is the domain service.
	EmitterDomain Emitter = "domain"
	// EmitterEngine is the workflow service itself.
	EmitterEngine Emitter = "engine"
	// EmitterRegistry is the registry service.
	EmitterRegistry Emitter = "registry"
	// EmitterRelay is the relay of an agent.
	EmitterRelay Emitter = "relay"
	// EmitterObserver is a standing report that a program has registered with k8s.observe, and that outlives its run.
	EmitterObserver Emitter = "observer"
	// EmitterCaller is a client with a token.
	EmitterCaller Emitter = "caller"
)

// Emitters returns all emitters.
func Emitters() []Emitter {
	return []Emitter{EmitterProgram, EmitterDomain, EmitterEngine, EmitterRegistry, EmitterRelay, EmitterObserver, EmitterCaller}
}

// Describe returns the emitter as error messages name it.
func (e Emitter) Describe() string {
	switch e {
	case EmitterProgram:
		return "a program"
	case EmitterDomain:
		return "the domain service"
	case EmitterEngine:
		return "the engine"
	case EmitterRegistry:
		return "the registry service"
	case EmitterRelay:
		return "a relay"
	case EmitterObserver:
		return "a standing report"
	case EmitterCaller:
		return "a caller"
	default:
		return "an unknown emitter"
	}
}

// The sources of the services. No caller may use them, nor the others that ReservedSource names.
const (
	SourceDomain   = "/services/domain"
	SourceWorkflow = "/services/workflow"
	SourceRegistry = "/services/registry"
)

const (
	agents = "/agents/"
	// channels begins the source under which the workflow service keeps messages to channels.
	channels = "/channels/"
	// typeMessage is the type under which it keeps them: no event, and in no catalogue.
	typeMessage = Prefix + "workflow.message"
)

// AgentSource returns the source of the events of an agent's relay.
func AgentSource(agent int64) string { return agents + strconv.FormatInt(agent, 10) }

// ReservedSource reports whether a source belongs to Lockstep, so that no caller may use it.
func ReservedSource(source string) bool {
	return isService(source) || strings.HasPrefix(source, agents) || strings.HasPrefix(source, channels)
}

func isService(source string) bool {
	return source == SourceDomain || source == SourceWorkflow || source == SourceRegistry
}

// emittersOf returns the emitters whose events carry the source.
func emittersOf(source string) []Emitter {
	switch {
	case source == SourceDomain:
		return []Emitter{EmitterDomain}
	case source == SourceWorkflow:
		return []Emitter{EmitterProgram, EmitterEngine, EmitterObserver}
	case source == SourceRegistry:
		return []Emitter{EmitterRegistry}
	case strings.HasPrefix(source, agents):
		return []Emitter{EmitterRelay}
	case ReservedSource(source):
		return nil
	default:
		return []Emitter{EmitterCaller}
	}
}

// CheckEmitter reports whether the emitter may send events of the type. Types of programs' own, which the catalogue does not have, may be
// sent by callers alone, and must not begin with Prefix. The error is Invalid, about the field type.
func CheckEmitter(eventType string, by Emitter) error {
	d, known := Lookup(eventType)
	switch {
	case known && slices.Contains(d.EmittedBy, by):
		return nil
	case known:
		return wrongEmitter(fmt.Sprintf("found %q from %s, expected it from %s", eventType, by.Describe(), d.expected()))
	case strings.HasPrefix(eventType, Prefix):
		return wrongEmitter(fmt.Sprintf(
			"found %q from %s, expected a type of the event catalogue, or one of your own that does not begin with %s",
			eventType, by.Describe(), Prefix,
		))
	case by != EmitterCaller:
		return unknownType(eventType)
	}
	return nil
}

// CheckSource reports whether an event on the bus may have the source: that of an emitter of its type which publishes on the bus, as
// callers do not. The error is Invalid, about the field source. A type that the catalogue does not have may have any source, unless it
// begins with Prefix: then it is a newer release's, and its source has to be a service.
func CheckSource(eventType, source string) error {
	d, known := Lookup(eventType)
	if !known {
		if strings.HasPrefix(eventType, Prefix) && !isService(source) {
			return wrongSource(fmt.Sprintf("found %q for %q, expected a service of Lockstep, such as %q", source, eventType, SourceDomain))
		}
		return nil
	}
	for _, by := range emittersOf(source) {
		if by != EmitterCaller && slices.Contains(d.EmittedBy, by) {
			return nil
		}
	}
	return wrongSource(fmt.Sprintf("found %q for %q, expected it from %s", source, eventType, d.expected()))
}

// Own reports whether a type can be one of an organization's own: the catalogue has none without Prefix.
func Own(eventType string) bool { return !strings.HasPrefix(eventType, Prefix) }

// Fits reports whether an event of the type that is kept with the source can be genuine: it is CheckSource, and for callers CheckEmitter.
// It is for what was stored by a release that did not check. A message to a channel fits its channel, and no event does.
func Fits(eventType, source string) bool {
	if eventType == typeMessage || strings.HasPrefix(source, channels) {
		return eventType == typeMessage && strings.HasPrefix(source, channels)
	}
	return CheckSource(eventType, source) == nil || !ReservedSource(source) && CheckEmitter(eventType, EmitterCaller) == nil
}

// CheckCaller reports whether a caller may send the event: its type is for callers, and its source is the caller's own. The error is
// Invalid, about the fields type and source.
func CheckCaller(e Event) error {
	var fields []fault.Field
	if err := CheckEmitter(e.Type(), EmitterCaller); err != nil {
		fields = append(fields, fault.FieldsOf(err)...)
	}
	if source := e.Source(); ReservedSource(source) {
		fields = append(fields, fault.Field{
			Name:    "source",
			Problem: fmt.Sprintf("found %q from a caller, expected a source of the caller's own: this one is Lockstep's", source),
		})
	}
	if len(fields) > 0 {
		return fault.InvalidFields(fields...)
	}
	return nil
}

// expected names who may emit the type.
func (d Definition) expected() string {
	names := make([]string, len(d.EmittedBy))
	for i, by := range d.EmittedBy {
		names[i] = by.Describe()
	}
	return strings.Join(names, " or ")
}

func wrongEmitter(problem string) error {
	return fault.InvalidFields(fault.Field{Name: "type", Problem: problem})
}

func wrongSource(problem string) error {
	return fault.InvalidFields(fault.Field{Name: "source", Problem: problem})
}
