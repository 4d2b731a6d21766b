package core

import (
	"context"
	"fmt"
)

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
	// ID is the principal's number, a member's for people and agents; 0 where it has none (the system).
	ID int64
	// Name is what people call the member; empty where that is not known.
	Name string
	// Permissions is what it may do everywhere: its role's, as far as the token that it showed has them too. The zero value may
	// nothing (D28).
	Permissions Permissions
	// Grants are what it may do in some places beside that, as far as the token has it too (D50).
	Grants []Grant
	// CheckKeys are the keys of checks that it may report, as the token that it showed is bound to them; empty for all.
	CheckKeys []string
	// Groups are those the principal belongs to, by name: a gate may be for one of them to answer (D24).
	Groups []string

	// input is what the use case was called with, where its change can be proposed; confirmed is the proposal that it makes true.
	input     any
	confirmed *Confirmation
}

// Principal is who the journal names.
func (a Actor) Principal() Principal { return Principal{a.Type, a.ID} }

// DisplayName is the principal for people.
func (a Actor) DisplayName() string {
	if a.Name != "" {
		return a.Name
	}
	if a.ID == 0 {
		return string(a.Type)
	}
	return fmt.Sprintf("%s %d", a.Type, a.ID)
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

// Principal is a person or thing that acts, as the journal names it.
type Principal struct {
	Type PrincipalType
	// ID is 0 where it has no number.
	ID int64
}

// Transactions runs use cases. Tx is the part of a transaction that the use cases of one package need.
type Transactions[Tx any] interface {
	// In runs fn in one transaction that sees and changes the rows of one organization only, and commits when fn returns
	// nil. It may run fn again after a deadlock, so fn has no effect outside of tx.
	In(ctx context.Context, organization int64, fn func(ctx context.Context, tx Tx) error) error
}

// By runs a use case of a person or an agent, if the actor may: in one transaction of the actor's organization. The use case checks the
// request itself before it calls By, and refuses by the present state in fn.
func By[Tx any](ctx context.Context, store Transactions[Tx], a Actor, action Action, fn func(ctx context.Context, tx Tx) error) error {
	if err := a.May(action); err != nil {
		return err
	}
	return second(ctx, store, a, action, fn)
}

// Within is By for an action in some place: the actor may perform it somewhere, and fn asks MayIn once it knows where.
func Within[Tx any](ctx context.Context, store Transactions[Tx], a Actor, action Action, fn func(ctx context.Context, tx Tx) error) error {
	if err := a.MaySomewhere(action); err != nil {
		return err
	}
	return second(ctx, store, a, action, fn)
}
