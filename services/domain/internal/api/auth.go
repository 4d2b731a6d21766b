// Package api is the domain's HTTP surface: who asks, what is where, and the page at the root. What can be asked is in
// package graph.
package api

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/json"
	"net/http"
	"strings"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
)

// Tokens are bearer tokens and who shows them. Nobody else may do anything (D28).
type Tokens map[string]core.Actor

// authenticate lets requests with a known token through, as the actor whose token it is.
func authenticate(tokens Tokens, next http.Handler) http.Handler {
	type entry struct {
		digest [sha256.Size]byte
		actor  core.Actor
	}
	var known []entry
	for token, actor := range tokens {
		if token != "" {
			known = append(known, entry{sha256.Sum256([]byte(token)), actor})
		}
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
		if !strings.EqualFold(scheme, "bearer") {
			unauthenticated(w, "authorization: missing; expected a bearer token")
			return
		}
		digest := sha256.Sum256([]byte(strings.TrimSpace(token)))
		var actor core.Actor
		found := 0
		for _, e := range known { // all of them, so that time tells nothing
			if match := subtle.ConstantTimeCompare(e.digest[:], digest[:]); match == 1 {
				actor, found = e.actor, 1
			}
		}
		if found == 0 {
			unauthenticated(w, "authorization: found a token that nobody has; expected one that this installation gave out")
			return
		}
		next.ServeHTTP(w, r.WithContext(core.WithActor(r.Context(), actor)))
	})
}

// unauthenticated answers in the form of a GraphQL error, so that clients read one kind of answer.
func unauthenticated(w http.ResponseWriter, message string) {
	type extensions struct {
		Code string `json:"code"`
	}
	type graphError struct {
		Message    string     `json:"message"`
		Extensions extensions `json:"extensions"`
	}
	w.Header().Set("WWW-Authenticate", `Bearer realm="lockstep"`)
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusUnauthorized)
	_ = json.NewEncoder(w).Encode(map[string][]graphError{ // a client that is gone needs no answer
		"errors": {{message, extensions{fault.Describe(fault.Unauthenticated).GraphQL}}},
	})
}
