// Package events is where the domain listens: what registries tell, and what workflows say has happened. It reads events
// and calls the core; it keeps nothing, and knows neither tables nor what a change leads to.
package events

import (
	"context"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/bus"
	"github.com/lockstep-cd/lockstep/pkg/event"
	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
)

// Source is the source of the domain's own events, which come back to it on the domain path.
const Source = "/services/domain"

// Domain is what events are told to.
type Domain interface {
	PublishArtifact(ctx context.Context, in core.Inbound, a core.Artifact) error
	Apply(ctx context.Context, in core.Inbound, ch core.Change) error
}

var _ Domain = (*core.Domain)(nil)

// Inbox records what can never be applied, so that nobody sends it for ever.
type Inbox interface {
	Reject(ctx context.Context, e event.Event, reason string) error
}

// Topology is what the domain makes on the bus: the streams it reads, whichever service starts first, and its consumers.
func Topology() bus.Topology {
	return bus.Topology{
		Streams:   []bus.Stream{bus.RegistryStream(), bus.DomainStream()},
		Consumers: []bus.Consumer{RegistryConsumer(), DomainConsumer()},
	}
}

// RegistryConsumer reads what registries tell. The order does not matter: the age of a version decides.
func RegistryConsumer() bus.Consumer {
	return bus.Consumer{Stream: bus.StreamRegistry, Durable: "domain", Workers: 4, MaxDeliver: maxDeliver}
}

// DomainConsumer reads what workflows say, strictly in order: one at a time, over all replicas, and the next only when the
// one before is done with. The state machine absorbs what comes late; in the right order nothing has to be absorbed, and
// the journal reads well.
func DomainConsumer() bus.Consumer {
	return bus.Consumer{
		Stream: bus.StreamDomain, Durable: "domain", Workers: 1, MaxAckPending: 1, MaxDeliver: maxDeliver,
		Backoff: []time.Duration{200 * time.Millisecond, time.Second, 2 * time.Second, 5 * time.Second},
	}
}

// maxDeliver is how often an event is tried that fails for no reason of its own. A database that is away does not count.
const maxDeliver = 8

// Handlers are the two consumers' handlers.
type Handlers struct {
	domain Domain
	inbox  Inbox
}

// New is handlers that tell a domain.
func New(d Domain, i Inbox) *Handlers { return &Handlers{d, i} }

// Registry handles an event of the registry path.
func (h *Handlers) Registry(ctx context.Context, d bus.Delivery) error {
	data, err := event.Decode[event.ArtifactPublished](d.Event)
	if err != nil {
		return err
	}
	in, err := inbound(d.Event)
	if err != nil {
		return err
	}
	// The registry's own instant is better than that of the event, which may be a relay's or a poll's.
	published := d.Event.Time()
	if data.PublishedAt != "" {
		if published, err = time.Parse(time.RFC3339, data.PublishedAt); err != nil {
			return fault.InvalidFields(fault.Field{Name: "data.published_at", Problem: "expected an instant, RFC 3339"})
		}
	}
	return h.domain.PublishArtifact(ctx, in, core.Artifact{Image: data.Image, Digest: data.Digest, Tag: data.Tag, PublishedAt: published})
}

// Domain handles an event of the domain path. Its own are no news.
func (h *Handlers) Domain(ctx context.Context, d bus.Delivery) error {
	// Not claimed either: the outbox waits for the workflow service's receipt alone, so no mark stops here.
	if d.Event.Source() == Source {
		return nil
	}
	in, err := inbound(d.Event)
	if err != nil {
		return err
	}
	// Only a registry may leave it out, because an artifact belongs to everybody who points at it (R48). What a workflow
	// says is about one organization's rows.
	if in.Organization == 0 {
		return fault.InvalidFields(fault.Field{Name: event.ExtensionOrganization, Problem: "missing; expected on every domain event"})
	}
	ch, err := change(d.Event)
	if err != nil {
		return err
	}
	// An error decides what becomes of the event by its class: the bus sends it again, or calls Rejected.
	return h.domain.Apply(ctx, in, ch)
}

// Rejected records an event that will not come again, with the reason, for the receipt. Should that fail, the sender sends
// it again, and it ends here again.
func (h *Handlers) Rejected(ctx context.Context, d bus.Delivery, reason error) {
	if d.Event.ID() == "" || d.Event.Source() == "" {
		return // it could not even be read: no sender waits for a receipt
	}
	_ = h.inbox.Reject(ctx, d.Event, fault.Public(reason)) // the bus has logged the reason
}

func inbound(e event.Event) (core.Inbound, error) {
	organization, err := event.Organization(e)
	if err != nil {
		return core.Inbound{}, err
	}
	return core.Inbound{
		Organization: organization, ID: e.ID(), Type: e.Type(), Correlation: event.Extension(e, event.ExtensionCorrelation), Envelope: e,
	}, nil
}
