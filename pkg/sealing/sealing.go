// Package sealing is what services agree on about the credentials of organizations (D56): what a value is bound to, where it may be sent,
// and which references to secrets an organization may use.
//
// It holds no keys and encrypts nothing; package keyset does.
package sealing

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/sshkey"
)

// Kind is what a credential is for.
type Kind string

// The kinds.
const (
	// Git is an account for Git servers and forges.
	Git Kind = "git"
	// HTTP is what requests and e-mail of programs are sent with: a token, a user name and a password, or the value of a header.
	HTTP Kind = "http"
	// Registry is an account for registries of images, charts and other OCI artifacts.
	Registry Kind = "registry"
)

// Kinds are all kinds.
func Kinds() []Kind { return []Kind{Git, HTTP, Registry} }

// Forges are the interfaces that repositories may be read and written through; the first is Git's own protocol.
func Forges() []string { return []string{"git", "gitlab", "github", "gitea", "bitbucket"} }

// The bounds of a credential.
const (
	MaxPrefixes = 20
	maxPrefix   = 1000
	maxName     = 63
	maxUsername = 255
	// MaxReference is the length of a reference in bytes.
	MaxReference = 1000
	// MaxValue is the size of a value in bytes.
	MaxValue = 16 << 10
)

// Terms are what a value is bound to. A value that was sealed with some terms opens with no others.
type Terms struct {
	Organization int64
	Name         string
	// Version counts the values of the credential.
	Version int
	Kind    Kind
	// URLPrefixes are those that the value may be sent to: scheme, host and the beginning of a path, which ends at a path boundary.
	URLPrefixes []string
	// Username makes it a user name and a password, Header the value of that header.
	Username, Header string
	// Forge is the interface of the repositories; empty for Git's own protocol.
	Forge string
	// Proof is how the client proves itself other than by sending the value.
	Proof Proof `json:",omitzero"`
}

// Bytes are the terms in a form in which no two of them are equal.
func (t Terms) Bytes() []byte {
	encoded, _ := json.Marshal(struct { // of texts and numbers, so it cannot fail
		Use   string `json:"use"`
		Terms Terms  `json:"terms"`
	}{"lockstep/credential/1", t})
	return encoded
}

// Use is what a text is sealed for that is not the value of a credential: it opens for no other.
type Use string

// The uses.
const (
	// UseLink is a link in a message, which opens a question.
	UseLink Use = "link"
	// UseChatAccount is a link that a chat account is linked to a member with.
	UseChatAccount Use = "chat-account"
)

// Bytes are the use in a form that is equal to no other use and to no terms.
func (u Use) Bytes() []byte {
	encoded, _ := json.Marshal(struct { // of a text, so it cannot fail
		Use string `json:"use"`
	}{"lockstep/" + string(u) + "/1"})
	return encoded
}

var nameForm = regexp.MustCompile(`^[a-z0-9]([a-z0-9._-]{0,61}[a-z0-9])?$`)

// Check finds what is wrong with terms, as fields of a request.
func (t Terms) Check() []fault.Field {
	var found []fault.Field
	wrong := func(field, format string, args ...any) {
		found = append(found, fault.Field{Name: field, Problem: fmt.Sprintf(format, args...)})
	}
	if !nameForm.MatchString(t.Name) {
		wrong("/name", "found %.100q; expected 1 to %d lower-case letters, digits, dots, hyphens and underscores", t.Name, maxName)
	}
	if !slices.Contains(Kinds(), t.Kind) {
		wrong("/kind", "found %.100q; expected git, http or registry", string(t.Kind))
	}
	if len(t.URLPrefixes) == 0 || len(t.URLPrefixes) > MaxPrefixes {
		wrong("/urlPrefixes", "found %d; expected 1 to %d URLs that the value may be sent to", len(t.URLPrefixes), MaxPrefixes)
	}
	for i, prefix := range t.URLPrefixes {
		if problem := t.prefixProblem(prefix); problem != "" {
			wrong(fmt.Sprintf("/urlPrefixes/%d", i), "%s", problem)
		}
	}
	if len(t.Username) > maxUsername || strings.ContainsFunc(t.Username, isControl) || strings.Contains(t.Username, ":") {
		wrong("/username", "found %d bytes, or a colon or control characters; expected at most %d bytes without them", len(t.Username), maxUsername)
	}
	switch {
	case t.Header == "":
	case t.Kind == Git || t.Kind == Registry:
		wrong("/header", "found with the kind %s; expected it with http only", string(t.Kind))
	case t.Username != "":
		wrong("/header", "found with username; expected one of them or neither")
	case !ValidHeader(t.Header) || len(t.Header) > maxUsername:
		wrong("/header", "found %.100q; expected the name of a header, such as X-Api-Key", t.Header)
	}
	switch {
	case t.Forge == "":
	case t.Kind != Git:
		wrong("/forge", "found with the kind %.100s; expected it with git only", string(t.Kind))
	case !slices.Contains(Forges(), t.Forge):
		wrong("/forge", "found %.100q; expected one of %s", t.Forge, strings.Join(Forges(), ", "))
	}
	t.Proof.check(t, wrong)
	return found
}

