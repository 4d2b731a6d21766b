package api

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
)

// A session is a browser's sign-in: a cookie that no script can read, given for a token, which it never holds. Of a configured
// token it is an expiry and a MAC over it, whose key is made of the token, and the server keeps none. Of a member's token it
// is a secret of its own, kept as the token is. Either way every replica knows it, a restart does not end it, and a token
// that is taken away takes its sessions with it.

const (
	// csrfHeader is what a request with a session has to carry. A form on another site cannot set it, and a script on
	// another site may not.
	csrfHeader = "Lockstep-Csrf"
	// sessionPurpose keeps the MAC from being one for anything else.
	sessionPurpose = "lockstep console session 1"
	// maxSignIn bounds the body of a sign-in, in bytes: it is read before anybody is known.
	maxSignIn = 8 << 10
)

// sign is the cookie's value for a token's holder until an instant.
func (k keyring) sign(e entry, until time.Time) string {
	expiry := strconv.FormatInt(until.Unix(), 10)
	return expiry + "." + hex.EncodeToString(mac(e, expiry))
}

func mac(e entry, expiry string) []byte {
	m := hmac.New(sha256.New, e.sessionKey)
	_, _ = m.Write([]byte(expiry)) // never fails
	return m.Sum(nil)
}

// session finds who a cookie's value stands for.
func (k keyring) session(value string, now time.Time) (core.Actor, bool) {
	expiry, signature, _ := strings.Cut(value, ".")
	until, err := strconv.ParseInt(expiry, 10, 64)
	given, errHex := hex.DecodeString(signature)
	if err != nil || errHex != nil || now.Unix() >= until {
		return core.Actor{}, false
	}
	var actor core.Actor
	found := false
	for _, e := range k.entries { // all of them, so that time tells nothing
		if hmac.Equal(mac(e, expiry), given) {
			actor, found = e.actor, true
		}
	}
	return actor, found
}

// cookieName is the session cookie's name on a connection; empty where there is none to be had. Over HTTPS the prefix binds
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
	now, token := k.clock.Now(), strings.TrimSpace(given.Token)
	until := now.Add(core.SessionLife)
	var value string
	if e, ok := k.find(token); ok {
		value = k.sign(e, until)
	} else {
		var err error
		if value, until, err = k.access.StartSession(r.Context(), token); !known(w, "token", err) {
			return
		}
	}
	http.SetCookie(w, &http.Cookie{ //nolint:gosec // Secure wherever the browser speaks TLS; plain HTTP is only for loopback
		Name: name, Value: value, Path: "/", MaxAge: int(until.Sub(now).Seconds()),
		Secure: isSecure(r), HttpOnly: true, SameSite: http.SameSiteStrictMode,
	})
	w.WriteHeader(http.StatusNoContent)
}

// signOut takes the cookie away. Whoever has none is signed out too.
func (k keyring) signOut(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get(csrfHeader) == "" {
		refuse(w, http.StatusForbidden, "REFUSED", csrfHeader+": missing; expected the header, with any value")
		return
	}
	if name := cookieName(r); name != "" {
		// Of a member's token the session is ended here as well, not only forgotten by this browser.
		if cookie, err := r.Cookie(name); err == nil && !strings.Contains(cookie.Value, ".") && !known(w, "session", k.access.EndSession(r.Context(), cookie.Value)) {
			return
		}
		http.SetCookie(w, &http.Cookie{ //nolint:gosec // Secure wherever the browser speaks TLS; plain HTTP is only for loopback
			Name: name, Path: "/", MaxAge: -1, Secure: isSecure(r), HttpOnly: true, SameSite: http.SameSiteStrictMode,
		})
	}
	w.WriteHeader(http.StatusNoContent)
}
