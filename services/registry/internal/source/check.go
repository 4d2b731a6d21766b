package source

import (
	"context"
	"crypto/hmac"
	"crypto/sha1" //nolint:gosec // Nexus signs with HMAC-SHA1 and nothing else; as a MAC it is unbroken.
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/hex"
	"hash"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// Delivery is a request as received, before authentication.
type Delivery struct {
	Header http.Header
	// Body is the unmodified body: a signature covers bytes, not JSON.
	Body []byte
	// At is when it was received.
	At time.Time
}

// Terms are the settings of a hook for proofs.
type Terms struct {
	// Issuer, Audience and Email are the required claims of an identity token, for formats whose sender has one.
	Issuer, Audience, Email string
	// Client fetches the issuer's keys.
	Client *http.Client
}

// A Check reports whether a delivery proves that its sender knows one of the secrets; there are two while one replaces the other. Every
// secret is tried, so that the time does not reveal a partial match.
type Check func(ctx context.Context, d Delivery, secrets []string) bool

// tolerance is how far a signed time may be from ours, either way, as the Standard Webhooks specification recommends.
const tolerance = 5 * time.Minute

// either accepts a delivery that one of the proofs accepts: vendors change their methods between versions, and the sender's configuration
// selects one.
func either(proofs ...Check) func(Terms) (Check, error) {
	return func(Terms) (Check, error) {
		return func(ctx context.Context, d Delivery, secrets []string) bool {
			ok := false
			for _, proof := range proofs {
				// In this order: with ok first, || would skip the rest, and the time would reveal which proof was valid.
				ok = proof(ctx, d, secrets) || ok
			}
			return ok
		}, nil
	}
}

// pathOnly is for senders that sign nothing and send no header of ours. The proof is the hook's secret path; their reports are checked at
// the registry in any case.
func pathOnly(Terms) (Check, error) {
	return func(context.Context, Delivery, []string) bool { return true }, nil
}

// same compares in constant time, for any lengths: it compares digests, because ConstantTimeCompare returns early if the lengths differ.
func same(a, b string) bool {
	x, y := sha256.Sum256([]byte(a)), sha256.Sum256([]byte(b))
	return subtle.ConstantTimeCompare(x[:], y[:]) == 1
}

// one returns the only value of a header. A duplicate header is no proof, since a proxy may have checked the other value.
func one(h http.Header, name string) string {
	if values := h.Values(name); len(values) == 1 {
		return values[0]
	}
	return ""
}

// matchesAny compares a value with every secret. An empty secret matches nothing: it would equal a missing header.
func matchesAny(value string, secrets []string) bool {
	ok := false
	for _, secret := range secrets {
		ok = same(value, secret) && secret != "" || ok
	}
	return ok
}

// verbatim expects the secret itself in a header.
func verbatim(header string) Check {
	return func(_ context.Context, d Delivery, secrets []string) bool {
		return matchesAny(one(d.Header, header), secrets)
	}
}

// authorization expects the secret in the header Authorization: on its own, after "Bearer", or as the password of "Basic". The user of
// Basic is ignored: EventBridge requires one, but it proves nothing.
func authorization(_ context.Context, d Delivery, secrets []string) bool {
	value := one(d.Header, "Authorization")
	ok := matchesAny(value, secrets)
	scheme, rest, _ := strings.Cut(value, " ")
	switch {
	case strings.EqualFold(scheme, "bearer"):
		ok = matchesAny(strings.TrimSpace(rest), secrets) || ok
	case strings.EqualFold(scheme, "basic"):
		plain, err := base64.StdEncoding.DecodeString(rest)
		_, password, found := strings.Cut(string(plain), ":")
		ok = err == nil && found && matchesAny(password, secrets) || ok
	}
	return ok
}

// hexSHA256 expects the HMAC-SHA256 of the body in a header, in hexadecimal after a prefix.
func hexSHA256(header, prefix string) Check { return hexHMAC(header, prefix, sha256.New) }

// hexSHA1 expects the HMAC-SHA1 of the body in a header, in hexadecimal.
func hexSHA1(header string) Check { return hexHMAC(header, "", sha1.New) }

func hexHMAC(header, prefix string, algorithm func() hash.Hash) Check {
	return func(_ context.Context, d Delivery, secrets []string) bool {
		text, prefixed := strings.CutPrefix(one(d.Header, header), prefix)
		presented, err := hex.DecodeString(text)
		ok := false
		for _, secret := range secrets {
			mac := hmac.New(algorithm, []byte(secret))
			_, _ = mac.Write(d.Body)
			// With an empty key anyone could compute the MAC.
			ok = hmac.Equal(mac.Sum(nil), presented) && secret != "" || ok
		}
		return ok && prefixed && err == nil
	}
}

// standardWebhook checks the headers of standardwebhooks.com: an id, a time within the tolerance, and an HMAC-SHA256 of both and the body,
// of which the header may list several while the sender rotates keys. Signatures of other versions than v1 (v1a is Ed25519) are ignored.
// The id is not stored: a replay within the tolerance finds that its artifacts are known (D43).
func standardWebhook(_ context.Context, d Delivery, secrets []string) bool {
	id, stamp, list := one(d.Header, "Webhook-Id"), one(d.Header, "Webhook-Timestamp"), one(d.Header, "Webhook-Signature")
	seconds, err := strconv.ParseInt(stamp, 10, 64)
	fresh := err == nil && id != "" && d.At.Sub(time.Unix(seconds, 0)).Abs() <= tolerance
	ok := false
	for _, secret := range secrets {
		mac := hmac.New(sha256.New, standardKey(secret))
		// The time as sent, not as parsed: 007 and 7 are one number, but two signatures.
		_, _ = mac.Write([]byte(id + "." + stamp + "."))
		_, _ = mac.Write(d.Body)
		want := mac.Sum(nil)
		for signature := range strings.FieldsSeq(list) {
			encoded, known := strings.CutPrefix(signature, "v1,")
			presented, err := base64.StdEncoding.DecodeString(encoded)
			ok = known && err == nil && secret != "" && hmac.Equal(want, presented) || ok
		}
	}
	return ok && fresh
}

// standardKey returns the key for a secret: whsec_ and base64, or the secret itself.
func standardKey(secret string) []byte {
	if encoded, ok := strings.CutPrefix(secret, "whsec_"); ok {
		if key, err := base64.StdEncoding.DecodeString(encoded); err == nil {
			return key
		}
	}
	return []byte(secret)
}
