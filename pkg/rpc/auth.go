package rpc

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"strings"

	"google.golang.org/grpc/metadata"

	"github.com/lockstep-cd/lockstep/pkg/fault"
)

// callerKey is the context key of the Caller.
type callerKey struct{}

// CallerFrom is who makes the call that ctx belongs to.
func CallerFrom(ctx context.Context) (Caller, bool) {
	c, ok := ctx.Value(callerKey{}).(Caller)
	return c, ok
}

// WithCaller is ctx as a call of c would have it, for tests of handlers.
func WithCaller(ctx context.Context, c Caller) context.Context {
	return context.WithValue(ctx, callerKey{}, c)
}

// digests are tokens by their SHA-256, which all have one length, so that comparing takes the same time whatever is
// wrong with a token. The empty token is nobody's.
func digests(tokens map[string]Caller) map[[sha256.Size]byte]Caller {
	m := make(map[[sha256.Size]byte]Caller, len(tokens))
	for token, caller := range tokens {
		if token != "" {
			m[sha256.Sum256([]byte(token))] = caller
		}
	}
	return m
}

// authenticate is the caller whom the call's metadata proves. It compares with every token, so that the time does not
// tell which one was close.
func (i *interceptors) authenticate(ctx context.Context) (Caller, error) {
	values := metadata.ValueFromIncomingContext(ctx, "authorization")
	if len(values) != 1 {
		return Caller{}, fault.New(fault.Unauthenticated, "metadata authorization: found %d values, expected one bearer token", len(values))
	}
	scheme, token, _ := strings.Cut(values[0], " ")
	if !strings.EqualFold(scheme, "bearer") {
		return Caller{}, fault.New(fault.Unauthenticated, "metadata authorization: expected a bearer token")
	}
	given := sha256.Sum256([]byte(token))
	var found Caller
	known := 0
	for digest, caller := range i.tokens {
		if subtle.ConstantTimeCompare(digest[:], given[:]) == 1 {
			found, known = caller, 1
		}
	}
	if known == 0 {
		return Caller{}, fault.New(fault.Unauthenticated, "metadata authorization: the token is not known")
	}
	return found, nil
}
