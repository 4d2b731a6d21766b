package web

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/activity"
)

// The headers of Standard Webhooks, and the bounds of its secrets.
const (
	headerID        = "Webhook-Id"
	headerTime      = "Webhook-Timestamp"
	headerSignature = "Webhook-Signature"
	secretPrefix    = "whsec_"
	leastSecret     = 24
	mostSecret      = 64
)

// secretURL is the URL that a credential is, for a request that names one. It has to be below the URL that the request names: that one was
// checked, and is what errors show.
func (c credentials) secretURL(ctx context.Context, r activity.WebRequest, target *url.URL) (*url.URL, error) {
	if r.URLCredential == "" {
		return target, nil
	}
	r.Credential = r.URLCredential
	found, value, err := c.read(ctx, r, target)
	if err != nil {
		return nil, err
	}
	u, err := ParseURL(value)
	if err != nil {
		return nil, fault.New(fault.Unauthenticated, "the credential %q is no URL; expected one that begins with %s", r.URLCredential, r.URL)
	}
	for _, part := range []string{u.Path, u.RawPath, u.RawQuery, u.RequestURI()} {
		if len(part) > 1 { // so that no answer that repeats it shows it
			activity.Conceal(ctx, part)
		}
	}
	named := Credential{URLPrefixes: []string{strings.TrimSuffix(target.String(), "?")}}
	if target.RawQuery != "" || !named.covers(u) || !found.covers(u) {
		return nil, fault.New(
			fault.Denied, "the credential %q is a URL of another place; expected one that begins with %s", r.URLCredential, r.URL,
		)
	}
	return u, nil
}

// secretMembers is the body of a request with the secrets that it has as members. They are no members before: what a history records has
// none of them.
func (c credentials) secretMembers(ctx context.Context, r activity.WebRequest, target *url.URL) ([]byte, error) {
	if len(r.JSONCredentials) == 0 {
		return r.Body, nil
	}
	var members map[string]any
	decoder := json.NewDecoder(bytes.NewReader(r.Body))
	decoder.UseNumber() // numbers stay as they are written
	if err := decoder.Decode(&members); err != nil || members == nil {
		return nil, fault.InvalidFields(fault.Field{Name: "json", Problem: "found no object, to which json_credentials adds members"})
	}
	for _, member := range slices.Sorted(maps.Keys(r.JSONCredentials)) {
		r.Credential = r.JSONCredentials[member]
		_, value, err := c.read(ctx, r, target)
		if err != nil {
			return nil, err
		}
		within, name, found := place(members, member)
		if !found {
			return nil, fault.InvalidFields(fault.Field{Name: "json", Problem: fmt.Sprintf("found no object where json_credentials adds %.200q", member)})
		}
		if _, taken := within[name]; taken {
			return nil, fault.InvalidFields(fault.Field{Name: "json." + member, Problem: "found, although json_credentials adds it"})
		}
		if !utf8.ValidString(value) {
			return nil, fault.New(fault.Unauthenticated, "the credential %q is no text", r.Credential)
		}
		activity.Conceal(ctx, strings.TrimSpace(value))
		within[name] = strings.TrimSpace(value)
	}
	var body bytes.Buffer
	encoder := json.NewEncoder(&body)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(members); err != nil {
		return nil, fault.InvalidFields(fault.Field{Name: "json", Problem: "found what cannot be encoded"})
	}
	return bytes.TrimSpace(body.Bytes()), nil
}

// place is the object of a body that a member is added to, and its name there. A text that begins with / is a JSON Pointer (RFC 6901); any
// other is a member of the body itself.
func place(body map[string]any, member string) (within map[string]any, name string, found bool) {
	pointer, is := strings.CutPrefix(member, "/")
	if !is {
		return body, member, true
	}
	parts := strings.Split(pointer, "/")
	for i, part := range parts {
		parts[i] = strings.NewReplacer("~1", "/", "~0", "~").Replace(part)
	}
	var at any = body
	for _, part := range parts[:len(parts)-1] {
		switch inside := at.(type) {
		case map[string]any:
			at = inside[part]
		case []any:
			i, err := strconv.Atoi(part)
			if err != nil || i < 0 || i >= len(inside) || strconv.Itoa(i) != part {
				return nil, "", false
			}
			at = inside[i]
		default:
			return nil, "", false
		}
	}
	within, found = at.(map[string]any)
	return within, parts[len(parts)-1], found
}

// signatures are the headers that sign a request: one signature for each secret, so that a receiver may know either while one is replaced.
func (c credentials) signatures(ctx context.Context, r activity.WebRequest, target *url.URL, now time.Time) (map[string]string, error) {
	if len(r.Sign) == 0 {
		return nil, nil
	}
	at := strconv.FormatInt(now.Unix(), 10)
	var all []string
	for _, name := range r.Sign {
		r.Credential = name
		_, value, err := c.read(ctx, r, target)
		if err != nil {
			return nil, err
		}
		key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(strings.TrimSpace(value), secretPrefix))
		if err != nil || len(key) < leastSecret || len(key) > mostSecret {
			return nil, fault.New(
				fault.Unauthenticated, "the credential %q signs nothing; expected %s and %d to %d bytes in Base64", name, secretPrefix, leastSecret,
				mostSecret,
			)
		}
		mac := hmac.New(sha256.New, key)
		for _, part := range [][]byte{[]byte(r.SignID), []byte("."), []byte(at), []byte("."), r.Body} {
			_, _ = mac.Write(part) // writing to a hash does not fail
		}
		all = append(all, "v1,"+base64.StdEncoding.EncodeToString(mac.Sum(nil)))
	}
	return map[string]string{headerID: r.SignID, headerTime: at, headerSignature: strings.Join(all, " ")}, nil
}
