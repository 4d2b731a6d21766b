package setup

import (
	"context"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
)

// DisableArtifactSource keeps a source from taking versions: it is not polled, and what is published for it is ignored. Version sets keep
// its last version; one that never had a version is left out of them (D57). Repeating it is a no-op.
func (u *UseCases) DisableArtifactSource(ctx context.Context, a core.Actor, id int64, reason string) (core.ArtifactSource, error) {
	return u.changeSource(ctx, a, core.ActionDisableArtifactSource, id, reason,
		func(_ Tx, _ core.Application, s core.ArtifactSource, _ []core.ArtifactSource) (core.ArtifactSource, error) {
			if s.DisabledAt == nil {
				now := u.clock.Now().Truncate(time.Microsecond)
				s.DisabledAt = &now
			}
			return s, nil
		})
}

// EnableArtifactSource has a disabled source take versions again. The newest that was published meanwhile is found by its next poll, which
// publishes it also where the registry service has reported it before. Repeating it is a no-op.
func (u *UseCases) EnableArtifactSource(ctx context.Context, a core.Actor, id int64, reason string) (core.ArtifactSource, error) {
	return u.changeSource(ctx, a, core.ActionEnableArtifactSource, id, reason,
		func(_ Tx, _ core.Application, s core.ArtifactSource, _ []core.ArtifactSource) (core.ArtifactSource, error) {
			s.DisabledAt = nil
			return s, nil
		})
}

// RemoveArtifactSource takes a source out of new version sets, permanently. Its versions stay, and so do the sets that have them. A service
// keeps at least one source. Repeating it is a no-op.
func (u *UseCases) RemoveArtifactSource(ctx context.Context, a core.Actor, id int64, reason string) (core.ArtifactSource, error) {
	return u.changeSource(ctx, a, core.ActionRemoveArtifactSource, id, reason,
		func(_ Tx, _ core.Application, s core.ArtifactSource, siblings []core.ArtifactSource) (core.ArtifactSource, error) {
			if s.RemovedAt != nil {
				return s, nil
			}
			if len(siblings) < 2 {
				return s, fault.New(fault.Refused, "it is the only source of its service; replace it, or retire the service")
			}
			now := u.clock.Now().Truncate(time.Microsecond)
			s.RemovedAt = &now
			return s, nil
		})
}

// ReplaceArtifactSource makes another source in the place of one, which is removed: another repository, or another kind. Until the new one
// has a version, version sets keep the last version of the old one.
func (u *UseCases) ReplaceArtifactSource(
	ctx context.Context, a core.Actor, id int64, n NewArtifactSource, reason string,
) (core.ArtifactSource, error) {
	key, found := u.sources.Key(n.Ref, n.Config)
	if len(found) > 0 {
		return core.ArtifactSource{}, fault.InvalidFields(found...)
	}
	var made core.ArtifactSource
	_, err := u.changeSource(ctx, a, core.ActionReplaceArtifactSource, id, reason,
		func(tx Tx, of core.Application, s core.ArtifactSource, siblings []core.ArtifactSource) (core.ArtifactSource, error) {
			if err := refuseRemoved(s); err != nil {
				return s, err
			}
			if err := u.isAnother(siblings, key); err != nil {
				return s, err
			}
			var err error
			if made, err = tx.AddArtifactSource(ctx, core.ArtifactSource{ServiceID: s.ServiceID, Ref: n.Ref, Config: n.Config}, key); err != nil {
				return s, err
			}
			if err := recordSource(ctx, tx, a, core.Change{Action: core.ActionReplaceArtifactSource, Reason: reason}, made, nil); err != nil {
				return s, err
			}
			if err := u.follow(ctx, tx, a, of, reason, key); err != nil {
				return s, err
			}
			now := u.clock.Now().Truncate(time.Microsecond)
			s.RemovedAt, s.ReplacedBy = &now, made.ID
			return s, nil
		})
	return made, err
}

// changeSource changes the state of a source to what next makes of it, behind the lock of its application: no version set is being put
// together meanwhile. Next has the sources of the service that were not removed. A change to the state that it has is a no-op.
func (u *UseCases) changeSource(
	ctx context.Context, a core.Actor, action core.Action, id int64, reason string,
	next func(tx Tx, of core.Application, s core.ArtifactSource, siblings []core.ArtifactSource) (core.ArtifactSource, error),
) (core.ArtifactSource, error) {
	if err := core.CheckReason(reason); err != nil {
		return core.ArtifactSource{}, err
	}
	var changed core.ArtifactSource
	err := core.Within(ctx, u.store, a, action, func(ctx context.Context, tx Tx) error {
		s, err := sourceOf(ctx, tx, a.Organization, id)
		if err != nil {
			return err
		}
		app, siblings, err := lockSources(ctx, tx, a, action, s.ServiceID)
		if err != nil {
			return err
		}
		if s, err = sourceOf(ctx, tx, a.Organization, id); err != nil { // as it is behind the lock
			return err
		}
		if action != core.ActionRemoveArtifactSource {
			if err := refuseRemoved(s); err != nil {
				return err
			}
		}
		if changed, err = next(tx, app, s, siblings); err != nil || sameState(changed, s) {
			return err
		}
		if changed, err = tx.SaveSourceState(ctx, changed); err != nil {
			return err
		}
		services, err := tx.ServicesByID(ctx, a.Organization, []int64{s.ServiceID})
		if err != nil {
			return err
		}
		if err := tx.ReconsiderVersionSet(ctx, services[s.ServiceID].ApplicationID); err != nil {
			return err
		}
		return recordSource(ctx, tx, a, core.Change{Action: action, Reason: reason}, changed, s)
	})
	if err == nil {
		u.status.Changed()
	}
	return changed, err
}

func sameState(a, b core.ArtifactSource) bool {
	return (a.DisabledAt == nil) == (b.DisabledAt == nil) && (a.RemovedAt == nil) == (b.RemovedAt == nil) && a.ReplacedBy == b.ReplacedBy
}

func sourceOf(ctx context.Context, tx Tx, organization, id int64) (core.ArtifactSource, error) {
	known, err := tx.ArtifactSourcesByID(ctx, organization, []int64{id})
	if err != nil {
		return core.ArtifactSource{}, err
	}
	s, ok := known[id]
	if !ok {
		return s, fault.New(fault.NotFound, "artifact source %d does not exist", id)
	}
	return s, nil
}

// refuseRemoved is nil for a source that was not removed.
func refuseRemoved(s core.ArtifactSource) error {
	if s.RemovedAt != nil {
		return fault.New(fault.Refused, "the source was removed on %s; add it again", s.RemovedAt.Format(time.DateOnly))
	}
	return nil
}

// refuseIdle is nil for a source that takes versions.
func refuseIdle(s core.ArtifactSource, of core.Service) error {
	if err := refuseRemoved(s); err != nil {
		return err
	}
	if s.DisabledAt != nil {
		return fault.New(fault.Refused, "the source is disabled since %s; enable it first", s.DisabledAt.Format(time.DateOnly))
	}
	if of.RetiredAt != nil {
		return fault.New(fault.Refused, "service %q is retired since %s; restore it first", of.Name, of.RetiredAt.Format(time.DateOnly))
	}
	return nil
}
