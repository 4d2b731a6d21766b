package credential

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/sealing"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
)

// Value is a secret. It prints as nothing.
type Value string

// String implements fmt.Stringer.
func (Value) String() string { return "(a secret)" }

// GoString implements fmt.GoStringer.
func (v Value) GoString() string { return v.String() }

// MarshalJSON implements json.Marshaler.
func (v Value) MarshalJSON() ([]byte, error) { return []byte(`"` + v.String() + `"`), nil }

// NewValue is the value of a credential: itself, or a reference to it.
type NewValue struct {
	Value     Value
	Reference string
	// ExpiresAt is when it ends where it is used; nil for never, or not known.
	ExpiresAt *time.Time
	Reason    string
}

// NewCredential asks for a credential.
type NewCredential struct {
	// Terms are what its value is bound to, without organization and version.
	sealing.Terms
	NewValue
}

// Create makes a credential. The name of a revoked one may be given again.
func (u *UseCases) Create(ctx context.Context, a core.Actor, n NewCredential) (Credential, error) {
	if err := a.May(core.ActionCreateCredential); err != nil { // before the value is checked, which takes long for a passphrase
		return Credential{}, err
	}
	n.Organization, n.Version = a.Organization, 1
	if err := u.check(n.Terms, n.NewValue, n.Check()...); err != nil {
		return Credential{}, err
	}
	var made Credential
	err := core.By(ctx, u.store, a, core.ActionCreateCredential, func(ctx context.Context, tx Tx) error {
		if err := tx.LockCredentials(ctx); err != nil {
			return err
		}
		all, err := tx.Credentials(ctx, a.Organization)
		if err != nil {
			return err
		}
		made = Credential{Terms: n.Terms}
		var before any
		at := slices.IndexFunc(all, func(c Credential) bool { return c.Name == n.Name })
		switch {
		case at >= 0 && all[at].RevokedAt == nil:
			return fault.New(fault.Refused, "a credential %q exists; rotate it, or revoke it first to bind the name to other places", n.Name)
		case at >= 0:
			made.Version, before = all[at].Version+1, state(all[at])
		case len(all) >= MaxCredentials:
			return fault.New(fault.Refused, "found %d credentials; expected at most %d in an organization", len(all), MaxCredentials)
		}
		made, err = u.put(ctx, tx, a, made, n.NewValue)
		if err != nil {
			return err
		}
		return core.Record(ctx, tx, a, change(core.ActionCreateCredential, made, n.Reason), before, state(made))
	})
	u.hint(made.Kind, err)
	return shown(made), err
}

// Rotate gives a credential another value, which the next use gets. What it is bound to stays.
func (u *UseCases) Rotate(ctx context.Context, a core.Actor, name string, n NewValue) (Credential, error) {
	checked, err := u.checkRotation(ctx, a, name, n)
	if err != nil {
		return Credential{}, err
	}
	var rotated Credential
	err = core.By(ctx, u.store, a, core.ActionRotateCredential, func(ctx context.Context, tx Tx) error {
		before, err := u.locked(ctx, tx, name)
		if err != nil {
			return err
		}
		if before.Kind != checked.Kind || !reflect.DeepEqual(before.Proof, checked.Proof) {
			return fault.New(fault.Conflict, "credential %q was made anew meanwhile; look at it and try again", name)
		}
		next := before
		next.Version++
		if rotated, err = u.put(ctx, tx, a, next, n); err != nil {
			return err
		}
		return core.Record(ctx, tx, a, change(core.ActionRotateCredential, rotated, n.Reason), state(before), state(rotated))
	})
	u.hint(rotated.Kind, err)
	return shown(rotated), err
}

// checkRotation checks another value of a credential, and returns the terms that it was checked against: what a value has to be depends on
// them. It holds no lock meanwhile, since a passphrase takes long.
func (u *UseCases) checkRotation(ctx context.Context, a core.Actor, name string, n NewValue) (sealing.Terms, error) {
	if err := a.May(core.ActionRotateCredential); err != nil {
		return sealing.Terms{}, err
	}
	all, err := u.store.Credentials(ctx, a.Organization)
	if err != nil {
		return sealing.Terms{}, err
	}
	at := slices.IndexFunc(all, func(c Credential) bool { return c.Name == name })
	if at < 0 {
		return sealing.Terms{}, missing(name)
	}
	c := all[at]
	switch {
	case c.RevokedAt != nil:
		return sealing.Terms{}, revoked(c)
	case !c.Proof.Known():
		return sealing.Terms{}, fault.New(fault.Refused, "credential %q was made by a later version of Lockstep; rotate it once all replicas of the domain service are of that version", name)
	}
	return c.Terms, u.check(c.Terms, n)
}

