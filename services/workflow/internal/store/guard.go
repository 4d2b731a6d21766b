package store

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/lockstep-cd/lockstep/pkg/event"
	"github.com/lockstep-cd/lockstep/pkg/id"
	"github.com/lockstep-cd/lockstep/pkg/pg"
	"github.com/lockstep-cd/lockstep/pkg/sealing"
	"github.com/lockstep-cd/lockstep/pkg/sealing/book"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/activity"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/agent"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/callpolicy"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/engine"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/guard"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/history"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/store/query"
)

var (
	_ guard.Store = (*Store)(nil)
	_ book.Store  = (*Store)(nil)
)

// ReceiveChange is ReceiveFrom for a report that decides what runs may change: both are stored in one transaction, so no program sees a
// grant before the guard knows it.
func (s *Store) ReceiveChange(
	ctx context.Context, wire event.Event, e history.Event, c guard.Change,
) (matched int, duplicate bool, err error) {
	return s.receive(ctx, &received{alone: true, claim: func(ctx context.Context, tx pgx.Tx) (bool, error) {
		first, err := s.ClaimEvent(ctx, tx, wire)
		if err != nil || !first {
			return first, err
		}
		return true, saveChange(ctx, s.queries.WithTx(tx), c)
	}}, e)
}

// saveChange stores a report. Reports come more than once and in any order; the state afterwards is the same.
func saveChange(ctx context.Context, q *query.Queries, c guard.Change) error {
	switch {
	case c.Granted != nil:
		places, err := json.Marshal(nonNil(c.Granted.Places))
		if err != nil {
			return fmt.Errorf("encode the places of a passage: %w", err)
		}
		if c.Granted.Wave > 0 {
			return pg.Classify(q.SaveTargets(ctx, query.SaveTargetsParams{
				Organization: c.Organization, Workflow: c.Workflow, Environment: c.Granted.Environment, Places: places,
			}), "save a wave of %q", c.Workflow)
		}
		p := query.SavePassageParams{
			Organization: c.Organization, Workflow: c.Workflow, Environment: c.Granted.Environment, Weight: int32(c.Granted.Weight),
			GrantedAt: c.At, Places: places, Pinned: []int32{}, Application: c.Granted.Application,
		}
		for _, weight := range c.Granted.Pinned {
			p.Pinned = append(p.Pinned, int32(weight))
		}
		return pg.Classify(q.SavePassage(ctx, p), "save a passage of %q", c.Workflow)
	case c.Territory != nil:
		return saveTerritory(ctx, q, c.Organization, *c.Territory)
	default:
		p := query.SaveGuardedRunParams{
			Organization: c.Organization, Workflow: c.Workflow, Revoked: c.Revoked, LeftEnvironments: append([]int64{}, c.Left...),
		}
		if c.Aborted {
			p.AbortedAt = &c.At
		}
		if c.Retried {
			p.RetriedAt = &c.At
		}
		if c.Cancelled {
			p.CancelledAt = &c.At
		}
		if err := q.SaveGuardedRun(ctx, p); err != nil || !c.Revoked {
			return pg.Classify(err, "save what %q may change", c.Workflow)
		}
		if c.Cancelled {
			err := q.ForgetCancelled(ctx, query.ForgetCancelledParams{Organization: c.Organization, Before: c.At.Add(-2 * guard.TakesBackFor)})
			return pg.Classify(err, "end the passages of rollouts that were cancelled before %q", c.Workflow)
		}
		err := q.EndPassages(ctx, query.EndPassagesParams{Organization: c.Organization, Workflow: c.Workflow})
		return pg.Classify(err, "end the passages of %q", c.Workflow)
	}
}

