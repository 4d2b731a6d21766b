// Package api is the domain's HTTP surface: who asks, what is where, and the console at the root. What can be asked is in
// package graph.
package api

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/telemetry"
	"github.com/lockstep-cd/lockstep/pkg/throttle"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
)

// Tokens are bearer tokens that are configured, and who shows them: how an installation begins. All others are made in the
// organization. Nobody else may do anything (D28).
type Tokens map[string]core.Actor

// Access knows the tokens that members have. Its errors are Unauthenticated for what is none, or no longer valid.
type Access interface {
	Authenticate(ctx context.Context, secret string, session bool) (core.Actor, error)
	StartSession(ctx context.Context, secret string) (session string, until time.Time, err error)
	// StartConfiguredSession gives one for a configured token's holder; seal makes the session of its secret.
	StartConfiguredSession(ctx context.Context, a core.Actor, seal func(secret string) string) (session string, until time.Time, err error)
	EndSession(ctx context.Context, session string) error
}

// keyring is what is known of the tokens.
type keyring struct {
	entries []entry
	access  Access
	clock   clock.Clock
	guard   *throttle.Guard
}

type entry struct {
	// digest is the token's. Digests have one length, so comparing them reveals nothing of the token's.
	digest [sha256.Size]byte
	// sessionKey signs the sessions of this token alone; it cannot be derived from the digest.
	sessionKey []byte
	actor      core.Actor
}

func newKeyring(tokens Tokens, access Access, c clock.Clock, guard *throttle.Guard) keyring {
	k := keyring{access: access, clock: c, guard: guard}
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
	for _, e := range k.entries { // all of them, so that the time reveals nothing
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
		if ok && meant(w, r, actor) {
			next.ServeHTTP(w, r.WithContext(core.WithActor(r.Context(), actor)))
		}
	})
}

// meant reports whether a request is for the organization whose token or session it shows, where it says which it is for.
// A token belongs to one organization: the header exists so that a script with the wrong one is refused instead of
// changing the wrong place.
func meant(w http.ResponseWriter, r *http.Request, a core.Actor) bool {
	organization, err := organizationOf(r.Header.Get(organizationHeader))
	if err == nil && organization != 0 && organization != a.Organization {
		err = fault.New(fault.Denied, "found a token or session of organization %d; expected one of organization %d, as %s says", a.Organization,
			organization, organizationHeader)
	}
	return known(w, organizationHeader, err)
}

// organizationHeader says which organization a request is for. It is optional.
const organizationHeader = "Lockstep-Organization"

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
	token = strings.TrimSpace(token)
	if !k.mayTry(w, r, "authorization", token) {
		return core.Actor{}, false
	}
	var actor core.Actor
	var err error
	if e, ok := k.find(token); ok {
		actor = e.actor
	} else {
		actor, err = k.access.Authenticate(r.Context(), token, false)
	}
	k.tried(r, token, err)
	return actor, known(w, "authorization", err)
}

// mayTry reports whether a credential is looked at now. Where too many have proved nothing, it has been answered when to try again.
func (k keyring) mayTry(w http.ResponseWriter, r *http.Request, where, credential string) bool {
	wait := k.guard.Wait(k.clock.Now(), k.guard.AddressOf(r), credential)
	if wait <= 0 {
		return true
	}
	telemetry.AuthenticationFailed(telemetry.ProtocolHTTP, telemetry.OutcomeThrottled)
	seconds := int(math.Ceil(wait.Seconds()))
	w.Header().Set("Retry-After", strconv.Itoa(seconds))
	row := fault.Describe(fault.Limited)
	refuse(w, row.HTTP, row.GraphQL, fmt.Sprintf("%s: too many attempts that proved nothing; try again in %d s", where, seconds))
	return false
}

// tried counts what came of a credential. That it could not be looked at says nothing of it.
func (k keyring) tried(r *http.Request, credential string, err error) {
	switch {
	case err == nil:
		k.guard.Passed(k.clock.Now(), credential)
	case fault.Is(err, fault.Unauthenticated):
		k.guard.Failed(k.clock.Now(), k.guard.AddressOf(r), credential)
		telemetry.AuthenticationFailed(telemetry.ProtocolHTTP, telemetry.OutcomeRefused)
	}
}

// known reports whether a caller was found; if not, the request has been answered.
func known(w http.ResponseWriter, where string, err error) bool {
	switch {
	case err == nil:
		return true
	case fault.Is(err, fault.Unauthenticated):
		unauthenticated(w, where+": "+fault.Public(err))
	default:
		row := fault.Describe(fault.ClassOf(err))
		refuse(w, row.HTTP, row.GraphQL, where+": "+fault.Public(err))
	}
	return false
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
	if !k.mayTry(w, r, "session", cookie.Value) {
		return core.Actor{}, false
	}
	actor, err := k.session(r.Context(), cookie.Value)
	k.tried(r, cookie.Value, err)
	return actor, known(w, "session", err)
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
