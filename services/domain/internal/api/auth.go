// Package api is the domain's HTTP surface: who asks, what is where, and the console at the root. What can be asked is in
// package graph.
package api

import (
	"crypto/hmac"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/json"
	"net/http"
	"strings"

	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
)

// Tokens are bearer tokens and who shows them. Nobody else may do anything (D28).
type Tokens map[string]core.Actor

// keyring is what is known of the tokens.
type keyring struct {
	entries []entry
	clock   clock.Clock
}

type entry struct {
	// digest is the token's. Digests have one length, so comparing them tells nothing of the token's.
	digest [sha256.Size]byte
	// sessionKey signs the sessions of this token alone; it cannot be had from the digest.
	sessionKey []byte
	actor      core.Actor
}

func newKeyring(tokens Tokens, c clock.Clock) keyring {
	k := keyring{clock: c}
	for token, actor := range tokens {
		// An installation without a bootstrap token has an entry for the empty one, which must let nobody in.
		if token == "" {
			continue
		}
		key := hmac.New(sha256.New, []byte(token))
		_, _ = key.Write([]byte(sessionPurpose)) // never fails
		k.entries = append(k.entries, entry{sha256.Sum256([]byte(token)), key.Sum(nil), actor})
	}
	return k
}

// find is the entry of a token.
func (k keyring) find(token string) (entry, bool) {
	digest := sha256.Sum256([]byte(token))
	var match entry
	found := false
	for _, e := range k.entries { // all of them, so that time tells nothing
		if subtle.ConstantTimeCompare(e.digest[:], digest[:]) == 1 {
			match, found = e, true
		}
	}
	return match, found
}

// authenticate lets requests with a known token or a session through, as the actor whose it is.
func (k keyring) authenticate(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		actor, ok := k.actor(w, r)
		if ok {
			next.ServeHTTP(w, r.WithContext(core.WithActor(r.Context(), actor)))
		}
	})
}

// actor finds out who asks, or answers that nobody does. A token counts before a session.
func (k keyring) actor(w http.ResponseWriter, r *http.Request) (core.Actor, bool) {
	header := r.Header.Get("Authorization")
	if header == "" {
		return k.sessionActor(w, r)
	}
	scheme, token, _ := strings.Cut(header, " ")
	if !strings.EqualFold(scheme, "bearer") {
		unauthenticated(w, "authorization: found another scheme; expected a bearer token")
		return core.Actor{}, false
	}
	e, ok := k.find(strings.TrimSpace(token))
	if !ok {
		unauthenticated(w, "authorization: found a token that nobody has; expected one that this installation gave out")
	}
	return e.actor, ok
}

func (k keyring) sessionActor(w http.ResponseWriter, r *http.Request) (core.Actor, bool) {
	name := cookieName(r)
	if name == "" {
		unauthenticated(w, "authorization: missing; expected a bearer token")
		return core.Actor{}, false
	}
	cookie, err := r.Cookie(name)
	if err != nil {
		unauthenticated(w, "authorization: missing; expected a bearer token")
		return core.Actor{}, false
	}
	// A cookie goes with every request, also one that another site makes the browser send; a bearer token does not.
	if r.Header.Get(csrfHeader) == "" {
		refuse(w, http.StatusForbidden, "REFUSED", csrfHeader+": missing; a request with a session has to carry the header, with any value")
		return core.Actor{}, false
	}
	actor, ok := k.session(cookie.Value, k.clock.Now())
	if !ok {
		unauthenticated(w, "session: found one that has ended; expected to be signed in")
	}
	return actor, ok
}

// unauthenticated answers that nobody knows who asks.
func unauthenticated(w http.ResponseWriter, message string) {
	w.Header().Set("WWW-Authenticate", `Bearer realm="lockstep"`)
	refuse(w, http.StatusUnauthorized, fault.Describe(fault.Unauthenticated).GraphQL, message)
}

// refuse answers in the form of a GraphQL error, so that clients read one kind of answer.
func refuse(w http.ResponseWriter, status int, code, message string) {
	type extensions struct {
		Code string `json:"code"`
	}
	type graphError struct {
		Message    string     `json:"message"`
		Extensions extensions `json:"extensions"`
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(map[string][]graphError{ // a client that is gone needs no answer
		"errors": {{message, extensions{code}}},
	})
}