// saveTerritory stores what belongs to an environment, unless a later report was stored before. Reports of a type about one organization
// are stored one after the other (received.alone).
func saveTerritory(ctx context.Context, q *query.Queries, organization int64, t guard.Territory) error {
	places, err := json.Marshal(nonNil(t.Places))
	if err != nil {
		return fmt.Errorf("encode the places of environment %d: %w", t.Environment, err)
	}
	var fleet json.RawMessage
	if t.Fleet != nil {
		if fleet, err = json.Marshal(t.Fleet); err != nil {
			return fmt.Errorf("encode the fleet of environment %d: %w", t.Environment, err)
		}
	}
	before, err := q.LockTerritory(ctx, query.LockTerritoryParams{
		Organization: organization, Environment: t.Environment,
		Application: t.Application,
	})
	known := err == nil
	if err != nil && !errors.Is(err, pgx.ErrNoRows) {
		return pg.Classify(err, "lock the places of environment %d", t.Environment)
	}
	if known && before.Sequence >= t.Sequence {
		return nil
	}
	err = q.SaveTerritory(ctx, query.SaveTerritoryParams{
		Organization: organization, Environment: t.Environment, Application: t.Application, Name: t.Name, Sequence: t.Sequence,
		Protected: t.Protected, Archived: t.Archived, Places: places, Fleet: fleet,
	})
	if err != nil {
		return pg.Classify(err, "save the places of environment %d", t.Environment)
	}
	if known && before.Name == t.Name && before.Protected == t.Protected && before.Archived == t.Archived &&
		samePlaces(before.Places, t.Places) && sameFleet(before.Fleet, t.Fleet) {
		return nil // reported again, as after a start of the domain service
	}
	_, err = q.NextTerritoryVersion(ctx, organization)
	return pg.Classify(err, "count the changes of places of organization %d", organization)
}

// sameFleet reports whether a stored fleet is this one.
func sameFleet(stored json.RawMessage, fleet *guard.Fleet) bool {
	before, err := fleetOf(stored)
	if err != nil || before == nil || fleet == nil {
		return err == nil && before == nil && fleet == nil
	}
	return slices.Equal(before.Agents, fleet.Agents) && slices.Equal(before.Targets, fleet.Targets)
}

// fleetOf decodes a stored fleet; nil for none.
func fleetOf(stored json.RawMessage) (f *guard.Fleet, err error) {
	if len(stored) == 0 {
		return nil, nil
	}
	if err := json.Unmarshal(stored, &f); err != nil {
		return nil, fmt.Errorf("read the fleet of an environment: %w", err)
	}
	return f, nil
}

// samePlaces reports whether stored places are these, whatever their form.
func samePlaces(stored json.RawMessage, places []activity.Place) bool {
	var before []activity.Place
	if err := json.Unmarshal(stored, &before); err != nil {
		return false
	}
	return slices.Equal(before, places)
}

func nonNil(places []activity.Place) []activity.Place {
	if places == nil {
		return []activity.Place{}
	}
	return places
}

// Guarded implements guard.Store, in one statement.
func (s *Store) Guarded(ctx context.Context, organization int64, workflow string, agents ...int64) (guard.Run, error) {
	root := ""
	if id.IsChildRun(workflow) {
		var err error
		if root, err = s.rootOf(ctx, organization, workflow); err != nil {
			return guard.Run{}, err
		}
		workflow = root
	}
	if rollout := id.CancelledRollout(workflow); rollout != 0 { // it has the passages of the rollout
		root, workflow = workflow, id.RolloutRun(rollout)
	}
	row, err := s.queries.GuardedRun(ctx, query.GuardedRunParams{
		Organization: organization, Workflow: workflow, Agents: append([]int64{}, agents...),
	})
	if err != nil {
		return guard.Run{}, pg.Classify(err, "read the passages of %q", workflow)
	}
	if row.Inputs != "" { // large: the statement has seen a reference in their place
		if err := s.exemption(ctx, &row); err != nil {
			return guard.Run{}, fmt.Errorf("read what %q was started with: %w", workflow, err)
		}
	}
	run := guard.Run{Root: root, Version: row.Version, Application: row.Application, Exempt: row.Exempt, Revoked: row.Revoked}
	if row.AbortedAt != nil {
		run.AbortedAt = *row.AbortedAt
	}
	if row.RetriedAt != nil {
		run.RetriedAt = *row.RetriedAt
	}
	if row.CancelledAt != nil {
		run.CancelledAt = *row.CancelledAt
	}
	var passages []struct {
		Environment int64            `json:"environment"`
		Weight      int              `json:"weight"`
		At          time.Time        `json:"at"`
		Places      []activity.Place `json:"places"`
		Pinned      []int            `json:"pinned"`
		Overtaken   bool             `json:"overtaken"`
	}
	if err := json.NewDecoder(bytes.NewReader(row.Passages)).Decode(&passages); err != nil {
		return run, fmt.Errorf("decode the passages of %q: %w", workflow, err)
	}
	for _, p := range passages {
		run.Passages = append(run.Passages, guard.Passage{
			Environment: p.Environment, Weight: p.Weight, Places: p.Places,
			Pinned: p.Pinned, At: p.At, Overtaken: p.Overtaken,
		})
	}
	return run, nil
}

