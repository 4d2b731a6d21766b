package client

import (
	"context"
	"encoding/json"
	"time"
)

// NotificationChannel is where notifications are sent to.
type NotificationChannel struct {
	Name string `json:"name"`
	// Kind is SLACK, TEAMS, MATTERMOST, DISCORD, EMAIL, PAGERDUTY or WEBHOOK.
	Kind   string          `json:"kind"`
	Config json.RawMessage `json:"config"`
	// Rate is how many messages it receives within a minute at most.
	Rate    int  `json:"rate"`
	Enabled bool `json:"enabled"`
	// Author and ChangedAt are who saved it last, and when.
	Author    string    `json:"author,omitempty"`
	ChangedAt time.Time `json:"changedAt"`
}

// NotificationRoute says what a channel is sent, and how.
type NotificationRoute struct {
	Name      string          `json:"name"`
	Channel   string          `json:"channel"`
	Config    json.RawMessage `json:"config"`
	Enabled   bool            `json:"enabled"`
	Author    string          `json:"author,omitempty"`
	ChangedAt time.Time       `json:"changedAt"`
	// Problem is why its expression could not be evaluated; empty for none.
	Problem string `json:"problem"`
}

// NotificationMessage is a message in a channel.
type NotificationMessage struct {
	// Number identifies it within the organization.
	Number  int    `json:"number"`
	Channel string `json:"channel"`
	// Route is empty for what is sent by default.
	Route   string     `json:"route"`
	Rollout *Reference `json:"rollout,omitempty"`
	Title   string     `json:"title"`
	// Severity is LOW, NORMAL or HIGH.
	Severity string `json:"severity"`
	// State is PENDING, SENDING, SENT, FAILED or DIGESTED.
	State string `json:"state"`
	// Error is why the last attempt sent nothing.
	Error string `json:"error"`
	// TemplateError is why a template could not be filled in, so that the default was sent.
	TemplateError string `json:"templateError,omitempty"`
	Attempts      int    `json:"attempts"`
	// DueAt is when it is tried next, SentAt when it was sent last.
	DueAt     *time.Time `json:"dueAt,omitempty"`
	SentAt    *time.Time `json:"sentAt,omitempty"`
	CreatedAt time.Time  `json:"createdAt"`
	// Openings are its links that were opened.
	Openings []NotificationOpening `json:"openings"`
}

// NotificationPreview is what a channel would say of an event.
type NotificationPreview struct {
	Title string   `json:"title"`
	Lines []string `json:"lines"`
	// Problem is why a template cannot be filled in, so that the default would be sent.
	Problem string `json:"problem,omitempty"`
	// Message is what would be sent, in the format of the channel.
	Message json.RawMessage `json:"message"`
}

// NotificationOpening records that a member has opened the link of a message.
type NotificationOpening struct {
	Member string `json:"member"`
	// Gate is what the link opened; empty for a call.
	Gate     string    `json:"gate"`
	OpenedAt time.Time `json:"openedAt"`
	// AnsweredAt is when the member answered the question afterwards.
	AnsweredAt *time.Time `json:"answeredAt,omitempty"`
}

// NotificationKind describes a kind of channel.
type NotificationKind struct {
	Kind        string `json:"kind"`
	Description string `json:"description"`
	// Schema is the JSON Schema of its configuration.
	Schema json.RawMessage `json:"schema"`
	// Defaults are the moments that are sent to a channel without routes.
	Defaults []string `json:"defaults"`
}

// ChatAccount is a chat account that a member has linked.
type ChatAccount struct {
	// Number identifies it within the organization.
	Number int `json:"number"`
	// Kind is SLACK or MATTERMOST.
	Kind string `json:"kind"`
	// Workspace is the team in Slack, the URL of the server of Mattermost.
	Workspace string `json:"workspace"`
	User      string `json:"user"`
	Name      string `json:"name"`
	Member    string `json:"member"`
	// Permissions are what it is good for at most, such as APPROVE.
	Permissions []string   `json:"permissions"`
	LinkedAt    *time.Time `json:"linkedAt,omitempty"`
}

// MyNotificationChannel is a channel that the viewer may subscribe to.
type MyNotificationChannel struct {
	Name string `json:"name"`
	// Kind is EMAIL, SLACK or MATTERMOST.
	Kind string `json:"kind"`
	// Reaches is where it reaches the viewer, and Problem why it does not; one of them is empty.
	Reaches string `json:"reaches"`
	Problem string `json:"problem"`
}

