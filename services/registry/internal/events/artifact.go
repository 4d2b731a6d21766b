// Package events turns accepted artifacts into the registry service's own events, and says on which stream they travel.
//
// It neither stores nor sends them.
package events

import (
	"fmt"

	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/pkg/event"
	"github.com/lockstep-cd/lockstep/services/registry/internal/core"
)

// Source is the registry service in its events.
const Source = "/services/registry"

// Encoder makes events.
type Encoder struct{ clock clock.Clock }

// NewEncoder is an encoder that dates events by a clock.
func NewEncoder(c clock.Clock) Encoder { return Encoder{clock: c} }

// Encode is the event that an artifact becomes. Its error is Invalid.
func (c Encoder) Encode(a core.Artifact) (event.Sealed, error) {
	// The event keeps the artifact's id, which the outbox and the domain drop repetitions by. Time is when we said so;
	// when it was published is what the sender says, and in the data (R48).
	header := event.Header{
		ID: a.ID, Source: Source, Organization: a.Organization,
		Correlation: a.Correlation, Causation: a.Cause, Trace: a.TraceParent, Time: c.clock.Now().UTC(),
	}
	data := event.ArtifactPublished{Image: a.Image, Digest: a.Digest, Tag: a.Tag, PublishedAt: a.PublishedAt}
	if a.Seen != core.SeenUnknown {
		data.DigestSeen = new(a.Seen == core.SeenYes)
	}
	e, err := event.Make(header, data)
	if err != nil {
		return event.Sealed{}, fmt.Errorf("encode artifact %s: %w", a.Image, err)
	}
	return e, nil
}
