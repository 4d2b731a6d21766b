package core

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/lockstep-cd/lockstep/services/domain/internal/core/drift"
)

// Health is how a service does in an environment, rollout or not (R46).
type Health string

// The healths.
const (
	HealthUnknown     Health = "unknown"
	HealthHealthy     Health = "healthy"
	HealthProgressing Health = "progressing"
	HealthDegraded    Health = "degraded"
)

// ServiceHealth is the latest health seen of a service in an environment: a cache, last write wins (R17). Since is the
// first observation in a row that said so, which is what the clock of a policy counts from (D13). It never touches a
// deployment, which froze when it ended (R36).
type ServiceHealth struct {
	ServiceID, EnvironmentID int64
	Health                   Health
	Reason                   string
	Since, ObservedAt        time.Time
}

// Reconciliation is what is in force of an application in an environment, beside what was deployed last (E58).
type Reconciliation struct {
	ApplicationEnvironmentID int64
	// Revision is in force, ExpectedRevision was deployed last; "" where nobody says.
	Revision, ExpectedRevision string
	// Automatic reports whether the reconciler moves by itself.
	Automatic bool
	// Objects are what differs; empty for nothing. Something has differed, or nothing, Since.
	Objects           drift.List
	Since, ObservedAt time.Time
	// ChangedAt is when a rollout has changed something there last; nil for never. LookFailedAt is when a look for drift failed because of
	// LookFailure; nil if none has since the last one that succeeded.
	ChangedAt, LookFailedAt *time.Time
	LookFailure             string
}

// Drift says in one sentence what differs; empty for nothing.
func (r Reconciliation) Drift() string { return r.Objects.Sentence() }

// StaleReason is why what differs may not differ any more, or why something may differ by now; empty if it was observed as it is.
func (r Reconciliation) StaleReason() string {
	switch {
	case r.LookFailure == NobodyLooks && r.LookFailedAt != nil && r.LookFailedAt.After(r.ObservedAt):
		return NobodyLooks
	case len(r.Objects) > 0 && r.ChangedAt != nil && !r.ObservedAt.After(*r.ChangedAt):
		return "a rollout has changed something there since"
	case r.LookFailedAt != nil && r.LookFailedAt.After(r.ObservedAt):
		return Because("looking again failed", r.LookFailure)
	default:
		return ""
	}
}

// NobodyLooks is why a look fails where the driver finds no drift any more, such as where jobs or fleets are deployed now.
const NobodyLooks = "nobody looks there any more"

// Looked reports whether looks are made there, of which the last one has failed since the observation.
func (r Reconciliation) Looked() bool {
	return r.LookFailedAt != nil && r.LookFailedAt.After(r.ObservedAt) && r.LookFailure != NobodyLooks
}

// DriftLook is when an application environment is examined for drift (R4-11).
type DriftLook struct {
	ApplicationEnvironmentID int64
	// DueAt is when it is looked next; nil for not before another rollout has arrived there.
	DueAt *time.Time
	// PreviewID is by what the driver looks or has looked last, since AskedAt; 0 for never.
	PreviewID int64
	AskedAt   *time.Time
	// FailedAt is when nothing could be found out, because of Failure; nil if that has not been so since the last answer.
	FailedAt *time.Time
	Failure  string
}

// Failed is the look after one that has found out nothing.
func (l DriftLook) Failed(at time.Time, why string) DriftLook {
	l.FailedAt, l.Failure = &at, why
	return l
}

// Answered is the look after one that has found out what differs.
func (l DriftLook) Answered() DriftLook {
	l.FailedAt, l.Failure = nil, ""
	return l
}

// DeployedLast is with what the version set was deployed that is live in an environment.
type DeployedLast struct {
	// Commit is the one that was recorded, and the digest of a chart behind an @; empty for none.
	Commit                            string
	FlowDefinitionID, DriverBindingID int64
	// ServiceIDs are in order.
	ServiceIDs []int64
}

// LiveSnapshot is with what a service was deployed that is live in an environment.
type LiveSnapshot struct {
	ServiceID, DeploymentID, RolloutID int64
	ManifestDigest                     string
	Parameters                         json.RawMessage
}