// MyNotification is what the viewer has sent to themselves.
type MyNotification struct {
	Name      string          `json:"name"`
	Channel   string          `json:"channel"`
	Config    json.RawMessage `json:"config"`
	Enabled   bool            `json:"enabled"`
	ChangedAt time.Time       `json:"changedAt"`
}

const (
	myNotificationFields      = `name channel config enabled changedAt`
	chatAccountFields         = `number kind workspace user name member permissions linkedAt`
	notificationChannelFields = `name kind config rate enabled author changedAt`
	notificationRouteFields   = `name channel config enabled author changedAt problem`
	notificationMessageFields = `number channel route rollout { id } title severity state error templateError attempts dueAt sentAt createdAt
		openings { member gate openedAt answeredAt }`
)

// NotificationKinds reads the kinds of channels.
func (c *Client) NotificationKinds(ctx context.Context) ([]NotificationKind, error) {
	var data struct{ NotificationKinds []NotificationKind }
	err := c.do(ctx, `{ notificationKinds { kind description schema defaults } }`, nil, &data)
	return data.NotificationKinds, err
}

// NotificationChannels reads the channels, by name.
func (c *Client) NotificationChannels(ctx context.Context) ([]NotificationChannel, error) {
	var data struct{ NotificationChannels []NotificationChannel }
	err := c.do(ctx, `{ notificationChannels { `+notificationChannelFields+` } }`, nil, &data)
	return data.NotificationChannels, err
}

// NotificationRoutes reads the routes, by name.
func (c *Client) NotificationRoutes(ctx context.Context) ([]NotificationRoute, error) {
	var data struct{ NotificationRoutes []NotificationRoute }
	err := c.do(ctx, `{ notificationRoutes { `+notificationRouteFields+` } }`, nil, &data)
	return data.NotificationRoutes, err
}

// NotificationMessages reads messages, the newest first. State and channel are empty for all.
func (c *Client) NotificationMessages(ctx context.Context, state, channel string, first int) ([]NotificationMessage, error) {
	var data struct{ NotificationMessages []NotificationMessage }
	variables := map[string]any{"first": first}
	if state != "" {
		variables["state"] = state
	}
	if channel != "" {
		variables["channel"] = channel
	}
	err := c.do(ctx, `query($state: NotificationState, $channel: String, $first: Int!) {
		notificationMessages(state: $state, channel: $channel, first: $first) { `+notificationMessageFields+` } }`, variables, &data)
	return data.NotificationMessages, err
}

// PreviewNotification shows what a channel would say of an event. Title and text are templates; nil for those that the channel has.
func (c *Client) PreviewNotification(ctx context.Context, channel, event string, title, text *string) (NotificationPreview, error) {
	var data struct{ NotificationPreview NotificationPreview }
	err := c.do(ctx, `query($channel: String!, $event: NotificationMoment!, $title: String, $text: String) {
		notificationPreview(channel: $channel, event: $event, title: $title, text: $text) { title lines problem message } }`,
		map[string]any{"channel": channel, "event": event, "title": title, "text": text}, &data)
	return data.NotificationPreview, err
}

// PutNotificationChannel saves a channel.
func (c *Client) PutNotificationChannel(ctx context.Context, n NotificationChannel, reason string) (NotificationChannel, error) {
	return change[NotificationChannel](ctx, c, "putNotificationChannel", "PutNotificationChannelInput", "channel", notificationChannelFields,
		map[string]any{"name": n.Name, "kind": n.Kind, "config": n.Config, "rate": n.Rate, "enabled": n.Enabled, "reason": reason})
}

// RemoveNotificationChannel removes a channel with its routes, and answers it as it was.
func (c *Client) RemoveNotificationChannel(ctx context.Context, name, reason string) (NotificationChannel, error) {
	return change[NotificationChannel](ctx, c, "removeNotificationChannel", "RemoveNotificationChannelInput", "channel",
		notificationChannelFields, map[string]any{"name": name, "reason": reason})
}

// PutNotificationRoute saves a route.
func (c *Client) PutNotificationRoute(ctx context.Context, n NotificationRoute, reason string) (NotificationRoute, error) {
	input := map[string]any{"name": n.Name, "channel": n.Channel, "enabled": n.Enabled, "reason": reason}
	if len(n.Config) > 0 {
		input["config"] = n.Config
	}
	return change[NotificationRoute](ctx, c, "putNotificationRoute", "PutNotificationRouteInput", "route", notificationRouteFields, input)
}

