// Package feed holds what can be read without signing in (D64): a feed of changes in production, a calendar of freezes, and badges of
// applications.
//
// Nothing is shown before a member makes a feed or switches badges on. A feed is read by its address, which has a token of 256
// random bits; a digest of it is kept. A badge has no token: it shows the name and the state of an application that has been opted in.
// Documents say no more than that, are the same for all readers, and are kept in memory for a short time, so that polling costs little.
package feed

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
)

const (
	// FeedPath is where feeds are served: an organization, a token and the name of a file follow.
	FeedPath = "/feeds/"
	// BadgePath is where badges are served: an organization, an application and an environment follow.
	BadgePath = "/badges/"
	// maxFeeds is how many an organization has at once.
	maxFeeds = 20
	// fresh is how long a document is kept in memory.
	fresh = 30 * time.Second
	// maxKept bounds how many documents are kept in memory.
	maxKept = 2000
	// maxName is how long the names of applications and environments are at most, in bytes.
	maxName = 255
	// perMinute is how often one feed or badge is served within a minute by a process.
	perMinute = 120
	// maxToken bounds what is taken for a token, in bytes.
	maxToken = 100
	// shown is how many entries a document has.
	shown = 50
	// past is how long a calendar keeps freezes that are over.
	past = 90 * 24 * time.Hour
)

// Kind is a kind of feed.
type Kind string

// The kinds.
const (
	// KindChanges is an Atom feed of what was begun in environments of production, and what came of it.
	KindChanges Kind = "production_changes"
	// KindFreezes is an iCalendar of freezes.
	KindFreezes Kind = "freezes"
	// KindWindows is an iCalendar of when the schedules of pipelines and environments let something pass.
	KindWindows Kind = "windows"
)

// AllKinds lists all kinds.
func AllKinds() []Kind { return []Kind{KindChanges, KindFreezes, KindWindows} }

// file is the last part of the address of a feed.
func (k Kind) file() string {
	switch k {
	case KindFreezes:
		return "freezes.ics"
	case KindWindows:
		return "windows.ics"
	case KindChanges:
		return "production-changes.atom"
	default:
		return string(k)
	}
}

// KindOf is the kind that is served under a name; false for none.
func KindOf(file string) (Kind, bool) {
	i := slices.IndexFunc(AllKinds(), func(k Kind) bool { return k.file() == file })
	if i < 0 {
		return "", false
	}
	return AllKinds()[i], true
}

// Feed is one that can be read by its token.
type Feed struct {
	ID int64
	// Name is unique among those that were not revoked.
	Name      string
	Kind      Kind
	Author    core.Author
	CreatedAt time.Time
	// LastReadAt is when it was read of late, to the day; nil for never.
	LastReadAt *time.Time
}

// Badge is whether the state of an application is shown.
type Badge struct {
	ApplicationID int64
	Application   string
	Enabled       bool
	Author        core.Author
	ChangedAt     time.Time
}

// Change is something that was begun in an environment of production.
type Change struct {
	RolloutID, EnvironmentID, RollbackOf int64
	Application, Environment, VersionSet string
	State                                core.RolloutState
	StartedAt, UpdatedAt                 time.Time
}

// Freeze is what a calendar says of a freeze.
type Freeze struct {
	ID                          int64
	StartsAt, EndsAt, UpdatedAt time.Time
	// EndedAt is when it was ended before its time; nil if it was not.
	EndedAt *time.Time
	// Scope is what it stops; empty for everything.
	Scope []string
}

// Store keeps what this package needs. Its errors have the classes of pkg/fault.
type Store interface{ core.Transactions[Tx] }

// Tx is what a use case may do in its transaction.
type Tx interface {
	core.ChangeTx
	core.TargetReads
	ApplicationByName(ctx context.Context, organization int64, name string) (core.Application, error)
	// Feeds are those that were not revoked, by name.
	Feeds(ctx context.Context) ([]Feed, error)
	// LockFeeds keeps others from changing feeds and badges until the transaction ends.
	LockFeeds(ctx context.Context) error
	AddFeed(ctx context.Context, f Feed, digest []byte) (Feed, error)
	RevokeFeed(ctx context.Context, id int64, at time.Time) error
	// FeedByDigest is the one with a token of this digest that was not revoked; NotFound for none.
	FeedByDigest(ctx context.Context, kind Kind, digest []byte) (Feed, error)
	FeedRead(ctx context.Context, id int64, at time.Time) error
	ProductionChanges(ctx context.Context, most int) ([]Change, error)
	// ScheduledPipelines are the newest pipelines, of applications that are not archived, that may have schedules, by the names of their
	// applications, and ScheduledEnvironments the environments that may have schedules of their own.
	ScheduledPipelines(ctx context.Context, most int) ([]Pipeline, error)
	ScheduledEnvironments(ctx context.Context, most int) ([]OwnChecks, error)
	FeedFreezes(ctx context.Context, since, now time.Time, most int) ([]Freeze, error)
	// Badges are by application.
	Badges(ctx context.Context) ([]Badge, error)
	SaveBadge(ctx context.Context, b Badge) error
	// BadgeState is the latest state of an application that shows badges, and whether anything is live; NotFound for any other.
	BadgeState(ctx context.Context, application, environment string) (state core.RolloutState, live bool, err error)
}

