package rollout

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
)

// Promotion is what came of the wish to promote a version set.
type Promotion struct {
	// Rollout is the one that was made; nil when it waits in the queue.
	Rollout *core.Rollout
	Queued  *core.QueuedRollout
}

// makeRoom lets the application's policy decide about the rollout that is active. A queued answer means that nothing is
// to be made now.
func (u *UseCases) makeRoom(ctx context.Context, tx Tx, c cause, n NewRollout) (*core.QueuedRollout, error) {
	sets, err := tx.VersionSetsByID(ctx, c.Organization, []int64{n.VersionSetID})
	if err != nil {
		return nil, err
	}
	set, ok := sets[n.VersionSetID]
	if !ok {
		return nil, fault.New(fault.NotFound, "version set %d does not exist", n.VersionSetID)
	}
	targets, err := core.ApplicationTargets(ctx, tx, c.Organization, set.ApplicationID)
	if err != nil {
		return nil, err
	}
	active, err := tx.ActiveRollouts(ctx, c.Organization, []int64{set.ApplicationID})
	if err != nil {
		return nil, err
	}
	r, busy := active[set.ApplicationID]
	// A rollout to a part of the pipeline needs the permission for that part only, unless it would end what goes to all of it.
	if err := c.MayIn(core.ActionCreateRollout, targets...); err != nil && (busy || n.Scope.all()) {
		return nil, err
	}
	// Going back is no newer version set: there is a verb for it, which ends the active rollout.
	if !busy || set.ID <= r.VersionSetID {
		return nil, nil
	}
	policies, err := tx.RolloutPolicies(ctx, c.Organization, []int64{set.ApplicationID})
	if err != nil {
		return nil, err
	}
	switch policies[set.ApplicationID].OnNewer {
	case core.NewerQueued:
		if !n.Scope.all() {
			return nil, fault.New(
				fault.Refused, "rollout_%d is active, and the application's policy queues newer ones; a rollout to some environments is not queued, so "+
					"create it once that one has ended", r.ID,
			)
		}
		q := core.QueuedRollout{
			ApplicationID: set.ApplicationID, VersionSetID: set.ID, Requester: c.Principal(), Reason: n.Reason, RequestedAt: c.at,
			Strategy: n.Strategy, Inputs: n.Inputs,
		}
		if err := u.CheckInputs(ctx, tx, c.Organization, set.ApplicationID, n.Inputs); err != nil {
			return nil, err
		}
		q, err := u.enterQueue(ctx, tx, c, q)
		return &q, err
	case core.NewerSupersedes:
		return nil, u.supersede(ctx, tx, c, r.ID, set)
	case core.NewerRefused:
	}
	return nil, nil // planRollout refuses, and says why
}

// supersede ends a rollout that is parked. It is locked before the application, like everywhere.
func (u *UseCases) supersede(ctx context.Context, tx Tx, c cause, rollout int64, by core.VersionSet) error {
	t, err := lockTree(ctx, tx, c, rollout)
	if err != nil || t.rollout.State.Terminal() {
		return err
	}
	gates, err := t.openGates(ctx)
	if err != nil {
		return err
	}
	if t.rollout.State != core.RolloutPaused && len(gates) == 0 {
		return fault.New(
			fault.Refused, "%s is %s and moves; it can be superseded while it is paused or waits for approval", t.name(), t.rollout.State.Words(),
		)
	}
	if err := u.mayEnd(ctx, t, c.Actor, core.ActionCreateRollout); err != nil {
		return err
	}
	return u.cancel(ctx, t, "superseded by "+by.Name)
}

