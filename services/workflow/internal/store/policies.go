package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/lockstep-cd/lockstep/pkg/event"
	"github.com/lockstep-cd/lockstep/pkg/id"
	"github.com/lockstep-cd/lockstep/pkg/pg"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/activity"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/agent"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/callpolicy"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/engine"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/history"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/store/query"
)

var _ callpolicy.Store = (*Store)(nil)

// PolicyVersions implements callpolicy.Store.
func (s *Store) PolicyVersions(ctx context.Context) ([]callpolicy.Version, error) {
	rows, err := s.queries.CallPolicyVersions(ctx)
	all := make([]callpolicy.Version, len(rows))
	for i, row := range rows {
		all[i] = callpolicy.Version{Organization: row.Organization, Name: row.Name, Version: int(row.Version)}
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
	return s.tx(ctx, func(tx pgx.Tx, q *query.Queries) error {
		first, err := s.ClaimEvent(ctx, tx, wire)
		if err != nil || !first {
			return err
		}
		return pg.Classify(q.SaveCallPolicy(ctx, query.SaveCallPolicyParams{
			Organization: set.Organization, Name: set.Name, Version: int32(set.Version), Mode: set.Mode, TimeZone: set.TimeZone,
			Policies: set.Text, Application: set.Application, Environment: set.Environment,
		}), "save policy set %q", set.Name)
	})
}

// ReceiveCallAnswer hands an answer to the call that waits for it. The first answer counts; one to a call that nobody waits for any more,
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
		if _, err := q.LockExecution(ctx, call.Execution); err != nil {
			return pg.Classify(err, "lock execution %d", call.Execution)
		}
		woken, err = s.deliver(ctx, q, call, agent.Answer{Call: a.Request, Value: encoded})
		return err
	})
	if err == nil {
		s.wake(woken)
	}
	return err
}