func missing(name string) error {
	return fault.New(fault.NotFound, "credential %.100q does not exist", name)
}

func revoked(c Credential) error {
	return fault.New(fault.Refused, "credential %q was revoked at %s; create it again to use the name", c.Name, c.RevokedAt.UTC().Format(time.RFC3339))
}

// Revoke ends a credential: its value is deleted, and uses of its name fail.
func (u *UseCases) Revoke(ctx context.Context, a core.Actor, name, reason string) (Credential, error) {
	if err := core.CheckReason(reason); err != nil {
		return Credential{}, err
	}
	var ended Credential
	err := core.By(ctx, u.store, a, core.ActionRevokeCredential, func(ctx context.Context, tx Tx) error {
		before, err := u.locked(ctx, tx, name)
		if err != nil {
			return err
		}
		now := u.clock.Now()
		ended = before
		ended.Reference, ended.Sealed, ended.Key, ended.RevokedAt = "", nil, 0, &now
		if ended, err = u.save(ctx, tx, a, ended, now); err != nil {
			return err
		}
		return core.Record(ctx, tx, a, change(core.ActionRevokeCredential, ended, reason), state(before), state(ended))
	})
	u.hint(ended.Kind, err)
	return shown(ended), err
}

// locked is a credential that was not revoked.
func (u *UseCases) locked(ctx context.Context, tx Tx, name string) (Credential, error) {
	c, err := tx.LockCredential(ctx, name)
	switch {
	case fault.Is(err, fault.NotFound):
		return c, missing(name)
	case err == nil && c.RevokedAt != nil:
		return c, revoked(c)
	}
	return c, err
}

// check finds what is wrong with a value and its terms. Nothing of the value is in the error.
func (u *UseCases) check(terms sealing.Terms, n NewValue, found ...fault.Field) error {
	switch {
	case (n.Value == "") == (n.Reference == ""):
		found = append(found, fault.Field{Name: "/value", Problem: "expected a value or a reference, and not both"})
	case n.Value != "" && !u.sealer.Configured():
		found = append(found, fault.Field{
			Name:    "/value",
			Problem: "values cannot be sealed, since no keyset is configured; an operator has to configure one (credentials.keyset_ref), or give a reference",
		})
	case n.Value != "":
		found = append(found, terms.CheckValue(string(n.Value))...)
	case !u.settings.Allows(terms.Organization, n.Reference):
		// It is not shown: it may be the secret itself, entered here by mistake.
		found = append(found, fault.Field{
			Name:    "/reference",
			Problem: "found one that this organization may not use; expected one that begins as an operator allows it (credentials.references)",
		})
	}
	if n.ExpiresAt != nil && !n.ExpiresAt.After(u.clock.Now()) {
		found = append(found, fault.Field{Name: "/expiresAt", Problem: "found a time in the past; expected one to come, or none"})
	}
	if err := core.CheckReason(n.Reason); err != nil {
		found = append(found, fault.FieldsOf(err)...)
	}
	if len(found) > 0 {
		return fault.InvalidFields(found...)
	}
	return nil
}

// put gives a credential a value, and saves it.
func (u *UseCases) put(ctx context.Context, tx Tx, a core.Actor, c Credential, n NewValue) (Credential, error) {
	c.Reference, c.Sealed, c.Key, c.ExpiresAt, c.RevokedAt = n.Reference, nil, 0, n.ExpiresAt, nil
	if n.Value != "" {
		var err error
		if c.Sealed, c.Key, err = u.sealer.Seal(ctx, string(n.Value), c.Terms); err != nil {
			return c, err
		}
	}
	return u.save(ctx, tx, a, c, u.clock.Now())
}

func (u *UseCases) save(ctx context.Context, tx Tx, a core.Actor, c Credential, at time.Time) (Credential, error) {
	c.Author, c.ChangedAt = core.AuthorOf(a), at
	saved, err := tx.SaveCredential(ctx, c)
	if err != nil {
		return saved, err
	}
	return saved, tx.AnnounceCredential(ctx, saved, at)
}

// shown is a credential for the actor who has changed it.
func shown(c Credential) Credential {
	c.Sealed = nil
	return c
}

func change(action core.Action, c Credential, reason string) core.Change {
	return core.Change{
		Action: action, Subject: core.AccessSubject{Kind: core.ChangedCredential, ID: c.ID, Name: c.Name}, Reason: reason,
		Detail: fmt.Sprintf("version %d", c.Version),
	}
}

