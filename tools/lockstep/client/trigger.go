package client

import (
	"context"
	"encoding/json"
	"time"
)

// Trigger begins rollouts of an application.
type Trigger struct {
	Name string `json:"name"`
	// Kind is VERSION, MANUAL, DRIFT, SCHEDULE, EVENT, CHAIN or GIT.
	Kind    string          `json:"kind"`
	Config  json.RawMessage `json:"config"`
	Enabled bool            `json:"enabled"`
	// Author and ChangedAt are who saved it last, and when; nil for a default.
	Author    *string    `json:"author,omitempty"`
	ChangedAt *time.Time `json:"changedAt,omitempty"`
	// LastDecision is nil if nothing has happened yet.
	LastDecision *TriggerDecision `json:"lastDecision,omitempty"`
}

// TriggerDecision is what a trigger decided.
type TriggerDecision struct {
	// Cause identifies what happened, at At.
	Cause string    `json:"cause"`
	At    time.Time `json:"at"`
	// Outcome is PENDING, WAITING, BEGAN, QUEUED, DECLINED or DONE, and Reason why, in one sentence.
	Outcome string `json:"outcome"`
	Reason  string `json:"reason"`
	// DecidesAt is when it decides, or decided.
	DecidesAt  time.Time  `json:"decidesAt"`
	VersionSet *Reference `json:"versionSet,omitempty"`
	Rollout    *Reference `json:"rollout,omitempty"`
	// Edit is what came of the files that the trigger edits first; nil if it edits none.
	Edit *TriggerEdit `json:"edit,omitempty"`
	// Sender is who has sent the event; nil for what nobody sends, and where it is not known.
	Sender *EventSender `json:"sender,omitempty"`
}

// EventSender is who has sent an event.
type EventSender struct {
	PrincipalType string `json:"principalType"`
	PrincipalID   int64  `json:"principalId"`
	Name          string `json:"name"`
}

// TriggerEdit are files of a repository that a trigger edits before it decides.
type TriggerEdit struct {
	// State is PENDING, COMMITTED, PROPOSED, UNCHANGED or FAILED.
	State      string `json:"state"`
	Repository string `json:"repository"`
	// Commit has the values, and CommitLink is where most forges show it; empty for none.
	Commit     string `json:"commit,omitempty"`
	CommitLink string `json:"commitLink,omitempty"`
	// Link is where the change is proposed, and Why why the latest attempt failed.
	Link string `json:"link,omitempty"`
	Why  string `json:"why,omitempty"`
}

// PromotionHold keeps automation from beginning rollouts in an environment, since a rollback there.
type PromotionHold struct {
	Environment Reference `json:"environment"`
	Rollout     Reference `json:"rollout"`
	Since       time.Time `json:"since"`
}

// ApplicationTriggers are the triggers of an application, and where automation is held.
type ApplicationTriggers struct {
	Triggers       []Trigger       `json:"triggers"`
	PromotionHolds []PromotionHold `json:"promotionHolds"`
}

// TriggerKind describes a kind of trigger.
type TriggerKind struct {
	Kind        string `json:"kind"`
	Description string `json:"description"`
	// Schema is the JSON Schema of its configuration.
	Schema json.RawMessage `json:"schema"`
	// Default reports whether applications have one without saving it.
	Default bool `json:"default"`
}

// SentEvent is the outcome of an event.
type SentEvent struct {
	// Triggers is how many triggers decide about it, or have.
	Triggers int `json:"triggers"`
	// Full is how many others match that have too much to decide about to take it now: send it again later.
	Full int `json:"full"`
}

const (
	decisionFields = `cause at outcome reason decidesAt versionSet { id name } rollout { id }` + editNewer + senderNewer
	// editNewer and senderNewer are what the previous release of the domain service does not have.
	editNewer     = ` edit { state repository commit commitLink link why }`
	senderNewer   = ` sender { principalType principalId name }`
	triggerFields = `name kind config enabled author changedAt lastDecision { ` + decisionFields + ` }`
	holdFields    = `environment { id name } rollout { id } since`
)

