package policy

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/policy"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
)

// MaxSimulated is how many recorded decisions of each kind a simulation evaluates.
const MaxSimulated = 5000

// MaxDifferent is how many differences of each kind a simulation lists.
const MaxDifferent = 200

// SincePlace is a place in the order of what was decided, the latest first.
type SincePlace struct {
	At time.Time
	ID int64
}

// latest is the place before all.
func latest() SincePlace {
	return SincePlace{time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC), math.MaxInt64}
}

// Simulated is a simulation of a new text on recorded decisions.
type Simulated struct {
	// Evaluated is how many decisions about rollouts there were, the latest ones, and EvaluatedCalls how many about calls of Functions;
	// Truncated that there were more of either.
	Evaluated, EvaluatedCalls int
	Truncated                 bool
	// SampledCalls are how many of the calls all policies had permitted at once: few of those are recorded.
	SampledCalls int
	// Different and DifferentCalls are those that would have been different, the latest MaxDifferent first, of as many as the counts say.
	Different                          []Difference
	DifferentCalls                     []CallDifference
	DifferentCount, DifferentCallCount int
}

// Difference is a decision that would have been different.
type Difference struct {
	core.PolicyDecision
	Would policy.Decision
}

// CallDifference is a decision about a call that would have been different.
type CallDifference struct {
	core.CallRequest
	Would policy.Decision
}

// simulation is what recorded decisions are decided by again.
type simulation struct {
	engine *Engine
	sets   []core.PolicySet
	names  Names
	// combined are the policies of those that were asked already, by what they are about: there are few, and many decisions.
	combined map[string]combined
}

// combined are policies that are ready to decide, or the denial where they cannot be used.
type combined struct {
	set    *policy.Set
	failed *policy.Decision
}

// by are the policies about an action in an application and some environments.
func (s simulation) by(action policy.Action, application string, places []policy.Environment) combined {
	names := make([]string, len(places))
	for i, e := range places {
		names[i] = e.Name
	}
	slices.Sort(names)
	key := fmt.Sprintf("%s %q %q", action, application, names)
	if known, is := s.combined[key]; is {
		return known
	}
	sets, environments := s.concerning(application, places)
	var made combined
	made.set, made.failed = s.engine.Combined(action, sets, application, environments)
	if len(s.combined) < maxCombined {
		s.combined[key] = made
	}
	return made
}

// maxCombined is how many combinations a simulation keeps.
const maxCombined = 1000

// Simulate decides again what was decided since an instant, as if a set had a new text and were enforced; everything else is as it is now.
// Of calls those are recorded that policies did not permit at once, or that policies which are tried out would not have permitted, and a
// sample of the others.
func (u *UseCases) Simulate(ctx context.Context, a core.Actor, n NewPolicySet, since time.Time) (Simulated, error) {
	var found Simulated
	// It shows what all policies say, and costs what they do.
	if err := a.MaySomewhere(core.ActionPutPolicySet); err != nil {
		return found, err
	}
	names, err := u.store.PolicyNames(ctx, a.Organization)
	if err != nil {
		return found, err
	}
	if err := u.valid(n.Text, names); err != nil {
		return found, err
	}
	all, err := u.store.PolicySets(ctx, a.Organization)
	if err != nil {
		return found, err
	}
	tried := core.PolicySet{Name: n.Name, ApplicationID: n.ApplicationID, EnvironmentID: n.EnvironmentID, Labels: n.Labels, TimeZone: "UTC"}
	if at := slices.IndexFunc(all, func(one core.PolicySet) bool { return one.Name == n.Name }); at >= 0 {
		tried = all[at]
		all = slices.Delete(all, at, at+1)
	}
	tried.Text, tried.Mode = n.Text, core.PolicyEnforced
	override(&tried.TimeZone, n.TimeZone)
	s := simulation{u.engine, slices.Concat(all, []core.PolicySet{tried}, u.installation), names, map[string]combined{}}
	if err := u.simulateRollouts(ctx, a.Organization, s, since, &found); err != nil {
		return found, err
	}
	return found, u.simulateCalls(ctx, a.Organization, s, since, &found)
}

