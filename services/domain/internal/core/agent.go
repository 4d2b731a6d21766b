package core

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/fault"
)

// Agent is what acts in a cluster for one organization: the relay beside it. Environments of that organization name it by its
// number, and nobody else's can.
type Agent struct {
	// ID is what configurations and the bus name it by. No two organizations have an agent of the same number.
	ID        int64
	Name      string
	RevokedAt *time.Time
	CreatedAt time.Time
}

// Open is nil while an agent is good, and Refused once it has been revoked.
func (a Agent) Open() error {
	if a.RevokedAt == nil {
		return nil
	}
	return fault.New(fault.Refused, "agent %q was revoked at %s; register another one", a.Name, a.RevokedAt.UTC().Format(time.RFC3339))
}

// AgentKey is what an agent shows to say which it is: the public half of an NKey (Ed25519). The seed is kept nowhere.
type AgentKey struct {
	ID, AgentID int64
	// PublicKey begins with U.
	PublicKey string
	// ExpiresAt is set once another key replaces this one.
	ExpiresAt *time.Time
	RevokedAt *time.Time
	// SeenAt is when a connection with it was seen last, to the minute.
	SeenAt    *time.Time
	CreatedAt time.Time
}

// goodAt is whether a key opens connections at an instant.
func (k AgentKey) goodAt(at time.Time) bool {
	return k.RevokedAt == nil && (k.ExpiresAt == nil || k.ExpiresAt.After(at))
}

// connectedWithin is how long after it was seen last an agent counts as connected.
const connectedWithin = 2 * time.Minute

// ConnectedAt is whether one of an agent's keys has a connection at an instant, as far as is known.
func ConnectedAt(keys []AgentKey, at time.Time) bool {
	return slices.ContainsFunc(keys, func(k AgentKey) bool { return k.goodAt(at) && k.SeenAt != nil && at.Sub(*k.SeenAt) < connectedWithin })
}

// Keys makes keys for agents.
type Keys interface {
	// New is a pair that nobody has: what is kept, and what only the agent will have.
	New() (public, seed string, err error)
}

// AgentLogin is whose key somebody connects with.
type AgentLogin struct {
	Organization, AgentID, KeyID int64
}

// AdmitAgent is whose public key it is; NotFound when it is nobody's, or not good any more.
func (d *Domain) AdmitAgent(ctx context.Context, public string) (AgentLogin, error) {
	return d.store.AgentOfKey(ctx, public, d.clock.Now())
}

// GoodAgentKeys are those of the keys that are good, of all organizations. They are in use, which is noted.
func (d *Domain) GoodAgentKeys(ctx context.Context, keys []int64) (map[int64]bool, error) {
	now := d.clock.Now()
	owners, err := d.store.GoodAgentKeys(ctx, keys, now)
	if err != nil {
		return nil, err
	}
	good, byOrganization := make(map[int64]bool, len(owners)), map[int64][]int64{}
	for key, organization := range owners {
		good[key] = true
		byOrganization[organization] = append(byOrganization[organization], key)
	}
	for organization, own := range byOrganization {
		err := d.store.In(ctx, organization, func(ctx context.Context, tx Tx) error { return tx.SeeAgentKeys(ctx, own, now) })
		if err != nil {
			return nil, err
		}
	}
	return good, nil
}

// AgentOwner is whose an agent is. Its organization never changes, and one that was revoked stays so.
type AgentOwner struct {
	AgentID, Organization int64
	Revoked               bool
}

// declareAtOnce is how many agents the engine is told of in one call.
const declareAtOnce = 5000

// DeclareAgents tells the engine whose the agents of all organizations are, so that no run calls those of another one. It is all
// of them again each time: what was said before changes nothing there, and what was lost is told anew.
func (d *Domain) DeclareAgents(ctx context.Context, engine Engine) error {
	owners, err := d.store.AgentOwners(ctx)
	if err != nil {
		return err
	}
	for some := range slices.Chunk(owners, declareAtOnce) {
		ctx, cancel := context.WithTimeout(ctx, handoffCall)
		err := engine.DeclareAgents(ctx, some)
		cancel()
		if err != nil {
			return err
		}
	}
	return nil
}

// AgentReference is where a configuration names an agent.
type AgentReference struct {
	// At is a JSON pointer into the configuration.
	At     string
	Number int64
}

// nameAgents keeps which agents an environment deploys through. They are agents of its own organization that are good: those
// of another one do not exist here.
func (d *Domain) nameAgents(ctx context.Context, tx Tx, organization int64, e BoundEnvironment) error {
	named, err := d.drivers.Now().Agents(e.Binding.DriverRef, e.Binding.DriverConfig)
	if err != nil || len(named) == 0 {
		return err
	}
	numbers := make([]int64, len(named))
	for i, n := range named {
		numbers[i] = n.Number
	}
	known, err := tx.AgentsByID(ctx, organization, numbers)
	if err != nil {
		return err
	}
	var wrong []fault.Field
	for _, n := range named {
		switch a, ok := known[n.Number]; {
		case !ok:
			wrong = append(wrong, fault.Field{Name: "/driverConfig" + n.At, Problem: fmt.Sprintf("found %d; agent %d does not exist", n.Number, n.Number)})
		case a.RevokedAt != nil:
			wrong = append(wrong, fault.Field{Name: "/driverConfig" + n.At, Problem: fmt.Sprintf("found %d; %s", n.Number, fault.Public(a.Open()))})
		}
	}
	if len(wrong) > 0 {
		return fault.InvalidFields(wrong...)
	}
	return tx.NameAgents(ctx, e.ID, numbers)
}

