package view

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
)

// Delivery metrics are DORA's (https://dora.dev/guides/dora-metrics/), worked out anew from the record whenever they are asked for: an
// event that comes twice counts once, one that comes late counts where it belongs, and every replica answers the same.
// docs/reference/delivery-metrics.md says what is counted as a change, a deployment, a failure and a recovery.

// DeliveryWindow is what delivery metrics are of: deployments of an application that were over from Since until before Until.
type DeliveryWindow struct {
	ApplicationID int64
	// EnvironmentIDs are those to include; none for all that the application's pipeline goes to.
	EnvironmentIDs []int64
	// Since is 30 days before Until when zero. Until is now when zero, and never later.
	Since, Until time.Time
}

// DeliverySearch is what the record is asked for: a page of a window, and what is around it.
type DeliverySearch struct {
	ApplicationID int64
	Environments  []int64
	Since, Until  time.Time
	// After is where the page begins: behind a rollout of the window, by when it was over and its number; at the window's beginning where
	// the number is 0.
	After   time.Time
	AfterID int64
	// Most is how many rollouts of the window are read, Around how many before, and how many behind it; with 0 none, nor any that is not over.
	Most, Around int
}

// Attempt is a rollout as delivery metrics see it.
type Attempt struct {
	RolloutID, VersionSetID int64
	// Within reports whether the rollout, not only one of its environments, was over in the window.
	Within bool
	// MadeAt is when the version set was made, AskedAt when the rollout was requested: before its beginning where it was queued.
	MadeAt, AskedAt time.Time
	// OverAt is when it was over; nil while it is not.
	OverAt *time.Time
	// Deliveries are what came of it in environments where it had begun.
	Deliveries []Delivery
}

// Delivery is an attempt that is over in one environment.
type Delivery struct {
	EnvironmentID int64
	// PreviousVersionSetID is the set that had been completed there before; 0 for none.
	PreviousVersionSetID int64
	// First reports whether no earlier rollout of the set has completed there.
	First bool
	// State is completed, failed or cancelled.
	State                 core.RolloutState
	StartedAt, FinishedAt time.Time
}

// DeliveryMetrics are those of an application in one environment.
type DeliveryMetrics struct {
	EnvironmentID int64
	Since, Until  time.Time
	// Deployments were completed, those of rollbacks among them. Reworked are those of them that were made because of a failure: rollbacks,
	// and whatever was the first to be completed after one.
	Deployments, Reworked int
	// Ended is how many were completed, failed or aborted: what Failures are a part of. Cancelled were neither.
	Ended, Failures, Cancelled int
	// Lead is from the version set to the end of its first deployment here. People is the part of it that people were waited for, Machine
	// the rest, soak times included, each of the same deployments.
	Lead, People, Machine Durations
	// Recovery is from each failure to when it was mended, be that behind the window; Unrecovered is how many have not been.
	Recovery    Durations
	Unrecovered int
}

// Durations describe a distribution; all zero for none.
type Durations struct {
	Count int
	Mean  time.Duration
	// Median and P90 are of the durations themselves (nearest rank), never between two of them.
	Median, P90, Longest time.Duration
}

const (
	// mostAttempts is how many rollouts one question may be about, attemptsAtOnce how many of them are read together, and longestWindow how
	// long its window may be.
	mostAttempts   = 20000
	attemptsAtOnce = 2000
	longestWindow  = 366 * 24 * time.Hour
	usualWindow    = 30 * 24 * time.Hour
	// attemptsAround is how many rollouts before and behind a window are looked at for what belongs to it.
	attemptsAround = 100
)

// DeliveryMetrics works the metrics out, in the order that was asked for, or else of the pipeline. The error is Invalid for a window that
// is malformed, or too wide.
func (u *UseCases) DeliveryMetrics(ctx context.Context, organization int64, w DeliveryWindow) ([]DeliveryMetrics, error) {
	w, err := w.bounded(u.clock.Now())
	if err != nil {
		return nil, err
	}
	environments := w.EnvironmentIDs
	if len(environments) == 0 {
		if environments, err = u.pipelineEnvironments(ctx, organization, w.ApplicationID); err != nil {
			return nil, err
		}
	}
	if len(environments) == 0 {
		return nil, nil
	}
	all, words, err := u.attempts(ctx, organization, w, environments)
	if err != nil {
		return nil, err
	}
	metrics := make([]DeliveryMetrics, len(environments))
	for i, environment := range environments {
		metrics[i] = measure(w, environment, all, words)
	}
	return metrics, nil
}