// CancelQueued takes a rollout out of the queue of its application for a member, also while the drivers compare for it (R4-05). One
// that was cancelled stays as it is. BeginQueued has the row locked as well, so it is one or the other.
func (u *UseCases) CancelQueued(ctx context.Context, a core.Actor, id int64, reason string) (core.QueuedRollout, error) {
	if err := core.CheckReason(reason); err != nil {
		return core.QueuedRollout{}, err
	}
	var q core.QueuedRollout
	err := core.Within(ctx, u.store, a, core.ActionCancelQueuedRollout, func(ctx context.Context, tx Tx) error {
		var err error
		if q, err = tx.LockQueuedRollout(ctx, id); err != nil {
			return err
		}
		targets, err := core.ApplicationTargets(ctx, tx, a.Organization, q.ApplicationID)
		if err != nil {
			return err
		}
		if err := q.MayCancel(a, targets); err != nil || q.Cancelled() {
			return err
		}
		found, err := tx.ApplicationsByID(ctx, a.Organization, []int64{q.ApplicationID})
		if err != nil {
			return err
		}
		sets, err := tx.VersionSetsByID(ctx, a.Organization, []int64{q.VersionSetID})
		if err != nil {
			return err
		}
		if q, err = u.Dequeue(ctx, tx, a, q, core.Because("cancelled by "+a.DisplayName(), reason)); err != nil {
			return err
		}
		of := found[q.ApplicationID]
		return core.Record(ctx, tx, a, core.Change{
			Action: core.ActionCancelQueuedRollout, Subject: core.AccessSubject{Kind: core.ChangedApplication, ID: of.ID, Name: of.Name},
			ApplicationID: of.ID, Reason: reason, Stricter: true,
			Detail: fmt.Sprintf("the rollout of %s that waited in the queue since %s", sets[q.VersionSetID].Name, q.RequestedAt.UTC().Format(time.RFC3339)),
		}, map[string]any{"state": core.QueuedPending}, map[string]any{"state": "cancelled"})
	})
	u.wake()
	return q, err
}

// Dequeue takes a rollout out of the queue for a member, in the transaction of another use case. What the drivers compare for it is
// stopped.
func (u *UseCases) Dequeue(ctx context.Context, tx Tx, a core.Actor, q core.QueuedRollout, outcome string) (core.QueuedRollout, error) {
	now := u.clock.Now()
	q.State, q.Outcome, q.EndedAt, q.CancelledBy = core.QueuedDropped, outcome, &now, a.Principal()
	if err := u.endComparison(ctx, tx, cause{Actor: a, at: now}, q, outcome); err != nil {
		return q, err
	}
	return q, tx.SettleQueuedRollout(ctx, q)
}

// BeginQueued begins the next rollout that has waited for another to be over; false when there was none. One that cannot
// begin any more is dropped with the reason, and left to people.
func (u *UseCases) BeginQueued(ctx context.Context) (core.QueuedRollout, bool, error) {
	organizations, err := u.store.OrganizationsWithFreeQueue(ctx)
	if err != nil {
		return core.QueuedRollout{}, false, err
	}
	for _, organization := range organizations {
		var q core.QueuedRollout
		var ok bool
		var planned plan
		var found *core.Preview
		err := u.store.In(ctx, organization, func(ctx context.Context, tx Tx) error {
			var err error
			if q, ok, err = tx.FreeQueuedRollout(ctx, u.clock.Now()); err != nil || !ok {
				return err
			}
			w := wish{strategy: q.Strategy, triggered: q.TriggerID != 0, inputs: q.Inputs, again: byEvent(q)}
			if w.comparison, err = comparisonOf(ctx, tx, organization, q); err != nil {
				return err
			}
			p, err := u.planRollout(ctx, tx, organization, q.VersionSetID, NewRollout{Scope: Scope{Only: q.Environments}}.part(), w)
			if err == nil && q.Requester.Type.Automatic() {
				err = p.refuseHeld(ctx, tx, organization)
			}
			// That the requester may no longer deploy comes before every other reason.
			if refused := mayStillDeploy(ctx, tx, organization, q.Requester, p.targets()); refused != nil {
				err = refused
			}
			// Its requester is still the one who queued it, also for its gates (D28).
			c := cause{
				Actor: core.Actor{Organization: organization, Type: q.Requester.Type, ID: q.Requester.ID}, at: u.clock.Now(),
				triggeredBy: core.Because("queue: asked for at "+q.RequestedAt.UTC().Format(time.RFC3339), q.Cause),
			}
			if err == nil {
				err = u.refuses(ctx, tx, c, p)
			}
			if forPeople(err) {
				q.State, q.Outcome, q.EndedAt = core.QueuedDropped, fault.Public(err), &c.at
				if err := u.endComparison(ctx, tx, c, q, "the rollout does not begin"); err != nil {
					return err
				}
				return tx.SettleQueuedRollout(ctx, q)
			}
			if err != nil {
				return err
			}
			if p.asks {
				return u.compareQueued(ctx, tx, c, p, &q)
			}
			if err := u.endComparison(ctx, tx, c, q, "the rollout has begun without it"); err != nil {
				return err
			}
			made, err := u.createPlanned(ctx, tx, c, p, q.Reason)
			if err != nil {
				return err
			}
			q.State, q.MadeRolloutID, q.EndedAt, planned, found = core.QueuedStarted, made.ID, &c.at, p, w.comparison
			return tx.SettleQueuedRollout(ctx, q)
		})
		if err == nil && found != nil {
			u.comparisons.count(planned, *found)
		}
		if err != nil || ok {
			u.wake()
			return q, ok, err
		}
	}
	return core.QueuedRollout{}, false, nil
}