// RemoveNotificationRoute removes a route, and answers it as it was.
func (c *Client) RemoveNotificationRoute(ctx context.Context, name, reason string) (NotificationRoute, error) {
	return change[NotificationRoute](ctx, c, "removeNotificationRoute", "RemoveNotificationRouteInput", "route", notificationRouteFields,
		map[string]any{"name": name, "reason": reason})
}

// TestNotificationRoute sends a test message to the channel of a route.
func (c *Client) TestNotificationRoute(ctx context.Context, name string) (NotificationRoute, error) {
	return change[NotificationRoute](ctx, c, "testNotificationRoute", "TestNotificationRouteInput", "route", notificationRouteFields,
		map[string]any{"name": name})
}

// RetryNotification sends a dead letter again.
func (c *Client) RetryNotification(ctx context.Context, number int) (NotificationMessage, error) {
	return change[NotificationMessage](ctx, c, "retryNotification", "RetryNotificationInput", "message", notificationMessageFields,
		map[string]any{"number": number})
}

// MyNotificationChannels reads the channels that the viewer may subscribe to.
func (c *Client) MyNotificationChannels(ctx context.Context) ([]MyNotificationChannel, error) {
	var data struct{ MyNotificationChannels []MyNotificationChannel }
	err := c.do(ctx, `{ myNotificationChannels { name kind reaches problem } }`, nil, &data)
	return data.MyNotificationChannels, err
}

// MyNotifications reads the viewer's subscriptions, by name.
func (c *Client) MyNotifications(ctx context.Context) ([]MyNotification, error) {
	var data struct{ MyNotifications []MyNotification }
	err := c.do(ctx, `{ myNotifications { `+myNotificationFields+` } }`, nil, &data)
	return data.MyNotifications, err
}

// MyNotificationMessages reads messages to the viewer, the newest first.
func (c *Client) MyNotificationMessages(ctx context.Context, first int) ([]NotificationMessage, error) {
	var data struct{ MyNotificationMessages []NotificationMessage }
	err := c.do(ctx, `query($first: Int!) { myNotificationMessages(first: $first) { `+notificationMessageFields+` } }`,
		map[string]any{"first": first}, &data)
	return data.MyNotificationMessages, err
}

// PutMyNotification saves a subscription of the viewer.
func (c *Client) PutMyNotification(ctx context.Context, n MyNotification) (MyNotification, error) {
	input := map[string]any{"name": n.Name, "channel": n.Channel, "enabled": n.Enabled}
	if len(n.Config) > 0 {
		input["config"] = n.Config
	}
	return change[MyNotification](ctx, c, "putMyNotification", "PutMyNotificationInput", "subscription", myNotificationFields, input)
}

// RemoveMyNotification removes a subscription of the viewer, and answers it as it was.
func (c *Client) RemoveMyNotification(ctx context.Context, name string) (MyNotification, error) {
	return change[MyNotification](ctx, c, "removeMyNotification", "RemoveMyNotificationInput", "subscription", myNotificationFields,
		map[string]any{"name": name})
}

// RetryMyNotification sends a message to the viewer again that has failed.
func (c *Client) RetryMyNotification(ctx context.Context, number int) (NotificationMessage, error) {
	return change[NotificationMessage](ctx, c, "retryMyNotification", "RetryMyNotificationInput", "message", notificationMessageFields,
		map[string]any{"number": number})
}

// ChatAccounts reads the chat accounts that members have linked.
func (c *Client) ChatAccounts(ctx context.Context) ([]ChatAccount, error) {
	var data struct{ ChatAccounts []ChatAccount }
	err := c.do(ctx, `{ chatAccounts { `+chatAccountFields+` } }`, nil, &data)
	return data.ChatAccounts, err
}

// UnlinkChatAccount ends that a chat account is a member's, and answers it as it was.
func (c *Client) UnlinkChatAccount(ctx context.Context, number int, reason string) (ChatAccount, error) {
	return change[ChatAccount](ctx, c, "unlinkChatAccount", "UnlinkChatAccountInput", "account", chatAccountFields,
		map[string]any{"number": number, "reason": reason})
}