func (t Terms) prefixProblem(prefix string) string {
	u, err := ParsePrefix(prefix)
	switch {
	case err != nil:
		return fault.FieldsOf(err)[0].Problem
	case len(prefix) > maxPrefix:
		return fmt.Sprintf("found %d bytes; expected at most %d", len(prefix), maxPrefix)
	case u.RawQuery != "" || strings.Contains(prefix, "#"):
		return "found a query or a fragment; expected scheme, host and the beginning of a path"
	case t.Proof.SSHKey != SSHKey{} && u.Scheme != SchemeSSH:
		return fmt.Sprintf("found the scheme %s with sshKey; expected ssh, such as ssh://%s/", u.Scheme, u.Hostname())
	case t.Proof.SSHKey == SSHKey{} && u.Scheme == SchemeSSH:
		return "found the scheme ssh without sshKey; expected a private key, and the hosts that are known (sshKey)"
	case t.Kind == Registry && u.Scheme != "https" && u.Scheme != "http":
		return fmt.Sprintf("found the scheme %s; expected https or http", u.Scheme)
	case t.Kind == Git && u.Scheme != "https" && u.Scheme != "http" && u.Scheme != SchemeSSH:
		return fmt.Sprintf("found the scheme %s; expected https or http, or ssh with sshKey", u.Scheme)
	}
	return ""
}

func isControl(r rune) bool { return r < ' ' || r == 0x7f }

// ValidHeader reports whether a header is one whose value a credential may be.
func ValidHeader(name string) bool {
	token := name != "" && strings.Trim(strings.ToLower(name), "abcdefghijklmnopqrstuvwxyz0123456789-_") == ""
	return token && !slices.Contains([]string{
		"host", "content-length", "content-type", "transfer-encoding", "connection", "upgrade", "te", "trailer",
	}, strings.ToLower(name))
}

// CheckValue finds what is wrong with a value, which is not shown.
func (t Terms) CheckValue(value string) []fault.Field {
	switch {
	case value == "" || len(value) > MaxValue:
		return []fault.Field{{Name: "/value", Problem: fmt.Sprintf("found %d bytes; expected 1 to %d", len(value), MaxValue)}}
	case t.Proof.Certificate.Client:
		if problem := checkPair(value); problem != "" {
			return []fault.Field{{Name: "/value", Problem: problem}}
		}
	case t.Proof.GitHubApp != GitHubApp{}:
		if _, err := ReadAppKey(value); err != nil {
			return []fault.Field{{Name: "/value", Problem: fault.Public(err)}}
		}
	case t.Proof.GAR != GAR{}:
		if _, err := ReadServiceAccount(value); err != nil {
			return []fault.Field{{Name: "/value", Problem: fault.Public(err)}}
		}
	case t.Proof.SSHKey != SSHKey{}:
		if _, err := sshkey.Read(value); err != nil {
			return []fault.Field{{Name: "/value", Problem: fault.Public(err)}}
		}
	case strings.ContainsAny(value, "\r\n\x00"):
		return []fault.Field{{Name: "/value", Problem: "found a line break or a zero byte; expected a value that a header can have"}}
	}
	return nil
}
