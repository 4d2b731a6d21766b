package api

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"encoding/base64"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/telemetry"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/access"
)

// SignOn is where people sign in with an identity of their own, beside tokens.
type SignOn struct {
	// Label is what the button says: the provider's name, as people know it.
	Label    string
	Provider Provider
	Sessions IdentitySessions
	Clock    clock.Clock
	Log      *slog.Logger
}

// Provider is an identity provider, as OpenID Connect has it.
type Provider interface {
	// AuthURL is where a browser goes to sign in.
	AuthURL(ctx context.Context, state, nonce, verifier string) (string, error)
	// Identify redeems the code with which it comes back.
	Identify(ctx context.Context, code, nonce, verifier string) (access.Identity, error)
	// Logout reads a logout token: whose session has ended there, or which one.
	Logout(ctx context.Context, token string) (issuer, subject, session string, err error)
}

// IdentitySessions gives sessions to those whom a provider has vouched for.
type IdentitySessions interface {
	// StartIdentitySession gives one in an organization, or, for 0, in the first where the identity has access.
	StartIdentitySession(ctx context.Context, organization int64, id access.Identity) (session string, until time.Time, err error)
	EndProviderSession(ctx context.Context, issuer, subject, session string) error
}

const (
	// signOnPath begins a sign-in, and callbackPath ends it: the redirect address to register at the provider.
	signOnPath   = "/session/oidc"
	callbackPath = "/session/oidc/callback"
	// logoutPath is where the provider says that a session has ended there (OpenID Connect Back-Channel Logout).
	logoutPath = "/session/oidc/logout"
	// attemptSuffix makes the name of the cookie that an attempt leaves with the browser.
	attemptSuffix = "-sign-in"
	// attemptLife is how long people may take at the provider.
	attemptLife = 10 * time.Minute
	// maxAttempt bounds that cookie, in bytes.
	maxAttempt = 2 << 10
	// maxLogout bounds a logout token with its form, in bytes.
	maxLogout = 64 << 10
)

// attempt is a sign-in under way. It stays with the browser, in a cookie that no script and no other host can read or write, so
// that no replica has to remember it, and nobody else's browser can end it.
type attempt struct {
	State    string `json:"s"`
	Nonce    string `json:"n"`
	Verifier string `json:"v"`
	// Return is the page that was wanted.
	Return string `json:"r"`
	// Organization is the one that was chosen; 0 for the first one that the person has access to.
	Organization int64 `json:"o,omitempty"`
}

