package core

import (
	"context"
	"fmt"
	"strings"
	"time"
)

// AccessKind says what an AccessChange is about.
type AccessKind string

// The kinds.
const (
	AccessMember   AccessKind = "member"
	AccessGroup    AccessKind = "group"
	AccessOfToken  AccessKind = "accesstoken"
	AccessAgent    AccessKind = "agent"
	AccessAgentKey AccessKind = "agentkey"
	// AccessOrganization is an organization as a whole.
	AccessOrganization AccessKind = "organization"
)

// AccessSubject is whose access, or which token's, changed. The name is what it was called then.
type AccessSubject struct {
	Kind AccessKind
	ID   int64
	Name string
}

// AccessChange is a row of the log of who gave or took whose access. It is only ever added to.
type AccessChange struct {
	ID int64
	Principal
	Action  Action
	Subject AccessSubject
	// Detail is what was given or taken, for people; never a secret.
	Detail    string
	CreatedAt time.Time
}

// AccessChangeWrites adds to the log.
type AccessChangeWrites interface {
	AddAccessChange(ctx context.Context, c AccessChange) error
}

// note writes that the actor has changed somebody's access, in the transaction that does it.
func (a Actor) note(ctx context.Context, tx Tx, action Action, subject AccessSubject, detail string) error {
	return tx.AddAccessChange(ctx, AccessChange{Principal: a.principal(), Action: action, Subject: subject, Detail: detail})
}

// AccessChangesFor is a page of the log, newest first, for those who administer.
func (d *Domain) AccessChangesFor(ctx context.Context, a Actor, p Page) (Slice[AccessChange], error) {
	if err := a.May(ActionAccessChanges); err != nil {
		return Slice[AccessChange]{}, err
	}
	return d.AccessChanges(ctx, a.Organization, p)
}

// CountAccessChangesFor is how many rows that log has.
func (d *Domain) CountAccessChangesFor(ctx context.Context, a Actor) (int, error) {
	if err := a.May(ActionAccessChanges); err != nil {
		return 0, err
	}
	return d.CountAccessChanges(ctx, a.Organization)
}

// grant is what a token is good for, and until when.
func (t AccessToken) grant() string {
	words := make([]string, 0, len(AllPermissions()))
	for _, p := range t.Scopes.List() {
		words = append(words, p.String())
	}
	return fmt.Sprintf("%s, until %s", strings.Join(words, " "), t.ExpiresAt.UTC().Format(time.RFC3339))
}
