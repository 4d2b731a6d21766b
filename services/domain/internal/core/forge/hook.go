package forge

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/pattern"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
)

// Forges are the kinds of servers that report statuses of commits and pull requests.
func Forges() []string { return []string{"github", "gitlab", "gitea"} }

// Hook is where a forge reports statuses of commits and pull requests to. Its secret is known to the registry service alone.
type Hook struct {
	ID int64
	// Key names it at the registry service.
	Key, Forge string
	// Repositories are patterns of those that it may report about, as host/path. CheckKeys are the checks that its reports count for; none
	// for all.
	Repositories, CheckKeys []string
	// Plans reports whether pull requests that it reports are commented on.
	Plans bool
	// Commands reports whether commands are taken that comments on pull requests begin with.
	Commands bool
	// Author is who made it, at CreatedAt.
	Author    core.Author
	CreatedAt time.Time
	// ReportedAt is when something was last reported that was not known; nil for never.
	ReportedAt *time.Time
}

// permits reports whether the reports of a hook count for a check.
func permits(keys []string, key string) bool { return len(keys) == 0 || slices.Contains(keys, key) }

// Secrets gives hooks their secrets.
type Secrets interface {
	// ForgeHook is the path at the registry service and the secret of a hook.
	ForgeHook(ctx context.Context, organization int64, key, forge string) (path, secret string, err error)
	// ForgeRefusals is what the registry service has left out of the deliveries to hooks, by key, the latest first.
	ForgeRefusals(ctx context.Context, organization int64, keys []string) (map[string][]Refusal, error)
	// Changed hints that there are other hooks than before. The hint may get lost.
	Changed()
}

// Refusal is a part of a delivery that was left out: it could not be read, or says what no status is.
type Refusal struct {
	// HookID is the hook that it was delivered to.
	HookID       int64
	What, Reason string
	// Times is how often the same was left out.
	Times           int64
	FirstAt, LastAt time.Time
}

// Known is a report that is recorded, as it is listed.
type Known struct {
	Received
	ID int64
	// ChangedAt is when it was recorded, or replaced by a later one.
	ChangedAt time.Time
	// Counted reports whether a version set that was rolled out comes from the commit.
	Counted bool
}

// ReportFilter narrows a list of reports; its zero value does not.
type ReportFilter struct {
	Commit string
	// Before is the report that the list continues after; 0 for the newest. Most is how many are returned.
	Before int64
	Most   int
}

// Page is the page of a pull request for people, without its scheme and in lower case. A repository is given by host and path.
func (h Hook) Page(repository string, number int64) string {
	between := map[string]string{"github": "pull", "gitlab": "-/merge_requests", "gitea": "pulls"}[h.Forge]
	return fmt.Sprintf("%s/%s/%d", repository, between, number)
}

// Covers reports whether it may report about a repository, given by host and path.
func (h Hook) Covers(repository string) bool {
	return slices.ContainsFunc(h.Repositories, func(p string) bool { return pattern.Match(p, repository) })
}

// PlacedHook is a hook with whose it is.
type PlacedHook struct {
	ID, Organization int64
	Key              string
}

// NewHook is a hook to add.
type NewHook struct {
	Forge                   string
	Repositories, CheckKeys []string
	Plans, Commands         bool
	Reason                  string
}

// MadeHook is a hook with what the forge has to be given. The secret is shown once.
type MadeHook struct {
	Hook
	Path, Secret string
}

const (
	maxHooks        = 50
	maxRepositories = 20
	maxCheckKeys    = 50
)

// repositoryForm is a pattern of repositories. The host has no *: a pattern must not match at another server.
var repositoryForm = regexp.MustCompile(`^[a-z0-9][a-z0-9.-]*(:[0-9]{1,5})?/[a-z0-9._~/*-]{1,500}$`)

func (n NewHook) check() error {
	if err := core.CheckReason(n.Reason); err != nil {
		return err
	}
	if !slices.Contains(Forges(), n.Forge) {
		return invalid("/forge", "found %.100q; expected one of %s", n.Forge, strings.Join(Forges(), ", "))
	}
	if len(n.Repositories) < 1 || len(n.Repositories) > maxRepositories {
		return invalid("/repositories", "found %d; expected 1 to %d", len(n.Repositories), maxRepositories)
	}
	for i, pattern := range n.Repositories {
		if !repositoryForm.MatchString(pattern) {
			return invalid(fmt.Sprintf("/repositories/%d", i),
				"found %.100q; expected a host and a path in lower case, in which * stands for any text, such as github.com/shop/*", pattern)
		}
	}
	if len(n.CheckKeys) > maxCheckKeys {
		return invalid("/checkKeys", "found %d; expected at most %d", len(n.CheckKeys), maxCheckKeys)
	}
	for i, key := range n.CheckKeys {
		if !core.CheckKey.MatchString(key) {
			return invalid(fmt.Sprintf("/checkKeys/%d", i), "found %.100q; expected 1 to 63 lower-case letters, digits and hyphens", key)
		}
	}
	return nil
}

