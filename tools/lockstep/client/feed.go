package client

import (
	"context"
	"time"
)

// Feed is read by its address, without signing in.
type Feed struct {
	Name string `json:"name"`
	// Kind is PRODUCTION_CHANGES, FREEZES or WINDOWS.
	Kind       string     `json:"kind"`
	Author     string     `json:"author"`
	CreatedAt  time.Time  `json:"createdAt"`
	LastReadAt *time.Time `json:"lastReadAt,omitempty"`
}

// NewFeed is a feed with its address, which is shown once.
type NewFeed struct {
	Feed Feed   `json:"feed"`
	URL  string `json:"url"`
}

// Badges are those of an application.
type Badges struct {
	Application string `json:"application"`
	Enabled     bool   `json:"enabled"`
	// URL is the address of a badge, with {environment} for the name of an environment.
	URL       string    `json:"url"`
	Author    string    `json:"author"`
	ChangedAt time.Time `json:"changedAt"`
}

const (
	feedFields   = `name kind author createdAt lastReadAt`
	badgesFields = `application enabled url author changedAt`
)

// Feeds reads the feeds, by name.
func (c *Client) Feeds(ctx context.Context) ([]Feed, error) {
	var data struct{ Feeds []Feed }
	err := c.do(ctx, `{ feeds { `+feedFields+` } }`, nil, &data)
	return data.Feeds, err
}

// CreateFeed makes a feed, and answers its address.
func (c *Client) CreateFeed(ctx context.Context, name, kind, reason string) (NewFeed, error) {
	var data struct {
		CreateFeed struct {
			NewFeed
			Errors []UserError
		}
	}
	err := c.do(ctx, `mutation($input: CreateFeedInput!) { createFeed(input: $input) { feed { `+feedFields+` } url errors { field message code } } }`,
		map[string]any{"input": map[string]any{"name": name, "kind": kind, "reason": reason}}, &data)
	if err == nil {
		err = refusal(data.CreateFeed.Errors)
	}
	return data.CreateFeed.NewFeed, err
}

// RevokeFeed ends a feed, and answers it as it was.
func (c *Client) RevokeFeed(ctx context.Context, name, reason string) (Feed, error) {
	return change[Feed](ctx, c, "revokeFeed", "RevokeFeedInput", "feed", feedFields, map[string]any{"name": name, "reason": reason})
}

// Badges reads the applications that show badges, by name.
func (c *Client) Badges(ctx context.Context) ([]Badges, error) {
	var data struct{ Badges []Badges }
	err := c.do(ctx, `{ badges { `+badgesFields+` } }`, nil, &data)
	return data.Badges, err
}

// SetBadges switches the badges of an application on or off.
func (c *Client) SetBadges(ctx context.Context, application string, enabled bool, reason string) (Badges, error) {
	return change[Badges](ctx, c, "setBadges", "SetBadgesInput", "badges", badgesFields,
		map[string]any{"application": application, "enabled": enabled, "reason": reason})
}