// UseCases makes feeds, and serves them. It is safe for concurrent use.
//
// Errors have the classes of pkg/fault: Invalid with the fields at fault, NotFound, Refused, Denied, Limited.
type UseCases struct {
	store Store
	clock clock.Clock
	url   string
	flows Flows

	mu sync.Mutex
	// kept are documents, and served counts what was served within a minute.
	kept map[string]keptDocument
	// making are documents that are made now, each once: the channel is closed then.
	making map[string]chan struct{}
	served map[string]window
	counts counts
}

type keptDocument struct {
	Document
	at time.Time
}

type window struct {
	since time.Time
	count int
}

// counts counts what this process has served.
type counts struct{ served, unchanged, unknown, limited atomic.Int64 }

// New makes the use cases. URL is the address of the console, which documents link to; empty for no links.
func New(store Store, c clock.Clock, url string, flows Flows) *UseCases {
	return &UseCases{
		flows: flows, store: store, clock: c, url: strings.TrimSuffix(url, "/"), kept: map[string]keptDocument{}, served: map[string]window{},
		making: map[string]chan struct{}{},
	}
}

// Counts returns the number of requests that this process has answered, by outcome.
func (u *UseCases) Counts() map[string]int64 {
	return map[string]int64{
		"served": u.counts.served.Load(), "unchanged": u.counts.unchanged.Load(), "unknown": u.counts.unknown.Load(),
		"limited": u.counts.limited.Load(),
	}
}

// Unchanged counts a request for a document that its reader has already.
func (u *UseCases) Unchanged() { u.counts.unchanged.Add(1) }

var nameForm = regexp.MustCompile(`^[a-z0-9][a-z0-9-]{0,62}$`)

func invalid(field, format string, args ...any) error {
	return fault.InvalidFields(fault.Field{Name: field, Problem: fmt.Sprintf(format, args...)})
}

// digest is what is kept of a token. So many random bits need neither salt nor slowness.
func digest(token string) []byte {
	sum := sha256.Sum256([]byte(token))
	return sum[:]
}

// Feeds are those of an organization, by name.
func (u *UseCases) Feeds(ctx context.Context, organization int64) (all []Feed, err error) {
	err = u.store.In(ctx, organization, func(ctx context.Context, tx Tx) error {
		var err error
		all, err = tx.Feeds(ctx)
		return err
	})
	return all, err
}

// Create makes a feed, and answers the address that it is read at, this once.
func (u *UseCases) Create(ctx context.Context, a core.Actor, name string, kind Kind, reason string) (made Feed, address string, err error) {
	if err := core.CheckReason(reason); err != nil {
		return made, "", err
	}
	if !nameForm.MatchString(name) {
		return made, "", invalid("/name", "found %.100q; expected 1 to 63 lower-case letters, digits and hyphens", name)
	}
	token := rand.Text() + rand.Text()
	err = core.By(ctx, u.store, a, core.ActionCreateFeed, func(ctx context.Context, tx Tx) error {
		if err := tx.LockFeeds(ctx); err != nil {
			return err
		}
		all, err := tx.Feeds(ctx)
		if err != nil {
			return err
		}
		if slices.ContainsFunc(all, func(f Feed) bool { return f.Name == name }) {
			return fault.New(fault.Refused, "feed %q exists; its address is shown nowhere: revoke it first, or choose another name", name)
		}
		if len(all) >= maxFeeds {
			return fault.New(fault.Refused, "found %d feeds; expected at most %d: revoke some of them first", len(all), maxFeeds)
		}
		if made, err = tx.AddFeed(ctx, Feed{Name: name, Kind: kind, Author: core.AuthorOf(a)}, digest(token)); err != nil {
			return err
		}
		return core.Record(ctx, tx, a, made.change(core.ActionCreateFeed, reason), nil, made.state())
	})
	if err != nil {
		return made, "", err
	}
	return made, fmt.Sprintf("%s%sorganization_%d/%s/%s", u.url, FeedPath, a.Organization, token, kind.file()), nil
}

func (f Feed) change(action core.Action, reason string) core.Change {
	return core.Change{
		Action: action, Subject: core.AccessSubject{Kind: core.ChangedFeed, ID: f.ID, Name: f.Name}, Reason: reason, Detail: "feed " + f.Name,
	}
}

