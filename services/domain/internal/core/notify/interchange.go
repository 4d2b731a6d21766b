package notify

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
)

// The payloads of webhooks.
const (
	// PayloadCloudEvents is a CloudEvent about the message, and PayloadCDEvents are events of CDEvents about what happened.
	PayloadCloudEvents = "cloudevents"
	PayloadCDEvents    = "cdevents"
)

// maxEvents is how many events one message is sent as.
const maxEvents = 50

// DeliveryEventType is what happened, as CDEvents names it.
type DeliveryEventType string

// The types. Notified is of what CDEvents has no event for.
const (
	ServiceDeployed   DeliveryEventType = "service.deployed"
	ServiceUpgraded   DeliveryEventType = "service.upgraded"
	ServiceRolledBack DeliveryEventType = "service.rolledback"
	ServiceRemoved    DeliveryEventType = "service.removed"
	Notified          DeliveryEventType = "notification.sent"
)

// DeliveryEvent is something that happened, for other tools.
type DeliveryEvent struct {
	Type DeliveryEventType
	// ID is the same whenever the event is sent again. Source names the organization.
	ID, Source string
	At         time.Time
	// Subject is the service, or the notification.
	Subject string
	// Environment and Artifact are those of a service.
	Environment string
	Artifact    Artifact
	// Content is that of a notification.
	Content map[string]any
}

// Artifact is a version of a service that a rollout has brought to an environment, or one that it has removed.
type Artifact struct {
	EnvironmentID        int64
	Environment          string
	Application, Service string
	// SourceID is the artifact source: a service may have several.
	SourceID int64
	// Image reports whether it is a container image, which Reference and Digest name.
	Image             bool
	Reference, Digest string
	Version           string
	// HasPrevious reports whether it replaces another version, and Removed whether the version set no longer has the service.
	HasPrevious, Removed bool
}

// Interchange writes events of CDEvents.
type Interchange interface {
	// WriteEvent returns an event as a CloudEvent, valid by the schema of its type.
	WriteEvent(e DeliveryEvent) (json.RawMessage, error)
}

// brings reports whether a rollout has brought versions to environments when a moment comes.
func brings(m core.NotificationMoment) bool {
	return m == core.MomentRolloutCompleted || m == core.MomentRolledBack || m == core.MomentRolloutFailed
}

// deliveryEvents are what a message is about: of a rollout that has ended one for each service and environment that it has changed, and one
// for everything else.
func deliveryEvents(ctx context.Context, tx Tx, organization int64, m core.NotificationMessage, what content) (
	all []DeliveryEvent, err error,
) {
	source := fmt.Sprintf("/lockstep/organizations/%d", organization)
	for i, n := range what.moments {
		base := fmt.Sprintf("notification_%d_%d", organization, n.ID)
		var changed []Artifact
		inAll := 0
		if brings(n.Moment) {
			if changed, inAll, err = tx.NotifiedArtifacts(ctx, n.RolloutID, maxEvents); err != nil {
				return nil, err
			}
		}
		room := maxEvents - len(all) - 1
		shown := changed[:max(0, min(len(changed), room))]
		if left := inAll - len(shown); left > 0 || len(shown) == 0 || n.Moment == core.MomentRolloutFailed {
			if room <= 0 { // the last event counts what follows, too
				left += len(what.moments) - i - 1
			}
			all = append(all, DeliveryEvent{Type: Notified, ID: base, Source: source, At: n.At, Subject: base, Content: notified(n, m.LeftOut+left)})
		}
		for _, a := range shown {
			all = append(all, DeliveryEvent{
				Type: typeOf(n, a), ID: fmt.Sprintf("%s_%d_%d", base, a.EnvironmentID, a.SourceID), Source: source, At: n.At,
				Subject: a.Application + "/" + a.Service, Environment: a.Environment, Artifact: a,
			})
		}
		if room <= 0 {
			break
		}
	}
	if len(all) == 0 { // the notifications were deleted meanwhile
		id := fmt.Sprintf("notification_%d_message_%d_%d", organization, m.ID, m.Revision)
		all = append(all, DeliveryEvent{
			Type: Notified, ID: id, Source: source, At: m.DueAt, Subject: id,
			Content: map[string]any{"title": what.title},
		})
	}
	return all, nil
}

func typeOf(n core.Notification, a Artifact) DeliveryEventType {
	switch {
	case a.Removed:
		return ServiceRemoved
	case n.Moment == core.MomentRolledBack:
		return ServiceRolledBack
	case a.HasPrevious:
		return ServiceUpgraded
	default:
		return ServiceDeployed
	}
}

// notified is a notification as data.
func notified(n core.Notification, leftOut int) map[string]any {
	return map[string]any{
		"event": string(n.Moment), "severity": n.Moment.Severity().String(), "application": n.Application, "environment": n.Environment,
		"subject": n.Subject, "reason": cut(n.Reason, 1000), "principal": n.PrincipalName, "rollout": rolloutName(n.RolloutID), "left_out": leftOut,
	}
}

// interchange is a message as events of CDEvents, each a request of its own, in order. A receiver recognizes a repeat by the id.
func (u *UseCases) interchange(
	ctx context.Context, tx Tx, organization int64, kind core.NotificationKind, c channelConfig, m core.NotificationMessage, what content,
) (made inputs, err error) {
	if u.events == nil {
		return made, fmt.Errorf("this service writes no events of CDEvents")
	}
	all, err := deliveryEvents(ctx, tx, organization, m, what)
	if err != nil {
		return made, err
	}
	for i, e := range all {
		raw, err := u.events.WriteEvent(e)
		if err != nil {
			return made, err
		}
		one := eventRequest(kind, c, organization, m.ChannelID, e.ID, raw)
		if i == 0 {
			made = one
			continue
		}
		made.Further = append(made.Further, one.Request)
	}
	return made, nil
}
