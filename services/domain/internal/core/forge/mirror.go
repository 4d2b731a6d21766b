package forge

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
)

const (
	// maxEnvironments is how many environments a mirror names at most.
	maxEnvironments = 100
	// maxAddress is how long the address of an application is at most, in bytes: GitLab keeps no longer ones.
	maxAddress = 255
)

// credentialForm is what credentials are called.
var credentialForm = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?$`)

func invalid(field, format string, args ...any) error {
	return fault.InvalidFields(fault.Field{Name: field, Problem: fmt.Sprintf(format, args...)})
}

// NewMirror is a mirror to save.
type NewMirror struct {
	// Application and Environments are names; no environments for all.
	Application  string
	Environments []string
	Credential   string
	Enabled      bool
	// Plans reports whether comments on pull requests are about the application, too; nil leaves it as it is.
	Plans *bool
	// Deployments reports whether deployments are published, too; nil leaves it as it is.
	Deployments *bool
	// Addresses are where the application is reached, by the names of environments; nil leaves them as they are.
	Addresses map[string]string
	Reason    string
}

// Named is a mirror with the names of what it is about.
type Named struct {
	Mirror
	Application  string
	Environments []string
	// AddressOf are the addresses by the names of environments.
	AddressOf map[string]string
}

// PutMirror switches publishing on or off for an application, or changes it. What is live, and what its latest rollouts are about, is
// published at once; statuses that the forges have stay there.
func (u *UseCases) PutMirror(ctx context.Context, a core.Actor, n NewMirror) (Named, error) {
	var saved Named
	if err := core.CheckReason(n.Reason); err != nil {
		return saved, err
	}
	if n.Credential != "" && !credentialForm.MatchString(n.Credential) {
		return saved, invalid("/credential", "found %.100q; expected the name of a credential", n.Credential)
	}
	if len(n.Environments) > maxEnvironments {
		return saved, invalid("/environments", "found %d; expected at most %d", len(n.Environments), maxEnvironments)
	}
	err := core.Within(ctx, u.store, a, core.ActionPutForgeMirror, func(ctx context.Context, tx Tx) error {
		application, err := tx.ApplicationByName(ctx, a.Organization, n.Application)
		if err != nil {
			return err
		}
		targets, err := core.ApplicationTargets(ctx, tx, a.Organization, application.ID)
		if err != nil {
			return err
		}
		if err := a.MayIn(core.ActionPutForgeMirror, targets...); err != nil {
			return err
		}
		if application, err = tx.LockApplication(ctx, application.ID); err != nil {
			return err
		}
		saved = Named{Application: application.Name, Environments: []string{}, Mirror: Mirror{
			ApplicationID: application.ID, EnvironmentIDs: []int64{}, Credential: n.Credential, Enabled: n.Enabled, Author: core.AuthorOf(a),
			ChangedAt: u.clock.Now(),
		}}
		for i, name := range n.Environments {
			e, err := tx.EnvironmentByName(ctx, a.Organization, name)
			if fault.Is(err, fault.NotFound) {
				return invalid(fmt.Sprintf("/environments/%d", i), "found %.100q, which does not exist; expected the name of an environment", name)
			}
			if err != nil {
				return err
			}
			if !slices.Contains(saved.EnvironmentIDs, e.ID) {
				saved.EnvironmentIDs, saved.Environments = append(saved.EnvironmentIDs, e.ID), append(saved.Environments, e.Name)
			}
		}
		before, err := u.before(ctx, tx, a.Organization, application)
		if err != nil {
			return err
		}
		saved.Plans = before == nil || before.Plans
		if n.Plans != nil {
			saved.Plans = *n.Plans
		}
		saved.Deployments = before != nil && before.Deployments
		if n.Deployments != nil {
			saved.Deployments = *n.Deployments
		}
		if err := saved.addressed(ctx, tx, a.Organization, n.Addresses, before); err != nil {
			return err
		}
		if saved.Enabled && saved.Deployments {
			if err := deployable(ctx, tx, n.Credential); err != nil {
				return err
			}
		}
		if err := tx.SaveForgeMirror(ctx, saved.Mirror); err != nil {
			return err
		}
		if err := tx.MarkForgeLive(ctx, application.ID); err != nil {
			return err
		}
		return core.Record(ctx, tx, a, core.Change{
			Action: core.ActionPutForgeMirror, Subject: core.AccessSubject{
				Kind: core.ChangedForgeMirror, ID: application.ID,
				Name: application.Name,
			},
			Reason: n.Reason, Detail: "publishing of " + application.Name,
		}, before.before(), saved.state())
	})
	u.wake()
	return saved, err
}

// checkAddresses refuses what is no address of a page.
func checkAddresses(all map[string]string) error {
	if len(all) > maxEnvironments {
		return invalid("/addresses", "found %d; expected at most %d", len(all), maxEnvironments)
	}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		u, err := url.Parse(all[name])
		if err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Hostname() == "" || u.User != nil || len(all[name]) > maxAddress ||
			strings.ContainsFunc(all[name], func(r rune) bool { return r <= ' ' || r == 0x7f }) {
			return invalid("/addresses", "found for %.100q what is no address of a page; expected https://host/path without a user, of at most %d bytes", name,
				maxAddress)
		}
	}
	return nil
}

// addressed takes up addresses, those before for nil.
func (n *Named) addressed(ctx context.Context, tx Tx, organization int64, given map[string]string, before *Named) error {
	n.Addresses, n.AddressOf = map[int64]string{}, map[string]string{}
	if given == nil {
		if before != nil {
			n.Addresses, n.AddressOf = before.Addresses, before.AddressOf
		}
		return nil
	}
	if err := checkAddresses(given); err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(given)) {
		e, err := tx.EnvironmentByName(ctx, organization, name)
		if fault.Is(err, fault.NotFound) {
			return invalid("/addresses", "found %.100q, which does not exist; expected the name of an environment", name)
		}
		if err != nil {
			return err
		}
		if _, again := n.Addresses[e.ID]; again {
			return invalid("/addresses", "found %.100q, which is %s; expected each environment once", name, core.ShownName(e.Name, e.DisplayName))
		}
		n.Addresses[e.ID], n.AddressOf[e.Name] = given[name], given[name]
	}
	return nil
}

// deployable refuses a credential for deployments whose forge has none. Credentials of the operator are not known here: with
// one of them a deployment fails with that reason when it is sent.
func deployable(ctx context.Context, tx Tx, credential string) error {
	if credential == "" {
		return nil
	}
	kind, err := tx.ForgeOfCredential(ctx, credential)
	if err != nil {
		return err
	}
	if kind == "gitea" {
		return invalid("/deployments", "found true with the credential %s of a Gitea or Forgejo, which have no interface for deployments; expected false, or a "+
			"credential of GitHub or GitLab", credential)
	}
	return nil
}

// before is the mirror of an application; nil for none.
func (u *UseCases) before(ctx context.Context, tx Tx, organization int64, application core.Application) (*Named, error) {
	all, err := tx.ForgeMirrors(ctx, organization)
	if err != nil {
		return nil, err
	}
	for _, m := range all {
		if m.ApplicationID == application.ID {
			environments, err := tx.EnvironmentsByID(ctx, organization, m.mentioned())
			found := named(m, application.Name, environments)
			return &found, err
		}
	}
	return nil, nil //nolint:nilnil // an application has one only once it was saved
}

// before is a mirror as the journal has it: null for what did not exist.
func (n *Named) before() any {
	if n == nil {
		return nil
	}
	return n.state()
}

func (n Named) state() map[string]any {
	return map[string]any{
		"environments": n.Environments, "credential": n.Credential, "enabled": n.Enabled, "plans": n.Plans, "deployments": n.Deployments,
		"addresses": n.AddressOf,
	}
}

// mentioned are the environments that a mirror names.
func (m Mirror) mentioned() []int64 {
	return core.Distinct(append(slices.Clone(m.EnvironmentIDs), slices.Sorted(maps.Keys(m.Addresses))...))
}

func named(m Mirror, application string, environments map[int64]core.Environment) Named {
	n := Named{Mirror: m, Application: application, Environments: []string{}, AddressOf: map[string]string{}}
	for _, id := range m.EnvironmentIDs {
		n.Environments = append(n.Environments, environments[id].Name)
	}
	for id, address := range m.Addresses {
		n.AddressOf[environments[id].Name] = address
	}
	return n
}

// Mirrors are all of the organization, by application.
func (u *UseCases) Mirrors(ctx context.Context, organization int64) (all []Named, err error) {
	err = u.store.In(ctx, organization, func(ctx context.Context, tx Tx) error {
		all = []Named{}
		mirrors, err := tx.ForgeMirrors(ctx, organization)
		if err != nil {
			return err
		}
		var applications, environments []int64
		for _, m := range mirrors {
			applications, environments = append(applications, m.ApplicationID), append(environments, m.mentioned()...)
		}
		names, err := tx.ApplicationsByID(ctx, organization, applications)
		if err != nil {
			return err
		}
		of, err := tx.EnvironmentsByID(ctx, organization, core.Distinct(environments))
		for _, m := range mirrors {
			all = append(all, named(m, names[m.ApplicationID].Name, of))
		}
		return err
	})
	return all, err
}

// MaxStatuses is how many statuses a list has at most.
const MaxStatuses = 100

// Statuses are those of an organization, the newest first.
func (u *UseCases) Statuses(ctx context.Context, organization int64, f Filter) ([]Status, error) {
	if f.Most < 1 || f.Most > MaxStatuses {
		return nil, invalid("/first", "found %d; expected 1 to %d", f.Most, MaxStatuses)
	}
	return u.store.ForgeStatuses(ctx, organization, f)
}

// Hosts are the servers that statuses of an organization are sent to.
func (u *UseCases) Hosts(ctx context.Context, organization int64) ([]Host, error) {
	all, err := u.store.ForgeHosts(ctx, organization)
	for i, h := range all {
		if now := u.clock.Now(); h.SharedUntil.After(now) && h.SharedUntil.After(h.PausedUntil) {
			all[i].PausedUntil = h.SharedUntil
			all[i].Problem = cmp.Or(h.Problem, "what all organizations together may send with the credentials of the operator was sent; a status with a credential of the "+
				"organization does not wait")
		}
	}
	return all, err
}

// maxRetried is how many statuses are sent again at once.
const maxRetried = 500

// Retried is what is sent again: how many statuses, and whether there are more that were given up.
type Retried struct {
	Count int
	More  bool
}

// Retry has statuses sent again that were given up: one, or the oldest for 0.
func (u *UseCases) Retry(ctx context.Context, a core.Actor, status int64, reason string) (Retried, error) {
	var retried Retried
	if err := core.CheckReason(reason); err != nil {
		return retried, err
	}
	err := core.By(ctx, u.store, a, core.ActionRetryForgeStatus, func(ctx context.Context, tx Tx) error {
		count, err := tx.RetryForgeStatuses(ctx, status, u.clock.Now(), maxRetried)
		if err != nil {
			return err
		}
		left, err := tx.ForgeStatuses(ctx, a.Organization, Filter{State: Failed, Most: 1})
		if err != nil {
			return err
		}
		if retried = (Retried{count, len(left) > 0 && status == 0}); count == 0 && status != 0 {
			return fault.New(fault.Refused, "status %d does not exist, or has not failed; only what has failed can be sent again", status)
		}
		name := "all"
		if status != 0 {
			name = strconv.FormatInt(status, 10)
		}
		return core.Record(ctx, tx, a, core.Change{
			Action: core.ActionRetryForgeStatus, Subject: core.AccessSubject{Kind: core.ChangedForgeMirror, Name: "status/" + name}, Reason: reason,
			Detail: fmt.Sprintf("%d statuses that had failed", count),
		}, nil, map[string]any{"statuses": count})
	})
	u.wake()
	return retried, err
}