// exemption sets what a row says about the inputs of a run, for inputs that are not in its row.
func (s *Store) exemption(ctx context.Context, row *query.GuardedRunRow) error {
	inputs := []byte(row.Inputs)
	if err := s.whole(ctx, &inputs); err != nil {
		return err
	}
	var started struct {
		Rollout struct {
			Passages    any `json:"passages"`
			Application struct {
				ID int64 `json:"id"`
			} `json:"application"`
		} `json:"rollout"`
	}
	if err := json.Unmarshal(inputs, &started); err != nil {
		return fmt.Errorf("decode: %w", err)
	}
	row.Exempt = started.Rollout.Passages != true && started.Rollout.Passages != "true"
	row.Application = started.Rollout.Application.ID
	return nil
}

// Territories implements guard.Store, in one statement.
func (s *Store) Territories(ctx context.Context, organization int64) (version int64, all []guard.Territory, err error) {
	rows, err := s.queries.Territories(ctx, organization)
	if err != nil {
		return 0, nil, pg.Classify(err, "read the places of environments of organization %d", organization)
	}
	for _, row := range rows {
		t := guard.Territory{
			Environment: row.Environment, Application: row.Application, Name: row.Name, Sequence: row.Sequence, Protected: row.Protected,
			Archived: row.Archived,
		}
		if err := json.Unmarshal(row.Places, &t.Places); err != nil {
			return 0, nil, fmt.Errorf("decode the places of environment %d: %w", row.Environment, err)
		}
		if t.Fleet, err = fleetOf(row.Fleet); err != nil {
			return 0, nil, fmt.Errorf("decode the fleet of environment %d: %w", row.Environment, err)
		}
		version, all = row.Version, append(all, t)
	}
	return version, guard.Together(all), nil
}

var _ callpolicy.Store = (*Store)(nil)

// PolicyVersions implements callpolicy.Store.
func (s *Store) PolicyVersions(ctx context.Context) ([]callpolicy.Version, error) {
	rows, err := s.queries.CallPolicyVersions(ctx)
	all := make([]callpolicy.Version, len(rows))
	for i, row := range rows {
		all[i] = callpolicy.Version{Organization: row.Organization, Name: row.Name, Version: int(row.Version), OfGroup: row.OfGroup}
	}
	return all, pg.Classify(err, "read the versions of policies about calls")
}

// PolicySets implements callpolicy.Store.
func (s *Store) PolicySets(ctx context.Context, organizations []int64) ([]callpolicy.Set, error) {
	rows, err := s.queries.CallPolicies(ctx, organizations)
	all := make([]callpolicy.Set, len(rows))
	for i, row := range rows {
		all[i] = callpolicy.Set{
			Organization: row.Organization, Name: row.Name, Version: int(row.Version), Mode: row.Mode, TimeZone: row.TimeZone, Text: row.Policies,
			Application: row.Application, Environment: row.Environment,
		}
		if len(row.ApplicationLabels) > 0 {
			if err := json.Unmarshal(row.ApplicationLabels, &all[i].Labels); err != nil {
				return nil, fmt.Errorf("read the labels of policy set %q: %w", row.Name, err)
			}
		}
	}
	return all, pg.Classify(err, "read policies about calls")
}

// Origin implements callpolicy.Store.
func (s *Store) Origin(ctx context.Context, organization int64, workflow string) (root string, inputs []byte, err error) {
	root = workflow
	if id.IsChildRun(workflow) {
		if root, err = s.rootOf(ctx, organization, workflow); err != nil {
			return "", nil, err
		}
	}
	inputs, err = s.queries.StartedWith(ctx, query.StartedWithParams{Organization: organization, Workflow: root})
	if errors.Is(err, pgx.ErrNoRows) {
		return root, nil, nil // its first turn is run before it is stored
	}
	if err != nil {
		return "", nil, pg.Classify(err, "read what %q was started with", root)
	}
	err = s.whole(ctx, &inputs)
	return root, inputs, err
}

// ReceivePolicySet stores a policy set, unless a later version is stored.
func (s *Store) ReceivePolicySet(ctx context.Context, wire event.Event, set callpolicy.Set) error {
	var labels []byte
	if set.Labels != nil {
		var err error
		if labels, err = json.Marshal(set.Labels); err != nil {
			return fmt.Errorf("encode the labels of policy set %q: %w", set.Name, err)
		}
	}
	return s.tx(ctx, func(tx pgx.Tx, q *query.Queries) error {
		first, err := s.ClaimEvent(ctx, tx, wire)
		if err != nil || !first {
			return err
		}
		return pg.Classify(q.SaveCallPolicy(ctx, query.SaveCallPolicyParams{
			Organization: set.Organization, Name: set.Name, Version: int32(set.Version), Mode: set.Mode, TimeZone: set.TimeZone,
			Policies: set.Text, Application: set.Application, Environment: set.Environment, ApplicationLabels: labels,
		}), "save policy set %q", set.Name)
	})
}

