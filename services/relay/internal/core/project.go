package core

import (
	"maps"
	"strings"
)

// Project returns what an object has at the dotted paths, in place, without the rest: a watch reports changes of these fields only (D20). A
// path that leads nowhere is omitted. The result shares its values with the object.
func Project(o Object, fields []string) Object {
	kept := Object{}
	for _, field := range fields {
		path := strings.Split(field, ".")
		value := o.at(path...)
		if value == nil {
			continue
		}
		into := map[string]any(kept)
		for _, name := range path[:len(path)-1] {
			next, isObject := into[name].(map[string]any)
			if _, taken := into[name]; taken && !isObject {
				into = nil // a shorter path has taken all of it, or a value that is not an object
				break
			}
			// A copy: a shorter path may have put the object's own map here, which must not be modified.
			next = maps.Clone(next)
			if next == nil {
				next = map[string]any{}
			}
			into[name] = next
			into = next
		}
		if into != nil {
			into[path[len(path)-1]] = value
		}
	}
	return kept
}

// statusFields are the fields in the event about an Argo Rollout's status (E71); every watch of a Rollout has them.
func statusFields() []string {
	return []string{
		"status.phase", "status.currentStepIndex", "status.stableRS", "status.currentPodHash", "status.pauseConditions", "status.abort",
	}
}

// isRollout reports whether a kind is Argo Rollouts' Rollout.
func isRollout(k Kind) bool {
	return k.Kind == rolloutKind.Kind && (k.APIVersion == "" || strings.HasPrefix(k.APIVersion, "argoproj.io/"))
}

// RolloutStatus is an Argo Rollout's status in the form of the event (E71).
type RolloutStatus struct {
	Phase, StableRS, PodHash string
	Step                     int
	Pauses                   []string
	Aborted                  bool
}

// StatusOf reads the status of an Argo Rollout.
func StatusOf(o Object) RolloutStatus {
	step, _ := o.number("status", "currentStepIndex")
	return RolloutStatus{
		Phase: o.text("status", "phase"), StableRS: o.text("status", "stableRS"), PodHash: o.text("status", "currentPodHash"),
		Step: int(step), Pauses: pauseReasons(o), Aborted: o.flag("status", "abort"),
	}
}
