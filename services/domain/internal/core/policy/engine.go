// Package policy holds the use cases of policies: putting versions of policy sets, trying them out on recorded decisions, and deciding
// about rollouts by those that concern them (D51).
//
// What a policy is, and how it is evaluated, is in pkg/policy. When a decision is taken is for package rollout.
package policy

import (
	"crypto/sha256"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/policy"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
)

// Engine decides by stored policies. It keeps what it has parsed. It is safe for concurrent use; its zero value is ready.
type Engine struct {
	mu     sync.Mutex
	parsed map[[sha256.Size]byte]parsed
}

// maxParsed is how many texts an Engine keeps.
const maxParsed = 512

type parsed struct {
	document *policy.Document
	problems []policy.Problem
}

func (e *Engine) parse(text string) parsed {
	key := sha256.Sum256([]byte(text))
	e.mu.Lock()
	known, ok := e.parsed[key]
	e.mu.Unlock()
	if ok {
		return known
	}
	known.document, known.problems = policy.Parse(text)
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.parsed == nil || len(e.parsed) >= maxParsed {
		e.parsed = map[[sha256.Size]byte]parsed{}
	}
	e.parsed[key] = known
	return known
}

// Decide decides about a request that concerns an environment, or none, by the latest policies and by those that are pinned: the stricter
// verdict holds, so that weakening a policy changes nothing for rollouts under way. Of an application's sets there are only those of the
// request's in sets.
func (e *Engine) Decide(sets []core.ConcerningPolicy, environment int64, r policy.Request) policy.Decision {
	var latest, pinned []core.PolicySet
	for _, s := range sets {
		if s.EnvironmentID != 0 && s.EnvironmentID != environment {
			continue
		}
		if s.Latest {
			latest = append(latest, s.PolicySet)
		}
		if s.Pinned {
			pinned = append(pinned, s.PolicySet)
		}
	}
	d := e.decide(latest, r)
	if len(pinned) == 0 {
		return d
	}
	return d.With(e.decide(pinned, r))
}

func (e *Engine) decide(sets []core.PolicySet, r policy.Request) policy.Decision {
	levels := []policy.Level{{Name: "the organization"}, {Name: fmt.Sprintf("application %q", r.Application)}, {Name: "the environment"}}
	if r.Environment != nil {
		levels[2].Name = fmt.Sprintf("environment %q", r.Environment.Name)
	}
	failed := e.fill(levels, sets, func(int64) int { return 2 })
	if failed != nil {
		return *failed
	}
	all, err := policy.Combine(levels...)
	if err != nil {
		return policy.Failed("all", err.Error())
	}
	return all.Decide(r)
}

// DecideCall decides about a call of a Function as the engine does, by sets that concern its run. Environments are those that the sets of
// an environment are about, by number.
func (e *Engine) DecideCall(sets []core.PolicySet, environments map[int64]string, c policy.Call) policy.Decision {
	levels := []policy.Level{{Name: "the organization"}, {Name: fmt.Sprintf("application %q", c.Application)}}
	places := map[int64]int{}
	for _, id := range slices.Sorted(maps.Keys(environments)) {
		places[id] = len(levels)
		levels = append(levels, policy.Level{Name: fmt.Sprintf("environment %q", environments[id])})
	}
	failed := e.fill(levels, sets, func(environment int64) int { return places[environment] })
	if failed != nil {
		return *failed
	}
	all, err := policy.CombineCalls(levels...)
	if err != nil {
		return policy.Failed("all", err.Error())
	}
	return all.Decide(c)
}

// fill puts sets into their levels: the organization's first, the application's second, and those of an environment where place says. The
// answer is the denial where one of them cannot be used; nil if all can.
func (e *Engine) fill(levels []policy.Level, sets []core.PolicySet, place func(environment int64) int) *policy.Decision {
	for _, s := range sets {
		if s.Mode == core.PolicyOff {
			continue
		}
		text := e.parse(s.Text)
		zone, err := time.LoadLocation(s.TimeZone)
		switch {
		case len(text.problems) > 0: // it was valid when it was written, and this release reads it otherwise
			failed := policy.Failed(s.Name, "the set cannot be read: "+text.problems[0].String())
			return &failed
		case err != nil:
			failed := policy.Failed(s.Name, fmt.Sprintf("the time zone %q is not known here", s.TimeZone))
			return &failed
		}
		level := &levels[0]
		if s.ApplicationID != 0 {
			level = &levels[1]
		} else if s.EnvironmentID != 0 {
			level = &levels[place(s.EnvironmentID)]
		}
		level.Members = append(level.Members, policy.Member{
			Name: s.Name, Document: text.document, Zone: zone, DryRun: s.Mode == core.PolicyDryRun,
		})
	}
	return nil
}