// ReceiveCredential stores a credential, unless a later report is stored.
func (s *Store) ReceiveCredential(ctx context.Context, wire event.Event, r book.Report) error {
	proof, err := json.Marshal(r.Proof)
	if err != nil {
		return fmt.Errorf("encode the proof of credential %q: %w", r.Name, err)
	}
	return s.tx(ctx, func(tx pgx.Tx, q *query.Queries) error {
		first, err := s.ClaimEvent(ctx, tx, wire)
		if err != nil || !first {
			return err
		}
		return pg.Classify(q.SaveCredential(ctx, query.SaveCredentialParams{
			Organization: r.Organization, Name: r.Name, Sequence: r.Sequence, Version: int32(r.Version), Kind: string(r.Kind),
			UrlPrefixes: r.URLPrefixes, Username: r.Username, Header: r.Header, Forge: r.Forge, Reference: r.Reference, Sealed: r.Sealed,
			Revoked: r.Revoked, Proof: proof,
		}), "save credential %q", r.Name)
	})
}

// CredentialNamed implements book.Store.
func (s *Store) CredentialNamed(ctx context.Context, organization int64, name string) (*book.Credential, error) {
	rows, err := s.queries.CredentialNamed(ctx, query.CredentialNamedParams{Organization: organization, Name: name})
	if err != nil || len(rows) == 0 {
		return nil, pg.Classify(err, "read credential %q", name)
	}
	c := credentialOf(query.CredentialsOfKindRow(rows[0]))
	return &c, nil
}

// CredentialsOfKind implements book.Store.
func (s *Store) CredentialsOfKind(ctx context.Context, organization int64, kind sealing.Kind) ([]book.Credential, error) {
	rows, err := s.queries.CredentialsOfKind(ctx, query.CredentialsOfKindParams{Organization: organization, Kind: string(kind)})
	all := make([]book.Credential, len(rows))
	for i, row := range rows {
		all[i] = credentialOf(row)
	}
	return all, pg.Classify(err, "read credentials")
}

func credentialOf(row query.CredentialsOfKindRow) book.Credential {
	var proof sealing.Proof
	_ = json.Unmarshal(row.Proof, &proof) // which fails for what is no JSON only, and a column has none
	return book.Credential{
		Terms: sealing.Terms{
			Organization: row.Organization, Name: row.Name, Version: int(row.Version), Kind: sealing.Kind(row.Kind), URLPrefixes: row.UrlPrefixes,
			Username: row.Username, Header: row.Header, Forge: row.Forge, Proof: proof,
		},
		Reference: row.Reference, Sealed: row.Sealed, Revoked: row.Revoked,
	}
}

// ReceiveCallAnswer hands an answer to the call that waits for it. The first answer counts; one to a call that is no longer waited for,
// and one from another organization, is a no-op.
func (s *Store) ReceiveCallAnswer(ctx context.Context, wire event.Event, organization int64, a history.CallAnswer) error {
	encoded, err := json.Marshal(a)
	if err != nil {
		return fmt.Errorf("encode the answer to %q: %w", a.Request, err)
	}
	var woken []engine.Woken
	err = s.tx(ctx, func(tx pgx.Tx, q *query.Queries) error {
		woken = nil
		first, err := s.ClaimEvent(ctx, tx, wire)
		if err != nil || !first {
			return err
		}
		// Read without a lock, to learn whose call it is: an execution is locked before the rows that belong to it.
		call, err := q.FindCall(ctx, a.Request)
		if errors.Is(err, pgx.ErrNoRows) {
			return nil
		}
		if err != nil {
			return pg.Classify(err, "find call %q", a.Request)
		}
		owner, err := q.OrganizationOf(ctx, call.Execution)
		if err != nil || owner != organization || activity.Location(call.Location) != activity.Held {
			return pg.Classify(err, "find the organization of call %q", a.Request)
		}
		if err := q.LockExecution(ctx, call.Execution); err != nil {
			return pg.Classify(err, "lock execution %d", call.Execution)
		}
		woken, _, err = s.deliver(ctx, tx, q, agent.Answer{Call: a.Request, Value: encoded}, nil)
		return err
	})
	if err == nil {
		s.wake(woken)
	}
	return err
}
