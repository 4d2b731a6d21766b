package access

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/fleet"
)

// Keys makes keys for agents.
type Keys interface {
	// New is a pair that nobody has: what is kept, and what only the agent will have.
	New() (public, seed string, err error)
}

// AdmitAgent is whose public key it is; NotFound when it is nobody's, or no longer valid.
func (u *UseCases) AdmitAgent(ctx context.Context, public string) (core.AgentLogin, error) {
	return u.store.AgentOfKey(ctx, public, u.clock.Now())
}

// GoodAgentKeys are those of the keys that are good, of all organizations. They are in use, which is noted.
func (u *UseCases) GoodAgentKeys(ctx context.Context, keys []int64) (map[int64]bool, error) {
	now := u.clock.Now()
	owners, err := u.store.GoodAgentKeys(ctx, keys, now)
	if err != nil {
		return nil, err
	}
	good, byOrganization := make(map[int64]bool, len(owners)), map[int64][]int64{}
	for key, organization := range owners {
		good[key] = true
		byOrganization[organization] = append(byOrganization[organization], key)
	}
	for organization, own := range byOrganization {
		err := u.store.In(ctx, organization, func(ctx context.Context, tx Tx) error { return tx.SeeAgentKeys(ctx, own, now) })
		if err != nil {
			return nil, err
		}
	}
	return good, nil
}

// abandon says of the environments of an agent that they can no longer be deployed to.
func abandon(ctx context.Context, tx Tx, organization int64, a core.Agent) error {
	all, err := tx.EnvironmentsByAgent(ctx, organization, []int64{a.ID})
	if err != nil {
		return err
	}
	for _, one := range all[a.ID] {
		e, err := tx.LockEnvironment(ctx, one.ID)
		if err != nil {
			return err
		}
		e.Readiness, e.ReadinessReason = core.ReadinessNot, fmt.Sprintf("its agent %q was revoked", a.Name)
		if err := tx.SaveEnvironment(ctx, e.Environment); err != nil {
			return err
		}
	}
	return nil
}

const (
	defaultOverlap = 24 * time.Hour
	maxOverlap     = 30 * 24 * time.Hour
)

// RegisterAgent makes an agent with its first key, whose seed is answered here and never again.
func (u *UseCases) RegisterAgent(ctx context.Context, a core.Actor, name string) (core.Agent, string, error) {
	if found := core.CheckName("/name", name); len(found) > 0 {
		return core.Agent{}, "", fault.InvalidFields(found...)
	}
	public, seed, err := u.keys.New()
	if err != nil {
		return core.Agent{}, "", err
	}
	var made core.Agent
	err = core.By(ctx, u.store, a, core.ActionRegisterAgent, func(ctx context.Context, tx Tx) error {
		var err error
		made, err = tx.AddAgent(ctx, name)
		if fault.Is(err, fault.Conflict) {
			return fault.Because(err, fault.Conflict, "an agent named %q exists already", name)
		}
		if err != nil {
			return err
		}
		if _, err := tx.AddAgentKey(ctx, made.ID, public); err != nil {
			return err
		}
		return note(ctx, tx, a, core.ActionRegisterAgent, core.AccessSubject{Kind: core.AccessAgent, ID: made.ID, Name: made.Name}, "key "+public,
			nil, state{"public_nkey": public})
	})
	u.agentsChanged()
	return made, seed, err
}

// SetAgentLabels sets and ends labels of an agent, which decide whether it is a target of fleets (D61); the others stay, so that two who
// change labels at once lose nothing. Rollouts in progress keep their targets. Repeating it is a no-op.
func (u *UseCases) SetAgentLabels(
	ctx context.Context, a core.Actor, agent int64, set map[string]string, unset ...string,
) (core.Agent, error) {
	found := fleet.CheckLabels("/set", set)
	for i, key := range unset {
		if _, both := set[key]; both {
			found = append(found, fault.Field{Name: fmt.Sprintf("/unset/%d", i), Problem: fmt.Sprintf("found %.80q, which is set, too", key)})
		}
	}
	if len(set)+len(unset) == 0 {
		found = append(found, fault.Field{Name: "/set", Problem: "found no label to set, and none to end; expected one or more"})
	}
	if len(found) > 0 {
		return core.Agent{}, fault.InvalidFields(found...)
	}
	var changed core.Agent
	err := core.By(ctx, u.store, a, core.ActionSetAgentLabels, func(ctx context.Context, tx Tx) error {
		before, err := tx.LockAgent(ctx, agent)
		if err != nil {
			return err
		}
		if err := before.Open(); err != nil {
			return err
		}
		labels := map[string]string{}
		maps.Copy(labels, before.Labels)
		maps.Copy(labels, set)
		maps.DeleteFunc(labels, func(key, _ string) bool { return slices.Contains(unset, key) })
		if changed = before; maps.Equal(before.Labels, labels) {
			return nil
		}
		if found := fleet.CheckLabels("/set", labels); len(found) > 0 { // as one label too many
			return fault.InvalidFields(found...)
		}
		if changed, err = tx.SetAgentLabels(ctx, agent, labels); err != nil {
			return err
		}
		if err := u.fleets.LabelsChanged(ctx, tx, a.Organization, before.Labels, labels); err != nil {
			return err
		}
		return note(ctx, tx, a, core.ActionSetAgentLabels, core.AccessSubject{Kind: core.AccessAgent, ID: changed.ID, Name: changed.Name}, "",
			state{"labels": before.Labels}, state{"labels": changed.Labels})
	})
	return changed, err
}