// Triggers reads those of an application.
func (c *Client) Triggers(ctx context.Context, application string) (ApplicationTriggers, error) {
	var data struct{ Application *ApplicationTriggers }
	err := c.do(ctx, `query($name: String!) { application(name: $name) { triggers { `+triggerFields+` } promotionHolds { `+holdFields+` } } }`,
		map[string]any{"name": application}, &data)
	return found(data.Application, err, "application", application)
}

// TriggerDecisions reads what the triggers of an application decided, by the trigger's name, the latest first.
func (c *Client) TriggerDecisions(ctx context.Context, application string) (map[string][]TriggerDecision, error) {
	type decided struct {
		Name      string
		Decisions []TriggerDecision
	}
	var data struct{ Application *struct{ Triggers []decided } }
	err := c.do(ctx, `query($name: String!) { application(name: $name) { triggers { name decisions { `+decisionFields+` } } } }`,
		map[string]any{"name": application}, &data)
	a, err := found(data.Application, err, "application", application)
	all := map[string][]TriggerDecision{}
	for _, t := range a.Triggers {
		all[t.Name] = t.Decisions
	}
	return all, err
}

// TriggerKinds reads the kinds.
func (c *Client) TriggerKinds(ctx context.Context) ([]TriggerKind, error) {
	var data struct{ TriggerKinds []TriggerKind }
	err := c.do(ctx, `{ triggerKinds { kind description schema default } }`, nil, &data)
	return data.TriggerKinds, err
}

// PutTrigger saves a trigger.
func (c *Client) PutTrigger(ctx context.Context, application string, t Trigger, reason string) (Trigger, error) {
	input := map[string]any{"application": application, "name": t.Name, "kind": t.Kind, "enabled": t.Enabled, "reason": reason}
	if len(t.Config) > 0 {
		input["config"] = t.Config
	}
	return change[Trigger](ctx, c, "putTrigger", "PutTriggerInput", "trigger", triggerFields, input)
}

// RemoveTrigger removes a trigger, and answers those that are left.
func (c *Client) RemoveTrigger(ctx context.Context, application, name, reason string) (ApplicationTriggers, error) {
	return change[ApplicationTriggers](ctx, c, "removeTrigger", "RemoveTriggerInput", "application",
		`triggers { `+triggerFields+` } promotionHolds { `+holdFields+` }`,
		map[string]any{"application": application, "name": name, "reason": reason})
}

// ReleasePromotionHold lets automation begin rollouts in an environment again.
func (c *Client) ReleasePromotionHold(ctx context.Context, application, environment, reason string) (ApplicationTriggers, error) {
	return change[ApplicationTriggers](ctx, c, "releasePromotionHold", "ReleasePromotionHoldInput", "application",
		`triggers { `+triggerFields+` } promotionHolds { `+holdFields+` }`,
		map[string]any{"application": application, "environment": environment, "reason": reason})
}

// Event is a CloudEvent.
type Event struct {
	ID, Source, Type string
	// Data is a JSON object; empty for none.
	Data json.RawMessage
}

// SendEvent gives an event to the triggers that it matches.
func (c *Client) SendEvent(ctx context.Context, e Event) (SentEvent, error) {
	input := map[string]any{"id": e.ID, "source": e.Source, "type": e.Type}
	if len(e.Data) > 0 {
		input["data"] = e.Data
	}
	var data struct {
		SendEvent struct {
			SentEvent
			Errors []UserError
		}
	}
	err := c.do(ctx, `mutation($input: SendEventInput!) { sendEvent(input: $input) { triggers full errors { field message code } } }`,
		map[string]any{"input": input}, &data)
	if err == nil {
		err = refusal(data.SendEvent.Errors)
	}
	return data.SendEvent.SentEvent, err
}