// attempts are the rollouts that a window's metrics are worked out of, in the order in which they were made, with what their journals say.
func (u *UseCases) attempts(
	ctx context.Context, organization int64, w DeliveryWindow, environments []int64,
) ([]Attempt, map[int64][]core.Transition, error) {
	search := DeliverySearch{
		ApplicationID: w.ApplicationID, Environments: environments, Since: w.Since, Until: w.Until, After: w.Since,
		Most: attemptsAtOnce, Around: attemptsAround,
	}
	found, words := map[int64]Attempt{}, map[int64][]core.Transition{}
	for within := 0; ; search.Around = 0 {
		page, err := u.Attempts(ctx, organization, search)
		if err != nil {
			return nil, nil, err
		}
		ids, before := make([]int64, len(page)), within
		for i, one := range page {
			ids[i] = one.RolloutID
			found[one.RolloutID] = one // what was on its way when an earlier page was read may be over by now
			if !one.Within {
				continue
			}
			within++
			if at := *one.OverAt; at.After(search.After) || at.Equal(search.After) && one.RolloutID > search.AfterID {
				search.After, search.AfterID = at, one.RolloutID
			}
		}
		if within > mostAttempts {
			return nil, nil, fault.InvalidFields(
				fault.Field{Name: "since", Problem: fmt.Sprintf("found more than %d rollouts in the window; expected a shorter one", mostAttempts)},
			)
		}
		requests, err := u.GateWordsByRollout(ctx, organization, ids)
		if err != nil {
			return nil, nil, err
		}
		maps.Copy(words, requests)
		if within-before < search.Most {
			break
		}
	}
	all := slices.Collect(maps.Values(found))
	slices.SortFunc(all, func(a, b Attempt) int { return cmp.Compare(a.RolloutID, b.RolloutID) })
	return all, words, nil
}

// bounded is the window with what it left open, and no later than now.
func (w DeliveryWindow) bounded(now time.Time) (DeliveryWindow, error) {
	if w.Until.IsZero() || w.Until.After(now) {
		w.Until = now
	}
	if w.Since.IsZero() {
		w.Since = w.Until.Add(-usualWindow)
	}
	if !w.Since.Before(w.Until) || w.Until.Sub(w.Since) > longestWindow {
		return w, fault.InvalidFields(fault.Field{Name: "since", Problem: fmt.Sprintf(
			"found %s with until %s; expected an earlier time, at most 366 days before", w.Since.Format(time.RFC3339), w.Until.Format(time.RFC3339),
		)})
	}
	return w, nil
}

// pipelineEnvironments are those that an application's latest pipeline goes to, in its order.
func (u *UseCases) pipelineEnvironments(ctx context.Context, organization, application int64) ([]int64, error) {
	known, err := u.ApplicationEnvironmentsByApplication(ctx, organization, []int64{application})
	if err != nil {
		return nil, err
	}
	var environments []int64
	for _, one := range known[application] {
		environments = append(environments, one.EnvironmentID)
	}
	return environments, nil
}

// landing is a delivery with the attempt that it is of.
type landing struct {
	Delivery
	of *Attempt
}

// goesBack reports whether it put an earlier version set in the place of a later one, or tried to.
func (l landing) goesBack() bool {
	return l.of.VersionSetID < l.PreviousVersionSetID && l.State != core.RolloutCancelled
}

// landings are what attempts came to in an environment, in the order of their ends.
func landings(all []Attempt, environment int64) []landing {
	var found []landing
	for i := range all {
		for _, one := range all[i].Deliveries {
			if one.EnvironmentID == environment {
				found = append(found, landing{one, &all[i]})
			}
		}
	}
	slices.SortStableFunc(found, func(a, b landing) int { return a.FinishedAt.Compare(b.FinishedAt) })
	return found
}

