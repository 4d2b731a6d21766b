package setup

import (
	"context"
	"encoding/json"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
)

// SourceStatus reads the state of artifact sources from the registry service, which owns it.
// Unavailable is an error of all its methods.
type SourceStatus interface {
	// States are how sources of an organization are doing, by id; those that are not known yet are missing.
	States(ctx context.Context, organization int64, ids []int64) (map[int64]SourceState, error)
	// Senders are the hooks and tokens through which artifacts are reported for an organization.
	Senders(ctx context.Context, organization int64) ([]ArtifactSender, error)
	// Look looks at a source now. NotFound is one that is not known yet.
	Look(ctx context.Context, organization, id int64) (SourceSight, error)
	// Try looks at what may become a source.
	Try(ctx context.Context, organization int64, n NewArtifactSource) (SourceSight, error)
	// Changed means that there are other sources than before. It may get lost: they are pulled every so often.
	Changed()
}

// SourceState is how an artifact source is doing.
type SourceState struct {
	ID int64
	// Polled reports whether it is looked at by itself.
	Polled bool
	// LookedAt and NextLookAt are when it was looked at last, and when it will be.
	LookedAt, NextLookAt *time.Time
	// Failures counts the looks in a row that failed, and LastError is why the last one did; "" when it went well.
	Failures  int
	LastError string
	// LastArtifact is what was found last, as image:tag@digest, and LastArtifactAt since when.
	LastArtifact   string
	LastArtifactAt *time.Time
}

// ArtifactSender is a hook or a token of the registry service, through which artifacts are reported.
type ArtifactSender struct {
	// Name is its name in the registry service's configuration; empty for tokens without a name.
	Name string
	// Format is the hook's, such as harbor, or "token".
	Format string
	// Repositories are patterns of what it may report; none: everything.
	Repositories []string
	// ExpiresAt is when a token ends.
	ExpiresAt *time.Time
	// LastArtifact is what was published last, as image:tag@digest, and LastPublishedAt when.
	LastArtifact    string
	LastPublishedAt *time.Time
	// Waiting is how many notifications the registry has not confirmed yet.
	Waiting int
	// Refused is what was left out of its deliveries last, the latest first.
	Refused []ArtifactRefusal
}

// ArtifactRefusal is a part of a delivery that was left out, and why.
type ArtifactRefusal struct {
	// What is the artifact, or the field of the delivery where it is not known.
	What   string
	Reason string
	// Times is how often the same was left out, FirstAt and LastAt when.
	Times   int64
	FirstAt time.Time
	LastAt  time.Time
}

// SourceSight is what a look at a source found.
type SourceSight struct {
	// Artifact is the newest one, as image:tag@digest; "" if there is none that counts.
	Artifact string
	// Problem is why the look failed; "" if it did not.
	Problem string
}

// PlacedSource is an artifact source, and whose.
type PlacedSource struct {
	core.ArtifactSource
	OrganizationID int64
}

// AddArtifactSource gives a service another source. Version sets are made again once it has its first version (E61).
func (u *UseCases) AddArtifactSource(ctx context.Context, a core.Actor, service int64, n NewArtifactSource) (core.ArtifactSource, error) {
	key, found := u.sources.Key(n.Ref, n.Config)
	if len(found) > 0 {
		return core.ArtifactSource{}, fault.InvalidFields(found...)
	}
	var made core.ArtifactSource
	err := core.Within(ctx, u.store, a, core.ActionCreateArtifactSource, func(ctx context.Context, tx Tx) error {
		// Behind the application's lock: no version set is being put together of the sources that there were before.
		app, siblings, err := lockSources(ctx, tx, a, core.ActionCreateArtifactSource, service)
		if err != nil {
			return err
		}
		if err := u.isAnother(siblings, key); err != nil {
			return err
		}
		made, err = tx.AddArtifactSource(ctx, core.ArtifactSource{ServiceID: service, Ref: n.Ref, Config: n.Config}, key)
		if err != nil {
			return err
		}
		if err := recordSource(ctx, tx, a, core.Change{Action: core.ActionCreateArtifactSource}, made, nil); err != nil {
			return err
		}
		return u.follow(ctx, tx, a, app, "", key)
	})
	if err == nil {
		u.status.Changed()
	}
	return made, err
}