// simulateRollouts decides again about rollouts, a page at a time.
func (u *UseCases) simulateRollouts(ctx context.Context, organization int64, s simulation, since time.Time, found *Simulated) error {
	for after := latest(); found.Evaluated < MaxSimulated; {
		page, err := u.store.PolicyDecisionsSince(ctx, organization, since, after)
		if err != nil || len(page) == 0 {
			return err
		}
		for _, d := range page {
			after = SincePlace{d.CreatedAt, d.ID}
			found.Evaluated++
			would := s.decide(d.Request)
			if would.Verdict == d.Verdict {
				continue
			}
			if found.DifferentCount++; found.DifferentCount <= MaxDifferent {
				found.Different = append(found.Different, Difference{d, would})
			}
		}
	}
	found.Truncated = true
	return nil
}

// simulateCalls decides again about calls, a page at a time.
func (u *UseCases) simulateCalls(ctx context.Context, organization int64, s simulation, since time.Time, found *Simulated) error {
	read := 0
	for after := latest(); read < MaxSimulated; {
		page, err := u.store.CallRequestsSince(ctx, organization, since, after)
		if err != nil || len(page) == 0 {
			return err
		}
		for _, c := range page {
			after = SincePlace{c.CreatedAt, c.ID}
			read++
			would, recorded := s.decideCall(c)
			if !recorded {
				continue
			}
			found.EvaluatedCalls++
			if c.Sampled {
				found.SampledCalls++
			}
			if would.Verdict == c.Decision.Verdict {
				continue
			}
			if found.DifferentCallCount++; found.DifferentCallCount <= MaxDifferent {
				found.DifferentCalls = append(found.DifferentCalls, CallDifference{c, would})
			}
		}
	}
	found.Truncated = true
	return nil
}

// decide decides again about a rollout or a change of a control.
func (s simulation) decide(r policy.Request) policy.Decision {
	places := r.Environments
	switch r.Action {
	case policy.CreateRollout, policy.Rollback: // the sets of environments do not concern them
		places = nil
	case policy.EnterEnvironment, policy.PassGate, policy.BypassFreeze:
		places = nil
		if r.Environment != nil {
			places = []policy.Environment{*r.Environment}
		}
	case policy.FunctionCall, policy.CompleteRollout, policy.ChangeControl:
	}
	known := s.by(r.Action, r.Application, places)
	if known.failed != nil {
		return *known.failed
	}
	return known.set.Decide(r)
}

// concerning are the sets that concern an application and some environments, and these by number where a set is about them.
func (s simulation) concerning(application string, places []policy.Environment) ([]core.PolicySet, map[int64]string) {
	environments := map[int64]string{}
	var concerned []core.PolicySet
	for _, one := range s.sets {
		name := s.names.Environments[one.EnvironmentID]
		switch {
		case one.ApplicationID != 0 && s.names.Applications[one.ApplicationID] != application:
			continue
		case one.Labels != nil && !core.HasLabels(s.labelsOf(application), one.Labels):
			continue
		case one.EnvironmentID != 0 && !slices.ContainsFunc(places, func(e policy.Environment) bool { return e.Name == name }):
			continue
		case one.EnvironmentID != 0:
			environments[one.EnvironmentID] = name
		}
		concerned = append(concerned, one)
	}
	return concerned, environments
}

// labelsOf are the present labels of an application, by its name.
func (s simulation) labelsOf(application string) map[string]string {
	for id, name := range s.names.Applications {
		if name == application {
			return s.names.Labels[id]
		}
	}
	return nil
}

// decideCall decides again about a call; false if it was not recorded what was asked, or only people have decided.
func (s simulation) decideCall(c core.CallRequest) (policy.Decision, bool) {
	var call policy.Call
	if json.Unmarshal(c.Request, &call) != nil || call.Function == "" || c.Decision.Verdict == "" {
		return policy.Decision{}, false
	}
	known := s.by(policy.FunctionCall, call.Application, call.Environments)
	if known.failed != nil {
		return *known.failed, true
	}
	return known.set.DecideCall(call), true
}