// bySet are the attempts of each version set, in the order in which they were made.
func bySet(all []Attempt) map[int64][]*Attempt {
	sets := map[int64][]*Attempt{}
	for i := range all {
		sets[all[i].VersionSetID] = append(sets[all[i].VersionSetID], &all[i])
	}
	return sets
}

// failing is a failure that nothing has mended yet.
type failing struct {
	at time.Time
	// counts reports whether it is one of the window's.
	counts bool
}

// measure works the metrics of an environment out of attempts in the order in which they were made, and what their journals say.
func measure(w DeliveryWindow, environment int64, all []Attempt, words map[int64][]core.Transition) DeliveryMetrics {
	m := DeliveryMetrics{EnvironmentID: environment, Since: w.Since, Until: w.Until}
	var lead, people, machine, recovery []time.Duration
	var open []failing
	every, ofSet := landings(all, environment), bySet(all)
	for i, one := range every {
		counts := !one.FinishedAt.Before(w.Since) && one.FinishedAt.Before(w.Until)
		completed := one.State == core.RolloutCompleted
		stoppedAt, restoredAt := aborted(one, words[one.of.RolloutID])
		failed := one.State == core.RolloutFailed || !stoppedAt.IsZero() || completed && takenBack(every[i+1:], one)
		if completed {
			for _, f := range open {
				if f.counts {
					recovery = append(recovery, one.FinishedAt.Sub(f.at))
				}
			}
		}
		if counts {
			switch {
			case completed:
				m.Deployments++
				if len(open) > 0 || one.goesBack() {
					m.Reworked++
				}
			case !failed:
				m.Cancelled++
			}
			if completed || failed {
				m.Ended++
			}
			if failed {
				m.Failures++
			}
			if !stoppedAt.IsZero() {
				recovery = append(recovery, restoredAt.Sub(stoppedAt))
			}
			if completed && one.First && !one.goesBack() {
				total := one.FinishedAt.Sub(one.of.MadeAt)
				waited := waitedFor(one, ofSet[one.of.VersionSetID], words)
				lead, people, machine = append(lead, total), append(people, waited), append(machine, total-waited)
			}
		}
		if completed {
			open = nil
		}
		// An abort has taken it back already; everything else stays as it is until the next deployment.
		if one.State == core.RolloutFailed || completed && takenBack(every[i+1:], one) {
			open = append(open, failing{one.FinishedAt, counts})
		}
	}
	for _, f := range open {
		if f.counts {
			m.Unrecovered++
		}
	}
	m.Lead, m.People, m.Machine, m.Recovery = durations(lead), durations(people), durations(machine), durations(recovery)
	return m
}

// takenBack reports whether what was completed was gone back from before anything else was completed there, successfully or not.
func takenBack(later []landing, one landing) bool {
	for _, next := range later {
		if next.goesBack() && next.PreviousVersionSetID == one.of.VersionSetID {
			return true
		}
		if next.State == core.RolloutCompleted {
			return false
		}
	}
	return false
}

// aborted is when an abort was requested, and when it was done; both zero without an abort.
func aborted(one landing, words []core.Transition) (stopped, standing time.Time) {
	for _, t := range words {
		if t.CreatedAt.Before(one.StartedAt) || t.CreatedAt.After(one.FinishedAt) {
			continue
		}
		if t.Verb == core.VerbAbort && stopped.IsZero() {
			stopped, standing = t.CreatedAt, one.FinishedAt
		}
		if t.To == core.State(core.RolloutPaused) && !stopped.IsZero() {
			return stopped, t.CreatedAt
		}
	}
	return stopped, standing
}

func durations(all []time.Duration) Durations {
	if len(all) == 0 {
		return Durations{}
	}
	slices.Sort(all)
	var total time.Duration
	for _, one := range all {
		total += one
	}
	rank := func(percent int) time.Duration { return all[(len(all)*percent+99)/100-1] }
	return Durations{Count: len(all), Mean: total / time.Duration(len(all)), Median: rank(50), P90: rank(90), Longest: all[len(all)-1]}
}
