package event

import "encoding/json"

// CredentialChanged is com.gitlab.cd.credential.changed: a credential of the organization, completely, with a reference to its value or
// with the sealed value, which only services with the operator's keyset open. Of events about the same credential, that with the highest
// sequence counts.
type CredentialChanged struct {
	// Name is that of the credential.
	Name string `json:"name" jsonschema:"minLength=1,maxLength=63"`
	// Sequence orders the events about the credential.
	Sequence int64 `json:"sequence" jsonschema:"minimum=1"`
	// Version counts the values of the credential.
	Version int `json:"version" jsonschema:"minimum=1"`
	// Kind is what it is for.
	Kind string `json:"kind" jsonschema:"enum=git,enum=http,enum=registry"`
	// URLPrefixes are the URLs that the value may be sent to: scheme, host and the beginning of a path.
	URLPrefixes []string `json:"url_prefixes" jsonschema:"minItems=1,maxItems=20"`
	// Username makes it a user name and a password.
	Username string `json:"username,omitempty" jsonschema:"maxLength=255"`
	// Header makes it the value of that header.
	Header string `json:"header,omitempty" jsonschema:"maxLength=255"`
	// Forge is the interface that its repositories are read and written through; absent for Git's own protocol.
	Forge string `json:"forge,omitempty" jsonschema:"maxLength=63"`
	// Proof is how the client proves itself other than by sending the value: oauth2, certificate, github_app, ssh_key, ecr, gar or acr;
	// absent for none of them.
	Proof json.RawMessage `json:"proof,omitempty" jsonschema:"type=object"`
	// Reference refers to the value; absent for a sealed value, and once it was revoked.
	Reference string `json:"reference,omitempty" jsonschema:"maxLength=1000"`
	// Sealed is the sealed value; absent for a reference, and once it was revoked.
	Sealed []byte `json:"sealed,omitempty" jsonschema:"maxLength=131072"`
	// Revoked reports whether it must no longer be used.
	Revoked bool `json:"revoked,omitempty"`
}

// EventType implements Data.
func (CredentialChanged) EventType() string { return TypeCredentialChanged }