// Contact reports whether the agent that acts in an environment can be reached, and since when.
type Contact struct {
	EnvironmentID     int64
	Reachable         bool
	Reason            string
	Since, ObservedAt time.Time
}

// HealthReads reads what observers have seen.
type HealthReads interface {
	// HealthsByEnvironment are the healths of all services that were seen in each environment.
	HealthsByEnvironment(ctx context.Context, organization int64, environments []int64) (map[int64][]ServiceHealth, error)
	Contacts(ctx context.Context, organization int64, environments []int64) (map[int64]Contact, error)
	// HealthsOfServices are those of some services, as far as they were seen in environments.
	HealthsOfServices(ctx context.Context, organization int64, environments, services []int64) (map[int64][]ServiceHealth, error)
}

// HealthObservations is the latest of what observers have seen, by environment. There is no key for what was never seen.
type HealthObservations struct {
	Healths  map[int64][]ServiceHealth
	Contacts map[int64]Contact
}

// With are the observations with those of further environments.
func (o HealthObservations) With(further HealthObservations) HealthObservations {
	all := maps.Clone(further.Healths)
	if all == nil {
		all = map[int64][]ServiceHealth{}
	}
	maps.Copy(all, o.Healths)
	known := maps.Clone(further.Contacts)
	if known == nil {
		known = map[int64]Contact{}
	}
	maps.Copy(known, o.Contacts)
	return HealthObservations{Healths: all, Contacts: known}
}

// HealthPlaces are the environments that have a check of kind health.
func HealthPlaces(pinned []PinnedCheck) []int64 {
	var all []int64
	for _, p := range pinned {
		if p.Kind == CheckHealth {
			all = append(all, p.EnvironmentID)
		}
	}
	return Distinct(all)
}

// InForceReads reads what is known to differ from what was deployed.
type InForceReads interface {
	// ApplicationEnvironmentsByApplication are those of applications.
	ApplicationEnvironmentsByApplication(
		ctx context.Context, organization int64, applications []int64,
	) (map[int64][]ApplicationEnvironment, error)
	// Reconciliations are what is known to differ, by application environment.
	Reconciliations(ctx context.Context, organization int64, applicationEnvironments []int64) (map[int64]Reconciliation, error)
}

// InForceOf is what is known to differ from what was deployed, by application and environment. It reads nothing of applications without a
// check that asks that.
func InForceOf(
	ctx context.Context, reads InForceReads, organization int64, pinned map[int64][]PinnedCheck,
) (map[int64]map[int64]Reconciliation, error) {
	var applications []int64
	for id, of := range pinned {
		if slices.ContainsFunc(of, func(p PinnedCheck) bool { return p.InSync }) {
			applications = append(applications, id)
		}
	}
	if len(applications) == 0 {
		return nil, nil
	}
	slices.Sort(applications)
	places, err := reads.ApplicationEnvironmentsByApplication(ctx, organization, applications)
	if err != nil {
		return nil, err
	}
	var ids []int64
	for application, of := range places {
		for _, place := range of {
			if slices.ContainsFunc(pinned[application], func(p PinnedCheck) bool { return p.InSync && p.EnvironmentID == place.EnvironmentID }) {
				ids = append(ids, place.ID)
			}
		}
	}
	seen, err := reads.Reconciliations(ctx, organization, ids)
	all := map[int64]map[int64]Reconciliation{}
	for application, of := range places {
		all[application] = map[int64]Reconciliation{}
		for _, place := range of {
			if r, known := seen[place.ID]; known {
				all[application][place.EnvironmentID] = r
			}
		}
	}
	return all, err
}

// Followed are those of the environments of a rollout, in the order of promotion, that one of them follows: those that it names, or the one
// before it.
func Followed(environments []RolloutEnvironment, e RolloutEnvironment) []int64 {
	places := make([]CheckPlace, len(environments))
	for i, of := range environments {
		places[i] = CheckPlace{EnvironmentID: of.EnvironmentID, Follows: of.Follows}
	}
	index := slices.IndexFunc(environments, func(of RolloutEnvironment) bool { return of.ID == e.ID })
	if index < 0 {
		return nil
	}
	var all []int64
	for _, i := range following(places, index) {
		all = append(all, environments[i].EnvironmentID)
	}
	return all
}