// isAnother is nil when none of a service's sources has a key.
func (u *UseCases) isAnother(siblings []core.ArtifactSource, key string) error {
	for _, s := range siblings {
		if known, _ := u.sources.Key(s.Ref, s.Config); known == key {
			return fault.InvalidFields(
				fault.Field{
					Name:    "/sourceConfig",
					Problem: "found the same artifacts as another source of the service; expected one source for them, however many slots it fills",
				},
			)
		}
	}
	return nil
}

// SetArtifactSourceConfig changes how a source selects, is polled and so on. What it points at stays: its versions came
// from there. A source for something else is another source.
func (u *UseCases) SetArtifactSourceConfig(
	ctx context.Context, a core.Actor, id int64, config json.RawMessage,
) (core.ArtifactSource, error) {
	var changed core.ArtifactSource
	err := core.Within(ctx, u.store, a, core.ActionSetArtifactSourceConfig, func(ctx context.Context, tx Tx) error {
		known, err := tx.ArtifactSourcesByID(ctx, a.Organization, []int64{id})
		if err != nil {
			return err
		}
		s, ok := known[id]
		if !ok {
			return fault.New(fault.NotFound, "artifact source %d does not exist", id)
		}
		key, found := u.sources.Key(s.Ref, config)
		if len(found) > 0 {
			return fault.InvalidFields(found...)
		}
		if before, _ := u.sources.Key(s.Ref, s.Config); before != key {
			return fault.New(
				fault.Refused, "a source stays with the artifacts that it points at; make another source for others, or replace it",
			)
		}
		if _, _, err := lockSources(ctx, tx, a, core.ActionSetArtifactSourceConfig, s.ServiceID); err != nil {
			return err
		}
		if changed, err = tx.SaveArtifactSource(ctx, id, config); err != nil {
			return err
		}
		if err := refuseRemoved(changed); err != nil {
			return err
		}
		if err := recordSource(ctx, tx, a, core.Change{Action: core.ActionSetArtifactSourceConfig}, changed, s); err != nil {
			return err
		}
		// Another selection may have another newest version: RankDue works it out.
		return tx.ForgetRanks(ctx, id)
	})
	if err == nil {
		u.status.Changed()
	}
	return changed, err
}

// recordSource writes to the journal of changes that a source was made or changed; before is the source as it was, or nil.
func recordSource(ctx context.Context, tx Tx, a core.Actor, c core.Change, now core.ArtifactSource, before any) error {
	services, err := tx.ServicesByID(ctx, a.Organization, []int64{now.ServiceID})
	if err != nil {
		return err
	}
	state := func(s core.ArtifactSource) map[string]any {
		all := map[string]any{"service": services[now.ServiceID].Name, "kind": s.Ref, "config": s.Config}
		switch {
		case s.RemovedAt != nil:
			all["state"] = "removed"
		case s.DisabledAt != nil:
			all["state"] = "disabled"
		}
		if s.ReplacedBy != 0 {
			all["replaced_by"] = s.ReplacedBy
		}
		return all
	}
	if was, ok := before.(core.ArtifactSource); ok {
		before = state(was)
	}
	c.Subject = core.AccessSubject{Kind: core.ChangedArtifactSource, ID: now.ID, Name: services[now.ServiceID].Name}
	c.ApplicationID = services[now.ServiceID].ApplicationID
	return core.Record(ctx, tx, a, c, before, state(now))
}

