package notify

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/fault"
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

	EnvironmentCreated  DeliveryEventType = "environment.created"
	EnvironmentModified DeliveryEventType = "environment.modified"
	EnvironmentDeleted  DeliveryEventType = "environment.deleted"
	ArtifactPublished   DeliveryEventType = "artifact.published"
	ArtifactDeleted     DeliveryEventType = "artifact.deleted"

	Notified DeliveryEventType = "notification.sent"
)

// DeliveryEvent is something that happened, for other tools.
type DeliveryEvent struct {
	Type DeliveryEventType
	// ID is the same whenever the event is sent again. Source names the organization.
	ID, Source string
	At         time.Time
	// Subject is the service, the environment or the notification; empty for an artifact, which its package URL names.
	Subject string
	// Environment is that of a service, and Artifact that of a service or the artifact itself.
	Environment string
	Artifact    Artifact
	// URL is where an environment is shown; empty for nowhere.
	URL string
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

// interchanges is whether a channel receives events of CDEvents.
func interchanges(c core.NotificationChannel) bool {
	var config channelConfig
	return json.Unmarshal(c.Config, &config) == nil && config.Payload == PayloadCDEvents
}

// forTools is whether a message is about a thing for tools: one event, of which nothing may be left out.
func forTools(ctx context.Context, tx Tx, m core.NotificationMessage) (bool, error) {
	if m.RolloutID != 0 || len(m.NotificationIDs) != 1 {
		return false, nil
	}
	of, err := tx.NotificationsByID(ctx, m.NotificationIDs)
	return len(of) == 1 && of[0].Moment.ForTools(), err
}

// alike are those of others that a digest of CDEvents takes up with a message: of things for tools as many as one message is sent as, and
// the rest waits for the rate of the channel; otherwise those about anything else.
func alike(
	ctx context.Context, tx Tx, m core.NotificationMessage, others []core.NotificationMessage,
) (some []core.NotificationMessage, err error) {
	tools, err := forTools(ctx, tx, m)
	if err != nil {
		return nil, err
	}
	for _, one := range others {
		is, err := forTools(ctx, tx, one)
		if err != nil {
			return nil, err
		}
		if is == tools && (!tools || len(some) < maxEvents-1) {
			some = append(some, one)
		}
	}
	return some, nil
}

// brings reports whether a rollout has brought versions to environments when a moment comes.
func brings(m core.NotificationMoment) bool {
	return m == core.MomentRolloutCompleted || m == core.MomentRolledBack || m == core.MomentRolloutFailed
}

// itself is a moment about an environment or an artifact as an event; false for any other one, and for an artifact that is not known any
// more.
func (u *UseCases) itself(ctx context.Context, tx Tx, n core.Notification, e DeliveryEvent) (DeliveryEvent, bool, error) {
	switch n.Moment {
	case core.MomentEnvironmentCreated, core.MomentEnvironmentRestored:
		e.Type = EnvironmentCreated
	case core.MomentEnvironmentChanged:
		e.Type = EnvironmentModified
	case core.MomentEnvironmentArchived:
		e.Type = EnvironmentDeleted
	case core.MomentArtifactPublished:
		e.Type = ArtifactPublished
	case core.MomentArtifactDeleted:
		e.Type = ArtifactDeleted
	default:
		return e, false, nil
	}
	if n.Moment.OfEnvironment() {
		e.Subject, e.Environment, e.URL = n.Environment, n.Environment, u.linkOf(n)
		return e, n.Environment != "", nil
	}
	var err error
	if e.Artifact, err = tx.NotifiedVersion(ctx, n.SubjectID); fault.Is(err, fault.NotFound) {
		return e, false, nil
	}
	e.Subject = ""
	return e, err == nil, err
}

// deliveryEvents are what a message is about: of a rollout that has ended one for each service and environment that it has changed, and one
// for everything else.
func (u *UseCases) deliveryEvents(ctx context.Context, tx Tx, organization int64, m core.NotificationMessage, what content) (
	all []DeliveryEvent, err error,
) {
	source := fmt.Sprintf("/lockstep/organizations/%d", organization)
	for i, n := range what.moments {
		base := fmt.Sprintf("notification_%d_%d", organization, n.ID)
		if len(all) < maxEvents-1 || i == len(what.moments)-1 && m.LeftOut == 0 { // otherwise the last one counts what follows
			e, is, err := u.itself(ctx, tx, n, DeliveryEvent{ID: base, Source: source, At: n.At, Subject: base})
			if err != nil {
				return nil, err
			}
			if is {
				all = append(all, e)
				continue
			}
		}
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
	counts := func(e DeliveryEvent) bool { return e.Type == Notified }
	if len(all) > 0 && m.LeftOut > 0 && !slices.ContainsFunc(all, counts) {
		n := what.moments[len(what.moments)-1]
		id := fmt.Sprintf("notification_%d_%d_rest", organization, n.ID)
		all = append(all, DeliveryEvent{Type: Notified, ID: id, Source: source, At: n.At, Subject: id, Content: notified(n, m.LeftOut)})
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
	all, err := u.deliveryEvents(ctx, tx, organization, m, what)
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
