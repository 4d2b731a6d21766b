package client

import (
	"context"
	"time"
)

// Provenance is what verified signatures and attestations state about an image. What is not known is absent.
type Provenance struct {
	LookedAt   *time.Time         `json:"lookedAt,omitempty"`
	NextLookAt *time.Time         `json:"nextLookAt,omitempty"`
	Problem    string             `json:"problem,omitempty"`
	Since      *time.Time         `json:"since,omitempty"`
	SignedBy   []string           `json:"signedBy"`
	Builders   []string           `json:"builders"`
	BuildLevel int                `json:"buildLevel,omitempty"`
	Sources    []ProvenanceSource `json:"sources"`
	// Claimed is what the image says of itself, which nobody has verified; nil for nothing.
	Claimed         *ClaimedSource   `json:"claimed,omitempty"`
	SBOMFormat      string           `json:"sbomFormat,omitempty"`
	ComponentCount  *int             `json:"componentCount,omitempty"`
	Vulnerabilities *Vulnerabilities `json:"vulnerabilities,omitempty"`
	Evidence        []Evidence       `json:"evidence"`
	Truncated       bool             `json:"truncated,omitempty"`
}

// ProvenanceSource is what an image was built from.
type ProvenanceSource struct {
	Repository string `json:"repository"`
	Revision   string `json:"revision,omitempty"`
}

// ClaimedSource is what an image claims about its source.
type ClaimedSource struct {
	Source   string `json:"source,omitempty"`
	Revision string `json:"revision,omitempty"`
}

// Vulnerabilities is what a scanner has found.
type Vulnerabilities struct {
	Scanner     string     `json:"scanner,omitempty"`
	ScannedAt   *time.Time `json:"scannedAt,omitempty"`
	Critical    []string   `json:"critical"`
	High        []string   `json:"high"`
	Medium      int        `json:"medium"`
	Low         int        `json:"low"`
	Unknown     int        `json:"unknown"`
	NotAffected []string   `json:"notAffected"`
}

// Evidence is one signature or attestation.
type Evidence struct {
	Digest        string     `json:"digest"`
	Form          string     `json:"form"`
	PredicateType string     `json:"predicateType,omitempty"`
	Signer        string     `json:"signer,omitempty"`
	Identity      string     `json:"identity,omitempty"`
	SignedAt      *time.Time `json:"signedAt,omitempty"`
	Problem       string     `json:"problem,omitempty"`
}

// ProvenVersion is a version with where it comes from; nil if it is no image.
type ProvenVersion struct {
	Version
	Provenance *Provenance `json:"provenance"`
}

const provenVersionFields = `id name digest reference createdAt provenance { lookedAt nextLookAt problem since signedBy builders buildLevel
	sources { repository revision } claimed { source revision } sbomFormat componentCount
	vulnerabilities { scanner scannedAt critical high medium low unknown notAffected }
	evidence { digest form predicateType signer identity signedAt problem } truncated }`

// ProvenVersion finds a version by its identifier, version_7.
func (c *Client) ProvenVersion(ctx context.Context, id string) (ProvenVersion, error) {
	var data struct{ Node *ProvenVersion }
	err := c.do(ctx, `query($id: ID!) { node(id: $id) { ... on Version { `+provenVersionFields+` } } }`, map[string]any{"id": id}, &data)
	if data.Node != nil && data.Node.ID == "" {
		data.Node = nil // a node of another kind
	}
	return found(data.Node, err, "version", id)
}

// LookUpProvenance has a version looked up as soon as possible.
func (c *Client) LookUpProvenance(ctx context.Context, id string) (ProvenVersion, error) {
	return change[ProvenVersion](ctx, c, "lookUpProvenance", "LookUpProvenanceInput", "version", provenVersionFields,
		map[string]any{"versionId": id})
}

// Whereabouts is where a version is live.
type Whereabouts struct {
	Application Reference  `json:"application"`
	Environment Reference  `json:"environment"`
	Service     Reference  `json:"service"`
	Version     Reference  `json:"version"`
	Since       time.Time  `json:"since"`
	Component   *Component `json:"component,omitempty"`
}

// Component is a part of an image.
type Component struct {
	Name    string `json:"name"`
	Version string `json:"version,omitempty"`
	PURL    string `json:"purl,omitempty"`
}

const whereaboutsFields = `application { id name } environment { id name } service { id name } version { id name } since
	component { name version purl }`

// WhereComponent is where a component is live, in any version if it is empty.
func (c *Client) WhereComponent(ctx context.Context, name, version string) ([]Whereabouts, error) {
	var data struct{ WhereComponent []Whereabouts }
	err := c.do(ctx, `query($name: String!, $version: String) { whereComponent(name: $name, version: $version) { `+whereaboutsFields+` } }`,
		map[string]any{"name": name, "version": version}, &data)
	return data.WhereComponent, err
}

// WhereDigest is where a digest is live.
func (c *Client) WhereDigest(ctx context.Context, digest string) ([]Whereabouts, error) {
	var data struct{ WhereDigest []Whereabouts }
	err := c.do(ctx, `query($digest: String!) { whereDigest(digest: $digest) { `+whereaboutsFields+` } }`,
		map[string]any{"digest": digest}, &data)
	return data.WhereDigest, err
}

// ComponentChanges are the components that differ between two version sets.
type ComponentChanges struct {
	Changes []ComponentChange `json:"changes"`
	Known   bool              `json:"known"`
}

// ComponentChange is a component whose versions differ.
type ComponentChange struct {
	Name   string   `json:"name"`
	Before []string `json:"before"`
	After  []string `json:"after"`
}

// ComponentChanges compares two version sets, versionset_3 and versionset_4.
func (c *Client) ComponentChanges(ctx context.Context, before, after string) (ComponentChanges, error) {
	var data struct{ ComponentChanges ComponentChanges }
	err := c.do(ctx, `query($before: ID!, $after: ID!) { componentChanges(before: $before, after: $after) { known changes { name before after } } }`,
		map[string]any{"before": before, "after": after}, &data)
	return data.ComponentChanges, err
}