// byEvent reports whether an event has queued a rollout, as its cause says: files may have been edited for it.
func byEvent(q core.QueuedRollout) bool {
	return q.TriggerID != 0 && strings.Contains(q.Cause, fmt.Sprintf(" (%s): ", core.TriggerEvent))
}

// mayStillDeploy is nil, or a Refused that says why the member who asked for a queued rollout may no longer deploy (D50).
func mayStillDeploy(ctx context.Context, tx Tx, organization int64, requester core.Principal, targets []core.Target) error {
	if requester.Type != core.PrincipalUser && requester.Type != core.PrincipalAgent {
		return nil // a policy or a schedule, which has no role
	}
	members, err := tx.MembersByID(ctx, organization, []int64{requester.ID})
	if err != nil {
		return err
	}
	m, known := members[requester.ID]
	switch {
	case !known:
		return fault.New(fault.Refused, "%s %d, who asked for it, is not a member of the organization", requester.Type, requester.ID)
	case m.RemovedAt != nil:
		return fault.New(fault.Refused, "%s, who asked for it, was removed from the organization", m.Name)
	}
	grants, err := tx.GrantsByMember(ctx, organization, []int64{m.ID})
	if err != nil {
		return err
	}
	a := core.ActorOf(organization, m, grants[m.ID], nil)
	if a.MaySomewhere(core.ActionCreateRollout) != nil {
		return fault.New(fault.Refused, "%s, who asked for it, may no longer deploy: the role is %s", m.Name, m.Role)
	}
	if len(targets) == 0 { // the plan was refused before it was known where it goes
		return nil
	}
	if err := a.MayIn(core.ActionCreateRollout, targets...); err != nil {
		return fault.Because(err, fault.Refused, "%s, who asked for it, may no longer deploy there: %s", m.Name, fault.Public(err))
	}
	return nil
}

// Automatic is a rollout that a trigger wants (D58).
type Automatic struct {
	TriggerID, VersionSetID int64
	// Until is the last environment that it goes to; empty for the whole pipeline.
	Until string
	// Repair is the environments in which what is live is deployed again; empty for a rollout along the pipeline.
	Repair []string
	// Type is policy or schedule: who the journal says has begun it.
	Type core.PrincipalType
	// Cause is what made the trigger want it, as the journal has it, and Reason the reason of the rollout.
	Cause, Reason string
	// Inputs are those that the trigger gives, an object of JSON; empty for none.
	Inputs json.RawMessage
	// Again reports whether something else than the version set has changed, such as a file: it is rolled out also where it is live.
	Again bool
}

// Begun is what came of an automatic rollout: one of its fields is set.
type Begun struct {
	Rollout *core.Rollout
	// Queued is one that begins when the rollout that is under way has ended.
	Queued *core.QueuedRollout
	// Declined is why nothing begins, and Waits why it cannot be decided yet.
	Declined, Waits string
	// Live reports whether it is declined because the version set is live already wherever it would go.
	Live bool
}

// Begin begins a rollout for a trigger, or puts it into the queue, in the transaction of the trigger's decision. Nothing is written where
// the answer is Declined or Waits, and nothing automatic goes back to an earlier version set.
func (u *UseCases) Begin(ctx context.Context, tx Tx, organization int64, n Automatic) (Begun, error) {
	c := cause{Actor: core.Actor{Organization: organization, Type: n.Type}, at: u.clock.Now(), triggeredBy: n.Cause}
	parked, err := u.parked(ctx, tx, c, n.VersionSetID) // before the application is locked, like everywhere
	if err != nil {
		return Begun{}, err
	}
	p, live, err := u.planAutomatic(ctx, tx, c, n)
	if forPeople(err) {
		return Begun{Declined: fault.Public(err), Live: live}, nil
	}
	if err != nil {
		return Begun{}, err
	}
	active, err := tx.ActiveRollouts(ctx, organization, []int64{p.application.ID})
	if err != nil {
		return Begun{}, err
	}
	if r, busy := active[p.application.ID]; busy {
		if parked == nil || parked.rollout.ID != r.ID {
			return u.enqueue(ctx, tx, c, n, p, r)
		}
	} else {
		parked = nil
	}
	var begun Begun
	if p.asks { // what is parked ends only if something takes its place
		begun, err = u.takePlace(ctx, tx, c, n, p, "the manifests are compared before a rollout begins", true)
		if err != nil || begun.Queued == nil {
			return begun, err
		}
	}
	if parked != nil {
		if err := u.cancel(ctx, parked, "superseded by "+p.versionSet.Name); err != nil {
			return Begun{}, err
		}
	}
	if p.asks {
		return begun, nil
	}
	r, err := u.createPlanned(ctx, tx, c, p, n.Reason)
	return Begun{Rollout: &r}, err
}