// options lists how people can sign in, for the console; it is public.
func (s *SignOn) options(w http.ResponseWriter, _ *http.Request) {
	type option struct {
		Label string `json:"label"`
		Path  string `json:"path"`
	}
	all := []option{}
	if s != nil {
		all = append(all, option{s.Label, signOnPath})
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(map[string][]option{"options": all}) // a client that is gone needs no answer
}

// begin sends the browser to the provider.
func (s *SignOn) begin(w http.ResponseWriter, r *http.Request) {
	name := cookieName(r)
	if name == "" {
		s.back(w, r, "insecure", nil)
		return
	}
	organization, err := organizationOf(r.URL.Query().Get("organization"))
	if err != nil {
		s.back(w, r, "no-access", err)
		return
	}
	a := attempt{
		Organization: organization, State: rand.Text(), Nonce: rand.Text(), Verifier: rand.Text() + rand.Text(),
		Return: localPath(r.URL.Query().Get("return")),
	}
	target, err := s.Provider.AuthURL(r.Context(), a.State, a.Nonce, a.Verifier)
	if err != nil {
		s.back(w, r, "provider", err)
		return
	}
	text, err := json.Marshal(a)
	if err != nil {
		s.back(w, r, "failed", err)
		return
	}
	// Lax, not strict: the provider's redirect has to bring it.
	http.SetCookie(w, &http.Cookie{ //nolint:gosec // Secure wherever the browser speaks TLS; plain HTTP is only for loopback
		Name: name + attemptSuffix, Value: base64.RawURLEncoding.EncodeToString(text), Path: "/", MaxAge: int(attemptLife.Seconds()),
		Secure: isSecure(r), HttpOnly: true, SameSite: http.SameSiteLaxMode,
	})
	http.Redirect(w, r, target, http.StatusFound)
}

// finish takes the browser back, and gives it a session, which it answers.
func (s *SignOn) finish(w http.ResponseWriter, r *http.Request) (string, error) {
	name := cookieName(r)
	a, ok := attemptOf(r, name+attemptSuffix)
	http.SetCookie(w, &http.Cookie{ //nolint:gosec // Secure wherever the browser speaks TLS; plain HTTP is only for loopback
		Name: name + attemptSuffix, Path: "/", MaxAge: -1, Secure: isSecure(r), HttpOnly: true, SameSite: http.SameSiteLaxMode,
	})
	given := r.URL.Query()
	if name == "" || !ok || subtle.ConstantTimeCompare([]byte(a.State), []byte(given.Get("state"))) != 1 {
		s.back(w, r, "expired", nil)
		return "", errProvedNothing
	}
	if given.Get("code") == "" {
		s.back(w, r, "refused", nil)
		return "", nil
	}
	id, err := s.Provider.Identify(r.Context(), given.Get("code"), a.Nonce, a.Verifier)
	if err != nil {
		s.back(w, r, "provider", err)
		return "", err
	}
	session, until, err := s.Sessions.StartIdentitySession(r.Context(), a.Organization, id)
	if err != nil {
		outcome := "failed"
		if c := fault.ClassOf(err); c == fault.Denied || c == fault.Refused || c == fault.Invalid {
			outcome = "no-access"
		}
		s.back(w, r, outcome, err)
		if outcome == "no-access" {
			return "", errProvedNothing
		}
		return "", err
	}
	http.SetCookie(w, &http.Cookie{ //nolint:gosec // Secure wherever the browser speaks TLS; plain HTTP is only for loopback
		Name: name, Value: session, Path: "/", MaxAge: int(until.Sub(s.Clock.Now()).Seconds()),
		Secure: isSecure(r), HttpOnly: true, SameSite: http.SameSiteStrictMode,
	})
	http.Redirect(w, r, a.Return, http.StatusFound)
	return session, nil
}

// errProvedNothing counts as a failed authentication: a sign-in that was not begun in this browser, or that leads nowhere.
var errProvedNothing = fault.New(fault.Unauthenticated, "the sign-in proved nothing")

// slowed is a step of a sign-in that shows no credential of ours: its failures count for the address. It has answered already.
func (k keyring) slowed(step func(http.ResponseWriter, *http.Request) (session string, err error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if !k.mayTry(w, r, "sign-in", r.URL.Path+"\n"+k.guard.AddressOf(r)) {
			return
		}
		session, err := step(w, r)
		k.issued(session)
		if fault.Is(err, fault.Unauthenticated) || fault.Is(err, fault.Invalid) {
			k.guard.FailedAt(k.clock.Now(), k.guard.AddressOf(r))
			telemetry.AuthenticationFailed(telemetry.ProtocolHTTP, telemetry.OutcomeRefused)
		}
	}
}

// logout ends what began with a session that the provider has ended. Nobody is known here but by the token, which the provider signs.
func (s *SignOn) logout(w http.ResponseWriter, r *http.Request) (string, error) {
	r.Body = http.MaxBytesReader(w, r.Body, maxLogout)
	issuer, subject, session, err := s.Provider.Logout(r.Context(), r.PostFormValue("logout_token"))
	if err == nil {
		err = s.Sessions.EndProviderSession(r.Context(), issuer, subject, session)
	}
	if err == nil {
		w.WriteHeader(http.StatusOK)
		return "", nil
	}
	s.Log.WarnContext(r.Context(), "logout by the identity provider failed", slog.Any(telemetry.KeyError, err))
	status := http.StatusBadRequest
	if class := fault.ClassOf(err); class == fault.Unavailable || class == fault.Internal {
		status = http.StatusServiceUnavailable // the provider may try again
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	// a client that is gone needs no answer
	_ = json.NewEncoder(w).Encode(map[string]string{"error": "invalid_request", "error_description": fault.Public(err)})
	return "", err
}

// organizationOf reads the number of an organization, as 2 or organization_2; 0 for an empty text.
func organizationOf(written string) (int64, error) {
	if written == "" {
		return 0, nil
	}
	n, err := strconv.ParseInt(strings.TrimPrefix(written, "organization_"), 10, 64)
	if err != nil || n <= 0 {
		return 0, fault.New(fault.Invalid, "organization: found %.40q; expected a number, or organization_<number>", written)
	}
	return n, nil
}

// back sends the browser to the console, which has words for each outcome: nothing that a caller sends is shown there. Why it
// failed is in the log, for the operator of the installation.
func (s *SignOn) back(w http.ResponseWriter, r *http.Request, outcome string, err error) {
	attrs := []any{slog.String(telemetry.KeyClass, outcome)}
	if err != nil {
		attrs = append(attrs, slog.Any(telemetry.KeyError, err))
	}
	s.Log.WarnContext(r.Context(), "sign-in failed", attrs...)
	http.Redirect(w, r, "/?"+url.Values{"sign-in": {outcome}}.Encode(), http.StatusFound)
}

func attemptOf(r *http.Request, name string) (attempt, bool) {
	var a attempt
	cookie, err := r.Cookie(name)
	if err != nil || len(cookie.Value) > maxAttempt {
		return a, false
	}
	text, err := base64.RawURLEncoding.DecodeString(cookie.Value)
	if err != nil || json.Unmarshal(text, &a) != nil || a.State == "" || a.Nonce == "" || a.Verifier == "" {
		return a, false
	}
	a.Return = localPath(a.Return)
	return a, true
}

// localPath is a page of the console; anything else, such as another host, is the first page.
func localPath(wanted string) string {
	u, err := url.Parse(wanted)
	if err != nil || u.IsAbs() || u.Host != "" || u.User != nil || !strings.HasPrefix(wanted, "/") || strings.HasPrefix(wanted, "//") ||
		strings.ContainsAny(wanted, "\\\r\n\t") || len(wanted) > maxAttempt/2 {
		return "/"
	}
	return wanted
}