func (f Feed) state() map[string]any { return map[string]any{"name": f.Name, "kind": f.Kind} }

// Revoke ends a feed: its address answers nothing from then on.
func (u *UseCases) Revoke(ctx context.Context, a core.Actor, name, reason string) (Feed, error) {
	var ended Feed
	if err := core.CheckReason(reason); err != nil {
		return ended, err
	}
	err := core.By(ctx, u.store, a, core.ActionRevokeFeed, func(ctx context.Context, tx Tx) error {
		if err := tx.LockFeeds(ctx); err != nil {
			return err
		}
		all, err := tx.Feeds(ctx)
		if err != nil {
			return err
		}
		i := slices.IndexFunc(all, func(f Feed) bool { return f.Name == name })
		if i < 0 {
			return fault.New(fault.NotFound, "feed %.100q does not exist", name)
		}
		ended = all[i]
		if err := tx.RevokeFeed(ctx, ended.ID, u.clock.Now()); err != nil {
			return err
		}
		return core.Record(ctx, tx, a, ended.change(core.ActionRevokeFeed, reason), ended.state(), nil)
	})
	return ended, err
}

// Badges are the applications of an organization whose badges were ever switched on, by name.
func (u *UseCases) Badges(ctx context.Context, organization int64) (all []Badge, err error) {
	err = u.store.In(ctx, organization, func(ctx context.Context, tx Tx) error {
		var err error
		all, err = tx.Badges(ctx)
		return err
	})
	return all, err
}

// BadgeAddress is that of an application's badges, with {environment} for the name of an environment.
func (u *UseCases) BadgeAddress(organization int64, application string) string {
	return fmt.Sprintf("%s%sorganization_%d/%s/{environment}.svg", u.url, BadgePath, organization, url.PathEscape(application))
}

// SetBadges switches the badges of an application on or off. What is kept in memory of them is served for half a minute more.
func (u *UseCases) SetBadges(ctx context.Context, a core.Actor, application string, enabled bool, reason string) (Badge, error) {
	var saved Badge
	if err := core.CheckReason(reason); err != nil {
		return saved, err
	}
	err := core.Within(ctx, u.store, a, core.ActionSetBadges, func(ctx context.Context, tx Tx) error {
		of, err := tx.ApplicationByName(ctx, a.Organization, application)
		if err != nil {
			return err
		}
		targets, err := core.ApplicationTargets(ctx, tx, a.Organization, of.ID)
		if err != nil {
			return err
		}
		if err := a.MayIn(core.ActionSetBadges, targets...); err != nil {
			return err
		}
		if err := tx.LockFeeds(ctx); err != nil {
			return err
		}
		all, err := tx.Badges(ctx)
		if err != nil {
			return err
		}
		var before any
		if i := slices.IndexFunc(all, func(b Badge) bool { return b.ApplicationID == of.ID }); i >= 0 {
			before = map[string]any{"enabled": all[i].Enabled}
		}
		saved = Badge{ApplicationID: of.ID, Application: of.Name, Enabled: enabled, Author: core.AuthorOf(a), ChangedAt: u.clock.Now()}
		if err := tx.SaveBadge(ctx, saved); err != nil {
			return err
		}
		return core.Record(ctx, tx, a, core.Change{
			Action: core.ActionSetBadges, Subject: core.AccessSubject{Kind: core.ChangedBadges, ID: of.ID, Name: of.Name}, ApplicationID: of.ID,
			Reason: reason, Detail: "badges of " + of.Name,
		}, before, map[string]any{"enabled": enabled})
	})
	return saved, err
}

// Document is what is served.
type Document struct {
	Body []byte
	// ETag identifies the body, and Type is its media type.
	ETag, Type string
}

func document(body []byte, media string) Document {
	sum := sha256.Sum256(body)
	return Document{Body: body, ETag: `"` + hex.EncodeToString(sum[:16]) + `"`, Type: media}
}

// Read is the document of a feed, for a caller with its token. It is NotFound for a token that no feed of the kind has, or one that was
// revoked.
func (u *UseCases) Read(ctx context.Context, organization int64, kind Kind, token string) (d Document, err error) {
	defer func() { u.count(err) }()
	if token == "" || len(token) > maxToken {
		return d, fault.New(fault.NotFound, "no feed has this token")
	}
	var f Feed
	now := u.clock.Now()
	// The token is looked up each time: a feed that was revoked ends at once.
	err = u.store.In(ctx, organization, func(ctx context.Context, tx Tx) error {
		var err error
		if f, err = tx.FeedByDigest(ctx, kind, digest(token)); err != nil {
			return err
		}
		if f.LastReadAt != nil && now.Sub(*f.LastReadAt) < 24*time.Hour {
			return nil
		}
		return tx.FeedRead(ctx, f.ID, now)
	})
	if err != nil {
		return d, err
	}
	if err := u.limit(fmt.Sprintf("feed/%d/%d", organization, f.ID), now); err != nil {
		return d, err
	}
	return u.keep(ctx, fmt.Sprintf("feed/%d/%s", organization, kind), now, func() (d Document, err error) {
		if kind == KindWindows { // which takes longer than a transaction should
			return u.writeWindows(ctx, organization, now)
		}
		err = u.store.In(ctx, organization, func(ctx context.Context, tx Tx) error {
			d, err = u.write(ctx, tx, organization, kind, now)
			return err
		})
		return d, err
	})
}

