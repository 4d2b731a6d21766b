package registry

import (
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"math/big"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/throttle"
)

// issuer is an OpenID provider like Google's, with one key.
type issuer struct {
	*httptest.Server
	key *rsa.PrivateKey
}

func newIssuer(t *testing.T) *issuer {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	i := &issuer{key: key}
	mux := http.NewServeMux()
	answer := func(path string, document func() any) {
		mux.HandleFunc(path, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			_ = json.NewEncoder(w).Encode(document())
		})
	}
	answer("/.well-known/openid-configuration", func() any {
		return map[string]any{
			"issuer": i.URL, "jwks_uri": i.URL + "/keys", "authorization_endpoint": i.URL, "token_endpoint": i.URL,
			"id_token_signing_alg_values_supported": []string{"RS256"},
		}
	})
	answer("/keys", func() any {
		return map[string]any{"keys": []any{map[string]string{
			"kty": "RSA", "alg": "RS256", "use": "sig", "kid": "1",
			"n": segment(key.N.Bytes()), "e": segment(big.NewInt(int64(key.E)).Bytes()),
		}}}
	})
	i.Server = httptest.NewServer(mux)
	t.Cleanup(i.Close)
	return i
}

func segment(b []byte) string { return base64.RawURLEncoding.EncodeToString(b) }

// token returns an identity token signed by key.
func (i *issuer) token(t *testing.T, key *rsa.PrivateKey, claims map[string]any) string {
	t.Helper()
	all := map[string]any{
		"iss": i.URL, "aud": "https://lockstep.example.com", "sub": "1", "email": "push@acme.iam.gserviceaccount.com", "email_verified": true,
		"iat": time.Now().Unix(), "exp": time.Now().Add(time.Hour).Unix(),
	}
	for name, value := range claims {
		all[name] = value
	}
	payload, err := json.Marshal(all)
	if err != nil {
		t.Fatal(err)
	}
	signed := segment([]byte(`{"alg":"RS256","kid":"1","typ":"JWT"}`)) + "." + segment(payload)
	sum := sha256.Sum256([]byte(signed))
	signature, err := rsa.SignPKCS1v15(rand.Reader, key, crypto.SHA256, sum[:])
	if err != nil {
		t.Fatal(err)
	}
	return signed + "." + segment(signature)
}

func TestPubSubPushProvesItselfWithAnIdentityToken(t *testing.T) {
	t.Parallel()
	i := newIssuer(t)
	other, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	config := HookConfig{Source: "google", Issuer: i.URL, Audience: "https://lockstep.example.com", Email: "push@acme.iam.gserviceaccount.com"}
	// More attempts fail here than one hook allows at once.
	h := hook(t, config, Config{AllowNetworks: []string{"127.0.0.0/8"}, FailedAuthentication: throttle.Config{Off: true}})
	path := hookPath(h.config, hookSecret)
	header, body := recorded(t, "google", "artifact-registry")
	send := func(authorization string) (int, string) {
		header := header.Clone()
		if authorization != "" {
			header.Set("Authorization", authorization)
		}
		return h.post(t, path, header, body)
	}
	_, unknown := h.post(t, path+"x", header, body)
	for name, authorization := range map[string]string{
		"none":                     "",
		"not a token":              "Bearer x",
		"another key":              "Bearer " + i.token(t, other, nil),
		"another audience":         "Bearer " + i.token(t, i.key, map[string]any{"aud": "https://evil.example.com"}),
		"another issuer":           "Bearer " + i.token(t, i.key, map[string]any{"iss": "https://accounts.google.com"}),
		"another account":          "Bearer " + i.token(t, i.key, map[string]any{"email": "evil@acme.iam.gserviceaccount.com"}),
		"unverified":               "Bearer " + i.token(t, i.key, map[string]any{"email_verified": false}),
		"expired":                  "Bearer " + i.token(t, i.key, map[string]any{"exp": time.Now().Add(-time.Hour).Unix()}),
		"signed with nothing":      "Bearer " + segment([]byte(`{"alg":"none"}`)) + "." + segment([]byte(`{"iss":"`+i.URL+`"}`)) + ".",
		"the hookSecret, as Basic": "Basic " + hookSecret,
	} {
		if status, answer := send(authorization); status != http.StatusNotFound || answer != unknown {
			t.Errorf("%s: answered %d %s", name, status, answer)
		}
	}
	status, first := send("Bearer " + i.token(t, i.key, nil))
	if status != http.StatusAccepted {
		t.Fatalf("answered %d %s", status, first)
	}
	if status, again := send("Bearer " + i.token(t, i.key, nil)); status != http.StatusAccepted || again != first ||
		count(t, h.pool, "hint") != 1 {
		t.Errorf("replayed: answered %d %s, and then there are %d hints", status, again, count(t, h.pool, "hint"))
	}
}

// An unreachable issuer, or one whose address is not allowed, makes every delivery fail and breaks nothing else.
func TestWithoutTheIssuersKeysEveryDeliveryIsRefused(t *testing.T) {
	t.Parallel()
	i := newIssuer(t)
	config := HookConfig{Source: "google", Issuer: i.URL, Audience: "https://lockstep.example.com", Email: "push@acme.iam.gserviceaccount.com"}
	h := hook(t, config, Config{})
	header, body := recorded(t, "google", "artifact-registry")
	header.Set("Authorization", "Bearer "+i.token(t, i.key, nil))
	if status, answer := h.post(t, hookPath(h.config, hookSecret), header, body); status != http.StatusNotFound {
		t.Errorf("answered %d %s", status, answer)
	}
}