// state is what the journal of changes keeps of a credential: everything but its value.
func state(c Credential) map[string]any {
	value := "sealed"
	switch {
	case c.RevokedAt != nil:
		value = "none"
	case c.Reference != "":
		value = c.Reference
	}
	s := map[string]any{"name": c.Name, "kind": c.Kind, "version": c.Version, "url_prefixes": c.URLPrefixes, "value": value}
	for name, text := range map[string]string{"username": c.Username, "header": c.Header, "forge": c.Forge} {
		if text != "" {
			s[name] = text
		}
	}
	if !c.Proof.IsZero() {
		s["proof"] = c.Proof
	}
	if c.ExpiresAt != nil {
		s["expires_at"] = c.ExpiresAt.UTC()
	}
	return s
}

// atOnce is how many credentials of all organizations are looked up together.
const atOnce = 100

// Announce publishes all credentials again: the workflow service may have lost them, as after a restored backup.
func (u *UseCases) Announce(ctx context.Context) error {
	return u.each(ctx, u.store.CredentialsAfter, func(ctx context.Context, tx Tx, c Credential) error {
		return tx.AnnounceCredential(ctx, c, u.clock.Now())
	})
}

// Reseal seals values with the primary key that are sealed with another one, and reports how many. What cannot be opened stays as it is,
// and is in the error.
func (u *UseCases) Reseal(ctx context.Context) (resealed int, err error) {
	if !u.sealer.Configured() {
		return 0, nil
	}
	primary, err := u.sealer.Primary(ctx)
	if err != nil {
		return 0, err
	}
	unopened, done := map[int64]error{}, map[int64]bool{} // by credential: a transaction may run again
	others := func(ctx context.Context, behind int64, most int) ([]Place, error) {
		return u.store.CredentialsOfOtherKeys(ctx, primary, behind, most)
	}
	err = u.each(ctx, others, func(ctx context.Context, tx Tx, c Credential) error {
		if c.Sealed == nil || c.Key == primary {
			return nil // rotated or revoked meanwhile
		}
		value, err := u.sealer.Open(ctx, c.Sealed, c.Terms)
		if err != nil {
			unopened[c.ID] = fmt.Errorf("credential %q of organization %d: %w", c.Name, c.Organization, err)
			return nil
		}
		if c.Sealed, c.Key, err = u.sealer.Seal(ctx, value, c.Terms); err != nil {
			return err
		}
		if err := tx.ResealCredential(ctx, c); err != nil {
			return err
		}
		done[c.ID] = true
		return tx.AnnounceCredential(ctx, c, u.clock.Now())
	})
	if len(done) > 0 {
		u.hint(sealing.Registry, nil) // some of them may be of that kind
	}
	return len(done), errors.Join(append(slices.Collect(maps.Values(unopened)), err)...)
}

// AnnounceChanged publishes those credentials again that have changed since a time: a workflow service of an earlier release may have taken
// the first announcement, as while it is upgraded.
func (u *UseCases) AnnounceChanged(ctx context.Context, since time.Time) error {
	changed := func(ctx context.Context, behind int64, most int) ([]Place, error) {
		return u.store.CredentialsChanged(ctx, since, behind, most)
	}
	return u.each(ctx, changed, func(ctx context.Context, tx Tx, c Credential) error {
		return tx.AnnounceCredential(ctx, c, u.clock.Now())
	})
}

// mostErrors is how many failures are in an error at most; the others are counted.
const mostErrors = 20

// each does something with credentials of all organizations, in a transaction each, under its lock. A failure does not
// stop the others; the error has all failures.
func (u *UseCases) each(
	ctx context.Context, after func(ctx context.Context, behind int64, most int) ([]Place, error),
	do func(ctx context.Context, tx Tx, c Credential) error,
) error {
	var failed []error
	more := 0
	for behind := int64(0); ; {
		page, err := after(ctx, behind, atOnce)
		if err != nil {
			return errors.Join(append(failed, err)...)
		}
		for _, p := range page {
			behind = p.ID
			err := u.store.In(ctx, p.Organization, func(ctx context.Context, tx Tx) error {
				c, err := tx.LockCredentialByID(ctx, p.ID)
				if err != nil {
					return err
				}
				return do(ctx, tx, c)
			})
			switch {
			case err == nil:
			case ctx.Err() != nil:
				return errors.Join(append(failed, err)...)
			case len(failed) >= mostErrors:
				more++
			default:
				failed = append(failed, fmt.Errorf("credential %d of organization %d: %w", p.ID, p.Organization, err))
			}
		}
		if len(page) == atOnce {
			continue
		}
		if more > 0 {
			failed = append(failed, fmt.Errorf("and %d more", more))
		}
		return errors.Join(failed...)
	}
}
