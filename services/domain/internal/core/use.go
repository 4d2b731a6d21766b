package core

import "context"

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
	return second(ctx, store, a, fn)
}

// Within is By for an action in some place: the actor may perform it somewhere, and fn asks MayIn once it knows where.
func Within[Tx any](ctx context.Context, store Transactions[Tx], a Actor, action Action, fn func(ctx context.Context, tx Tx) error) error {
	if err := a.MaySomewhere(action); err != nil {
		return err
	}
	return second(ctx, store, a, fn)
}
