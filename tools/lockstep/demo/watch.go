package demo

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/pkg/fault"
)

// watchInterval is how often the watcher looks at the cluster.
const watchInterval = 50 * time.Millisecond

// key is one service in one environment.
type key struct{ environment, service string }

// Watcher looks at every Rollout of a scenario while rollouts run, and checks what no service can hide: that none passes a
// gate before all have reached it, and that none passes one twice.
type Watcher struct {
	world *World
	// moved is called whenever the position of a service has changed.
	moved func(environment, service string, before, now position)
	last  map[key]position
	// target is the digest that each service is on its way to.
	target map[string]string
	// canary are those that have been seen between two versions since the last Expect: a first deploy, and a return to what is
	// stable, have no canary, and nothing to wait for each other at.
	canary map[key]bool
	// passes counts, since its image changed, how often each gate was left behind.
	passes map[key]map[int]int
	// highest is the highest gate passed since the last Expect.
	highest map[key]int
	broken  error
}

// NewWatcher makes a watcher; moved may be nil.
func NewWatcher(w *World, moved func(environment, service string, before, now position)) *Watcher {
	if moved == nil {
		moved = func(string, string, position, position) {}
	}
	x := &Watcher{world: w, moved: moved, last: map[key]position{}}
	x.Expect(nil)
	return x
}

// Expect begins anew, for a rollout to these digests, by service.
func (x *Watcher) Expect(digests map[string]string) {
	x.target, x.canary = digests, map[key]bool{}
	x.passes, x.highest = map[key]map[int]int{}, map[key]int{}
}

// During watches while do runs, and answers its error, or else the rule that was broken.
func (x *Watcher) During(ctx context.Context, do func(context.Context) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			x.look(ctx)
			if clock.Sleep(ctx, x.world.Clock, watchInterval) != nil {
				return
			}
		}
	}()
	err := do(ctx)
	cancel()
	<-done
	x.look(context.WithoutCancel(ctx)) // where it ended
	return errors.Join(err, x.broken)
}

// look reads every Rollout once.
func (x *Watcher) look(ctx context.Context) {
	for _, stage := range x.world.Scenario.Stages {
		// Two passes, because objects are read one after the other: each is then read both before and after every other one.
		services := append(append([]string{}, x.world.Scenario.Services...), x.world.Scenario.Services...)
		seen := make([]position, 0, len(services))
		for _, service := range services {
			p, err := x.world.cluster.rollout(ctx, x.world.Scenario.Namespace(stage), service)
			if err != nil && !fault.Is(err, fault.NotFound) {
				return // the cluster is away for a moment; the next look will see
			}
			seen = append(seen, p)
			x.note(stage, service, p)
		}
		for i, first := range seen {
			for j := i + 1; j < min(i+len(x.world.Scenario.Services), len(seen)); j++ {
				x.compare(stage, services[i], first, services[j], seen[j])
			}
		}
	}
}

// compare holds the product's signature: what was read first has not passed a gate that what was read later has not reached.
func (x *Watcher) compare(stage Stage, first string, a position, later string, b position) {
	if x.broken != nil {
		return
	}
	passed := x.passed(key{stage.Environment, first}, a)
	for _, gate := range stage.Gates {
		if passed >= gate && (b.digest() != x.target[later] || !b.reached(gate)) {
			x.broken = fmt.Errorf("%s: %s has passed gate %d while %s has not reached it: %+v, %+v", stage.Environment, first, gate, later, a, b)
			return
		}
	}
}

// passed is the highest gate that a service has left behind on its way to its target; 0 where there is no canary.
func (x *Watcher) passed(k key, p position) int {
	switch {
	case !x.canary[k] || p.digest() != x.target[k.service]:
		return 0
	case p.Stable:
		return 100
	default:
		return p.Passed
	}
}

// note records what is new about one service.
func (x *Watcher) note(stage Stage, service string, now position) {
	k := key{stage.Environment, service}
	before := x.last[k]
	if before == now {
		return
	}
	x.last[k] = now
	if before.Image != now.Image {
		delete(x.passes, k)
	}
	if now.digest() == x.target[service] && now.Canary {
		x.canary[k] = true
	}
	for _, gate := range stage.Gates {
		if x.passed(k, before) < gate && x.passed(k, now) >= gate {
			x.pass(k, gate)
		}
	}
	x.highest[k] = max(x.highest[k], x.passed(k, now))
	x.moved(stage.Environment, service, before, now)
}

func (x *Watcher) pass(k key, gate int) {
	if x.passes[k] == nil {
		x.passes[k] = map[int]int{}
	}
	x.passes[k][gate]++
	if x.passes[k][gate] > 1 && x.broken == nil {
		x.broken = fmt.Errorf("%s: %s has passed gate %d twice", k.environment, k.service, gate)
	}
}

// Highest is the highest gate that a service has passed since the last Expect.
func (x *Watcher) Highest(environment, service string) int {
	return x.highest[key{environment, service}]
}