// Refused is why Begin would decline now; empty if it would not. Nothing is locked or written.
func (u *UseCases) Refused(ctx context.Context, tx Tx, organization int64, n Automatic) (string, error) {
	c := cause{Actor: core.Actor{Organization: organization, Type: n.Type}, at: u.clock.Now(), triggeredBy: n.Cause}
	_, _, err := u.planAutomatic(ctx, reading{tx, organization}, c, n)
	if forPeople(err) {
		return fault.Public(err), nil
	}
	return "", err
}

// planAutomatic plans what a trigger wants, or is Refused; live reports whether the version set is live already wherever it would go.
func (u *UseCases) planAutomatic(ctx context.Context, tx Tx, c cause, n Automatic) (p plan, live bool, err error) {
	part, err := u.automaticPart(ctx, tx, c.Organization, n)
	if err != nil {
		return p, false, err
	}
	if p, err = u.planAny(ctx, tx, c.Organization, n.VersionSetID, part, wish{triggered: true, inputs: n.Inputs, again: n.Again}); err != nil {
		return p, false, err
	}
	live = len(n.Repair) == 0 && !p.flow.Runbook && !n.Again && p.liveEverywhere()
	if err := p.refuseAutomatic(ctx, tx, c.Organization, n); err != nil {
		return p, live, err
	}
	return p, live, u.refuses(ctx, tx, c, p)
}

// parked is the application's active rollout, locked, if its policy lets a newer version set end it; nil otherwise.
func (u *UseCases) parked(ctx context.Context, tx Tx, c cause, versionSet int64) (*tree, error) {
	sets, err := tx.VersionSetsByID(ctx, c.Organization, []int64{versionSet})
	if err != nil {
		return nil, err
	}
	application := sets[versionSet].ApplicationID
	policies, err := tx.RolloutPolicies(ctx, c.Organization, []int64{application})
	if err != nil || policies[application].OnNewer != core.NewerSupersedes {
		return nil, err
	}
	active, err := tx.ActiveRollouts(ctx, c.Organization, []int64{application})
	r, busy := active[application]
	if err != nil || !busy {
		return nil, err
	}
	own, err := tx.VersionSetsByID(ctx, c.Organization, []int64{r.VersionSetID})
	if err != nil || !own[r.VersionSetID].OlderThan(sets[versionSet]) {
		return nil, err
	}
	t, err := lockTree(ctx, tx, c, r.ID)
	if err != nil || t.rollout.State.Terminal() {
		return nil, err
	}
	gates, err := t.openGates(ctx)
	if err != nil || t.rollout.State != core.RolloutPaused && len(gates) == 0 {
		return nil, err
	}
	return t, nil
}

// automaticPart is the part of the pipeline that an automatic rollout goes to; nil for all of it.
func (u *UseCases) automaticPart(ctx context.Context, tx Tx, organization int64, n Automatic) (*rollbackOf, error) {
	if len(n.Repair) > 0 {
		return &rollbackOf{forward: true, repair: true, scope: Scope{Only: n.Repair}}, nil
	}
	if n.Until == "" {
		return nil, nil
	}
	sets, err := tx.VersionSetsByID(ctx, organization, []int64{n.VersionSetID})
	if err != nil {
		return nil, err
	}
	application := sets[n.VersionSetID].ApplicationID
	latest, err := tx.LatestFlowDefinitions(ctx, organization, []int64{application})
	if err != nil {
		return nil, err
	}
	flow, err := u.flows.Read(latest[application].Definition)
	if err != nil {
		return nil, fmt.Errorf("read flow definition %d: %w", latest[application].ID, err)
	}
	var only []string
	for i, step := range flow.Deploys {
		only = append(only, step.Environment)
		if step.Environment != n.Until {
			continue
		}
		if i == len(flow.Deploys)-1 {
			return nil, nil
		}
		return &rollbackOf{forward: true, scope: Scope{Only: only}}, nil
	}
	return nil, fault.New(fault.Refused, "the pipeline does not go to %q, the last environment of the trigger", n.Until)
}

