package client

import (
	"context"
	"encoding/json"
	"time"
)

// A Source is an artifact source with its state.
type Source struct {
	ArtifactSource
	Service ServiceReference `json:"service"`
	// State is nil if the registry service does not answer, or does not know the source yet.
	State *SourceState `json:"state"`
	// DisabledAt is since when it takes no versions, and RemovedAt since when it is in no new version set; nil for a state that it is not in.
	DisabledAt *time.Time `json:"disabledAt,omitempty"`
	RemovedAt  *time.Time `json:"removedAt,omitempty"`
}

// SourceState is the state of a source.
type SourceState struct {
	Polled         bool       `json:"polled"`
	LookedAt       *time.Time `json:"lookedAt"`
	NextLookAt     *time.Time `json:"nextLookAt"`
	Failures       int        `json:"failures"`
	LastError      string     `json:"lastError"`
	LastArtifact   string     `json:"lastArtifact"`
	LastArtifactAt *time.Time `json:"lastArtifactAt"`
}

// SourceKind is a kind of artifact source: a value of sourceRef, and the JSON Schema of sourceConfig.
type SourceKind struct {
	Ref    string          `json:"ref"`
	Schema json.RawMessage `json:"schema"`
}

// Sender is a hook or a token of the registry service that reports artifacts.
type Sender struct {
	// Name is empty for unnamed tokens; Format is the hook's, or token.
	Name         string     `json:"name"`
	Format       string     `json:"format"`
	Repositories []string   `json:"repositories"`
	ExpiresAt    *time.Time `json:"expiresAt"`
	// LastArtifact is the last one published, as image:tag@digest.
	LastArtifact    string     `json:"lastArtifact"`
	LastPublishedAt *time.Time `json:"lastPublishedAt"`
	// Waiting is the number of notifications that the registry has not confirmed yet, and Refused lists the parts of deliveries that were
	// left out.
	Waiting int       `json:"waiting"`
	Refused []Refusal `json:"refused"`
}

// Refusal is a part of a delivery that was left out, with the reason.
type Refusal struct {
	What    string    `json:"what"`
	Reason  string    `json:"reason"`
	Times   int64     `json:"times"`
	FirstAt time.Time `json:"firstAt"`
	LastAt  time.Time `json:"lastAt"`
}

// Sight is the result of polling a source.
type Sight struct {
	// Artifact is the newest one, as image:tag@digest; empty if there is none that counts.
	Artifact string `json:"artifact"`
	// Problem is why the poll failed; empty if it succeeded.
	Problem string `json:"problem"`
}

const sourceFields = `id service { id name application { id name } } sourceRef sourceConfig disabledAt removedAt state { polled lookedAt nextLookAt failures lastError lastArtifact lastArtifactAt }`

// Sources lists artifact sources, of one application or, with "", of all.
func (c *Client) Sources(ctx context.Context, application string) ([]Source, error) {
	return all(0, func(first int, after *string) (connection[Source], error) {
		variables := map[string]any{"first": first, "after": after}
		if application != "" {
			variables["application"] = application
		}
		var data struct{ ArtifactSources connection[Source] }
		err := c.do(ctx, `query($first: Int, $after: String, $application: String) { artifactSources(first: $first, after: $after, application: $application) { nodes { `+
			sourceFields+` } `+pageInfo+` } }`, variables, &data)
		return data.ArtifactSources, err
	})
}

// SourceVersions lists the versions of a source, the most recently recorded first: all of them, or limit if that is positive.
func (c *Client) SourceVersions(ctx context.Context, source string, limit int) ([]Version, error) {
	return all(limit, func(first int, after *string) (connection[Version], error) {
		var data struct {
			Node *struct{ Versions *connection[Version] }
		}
		err := c.do(ctx, `query($id: ID!, $first: Int, $after: String) { node(id: $id) { ... on ArtifactSource { versions(first: $first, after: $after) { nodes { `+
			`id name digest digestSeen deletedAt reference createdAt } `+pageInfo+` } } } }`,
			map[string]any{"id": source, "first": first, "after": after}, &data)
		if data.Node != nil && data.Node.Versions == nil {
			data.Node = nil // a node of another kind
		}
		node, err := found(data.Node, err, "artifact source", source)
		if err != nil {
			return connection[Version]{}, err
		}
		return *node.Versions, nil
	})
}

