package control

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/lockstep-cd/lockstep/pkg/pg"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/policy"
	"github.com/lockstep-cd/lockstep/services/domain/internal/store/query"
)

func policySet(s query.PolicySet, v query.PolicyVersion) core.PolicySet {
	set := core.PolicySet{
		ID: s.ID, Name: s.Name, Version: int(v.Version), Mode: core.PolicyMode(v.Mode), TimeZone: v.TimeZone, Text: v.Text, Reason: v.Reason,
		Author: author(v.PrincipalType, v.PrincipalID, v.PrincipalName), CreatedAt: v.CreatedAt,
	}
	if s.ApplicationID != nil {
		set.ApplicationID = *s.ApplicationID
	}
	if s.EnvironmentID != nil {
		set.EnvironmentID = *s.EnvironmentID
	}
	if s.ApplicationLabels != nil {
		_ = json.Unmarshal(s.ApplicationLabels, &set.Labels) // the table has objects of strings only
	}
	return set
}

func policyDecision(r query.PolicyDecision) (core.PolicyDecision, error) {
	d := core.PolicyDecision{ID: r.ID, GateID: r.GateID, CreatedAt: r.CreatedAt}
	if r.RolloutID != nil {
		d.RolloutID = *r.RolloutID
	}
	if err := json.Unmarshal(r.Decision, &d.Decision); err != nil {
		return d, fmt.Errorf("read policy decision %d: %w", r.ID, err)
	}
	if err := json.Unmarshal(r.Request, &d.Request); err != nil {
		return d, fmt.Errorf("read the request of policy decision %d: %w", r.ID, err)
	}
	return d, nil
}