// refuseAutomatic is why a trigger begins nothing: it is live already, it would go back, it would repair with what is new, or something was
// rolled back there.
func (p *plan) refuseAutomatic(ctx context.Context, tx Tx, organization int64, n Automatic) error {
	if len(n.Repair) == 0 {
		if !p.flow.Runbook && !n.Again && p.liveEverywhere() {
			return fault.New(fault.Refused, "%s is live already wherever the trigger goes", p.versionSet.Name)
		}
		for _, s := range p.stops {
			if p.goesBack(s.environment.ID) {
				return fault.New(
					fault.Refused, "%s is older than what is live in %q, and automation does not go back", p.versionSet.Name, s.environment.Name,
				)
			}
		}
		return p.refuseHeld(ctx, tx, organization)
	}
	for _, s := range p.stops { // what has changed since goes along the pipeline, and not past the environments before
		_, why, err := p.asDeployed(ctx, tx, s)
		if err != nil {
			return err
		}
		if why != "" {
			return fault.New(fault.Refused, "%s, so what is live is not deployed again by itself", why)
		}
	}
	return p.refuseHeld(ctx, tx, organization)
}

// enqueue puts an automatic rollout into the queue of its application, unless the active one goes there already, or something that a member
// asked for waits.
func (u *UseCases) enqueue(ctx context.Context, tx Tx, c cause, n Automatic, p plan, active core.Rollout) (Begun, error) {
	if len(n.Repair) > 0 { // what is live afterwards may be something else
		return Begun{Waits: fmt.Sprintf("rollout_%d is %s; it is looked at again when it has ended", active.ID, active.State.Words())}, nil
	}
	if active.VersionSetID == p.versionSet.ID && !n.Again {
		goes, err := tx.RolloutEnvironmentsByRollout(ctx, c.Organization, []int64{active.ID})
		if err != nil {
			return Begun{}, err
		}
		beyond := slices.ContainsFunc(p.stops, func(s stop) bool {
			return !slices.ContainsFunc(goes[active.ID], func(e core.RolloutEnvironment) bool { return e.EnvironmentID == s.environment.ID })
		})
		if !beyond {
			return Begun{Declined: fmt.Sprintf("rollout_%d, which is %s, carries %s already", active.ID, active.State.Words(), p.versionSet.Name)}, nil
		}
	}
	return u.takePlace(ctx, tx, c, n, p, fmt.Sprintf("rollout_%d is %s", active.ID, active.State.Words()), false)
}

// takePlace puts an automatic rollout into the queue of its application, unless something that a member asked for waits there. compares
// reports whether the drivers are asked at once: behind another rollout, what runs may be something else when it is its turn.
func (u *UseCases) takePlace(ctx context.Context, tx Tx, c cause, n Automatic, p plan, behind string, compares bool) (Begun, error) {
	only := p.part()
	waiting, err := tx.QueuedRollouts(ctx, c.Organization, []int64{p.application.ID})
	if err != nil {
		return Begun{}, err
	}
	if w, taken := waiting[p.application.ID]; taken {
		same := w.VersionSetID == p.versionSet.ID && slices.Equal(w.Environments, only)
		switch {
		case same:
			return Begun{Declined: fmt.Sprintf("%s waits in the queue already: %s", p.versionSet.Name, behind)}, nil
		case w.TriggerID != n.TriggerID:
			return Begun{Waits: behind + ", and another request waits in the queue; it is looked at again"}, nil
		}
	}
	q := core.QueuedRollout{
		ApplicationID: p.application.ID, VersionSetID: p.versionSet.ID, Requester: c.Principal(), Reason: n.Reason, RequestedAt: c.at,
		Environments: only, TriggerID: n.TriggerID, Cause: n.Cause, Inputs: n.Inputs,
	}
	if compares {
		queued, err := u.compareFirst(ctx, tx, c, p, q)
		return Begun{Queued: queued}, err
	}
	q, err = u.enterQueue(ctx, tx, c, q)
	return Begun{Queued: &q}, err
}