// AddHook makes a hook. What is being rolled out is looked at, so that reports find it.
func (u *UseCases) AddHook(ctx context.Context, a core.Actor, n NewHook) (MadeHook, error) {
	if err := a.May(core.ActionAddForgeHook); err != nil {
		return MadeHook{}, err
	}
	if err := n.check(); err != nil {
		return MadeHook{}, err
	}
	name := make([]byte, 16)
	_, _ = rand.Read(name) // never fails
	made := MadeHook{Hook: Hook{
		Key: hex.EncodeToString(name), Forge: n.Forge, Repositories: append([]string{}, n.Repositories...),
		CheckKeys: append([]string{}, n.CheckKeys...), Plans: n.Plans, Commands: n.Commands,
		Author: core.AuthorOf(a), CreatedAt: u.clock.Now(),
	}}
	// First, and outside of the transaction: without its secret a hook is good for nothing.
	var err error
	if made.Path, made.Secret, err = u.secrets.ForgeHook(ctx, a.Organization, made.Key, made.Forge); err != nil {
		return MadeHook{}, err
	}
	err = core.By(ctx, u.store, a, core.ActionAddForgeHook, func(ctx context.Context, tx Tx) error {
		if err := tx.LockForgeHooks(ctx); err != nil {
			return err
		}
		all, err := tx.ForgeHooks(ctx, a.Organization)
		if err != nil {
			return err
		}
		if len(all) >= maxHooks {
			return fault.New(fault.Refused, "found %d hooks; expected at most %d: remove one that is not needed", len(all), maxHooks)
		}
		if made.Hook, err = tx.AddForgeHook(ctx, made.Hook); err != nil {
			return err
		}
		if err := tx.MarkForgeRollouts(ctx); err != nil {
			return err
		}
		return core.Record(ctx, tx, a, core.Change{
			Action: core.ActionAddForgeHook, Subject: hookSubject(made.ID), Reason: n.Reason, Detail: "statuses that " + n.Forge + " reports",
		}, nil, made.state())
	})
	u.hooksChanged(err)
	return made, err
}

// RemoveHook ends a hook: what it has reported counts no more for what is being rolled out.
func (u *UseCases) RemoveHook(ctx context.Context, a core.Actor, number int64, reason string) (Hook, error) {
	var removed Hook
	if err := core.CheckReason(reason); err != nil {
		return removed, err
	}
	err := core.By(ctx, u.store, a, core.ActionRemoveForgeHook, func(ctx context.Context, tx Tx) (err error) {
		if removed, err = tx.RemoveForgeHook(ctx, number, u.clock.Now()); err != nil {
			return err
		}
		if err := tx.MarkForgeRollouts(ctx); err != nil {
			return err
		}
		return core.Record(ctx, tx, a, core.Change{
			Action: core.ActionRemoveForgeHook, Subject: hookSubject(number), Reason: reason, Detail: "statuses that " + removed.Forge + " reports",
		}, removed.state(), nil)
	})
	u.hooksChanged(err)
	return removed, err
}

// hooksChanged has what is being rolled out looked at, and the registry service learn of the hooks that there are.
func (u *UseCases) hooksChanged(err error) {
	u.wake()
	if err == nil {
		u.secrets.Changed()
	}
}

// HooksAfter are the hooks of all organizations behind an id, for the service that receives deliveries to them.
func (u *UseCases) HooksAfter(ctx context.Context, id int64, most int) ([]PlacedHook, error) {
	return u.store.ForgeHooksAfter(ctx, id, most)
}

// Hooks are those of an organization.
func (u *UseCases) Hooks(ctx context.Context, organization int64) ([]Hook, error) {
	return u.store.ForgeHooks(ctx, organization)
}

func hookSubject(id int64) core.AccessSubject {
	return core.AccessSubject{Kind: core.ChangedForgeMirror, Name: "hook/" + strconv.FormatInt(id, 10)}
}

func (h Hook) state() map[string]any {
	return map[string]any{"forge": h.Forge, "repositories": h.Repositories, "checkKeys": h.CheckKeys, "plans": h.Plans, "commands": h.Commands}
}

// Reports are what hooks that there still are have received of commits, the newest first.
func (u *UseCases) Reports(ctx context.Context, organization int64, f ReportFilter) ([]Known, error) {
	if f.Most < 1 || f.Most > MaxStatuses {
		return nil, invalid("/first", "found %d; expected 1 to %d", f.Most, MaxStatuses)
	}
	if f.Commit != "" && !commitForm.MatchString(f.Commit) {
		return nil, invalid("/commit", "found %.100q; expected the 40 or 64 hexadecimal digits of a commit, in lower case", f.Commit)
	}
	return u.store.ForgeReportsOf(ctx, organization, f)
}

// Refusals is what was left out of the deliveries to the hooks of an organization, the latest first, for those who may configure it.
func (u *UseCases) Refusals(ctx context.Context, a core.Actor) ([]Refusal, error) {
	if err := a.May(core.ActionAddForgeHook); err != nil {
		return nil, err
	}
	hooks, err := u.store.ForgeHooks(ctx, a.Organization)
	if err != nil || len(hooks) == 0 {
		return nil, err
	}
	keys := make([]string, len(hooks))
	for i, h := range hooks {
		keys[i] = h.Key
	}
	found, err := u.secrets.ForgeRefusals(ctx, a.Organization, keys)
	var all []Refusal
	for _, h := range hooks {
		for _, r := range found[h.Key] {
			r.HookID = h.ID
			all = append(all, r)
		}
	}
	slices.SortStableFunc(all, func(a, b Refusal) int { return b.LastAt.Compare(a.LastAt) })
	return all, err
}
