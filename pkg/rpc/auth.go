package rpc

import (
	"context"
	"crypto/sha256"
	"strings"
	"time"

	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/telemetry"
)

// callerKey is the context key of the Caller.
type callerKey struct{}

// CallerFrom returns the caller of the call that ctx belongs to.
func CallerFrom(ctx context.Context) (Caller, bool) {
	c, ok := ctx.Value(callerKey{}).(Caller)
	return c, ok
}

// WithCaller returns ctx with a caller, for tests of handlers.
func WithCaller(ctx context.Context, c Caller) context.Context {
	return context.WithValue(ctx, callerKey{}, c)
}

// authenticate returns the caller whose token is in the call's metadata.
func (i *interceptors) authenticate(ctx context.Context) (Caller, error) {
	values := metadata.ValueFromIncomingContext(ctx, "authorization")
	if len(values) != 1 {
		return Caller{}, fault.New(fault.Unauthenticated, "metadata authorization: found %d values, expected one bearer token", len(values))
	}
	scheme, token, _ := strings.Cut(values[0], " ")
	if !strings.EqualFold(scheme, "bearer") {
		return Caller{}, fault.New(fault.Unauthenticated, "metadata authorization: expected a bearer token")
	}
	now, address := i.clock.Now(), ""
	if p, ok := peer.FromContext(ctx); ok {
		address = p.Addr.String()
	}
	if wait := i.guard.Wait(now, address, token); wait > 0 {
		telemetry.AuthenticationFailed(telemetry.ProtocolGRPC, telemetry.OutcomeThrottled)
		return Caller{}, fault.New(fault.Limited, "metadata authorization: too many unknown tokens; try again in %s",
			wait.Round(time.Second)+time.Second)
	}
	caller, known := i.keyring.find(sha256.Sum256([]byte(token)))
	if !known {
		i.guard.Failed(now, address, token)
		telemetry.AuthenticationFailed(telemetry.ProtocolGRPC, telemetry.OutcomeRefused)
		return Caller{}, fault.New(fault.Unauthenticated, "metadata authorization: the token is unknown")
	}
	i.guard.Passed(now, token)
	return caller, nil
}

// admit refuses a method that the caller's scope does not cover. A method that the table does not list requires ScopeAdmin, so that a new
// one is closed by default.
func (i *interceptors) admit(caller Caller, method string) error {
	if i.scopes == nil {
		return nil
	}
	needed, named := i.scopes[method]
	if !named {
		needed = ScopeAdmin
	}
	if !caller.Scope.Allows(needed) {
		return fault.New(fault.Denied, "%s needs a token of scope %s; this one has %s", method, needed, caller.Scope)
	}
	return nil
}
