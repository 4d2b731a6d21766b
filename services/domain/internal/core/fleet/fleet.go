// Package fleet is about environments of many clusters: which agents are the targets of a rollout, in which waves they are deployed, and
// whether the next wave may begin (D61). It is pure: it reads nothing but what it is given, and every stop has a sentence.
package fleet

import (
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/lockstep-cd/lockstep/pkg/fault"
)

// TargetsMost is how many targets an environment may have.
const TargetsMost = 1000

// defaultDeadline is how long a target may take that has no deadline of its own, in seconds.
const defaultDeadline = 3600

// Spec is the fleet of an environment, as its binding has it.
type Spec struct {
	// Selector has the labels that the agents of targets have: each with one of its values.
	Selector map[string]Values `json:"selector"`
	// OrderBy is the order of the targets: by name without it.
	OrderBy *Order `json:"order,omitempty"`
	// Waves are the sizes of the waves; the last one is repeated for as long as there are targets.
	Waves []Size `json:"waves"`
	// IntervalSeconds is how long a wave waits after the end of the one before.
	IntervalSeconds int `json:"interval_seconds,omitempty"`
	// Success is what a wave, and all waves so far, need for the rollout to continue. Without it every target has to be healthy.
	Success *Success `json:"success,omitempty"`
	// FreshnessSeconds is how long ago the wave before may have ended; 0 for any time.
	FreshnessSeconds int `json:"freshness_seconds,omitempty"`
	// DeadlineSeconds is how long one target may take; 0 for an hour.
	DeadlineSeconds int `json:"deadline_seconds,omitempty"`
	// AtEnd reports whether success is judged after the last wave only. A rollback has it pinned; nobody else may.
	AtEnd bool `json:"at_end,omitempty"`
}

// ForRollback is the fleet of a rollback: nothing between its waves keeps back the targets that are broken, and success is judged at the
// end.
func (s Spec) ForRollback() Spec {
	s.IntervalSeconds, s.FreshnessSeconds, s.AtEnd = 0, 0, true
	return s
}

// Values are those that a label may have; * is any.
type Values []string

// UnmarshalJSON reads one value, or a list of them.
func (v *Values) UnmarshalJSON(text []byte) error {
	var one string
	if json.Unmarshal(text, &one) == nil {
		*v = Values{one}
		return nil
	}
	return json.Unmarshal(text, (*[]string)(v))
}

// Order is how targets are sorted into waves: by the values of a label, or by a hash of their names, which mixes them.
type Order struct {
	Label string `json:"label,omitempty"`
	Hash  bool   `json:"hash,omitempty"`
}

// Size is that of a wave: a number of targets, or a part of all of them.
type Size struct {
	Targets int `json:"targets,omitempty"`
	Percent int `json:"percent,omitempty"`
}

// Success is what a rollout needs to continue.
type Success struct {
	// Wave is about the targets of the wave that has ended, and Overall about all targets of the environment.
	Wave    *Threshold `json:"wave,omitempty"`
	Overall *Threshold `json:"overall,omitempty"`
}

// Threshold is a bound of targets; what is nil is not bounded.
type Threshold struct {
	MinHealthyPercent *int `json:"min_healthy_percent,omitempty"`
	MaxFailed         *int `json:"max_failed,omitempty"`
}

// Target is an agent that may be one.
type Target struct {
	AgentID int64             `json:"agent_id"`
	Name    string            `json:"name"`
	Labels  map[string]string `json:"-"`
}

// Deadline is how long one target may take, in seconds.
func (s Spec) Deadline() int { return cmp.Or(s.DeadlineSeconds, defaultDeadline) }

// Selects reports whether an agent with some labels is a target.
func (s Spec) Selects(labels map[string]string) bool {
	for key, values := range s.Selector {
		value, has := labels[key]
		if !has || !slices.Contains(values, value) && !slices.Contains(values, "*") {
			return false
		}
	}
	return true
}

// Selection is the selector for people.
func (s Spec) Selection() string {
	parts := make([]string, 0, len(s.Selector))
	for key, values := range s.Selector {
		parts = append(parts, key+"="+strings.Join(values, "|"))
	}
	slices.Sort(parts)
	return strings.Join(parts, ", ")
}

// Plan are the waves in which a rollout deploys to those of the agents that the selector selects. The error is Refused for none, and for
// more than TargetsMost.
func (s Spec) Plan(environment string, agents []Target) ([][]Target, error) {
	targets := slices.DeleteFunc(slices.Clone(agents), func(t Target) bool { return !s.Selects(t.Labels) })
	switch {
	case len(targets) == 0:
		return nil, fault.New(fault.Refused, "environment %q has no targets: no agent has the labels %s", environment, s.Selection())
	case len(targets) > TargetsMost:
		return nil, fault.New(fault.Refused, "environment %q has %d targets with the labels %s; expected at most %d", environment, len(targets),
			s.Selection(), TargetsMost)
	}
	s.sort(targets)
	var waves [][]Target
	for begin := 0; begin < len(targets); {
		end := min(len(targets), begin+s.size(len(waves), len(targets)))
		waves = append(waves, targets[begin:end])
		begin = end
	}
	return waves, nil
}

// size is how many targets a wave has.
func (s Spec) size(wave, targets int) int {
	size := s.Waves[min(wave, len(s.Waves)-1)]
	if size.Targets > 0 {
		return size.Targets
	}
	return max(1, (targets*size.Percent+99)/100)
}

func (s Spec) sort(targets []Target) {
	key := func(Target) string { return "" }
	switch {
	case s.OrderBy == nil:
	case s.OrderBy.Hash:
		key = func(t Target) string {
			sum := sha256.Sum256([]byte(t.Name))
			return string(sum[:])
		}
	default:
		key = func(t Target) string {
			value, has := t.Labels[s.OrderBy.Label]
			if !has {
				return "1" // behind those that have one
			}
			return "0" + value
		}
	}
	slices.SortStableFunc(targets, func(a, b Target) int {
		return cmp.Or(strings.Compare(key(a), key(b)), strings.Compare(a.Name, b.Name), cmp.Compare(a.AgentID, b.AgentID))
	})
}

// WaveGate is the name of the passage of a wave, which counts from 1, and EndGate that of the end of all of them.
func WaveGate(environment string, wave int) string {
	return fmt.Sprintf("%s/wave-%d", environment, wave)
}

// EndGate is the name of the passage of the end of all waves.
func EndGate(environment string) string { return environment + "/waves" }

// WaveOf is the wave whose passage a gate of an environment of so many waves is; for that of their end, it is one more. 0 is any other
// gate.
func WaveOf(environment, gate string, waves int) int {
	if gate == EndGate(environment) {
		return waves + 1
	}
	var wave int
	if _, err := fmt.Sscanf(strings.TrimPrefix(gate, environment), "/wave-%d", &wave); err != nil || wave < 1 || wave > waves ||
		gate != WaveGate(environment, wave) {
		return 0
	}
	return wave
}