// FollowedPlaces are the environments of a rollout that are complete and that one follows which is yet to be entered.
func FollowedPlaces(environments []RolloutEnvironment) []int64 {
	var all []int64
	for _, e := range environments {
		if !e.NeedsHealth || e.State != RolloutPending {
			continue
		}
		for _, before := range environments {
			if before.State == RolloutCompleted && slices.Contains(e.Follows, before.EnvironmentID) {
				all = append(all, before.EnvironmentID)
			}
		}
	}
	return Distinct(all)
}

// ObservedIn reads what observers have seen in environments. It reads nothing where there are none.
func ObservedIn(ctx context.Context, reads HealthReads, organization int64, environments []int64) (HealthObservations, error) {
	if len(environments) == 0 {
		return HealthObservations{}, nil
	}
	healths, err := reads.HealthsByEnvironment(ctx, organization, environments)
	if err != nil {
		return HealthObservations{}, err
	}
	contacts, err := reads.Contacts(ctx, organization, environments)
	return HealthObservations{Healths: healths, Contacts: contacts}, err
}

// FollowedIn reads what observers have seen of services in environments that are followed. It reads nothing where there are none.
func FollowedIn(
	ctx context.Context, reads HealthReads, organization int64, environments, services []int64,
) (o HealthObservations, err error) {
	if len(environments) == 0 {
		return o, nil
	}
	if o.Healths, err = reads.HealthsOfServices(ctx, organization, environments, services); err != nil {
		return o, err
	}
	o.Contacts, err = reads.Contacts(ctx, organization, environments)
	return o, err
}

// healthy is the health of what the rollout has deployed to an environment (R3-17). A deployment counts once its program has reported
// that exactly its version became healthy, and then as the latest observation after that says: an observation from before concerns what
// ran earlier, and never opens a passage (R3-19). Anything degraded is a failure. Observers report changes only, so what they have
// reported is current as long as the agent of the environment can be reached. A retired service counts no more: people take it away.
func (c Checks) healthy(pinned PinnedCheck, place CheckPlace) CheckState {
	s := CheckState{PinnedCheck: pinned, Phase: CheckPending, Since: place.Completed, Detail: "the rollout has not completed there yet"}
	seen := map[int64]ServiceHealth{}
	for _, h := range c.Observed.Healths[pinned.EnvironmentID] {
		seen[h.ServiceID] = h
	}
	waits := place.Completed == nil
	for _, d := range place.Deployments {
		health, reason, since := healthOf(d, seen[d.ServiceID])
		if health == HealthHealthy || c.Retired[d.ServiceID] {
			continue
		}
		detail := Because(fmt.Sprintf("%s is %s", c.service(d.ServiceID), health), reason)
		if health == HealthDegraded {
			s.Phase, s.Detail, s.Since = CheckFailure, detail, since
			return s
		}
		if !waits {
			waits, s.Detail, s.Since = true, detail, since
		}
	}
	contact, known := c.Observed.Contacts[pinned.EnvironmentID]
	switch {
	case waits:
	case len(place.Deployments) == 0:
		s.Detail = "the rollout has no deployment there"
	case known && !contact.Reachable:
		s.Detail, s.Since = Because("the health is not known at present: the agent cannot be reached", contact.Reason), &contact.Since
	default:
		s.Phase, s.Detail = CheckSuccess, "everything that was deployed is healthy"
		if pinned.InSync {
			c.inSync(&s, place)
		}
	}
	return s
}