// abandon says of the environments of an agent that they cannot be deployed to any more.
func abandon(ctx context.Context, tx Tx, organization int64, a Agent) error {
	all, err := tx.EnvironmentsByAgent(ctx, organization, []int64{a.ID})
	if err != nil {
		return err
	}
	for _, one := range all[a.ID] {
		e, err := tx.LockEnvironment(ctx, one.ID)
		if err != nil {
			return err
		}
		e.Readiness, e.ReadinessReason = ReadinessNot, fmt.Sprintf("its agent %q was revoked", a.Name)
		if err := tx.SaveEnvironment(ctx, e.Environment); err != nil {
			return err
		}
	}
	return nil
}

// AgentWrites changes agents. Get and lock methods answer NotFound for what the organization does not have.
type AgentWrites interface {
	// AddAgent is a Conflict when an agent that is not revoked has the name.
	AddAgent(ctx context.Context, name string) (Agent, error)
	LockAgent(ctx context.Context, id int64) (Agent, error)
	// AgentNumbers are the agents that are not revoked.
	AgentNumbers(ctx context.Context) ([]int64, error)
	// RevokeAgent and RevokeAgentKey are nothing for what has been revoked before.
	RevokeAgent(ctx context.Context, id int64, at time.Time) error
	// NameAgents keeps that an environment names agents; again is nothing.
	NameAgents(ctx context.Context, environment int64, agents []int64) error
	AddAgentKey(ctx context.Context, agent int64, public string) (AgentKey, error)
	// ExpireAgentKeys has the keys of an agent that are good until later end at an instant.
	ExpireAgentKeys(ctx context.Context, agent int64, at time.Time) error
	RevokeAgentKey(ctx context.Context, id int64, at time.Time) error
	// SeeAgentKeys notes that keys are in use, not more than once a minute.
	SeeAgentKeys(ctx context.Context, ids []int64, at time.Time) error
}

const (
	defaultOverlap = 24 * time.Hour
	maxOverlap     = 30 * 24 * time.Hour
)

// RegisterAgent makes an agent with its first key, whose seed is answered here and never again.
func (d *Domain) RegisterAgent(ctx context.Context, a Actor, name string) (Agent, string, error) {
	if found := checkName("/name", name); len(found) > 0 {
		return Agent{}, "", fault.InvalidFields(found...)
	}
	public, seed, err := d.keys.New()
	if err != nil {
		return Agent{}, "", err
	}
	var made Agent
	err = d.by(ctx, a, ActionRegisterAgent, func(ctx context.Context, tx Tx) error {
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
		return a.note(ctx, tx, ActionRegisterAgent, AccessSubject{AccessAgent, made.ID, made.Name}, "key "+public)
	})
	d.agentsChanged()
	return made, seed, err
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
func (d *Domain) RotateAgent(ctx context.Context, a Actor, r Rotation) (Agent, string, error) {
	if r.Overlap == 0 {
		r.Overlap = defaultOverlap
	}
	if r.Overlap > maxOverlap {
		return Agent{}, "", fault.InvalidFields(fault.Field{Name: "/overlapSeconds", Problem: fmt.Sprintf("found %.0f; expected 0 to %.0f", r.Overlap.Seconds(), maxOverlap.Seconds())})
	}
	public, seed, err := d.keys.New()
	if err != nil {
		return Agent{}, "", err
	}
	now := d.clock.Now()
	var rotated Agent
	err = d.by(ctx, a, ActionRotateAgent, func(ctx context.Context, tx Tx) error {
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
		good := slices.DeleteFunc(keys[rotated.ID], func(k AgentKey) bool { return !k.goodAt(now) })
		if len(good) > 1 {
			return fault.New(fault.Refused, "agent %q has two keys that are good, one of them until %s; revoke that one first", rotated.Name, good[1].ExpiresAt.UTC().Format(time.RFC3339))
		}
		until := now.Add(max(r.Overlap, 0))
		if err := tx.ExpireAgentKeys(ctx, rotated.ID, until); err != nil {
			return err
		}
		if _, err := tx.AddAgentKey(ctx, rotated.ID, public); err != nil {
			return err
		}
		return a.note(ctx, tx, ActionRotateAgent, AccessSubject{AccessAgent, rotated.ID, rotated.Name},
			fmt.Sprintf("key %s; the one before is good until %s", public, until.UTC().Format(time.RFC3339)))
	})
	d.agentsChanged()
	return rotated, seed, err
}

// RevokeAgent ends an agent: its connections are cut off and none is opened again, and no environment may name it. Again is
// nothing.
func (d *Domain) RevokeAgent(ctx context.Context, a Actor, agent int64) (Agent, error) {
	now := d.clock.Now()
	var revoked Agent
	err := d.by(ctx, a, ActionRevokeAgent, func(ctx context.Context, tx Tx) error {
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
		return a.note(ctx, tx, ActionRevokeAgent, AccessSubject{AccessAgent, revoked.ID, revoked.Name}, "")
	})
	d.agentsChanged()
	return revoked, err
}

// RevokeAgentKey ends one key of an agent at once: the one that a rotation has replaced, or one that was stolen. Again is
// nothing.
func (d *Domain) RevokeAgentKey(ctx context.Context, a Actor, key int64) (Agent, error) {
	var of Agent
	err := d.by(ctx, a, ActionRevokeAgentKey, func(ctx context.Context, tx Tx) error {
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
		if err := tx.RevokeAgentKey(ctx, key, d.clock.Now()); err != nil {
			return err
		}
		return a.note(ctx, tx, ActionRevokeAgentKey, AccessSubject{AccessAgentKey, key, of.Name}, "key "+k.PublicKey)
	})
	d.agentsChanged()
	return of, err
}