// Rotation replaces the key of an agent.
type Rotation struct {
	AgentID int64
	// Overlap is how long the key before stays good, for the relay to take up its new one; 0 for a day. A negative one ends
	// it at once.
	Overlap time.Duration
}

// RotateAgent gives an agent another key, whose seed is answered here and never again. The one before is good for as long as
// the overlap says, so that nothing stands still meanwhile. While two are good there is no third.
func (u *UseCases) RotateAgent(ctx context.Context, a core.Actor, r Rotation) (core.Agent, string, error) {
	if r.Overlap == 0 {
		r.Overlap = defaultOverlap
	}
	if r.Overlap > maxOverlap {
		return core.Agent{}, "", fault.InvalidFields(
			fault.Field{Name: "/overlapSeconds", Problem: fmt.Sprintf("found %.0f; expected 0 to %.0f", r.Overlap.Seconds(), maxOverlap.Seconds())},
		)
	}
	public, seed, err := u.keys.New()
	if err != nil {
		return core.Agent{}, "", err
	}
	now := u.clock.Now()
	var rotated core.Agent
	err = core.By(ctx, u.store, a, core.ActionRotateAgent, func(ctx context.Context, tx Tx) error {
		var err error
		if rotated, err = tx.LockAgent(ctx, r.AgentID); err != nil {
			return err
		}
		if err := rotated.Open(); err != nil {
			return err
		}
		keys, err := tx.AgentKeysByAgent(ctx, a.Organization, []int64{rotated.ID})
		if err != nil {
			return err
		}
		good := slices.DeleteFunc(keys[rotated.ID], func(k core.AgentKey) bool { return !k.GoodAt(now) })
		if len(good) > 1 {
			return fault.New(
				fault.Refused, "agent %q has two keys that are good, one of them until %s; revoke that one first", rotated.Name,
				good[1].ExpiresAt.UTC().Format(time.RFC3339),
			)
		}
		until := now.Add(max(r.Overlap, 0))
		if err := tx.ExpireAgentKeys(ctx, rotated.ID, until); err != nil {
			return err
		}
		if _, err := tx.AddAgentKey(ctx, rotated.ID, public); err != nil {
			return err
		}
		return note(ctx, tx, a, core.ActionRotateAgent, core.AccessSubject{Kind: core.AccessAgent, ID: rotated.ID, Name: rotated.Name},
			fmt.Sprintf("key %s; the one before is good until %s", public, until.UTC().Format(time.RFC3339)),
			publicKeys(good), state{"public_nkey": public, "overlap_until": until.UTC()})
	})
	u.agentsChanged()
	return rotated, seed, err
}

// RevokeAgent revokes an agent permanently: its connections are closed, it cannot connect again, and no environment may name it.
// Repeating it is a no-op.
func (u *UseCases) RevokeAgent(ctx context.Context, a core.Actor, agent int64) (core.Agent, error) {
	now := u.clock.Now()
	var revoked core.Agent
	err := core.By(ctx, u.store, a, core.ActionRevokeAgent, func(ctx context.Context, tx Tx) error {
		var err error
		if revoked, err = tx.LockAgent(ctx, agent); err != nil || revoked.RevokedAt != nil {
			return err
		}
		revoked.RevokedAt = &now
		if err := tx.RevokeAgent(ctx, agent, now); err != nil {
			return err
		}
		if err := abandon(ctx, tx, a.Organization, revoked); err != nil {
			return err
		}
		if err := u.fleets.LabelsChanged(ctx, tx, a.Organization, revoked.Labels, nil); err != nil {
			return err
		}
		return note(ctx, tx, a, core.ActionRevokeAgent, core.AccessSubject{Kind: core.AccessAgent, ID: revoked.ID, Name: revoked.Name}, "",
			state{"name": revoked.Name}, nil)
	})
	u.agentsChanged()
	return revoked, err
}

// RevokeAgentKey revokes one key of an agent at once: the one that a rotation has replaced, or one that was stolen. Repeating it is a
// no-op.
func (u *UseCases) RevokeAgentKey(ctx context.Context, a core.Actor, key int64) (core.Agent, error) {
	var of core.Agent
	err := core.By(ctx, u.store, a, core.ActionRevokeAgentKey, func(ctx context.Context, tx Tx) error {
		known, err := tx.AgentKeysByID(ctx, a.Organization, []int64{key})
		if err != nil {
			return err
		}
		k, ok := known[key]
		if !ok {
			return fault.New(fault.NotFound, "key %d does not exist", key)
		}
		if of, err = tx.LockAgent(ctx, k.AgentID); err != nil || k.RevokedAt != nil {
			return err
		}
		if err := tx.RevokeAgentKey(ctx, key, u.clock.Now()); err != nil {
			return err
		}
		return note(
			ctx, tx, a, core.ActionRevokeAgentKey, core.AccessSubject{Kind: core.AccessAgentKey, ID: key, Name: of.Name}, "key "+k.PublicKey,
			publicKeys([]core.AgentKey{k}), nil,
		)
	})
	u.agentsChanged()
	return of, err
}

// publicKeys is what the journal keeps of keys: their public halves.
func publicKeys(keys []core.AgentKey) state {
	all := make([]string, len(keys))
	for i, k := range keys {
		all[i] = k.PublicKey
	}
	return state{"public_nkeys": all}
}