// lockSources locks the application of a service, and answers it and the sources of the service to an actor who may configure the
// application wherever it goes.
func lockSources(
	ctx context.Context, tx Tx, a core.Actor, action core.Action, service int64,
) (of core.Application, _ []core.ArtifactSource, err error) {
	services, err := tx.ServicesByID(ctx, a.Organization, []int64{service})
	if err != nil {
		return of, nil, err
	}
	s, ok := services[service]
	if !ok {
		return of, nil, fault.New(fault.NotFound, "service %d does not exist", service)
	}
	if of, err = tx.LockApplication(ctx, s.ApplicationID); err != nil {
		return of, nil, err
	}
	if err := mayConfigure(ctx, tx, a, action, s.ApplicationID); err != nil {
		return of, nil, err
	}
	sources, err := tx.ArtifactSourcesByService(ctx, a.Organization, []int64{service})
	return of, sources[service], err
}

// LookAtArtifactSource asks for a look now, in place of the next one that is due. What it finds becomes a version like
// anything else that is announced.
func (u *UseCases) LookAtArtifactSource(ctx context.Context, a core.Actor, id int64) (SourceSight, error) {
	if err := a.MaySomewhere(core.ActionLookAtArtifactSource); err != nil {
		return SourceSight{}, err
	}
	err := u.store.In(ctx, a.Organization, func(ctx context.Context, tx Tx) error { return mayLook(ctx, tx, a, id) })
	if err != nil {
		return SourceSight{}, err
	}
	sight, err := u.status.Look(ctx, a.Organization, id)
	if fault.Is(err, fault.NotFound) { // it is ours; the hint may have been lost
		u.status.Changed()
		return sight, fault.Because(
			err, fault.Unavailable, "the registry service does not know artifact source %d yet; try again in a moment", id,
		)
	}
	return sight, err
}

// mayLook is nil when an actor may deploy what a source has somewhere: what is found becomes a version of its application.
func mayLook(ctx context.Context, tx Tx, a core.Actor, id int64) error {
	known, err := tx.ArtifactSourcesByID(ctx, a.Organization, []int64{id})
	if err != nil {
		return err
	}
	s, ok := known[id]
	if !ok {
		return fault.New(fault.NotFound, "artifact source %d does not exist", id)
	}
	services, err := tx.ServicesByID(ctx, a.Organization, []int64{s.ServiceID})
	if err != nil {
		return err
	}
	if err := refuseIdle(s, services[s.ServiceID]); err != nil {
		return err
	}
	targets, err := core.ApplicationTargets(ctx, tx, a.Organization, services[s.ServiceID].ApplicationID)
	if err != nil {
		return err
	}
	for _, t := range targets {
		if err = a.MayIn(core.ActionLookAtArtifactSource, t); err == nil {
			return nil
		}
	}
	return err
}

// TryArtifactSource looks at what may become a source, and keeps nothing. It concerns no application yet: who may configure one could make
// the source there, and have it looked at.
func (u *UseCases) TryArtifactSource(ctx context.Context, a core.Actor, n NewArtifactSource) (SourceSight, error) {
	if _, found := u.sources.Key(n.Ref, n.Config); len(found) > 0 {
		return SourceSight{}, fault.InvalidFields(found...)
	}
	if err := a.MaySomewhere(core.ActionTryArtifactSource); err != nil {
		return SourceSight{}, err
	}
	return u.status.Try(ctx, a.Organization, n)
}

// SourceStates is how sources are doing. While the registry service does not answer, nothing is known of any: lists are
// shown without.
func (u *UseCases) SourceStates(ctx context.Context, organization int64, ids []int64) (map[int64]SourceState, error) {
	states, err := u.status.States(ctx, organization, ids)
	if fault.Is(err, fault.Unavailable) {
		return map[int64]SourceState{}, nil
	}
	return states, err
}

// ArtifactSenders are the hooks and tokens through which artifacts are reported for the organization, for those who may configure sources.
func (u *UseCases) ArtifactSenders(ctx context.Context, a core.Actor) ([]ArtifactSender, error) {
	if err := a.MaySomewhere(core.ActionTryArtifactSource); err != nil {
		return nil, err
	}
	return u.status.Senders(ctx, a.Organization)
}

// SourcesAfter are the sources of all organizations behind an id, for the workers that poll them.
func (u *UseCases) SourcesAfter(ctx context.Context, id int64, most int) ([]PlacedSource, error) {
	return u.store.SourcesAfter(ctx, id, most)
}