// write writes the document of a kind.
func (u *UseCases) write(ctx context.Context, tx Tx, organization int64, kind Kind, now time.Time) (Document, error) {
	if kind == KindFreezes {
		all, err := tx.FeedFreezes(ctx, now.Add(-past), now, shown)
		if err != nil {
			return Document{}, err
		}
		return document(u.calendar(organization, all), "text/calendar; charset=utf-8"), nil
	}
	all, err := tx.ProductionChanges(ctx, shown)
	if err != nil {
		return Document{}, err
	}
	body, err := u.atom(organization, all)
	return document(body, "application/atom+xml; charset=utf-8"), err
}

// Badge is the picture of an application's state in an environment. It is NotFound for all that is not shown, whatever the reason.
func (u *UseCases) Badge(ctx context.Context, organization int64, application, environment string) (d Document, err error) {
	defer func() { u.count(err) }()
	for _, name := range []string{application, environment} {
		if len(name) > maxName || !utf8.ValidString(name) || strings.ContainsRune(name, 0) {
			return d, fault.New(fault.NotFound, "no such badge")
		}
	}
	now, place := u.clock.Now(), fmt.Sprintf("badge/%d/%q/%q", organization, application, environment)
	if err := u.limit(place, now); err != nil {
		return d, err
	}
	return u.keep(ctx, place, now, func() (Document, error) {
		var state core.RolloutState
		var live bool
		err := u.store.In(ctx, organization, func(ctx context.Context, tx Tx) error {
			var err error
			state, live, err = tx.BadgeState(ctx, application, environment)
			return err
		})
		if err != nil {
			return Document{}, err
		}
		return document(badge(application, environment, state, live), "image/svg+xml; charset=utf-8"), nil
	})
}

func (u *UseCases) count(err error) {
	switch {
	case err == nil:
		u.counts.served.Add(1)
	case fault.Is(err, fault.Limited):
		u.counts.limited.Add(1)
	case fault.Is(err, fault.NotFound):
		u.counts.unknown.Add(1)
	}
}

// limit refuses what is served too often.
func (u *UseCases) limit(key string, now time.Time) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	if len(u.served) >= maxKept {
		maps.DeleteFunc(u.served, func(_ string, w window) bool { return now.Sub(w.since) >= time.Minute })
	}
	if _, known := u.served[key]; !known && len(u.served) >= maxKept {
		return fault.New(fault.Limited, "found more than %d feeds and badges asked for within a minute; expected fewer", maxKept)
	}
	w := u.served[key]
	if age := now.Sub(w.since); age >= time.Minute || age < 0 {
		w = window{since: now}
	}
	w.count++
	u.served[key] = w
	if w.count > perMinute {
		return fault.New(fault.Limited, "found more than %d requests within a minute; expected fewer: what is served changes every half a minute", perMinute)
	}
	return nil
}

// keep answers a document that was made a short time ago, or makes it, or waits for the one that makes it.
func (u *UseCases) keep(ctx context.Context, key string, now time.Time, write func() (Document, error)) (Document, error) {
	for {
		u.mu.Lock()
		known, found := u.kept[key]
		if age := now.Sub(known.at); found && age > -fresh && age < fresh {
			u.mu.Unlock()
			return known.Document, nil
		}
		done, others := u.making[key]
		if !others {
			break
		}
		u.mu.Unlock()
		select {
		case <-done: // made, or to be made by another one
		case <-ctx.Done():
			return Document{}, ctx.Err()
		}
	}
	done := make(chan struct{})
	u.making[key] = done
	u.mu.Unlock()
	var made Document
	err := errNotMade
	defer func() {
		u.mu.Lock()
		defer u.mu.Unlock()
		delete(u.making, key)
		close(done)
		if err != nil {
			return
		}
		if len(u.kept) >= maxKept {
			clear(u.kept)
		}
		u.kept[key] = keptDocument{made, now}
	}()
	made, err = write()
	return made, err
}

// errNotMade is of a document whose making has not returned.
var errNotMade = errors.New("the document was not made")

// authority names this installation in identifiers: they have to differ between installations.
func (u *UseCases) authority() string {
	if at, err := url.Parse(u.url); err == nil && at.Hostname() != "" {
		return at.Hostname()
	}
	return "lockstep.invalid"
}