func policyDecisions(rows []query.PolicyDecision) ([]core.PolicyDecision, error) {
	all := make([]core.PolicyDecision, len(rows))
	for i, row := range rows {
		var err error
		if all[i], err = policyDecision(row); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// PolicySets implements policy.Reads and policy.Tx.
func (r Reads) PolicySets(ctx context.Context, organization int64) (all []core.PolicySet, err error) {
	err = r.Run(ctx, organization, func(q *query.Queries) error {
		rows, err := q.PolicySets(ctx, organization)
		all = convert(rows, func(row query.PolicySetsRow) core.PolicySet { return policySet(row.PolicySet, row.PolicyVersion) })
		return pg.Classify(err, "read policy sets")
	})
	return all, err
}

// PolicySetVersions implements policy.Reads.
func (r Reads) PolicySetVersions(ctx context.Context, organization int64, name string) (all []core.PolicySet, err error) {
	err = r.Run(ctx, organization, func(q *query.Queries) error {
		rows, err := q.PolicySetVersions(ctx, organization, name)
		all = convert(rows, func(row query.PolicySetVersionsRow) core.PolicySet {
			return policySet(row.PolicySet, row.PolicyVersion)
		})
		return pg.Classify(err, "read versions of policy set %q", name)
	})
	return all, err
}

// PolicyNames implements policy.Reads and policy.Tx.
func (r Reads) PolicyNames(ctx context.Context, organization int64) (policy.Names, error) {
	names := policy.Names{
		Members: map[int64]core.PrincipalType{}, Applications: map[int64]string{}, Environments: map[int64]string{},
		Labels: map[int64]map[string]string{},
	}
	err := r.Run(ctx, organization, func(q *query.Queries) error {
		var err error
		if names.Groups, err = q.GroupNames(ctx, organization); err != nil {
			return pg.Classify(err, "read the names of groups")
		}
		members, err := q.MemberKinds(ctx, organization)
		if err != nil {
			return pg.Classify(err, "read members")
		}
		for _, row := range members {
			names.Members[row.ID] = core.PrincipalType(row.Kind)
		}
		applications, err := q.ApplicationNames(ctx, organization)
		if err != nil {
			return pg.Classify(err, "read the names of applications")
		}
		for _, row := range applications {
			names.Applications[row.ID] = row.Name
			var labels map[string]string
			if err := json.Unmarshal(row.Labels, &labels); err != nil {
				return fmt.Errorf("read labels of application %d: %w", row.ID, err)
			}
			names.Labels[row.ID] = labels
		}
		environments, err := q.EnvironmentNames(ctx, organization)
		for _, row := range environments {
			names.Environments[row.ID] = row.Name
		}
		if err != nil {
			return pg.Classify(err, "read the names of environments")
		}
		if names.Agents, err = q.AgentNames(ctx, organization); err != nil {
			return pg.Classify(err, "read the names of agents")
		}
		names.Services, err = q.ServiceNames(ctx, organization)
		return pg.Classify(err, "read the names of services")
	})
	return names, err
}

// PolicyDecisionsByID implements policy.Reads.
func (r Reads) PolicyDecisionsByID(ctx context.Context, organization int64, ids []int64) (map[int64]core.PolicyDecision, error) {
	found := map[int64]core.PolicyDecision{}
	err := r.Run(ctx, organization, func(q *query.Queries) error {
		rows, err := q.PolicyDecisionsByID(ctx, organization, ids)
		if err != nil {
			return pg.Classify(err, "read policy decisions")
		}
		all, err := policyDecisions(rows)
		for _, d := range all {
			found[d.ID] = d
		}
		return err
	})
	return found, err
}

// PolicyDecisionsByRollout implements policy.Reads.
func (r Reads) PolicyDecisionsByRollout(
	ctx context.Context, organization int64, rollouts []int64,
) (map[int64][]core.PolicyDecision, error) {
	found := map[int64][]core.PolicyDecision{}
	err := r.Run(ctx, organization, func(q *query.Queries) error {
		rows, err := q.PolicyDecisionsByRollout(ctx, rollouts, organization)
		if err != nil {
			return pg.Classify(err, "read policy decisions of rollouts")
		}
		for _, row := range rows {
			d, err := policyDecision(row.PolicyDecision)
			if err != nil {
				return err
			}
			found[d.RolloutID] = append(found[d.RolloutID], d)
		}
		return nil
	})
	return found, err
}

// PolicyDecisionsSince implements policy.Reads.
func (r Reads) PolicyDecisionsSince(
	ctx context.Context, organization int64, since time.Time, after policy.SincePlace,
) (all []core.PolicyDecision, err error) {
	err = r.Run(ctx, organization, func(q *query.Queries) error {
		rows, err := q.PolicyDecisionsSince(ctx, query.PolicyDecisionsSinceParams{
			OrganizationID: organization, Since: since, Before: after.At, BeforeID: after.ID,
		})
		if err != nil {
			return pg.Classify(err, "read policy decisions")
		}
		all, err = policyDecisions(rows)
		return err
	})
	return all, err
}

// ControlDecisions implements policy.Reads.
func (r Reads) ControlDecisions(ctx context.Context, organization int64) (all []core.PolicyDecision, err error) {
	err = r.Run(ctx, organization, func(q *query.Queries) error {
		rows, err := q.ControlDecisions(ctx, organization)
		if err != nil {
			return pg.Classify(err, "read decisions about controls")
		}
		all, err = policyDecisions(rows)
		return err
	})
	return all, err
}

// LatestPolicyDecisions implements view.Reads and rollout.Tx.
func (r Reads) LatestPolicyDecisions(ctx context.Context, organization int64, rollouts []int64) (map[int64][]core.PolicyDecision, error) {
	found := map[int64][]core.PolicyDecision{}
	err := r.Run(ctx, organization, func(q *query.Queries) error {
		rows, err := q.LatestPolicyDecisions(ctx, organization, rollouts)
		if err != nil {
			return pg.Classify(err, "read policy decisions")
		}
		all, err := policyDecisions(rows)
		for _, d := range all {
			found[d.RolloutID] = append(found[d.RolloutID], d)
		}
		return err
	})
	return found, err
}

// LockPolicySet implements policy.Tx.
func (w Writes) LockPolicySet(ctx context.Context, name string) error {
	_, err := w.Q.LockPolicySet(ctx, w.Entered, name)
	return pg.Classify(err, "lock policy set %q", name)
}

// AddPolicySet implements policy.Tx.
func (w Writes) AddPolicySet(ctx context.Context, s core.PolicySet) (core.PolicySet, error) {
	p := query.InsertPolicySetParams{OrganizationID: w.Entered, Name: s.Name}
	if s.ApplicationID != 0 {
		p.ApplicationID = &s.ApplicationID
	}
	if s.EnvironmentID != 0 {
		p.EnvironmentID = &s.EnvironmentID
	}
	var err error
	if s.Labels != nil {
		labels, err := json.Marshal(s.Labels)
		if err != nil {
			return s, fmt.Errorf("encode the labels of policy set %q: %w", s.Name, err)
		}
		p.ApplicationLabels = labels
	}
	s.ID, err = w.Q.InsertPolicySet(ctx, p)
	return s, pg.Classify(err, "add policy set %q", s.Name)
}

// AddPolicyVersion implements policy.Tx.
func (w Writes) AddPolicyVersion(ctx context.Context, s core.PolicySet) error {
	err := w.Q.InsertPolicyVersion(ctx, query.InsertPolicyVersionParams{
		OrganizationID: w.Entered, PolicySetID: s.ID, Version: int32(s.Version), Mode: string(s.Mode), TimeZone: s.TimeZone, Text: s.Text,
		Reason: s.Reason, PrincipalType: string(s.Author.Type), PrincipalID: s.Author.ID, PrincipalName: s.Author.Name, CreatedAt: s.CreatedAt,
	})
	if err == nil {
		err = w.Q.RaisePolicySet(ctx, int32(s.Version), w.Entered, s.ID)
	}
	return pg.Classify(err, "add version %d of policy set %q", s.Version, s.Name)
}

// PoliciesConcerning implements rollout.Tx.
func (w Writes) PoliciesConcerning(ctx context.Context, application, rollout int64) ([]core.ConcerningPolicy, error) {
	rows, err := w.Q.PoliciesConcerning(ctx, rollout, w.Entered, &application)
	all, pinned := make([]core.ConcerningPolicy, 0, len(rows)), false
	for _, row := range rows {
		all = append(all, core.ConcerningPolicy{PolicySet: policySet(row.PolicySet, row.PolicyVersion), Latest: row.Latest, Pinned: row.Pinned})
		pinned = pinned || row.Pinned
	}
	for _, s := range w.Installation { // those of the operator are never of before
		all = append(all, core.ConcerningPolicy{PolicySet: s, Latest: true, Pinned: pinned})
	}
	return all, pg.Classify(err, "read the policies that concern rollout %d", rollout)
}

// SentPolicies implements rollout.PolicyTx.
func (w Writes) SentPolicies(ctx context.Context, application int64) ([]core.PolicySet, error) {
	rows, err := w.Q.SentPolicies(ctx, w.Entered, &application)
	return convert(rows, func(row query.SentPoliciesRow) core.PolicySet {
		s := core.PolicySet{Name: row.Name, Version: int(row.Sent)}
		if row.EnvironmentID != nil {
			s.EnvironmentID = *row.EnvironmentID
		}
		return s
	}), pg.Classify(err, "read the policies that the engine was sent for application %d", application)
}

// OpenIncidents implements rollout.PolicyTx.
func (w Writes) OpenIncidents(ctx context.Context, application int64, environments []int64, at time.Time) ([]string, error) {
	open, err := w.Q.OpenIncidents(ctx, query.OpenIncidentsParams{
		OrganizationID: w.Entered, At: at, ApplicationID: application, Environments: environments,
	})
	return open, pg.Classify(err, "read open incidents")
}

// PinPolicy implements rollout.Tx.
func (w Writes) PinPolicy(ctx context.Context, rollout int64, s core.PolicySet) error {
	err := w.Q.PinPolicy(ctx, query.PinPolicyParams{
		OrganizationID: w.Entered, RolloutID: rollout, PolicySetID: s.ID, Version: int32(s.Version),
	})
	return pg.Classify(err, "pin policy set %q with rollout %d", s.Name, rollout)
}

// PolicyRequester implements rollout.Tx.
func (w Writes) PolicyRequester(ctx context.Context, rollout int64) (core.Actor, error) {
	row, err := w.Q.PolicyRequester(ctx, w.Entered, rollout)
	return core.Actor{
		Organization: w.Entered, Type: core.PrincipalType(row.PrincipalType), ID: row.PrincipalID, Name: row.Name, Groups: row.Groups,
	}, missing(err, "the requester of rollout", rollout)
}

// MemberGroups implements rollout.Tx.
func (w Writes) MemberGroups(ctx context.Context, member int64) ([]string, error) {
	names, err := w.Q.MemberGroups(ctx, w.Entered, member)
	return names, pg.Classify(err, "read the groups of member %d", member)
}

// AddPolicyDecision implements rollout.Tx.
func (w Writes) AddPolicyDecision(ctx context.Context, d core.PolicyDecision) (int64, error) {
	decision, err := json.Marshal(d.Decision)
	if err != nil {
		return 0, fmt.Errorf("encode a policy decision: %w", err)
	}
	request, err := json.Marshal(d.Request)
	if err != nil {
		return 0, fmt.Errorf("encode the request of a policy decision: %w", err)
	}
	if len(request) > core.MaxPolicyRequest { // it was denied for that
		request = fmt.Appendf(nil, `{"action": %q}`, d.Request.Action)
	}
	var rollout *int64
	if d.RolloutID != 0 {
		rollout = &d.RolloutID
	} else if last, err := w.Q.LastControlDecision(ctx, w.Entered); err == nil && !d.Permits() && last.Verdict == string(d.Verdict) &&
		sameRequest(last.Request, request) && sameRequest(last.Decision, decision) {
		return last.ID, nil // who repeats what is denied adds no rows
	} else if err != nil && !errors.Is(err, pgx.ErrNoRows) {
		return 0, pg.Classify(err, "read the latest decision about a control")
	}
	id, err := w.Q.InsertPolicyDecision(ctx, query.InsertPolicyDecisionParams{
		OrganizationID: w.Entered, RolloutID: rollout, GateID: d.GateID, Verdict: string(d.Verdict), Decision: decision, Request: request,
		CreatedAt: d.CreatedAt,
	})
	return id, pg.Classify(err, "record a policy decision about rollout %d", d.RolloutID)
}

// ChangeRules implements core.ChangePolicyTx.
func (w Writes) ChangeRules(ctx context.Context, member int64) (rules core.ChangeRules, err error) {
	rows, err := w.Q.PoliciesThatMention(ctx, w.Entered, core.ChangeGate)
	if err != nil {
		return rules, pg.Classify(err, "look for policies about changes")
	}
	rules.Sets = convert(rows, func(row query.PoliciesThatMentionRow) core.PolicySet {
		return policySet(row.PolicySet, row.PolicyVersion)
	})
	for _, s := range w.Installation {
		if core.MayMentionChanges(s.Text) {
			rules.Sets = append(rules.Sets, s)
		}
	}
	if len(rules.Sets) == 0 {
		return rules, nil
	}
	rules.Groups, err = w.MemberGroups(ctx, member)
	return rules, err
}

// ChangePlaces implements core.ChangePolicyTx.
func (w Writes) ChangePlaces(ctx context.Context, c core.PlacesOfChange) (core.ChangePlaces, error) {
	var p core.ChangePlaces
	of, err := w.Q.ChangeOf(ctx, w.Entered, c.Application)
	if err != nil {
		return p, pg.Classify(err, "read application %d of a change", c.Application)
	}
	p.Application, p.Owner, p.At = of.Application, of.Owner, of.At
	if err := json.Unmarshal(of.Labels, &p.Labels); err != nil {
		return p, fmt.Errorf("read labels of application %d: %w", c.Application, err)
	}
	named, err := w.policyPlaces(ctx, query.PolicyPlacesParams{
		OrganizationID: w.Entered, Everywhere: c.Everywhere, Ids: c.Environments, GoesTo: c.GoesTo,
	})
	for id, e := range named {
		p.AddEnvironment(id, e)
	}
	return p, err
}

// InstallationPolicies implements setup.Tx.
func (w Writes) InstallationPolicies() []core.PolicySet { return w.Installation }

// PolicyPlaces implements rollout.PolicyTx.
func (w Writes) PolicyPlaces(ctx context.Context, rollout int64, environments []int64) (map[int64]core.PolicyPlace, error) {
	if len(environments) == 0 {
		return map[int64]core.PolicyPlace{}, nil
	}
	return w.policyPlaces(ctx, query.PolicyPlacesParams{OrganizationID: w.Entered, Ids: environments, Rollout: rollout})
}

func (w Writes) policyPlaces(ctx context.Context, p query.PolicyPlacesParams) (map[int64]core.PolicyPlace, error) {
	rows, err := w.Q.PolicyPlaces(ctx, p)
	if err != nil {
		return nil, pg.Classify(err, "read environments for policies")
	}
	found := make(map[int64]core.PolicyPlace, len(rows))
	for _, row := range rows {
		e := core.PolicyPlace{Name: row.Name, Tier: row.Tier, Driver: row.Driver}
		var agents []struct {
			core.PolicyAgent
			ID     int64 `json:"id"`
			Target bool  `json:"target"`
		}
		if err := errors.Join(json.Unmarshal(row.Labels, &e.Labels), json.Unmarshal(row.Agents, &agents)); err != nil {
			return nil, fmt.Errorf("read labels of environment %d: %w", row.ID, err)
		}
		fleet, named := false, []int64(nil)
		for _, a := range agents {
			fleet = fleet || a.Target
		}
		if len(agents) > 0 && !fleet && w.AgentsOf != nil {
			if named, err = w.AgentsOf(row.Driver, row.Config); err != nil {
				return nil, err
			}
		}
		for _, a := range agents {
			if fleet && a.Target || !fleet && slices.Contains(named, a.ID) {
				e.Agents = append(e.Agents, a.PolicyAgent)
			}
		}
		found[row.ID] = e
	}
	return found, nil
}

// LastFailureIn implements rollout.PolicyTx.
func (w Writes) LastFailureIn(ctx context.Context, rolloutEnvironment int64) (string, error) {
	reason, err := w.Q.LastFailureIn(ctx, w.Entered, rolloutEnvironment)
	if errors.Is(err, pgx.ErrNoRows) {
		return "", nil
	}
	return reason, pg.Classify(err, "read the latest failure in rollout environment %d", rolloutEnvironment)
}

// sameRequest reports whether two documents are the same but for their time.
func sameRequest(a, b []byte) bool {
	var x, y map[string]any
	if json.Unmarshal(a, &x) != nil || json.Unmarshal(b, &y) != nil {
		return false
	}
	for _, one := range []map[string]any{x, y} {
		delete(one, "at")
		delete(one, "time")
	}
	return reflect.DeepEqual(x, y)
}