// SourceKinds lists the kinds of artifact sources.
func (c *Client) SourceKinds(ctx context.Context) ([]SourceKind, error) {
	var data struct{ ArtifactSourceKinds []SourceKind }
	err := c.do(ctx, `query { artifactSourceKinds { ref schema } }`, nil, &data)
	return data.ArtifactSourceKinds, err
}

// Senders lists the hooks and tokens that report artifacts.
func (c *Client) Senders(ctx context.Context) ([]Sender, error) {
	var data struct{ ArtifactSenders []Sender }
	err := c.do(ctx, `query { artifactSenders { name format repositories expiresAt lastArtifact lastPublishedAt waiting refused { what reason times firstAt lastAt } } }`, nil, &data)
	return data.ArtifactSenders, err
}

// CreateSource adds a source to a service, which is given by its identifier.
func (c *Client) CreateSource(ctx context.Context, service, ref string, config json.RawMessage) (Source, error) {
	return change[Source](ctx, c, "createArtifactSource", "CreateArtifactSourceInput", "artifactSource", sourceFields,
		map[string]any{"serviceId": service, "sourceRef": ref, "sourceConfig": config})
}

// SetSourceConfig changes how a source selects and is polled.
func (c *Client) SetSourceConfig(ctx context.Context, source string, config json.RawMessage) (Source, error) {
	return change[Source](ctx, c, "setArtifactSourceConfig", "SetArtifactSourceConfigInput", "artifactSource", sourceFields,
		map[string]any{"artifactSourceId": source, "sourceConfig": config})
}

// DisableSource stops a source from taking versions.
func (c *Client) DisableSource(ctx context.Context, source, reason string) (Source, error) {
	return change[Source](ctx, c, "disableArtifactSource", "DisableArtifactSourceInput", "artifactSource", sourceFields,
		map[string]any{"artifactSourceId": source, "reason": reason})
}

// EnableSource has a disabled source take versions again.
func (c *Client) EnableSource(ctx context.Context, source, reason string) (Source, error) {
	return change[Source](ctx, c, "enableArtifactSource", "EnableArtifactSourceInput", "artifactSource", sourceFields,
		map[string]any{"artifactSourceId": source, "reason": reason})
}

// RemoveSource takes a source out of new version sets.
func (c *Client) RemoveSource(ctx context.Context, source, reason string) (Source, error) {
	return change[Source](ctx, c, "removeArtifactSource", "RemoveArtifactSourceInput", "artifactSource", sourceFields,
		map[string]any{"artifactSourceId": source, "reason": reason})
}

// ReplaceSource makes another source in the place of one, and returns the new one.
func (c *Client) ReplaceSource(ctx context.Context, source, ref string, config json.RawMessage, reason string) (Source, error) {
	return change[Source](ctx, c, "replaceArtifactSource", "ReplaceArtifactSourceInput", "artifactSource", sourceFields,
		map[string]any{"artifactSourceId": source, "sourceRef": ref, "sourceConfig": config, "reason": reason})
}

// LookAtSource polls a source now.
func (c *Client) LookAtSource(ctx context.Context, source string) (Sight, error) {
	return c.sight(ctx, "lookAtArtifactSource", "LookAtArtifactSourceInput", map[string]any{"artifactSourceId": source})
}

// TrySource polls what may become a source, and stores nothing.
func (c *Client) TrySource(ctx context.Context, ref string, config json.RawMessage) (Sight, error) {
	return c.sight(ctx, "tryArtifactSource", "TryArtifactSourceInput", map[string]any{"sourceRef": ref, "sourceConfig": config})
}

func (c *Client) sight(ctx context.Context, mutation, inputType string, input map[string]any) (Sight, error) {
	var data map[string]struct {
		Sight
		Errors []UserError `json:"errors"`
	}
	document := `mutation($input: ` + inputType + `!) { ` + mutation + `(input: $input) { artifact problem errors { field message code } } }`
	if err := c.do(ctx, document, map[string]any{"input": input}, &data); err != nil {
		return Sight{}, err
	}
	return data[mutation].Sight, refusal(data[mutation].Errors)
}
