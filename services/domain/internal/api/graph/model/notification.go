package model

import (
	"encoding/json"
	"time"

	"github.com/99designs/gqlgen/graphql"

	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/notify"
)

// NotificationChannel is the domain's.
type NotificationChannel struct {
	Name      string
	Kind      core.NotificationKind
	Config    json.RawMessage
	Rate      int
	Enabled   bool
	Author    string
	ChangedAt time.Time
}

// WrapNotificationChannel makes one of the domain's.
func WrapNotificationChannel(c core.NotificationChannel) NotificationChannel {
	return NotificationChannel{
		Name: c.Name, Kind: c.Kind, Config: c.Config, Rate: c.Rate, Enabled: c.Enabled, Author: c.Author.Name, ChangedAt: c.ChangedAt,
	}
}

// MyNotificationChannel is the domain's.
type MyNotificationChannel struct {
	Name             string
	Kind             core.NotificationKind
	Reaches, Problem string
}

// WrapMyNotificationChannel makes one of the domain's.
func WrapMyNotificationChannel(c notify.MyChannel) MyNotificationChannel {
	return MyNotificationChannel{Name: c.Name, Kind: c.Kind, Reaches: c.Reaches, Problem: c.Problem}
}

// MyNotification is the domain's subscription, with the name of its channel.
type MyNotification struct {
	Name, Channel string
	Config        json.RawMessage
	Enabled       bool
	ChangedAt     time.Time
}

// NotificationRoute is the domain's, with the name of its channel.
type NotificationRoute struct {
	Name, Channel string
	Config        json.RawMessage
	Enabled       bool
	Author        string
	ChangedAt     time.Time
	// Problem is why its expression could not be evaluated; empty for none.
	Problem string
}

// NotificationMessage is the domain's, with the names of its channel and its route.
type NotificationMessage struct {
	core.NotificationMessage
	Channel, Route string
}

// Number identifies it within the organization.
func (m NotificationMessage) Number() int64 { return m.ID }

// DueAt is when it is tried next; nil if it is not to be sent.
func (m NotificationMessage) DueAt() *time.Time {
	if m.State != core.MessagePending && m.State != core.MessageSending {
		return nil
	}
	return &m.NotificationMessage.DueAt
}

// NotificationPreview is the domain's.
type NotificationPreview struct {
	Title   string
	Lines   []string
	Problem string
	Message json.RawMessage
}

// NotificationOpening is the domain's.
type NotificationOpening struct {
	Member, Gate string
	OpenedAt     time.Time
	AnsweredAt   *time.Time
}

// WrapNotificationOpening makes one of the domain's.
func WrapNotificationOpening(o core.NotificationOpening) NotificationOpening {
	return NotificationOpening{Member: o.Member, Gate: o.GateID, OpenedAt: o.OpenedAt, AnsweredAt: o.AnsweredAt}
}

// NotificationLink is the question that a link opens.
type NotificationLink struct {
	State                notify.LinkState
	RolloutID, RequestID int64
	Gate                 string
	Message              int
	OpenedBy             string
	OpenedAt             *time.Time
}

// WrapNotificationLink makes one of the domain's.
func WrapNotificationLink(l notify.OpenedLink) NotificationLink {
	o := l.Opening
	made := NotificationLink{
		State: l.State, RolloutID: o.RolloutID, RequestID: o.RequestID, Gate: o.GateID, Message: int(o.MessageID), OpenedBy: o.Member,
	}
	if o.MemberID != 0 {
		made.OpenedAt = &o.OpenedAt
	}
	return made
}

// MarshalNotificationLinkState writes a state.
func MarshalNotificationLinkState(s notify.LinkState) graphql.Marshaler { return word(string(s)) }

// UnmarshalNotificationLinkState reads a state.
func UnmarshalNotificationLinkState(v any) (notify.LinkState, error) {
	return enum(v, notify.AllLinkStates()...)
}

// MarshalNotificationKind writes a kind.
func MarshalNotificationKind(k core.NotificationKind) graphql.Marshaler { return word(string(k)) }

// UnmarshalNotificationKind reads a kind.
func UnmarshalNotificationKind(v any) (core.NotificationKind, error) {
	return enum(v, core.AllNotificationKinds()...)
}

// MarshalNotificationMoment writes a moment.
func MarshalNotificationMoment(m core.NotificationMoment) graphql.Marshaler { return word(string(m)) }

// UnmarshalNotificationMoment reads a moment.
func UnmarshalNotificationMoment(v any) (core.NotificationMoment, error) {
	return enum(v, core.AllNotificationMoments()...)
}

// MarshalNotificationSeverity writes a severity.
func MarshalNotificationSeverity(s core.NotificationSeverity) graphql.Marshaler {
	return word(s.String())
}

// UnmarshalNotificationSeverity reads a severity.
func UnmarshalNotificationSeverity(v any) (core.NotificationSeverity, error) {
	return enum(v, core.SeverityLow, core.SeverityNormal, core.SeverityHigh)
}

// MarshalNotificationState writes a state.
func MarshalNotificationState(s core.NotificationState) graphql.Marshaler { return word(string(s)) }

// UnmarshalNotificationState reads a state.
func UnmarshalNotificationState(v any) (core.NotificationState, error) {
	return enum(v, core.AllNotificationStates()...)
}