// inSync makes a healthy state wait while something differs in the environment from what was deployed, or that is not known (R4-11). What
// was observed before the rollout deployed there says nothing about what it has deployed (R3-19).
func (c Checks) inSync(s *CheckState, place CheckPlace) {
	r, known := c.InForce[place.EnvironmentID]
	stale := r.StaleReason()
	for _, d := range place.Deployments {
		if stale == "" && d.StartedAt != nil && !r.ObservedAt.After(*d.StartedAt) {
			stale = "nobody has looked since the rollout deployed there"
		}
	}
	if !known {
		stale = "nobody has looked yet"
	}
	was := s.Detail
	s.Phase = CheckPending
	switch {
	case stale != "" && len(r.Objects) > 0:
		s.Detail = fmt.Sprintf("it is not known whether something differs from what was deployed: %s; before that: %s", stale, r.Drift())
	case stale != "":
		s.Detail = "it is not known whether something differs from what was deployed: " + stale
	case len(r.Objects) > 0:
		s.Detail, s.Since = "it is healthy, and not as it was deployed: "+r.Drift(), &r.Since
	default:
		s.Phase, s.Detail = CheckSuccess, was+", and nothing differs from it"
	}
}

// unhealthy are the environments among those that are followed in which something is known to be unhealthy that the rollout has deployed
// there: one row for each. What is not known, such as while an agent cannot be reached, keeps nothing closed; a check of kind health does,
// and has a row of its own.
func (c Checks) unhealthy(places []CheckPlace, followed []int) []CheckState {
	var all []CheckState
	for _, i := range followed {
		place := places[i]
		declared := slices.ContainsFunc(c.Pinned, func(p PinnedCheck) bool {
			return p.Kind == CheckHealth && p.Target == CheckActive && p.EnvironmentID == place.EnvironmentID
		})
		if place.Completed == nil || declared {
			continue
		}
		seen := map[int64]ServiceHealth{}
		for _, h := range c.Observed.Healths[place.EnvironmentID] {
			seen[h.ServiceID] = h
		}
		s := CheckState{Phase: CheckSuccess, PinnedCheck: PinnedCheck{
			Check: Check{Key: string(CheckPrevious), Kind: CheckPrevious}, EnvironmentID: place.EnvironmentID, Target: CheckActive,
		}}
		contact, known := c.Observed.Contacts[place.EnvironmentID]
		for _, d := range place.Deployments {
			at := seen[d.ServiceID]
			if c.Retired[d.ServiceID] || known && !contact.Reachable && d.FinishedAt != nil && at.ObservedAt.After(*d.FinishedAt) {
				continue // what was observed last says nothing, or is not known to be so any more
			}
			health, reason, since := healthOf(d, at)
			if health != HealthDegraded && health != HealthProgressing || s.Phase == CheckPending && health == HealthProgressing {
				continue
			}
			s.Phase, s.Detail, s.Since = CheckPending, Because(fmt.Sprintf("%s is %s", c.service(d.ServiceID), health), reason), since
			if health == HealthDegraded {
				s.Phase = CheckFailure
				break
			}
		}
		if s.Phase != CheckSuccess {
			all = append(all, s)
		}
	}
	return all
}

// healthOf is the health of what one deployment has brought, why, and since when.
func healthOf(d Deployment, seen ServiceHealth) (health Health, reason string, since *time.Time) {
	switch {
	case d.State == DeploymentDegraded && (d.FinishedAt == nil || !seen.ObservedAt.After(*d.FinishedAt)):
		return HealthDegraded, "its deployment ended so", d.FinishedAt
	case d.State != DeploymentHealthy && d.State != DeploymentDegraded:
		return HealthUnknown, "its deployment is " + string(d.State), d.StartedAt
	case d.FinishedAt == nil || !seen.ObservedAt.After(*d.FinishedAt):
		return HealthHealthy, "", d.FinishedAt
	default:
		return seen.Health, seen.Reason, &seen.Since
	}
}

// RetiredOf are the services among some that were retired.
func RetiredOf(services []Service) map[int64]bool {
	retired := map[int64]bool{}
	for _, s := range services {
		if s.RetiredAt != nil {
			retired[s.ID] = true
		}
	}
	return retired
}

// service is what people call a service.
func (c Checks) service(id int64) string {
	if name := c.Services[id]; name != "" {
		return name
	}
	return fmt.Sprintf("service_%d", id)
}
