package api

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
)

// A session is a browser's sign-in: a cookie that no script can read, given for a token, which it never holds. It is a secret of its own,
// kept as tokens are, so every replica knows it, a restart does not end it, and signing out does, for copies of the cookie as well. A token
// that is taken away takes its sessions with it. A configured token is in no table: there the cookie also has a MAC, whose key is made of
// the token, so that it ends when another one is configured.

const (
	// csrfHeader is what a request with a session has to carry. A form on another site cannot set it, and a script on
	// another site may not.
	csrfHeader = "Lockstep-Csrf"
	// sessionPurpose keeps the MAC from being one for anything else.
	sessionPurpose = "lockstep console session 2"
	// maxSignIn bounds the body of a sign-in, in bytes: it is read before anybody is known.
	maxSignIn = 8 << 10
)

// seal ties the secret of a session to a configured token: the whole is the session, of which no part is good by itself.
func (e entry) seal(secret string) string { return secret + "." + hex.EncodeToString(e.mac(secret)) }

func (e entry) mac(secret string) []byte {
	m := hmac.New(sha256.New, e.sessionKey)
	_, _ = m.Write([]byte(secret)) // never fails
	return m.Sum(nil)
}

// sealed finds the configured token that a session is tied to.
func (k keyring) sealed(session string) (entry, bool) {
	secret, signature, _ := strings.Cut(session, ".")
	given, err := hex.DecodeString(signature)
	var match entry
	found := false
	for _, e := range k.entries { // all of them, so that the time reveals nothing
		if hmac.Equal(e.mac(secret), given) {
			match, found = e, true
		}
	}
	return match, found && err == nil
}

// session finds who a cookie's value stands for.
func (k keyring) session(ctx context.Context, value string) (core.Actor, error) {
	e, sealed := k.sealed(value)
	if strings.Contains(value, ".") && !sealed {
		return core.Actor{}, fault.New(fault.Unauthenticated, "the session is unknown, or the token that began it is no longer configured")
	}
	actor, err := k.access.Authenticate(ctx, value, true)
	if err != nil || !sealed {
		return actor, err
	}
	if actor.Organization != e.actor.Organization || actor.ID != e.actor.ID {
		return core.Actor{}, fault.New(fault.Unauthenticated, "the session belongs to another member than the configured token")
	}
	return e.actor, nil // who the configuration says, even if the member was changed since
}

// cookieName is the session cookie's name on a connection; empty where none can be set. Over HTTPS the prefix binds
// it to exactly this host. Over plain HTTP browsers refuse that prefix, and nothing is safe but the own machine: there the
// port is in the name, because cookies do not know ports and two installations may run beside each other.
func cookieName(r *http.Request) string {
	if isSecure(r) {
		return "__Host-lockstep"
	}
	host, port, err := net.SplitHostPort(r.Host)
	if err != nil {
		host, port = r.Host, "80"
	}
	if ip := net.ParseIP(host); host == "localhost" || ip != nil && ip.IsLoopback() {
		return "lockstep-" + port
	}
	return ""
}

// isSecure says whether the browser spoke TLS. A header that a client makes up only changes its own cookie.
func isSecure(r *http.Request) bool {
	return r.TLS != nil || strings.EqualFold(r.Header.Get("X-Forwarded-Proto"), "https")
}

// signIn exchanges a token for a session.
func (k keyring) signIn(w http.ResponseWriter, r *http.Request) {
	name := cookieName(r)
	if name == "" {
		refuse(w, http.StatusForbidden, "REFUSED", "sign-in: found plain HTTP from another machine; expected HTTPS, or an address of this machine such as 127.0.0.1")
		return
	}
	if r.Header.Get(csrfHeader) == "" {
		refuse(w, http.StatusForbidden, "REFUSED", csrfHeader+": missing; expected the header, with any value")
		return
	}
	var given struct {
		Token string `json:"token"`
	}
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxSignIn)).Decode(&given); err != nil {
		refuse(w, http.StatusBadRequest, "INVALID", "body: found no token; expected {\"token\": \"…\"}")
		return
	}
	var value string
	var until time.Time
	var err error
	token := strings.TrimSpace(given.Token)
	if !k.mayTry(w, r, "token", token) {
		return
	}
	if e, ok := k.find(token); ok {
		value, until, err = k.access.StartConfiguredSession(r.Context(), e.actor, e.seal)
	} else {
		value, until, err = k.access.StartSession(r.Context(), token)
	}
	if k.tried(r, token, err); !known(w, "token", err) {
		return
	}
	k.issued(value)
	http.SetCookie(w, &http.Cookie{ //nolint:gosec // Secure wherever the browser speaks TLS; plain HTTP is only for loopback
		Name: name, Value: value, Path: "/", MaxAge: int(until.Sub(k.clock.Now()).Seconds()),
		Secure: isSecure(r), HttpOnly: true, SameSite: http.SameSiteStrictMode,
	})
	w.WriteHeader(http.StatusNoContent)
}

// issued remembers a session that has just been given as good: its first request is not slowed down by what others do at its address.
func (k keyring) issued(session string) {
	if session != "" {
		k.guard.Passed(k.clock.Now(), session)
	}
}

// signOut ends the session, and takes the cookie away. A browser without one is signed out too.
func (k keyring) signOut(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get(csrfHeader) == "" {
		refuse(w, http.StatusForbidden, "REFUSED", csrfHeader+": missing; expected the header, with any value")
		return
	}
	if name := cookieName(r); name != "" {
		// Ended here, not only forgotten by this browser: it may have been copied.
		if cookie, err := r.Cookie(name); err == nil && !known(w, "session", k.access.EndSession(r.Context(), cookie.Value)) {
			return
		}
		http.SetCookie(w, &http.Cookie{ //nolint:gosec // Secure wherever the browser speaks TLS; plain HTTP is only for loopback
			Name: name, Path: "/", MaxAge: -1, Secure: isSecure(r), HttpOnly: true, SameSite: http.SameSiteStrictMode,
		})
	}
	w.WriteHeader(http.StatusNoContent)
}
