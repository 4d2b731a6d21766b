package core

import "context"

// PrincipalType says what kind of actor a journal row names (R39).
type PrincipalType string

// The principal types.
const (
	PrincipalUser     PrincipalType = "user"
	PrincipalAgent    PrincipalType = "agent"
	PrincipalPolicy   PrincipalType = "policy"
	PrincipalSchedule PrincipalType = "schedule"
	PrincipalSystem   PrincipalType = "system"
)

// Actor is who acts, and for which organization. Every use case and every read takes one: nothing is found without an
// organization.
type Actor struct {
	Organization int64
	Type         PrincipalType
	// ID is the principal's number; 0 where it has none (the system).
	ID int64
}

type actorKey struct{}

// WithActor is a context that carries who acts, for the layers between authentication and use case.
func WithActor(ctx context.Context, a Actor) context.Context {
	return context.WithValue(ctx, actorKey{}, a)
}

// ActorFrom is who acts in ctx; false where nobody has been authenticated.
func ActorFrom(ctx context.Context) (Actor, bool) {
	a, ok := ctx.Value(actorKey{}).(Actor)
	return a, ok
}
