package core

import "context"

// by is how every use case of a person or an agent changes something: in one transaction of its organization, if it may.
// What is at fault with the request itself comes before, and what the present state refuses comes in fn.
func (d *Domain) by(ctx context.Context, a Actor, action Action, fn func(ctx context.Context, tx Tx) error) error {
	if err := a.May(action); err != nil {
		return err
	}
	return d.store.In(ctx, a.Organization, fn)
}
