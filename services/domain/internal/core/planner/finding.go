package planner

import (
	"fmt"
	"slices"
	"strings"

	"github.com/lockstep-cd/lockstep/services/domain/internal/core/drift"
)

// Kind is what kind of thing a rollout changes.
type Kind string

// The kinds. A driver's program knows no others.
const (
	Image       Kind = "image"
	Replicas    Kind = "replicas"
	PodTemplate Kind = "pod_template"
	ConfigMap   Kind = "config_map"
	Secret      Kind = "secret"
	// Other is everything that neither runs nor configures pods, such as a Service.
	Other Kind = "other"
)

// Words is the kind for people.
func (k Kind) Words() string {
	switch k {
	case PodTemplate:
		return "pod template"
	case ConfigMap:
		return "config map"
	case Other:
		return "other object"
	default:
		return string(k)
	}
}

// Thing is one thing that a rollout changes. It is kept in this form.
type Thing struct {
	Kind Kind `json:"kind"`
	// Action is added, removed or changed.
	Action string `json:"action"`
	// Object is its name, such as Deployment/api.
	Object string `json:"object"`
	// Namespace is that of the object; empty if it has none, or if that is unknown.
	Namespace string `json:"namespace,omitempty"`
	// Detail is what it was and what it becomes; empty if that is not shown.
	Detail string `json:"detail,omitempty"`
	// Held are fields of it that others have taken over.
	Held []drift.Held `json:"held,omitempty"`
}

// sentence is the thing as part of a sentence.
func (t Thing) sentence() string {
	if t.Detail == "" {
		return fmt.Sprintf("%s %s %s", t.Kind.Words(), t.Object, t.Action)
	}
	return fmt.Sprintf("%s of %s: %s", t.Kind.Words(), t.Object, cut(t.Detail, shownDetail))
}

// shownDetail is how much of a detail a sentence has, and shownThings how many things.
const (
	shownDetail = 160
	shownThings = 3
)

// Compared is what a driver's program has found in one environment: the manifests that run now, and those that would.
type Compared struct {
	Environment string
	// Reason is why it could not compare; empty if it could.
	Reason string
	// Workloads is how many objects with pods run or would run.
	Workloads int
	Things    []Thing
}

// Find is what the comparisons of all environments of a rollout mean (R4-19). The program of a driver only lists what changes; what follows
// is decided here, and what it lists must fit what is known: added are the new images, so a change of an image must be listed.
// Whatever is missing or contradicts leaves the pipeline in force.
func Find(environments []string, all []Compared, added []string) Finding {
	pipeline := func(format string, args ...any) Finding { return Finding{Pipeline, fmt.Sprintf(format, args...)} }
	var things []Thing
	workloads := 0
	for _, name := range environments {
		i := slices.IndexFunc(all, func(c Compared) bool { return c.Environment == name })
		switch {
		case i < 0:
			return pipeline("the driver has not compared the manifests of %s", name)
		case all[i].Reason != "":
			return pipeline("the manifests of %s could not be compared: %s", name, cut(all[i].Reason, shownDetail))
		}
		things, workloads = append(things, all[i].Things...), workloads+all[i].Workloads
	}
	of := func(kinds ...Kind) (found []Thing) {
		for _, t := range things {
			if slices.Contains(kinds, t.Kind) {
				found = append(found, t)
			}
		}
		return found
	}
	if images := of(Image); len(images) > 0 {
		return pipeline("%s", list(images))
	}
	if len(added) > 0 {
		return pipeline("%s is new, and the driver lists no image that changes", added[0])
	}
	for _, kind := range []Kind{PodTemplate, ConfigMap, Secret} {
		if found := of(kind); len(found) > 0 {
			return pipeline("%s", list(found))
		}
	}
	if unknown := slices.IndexFunc(things, func(t Thing) bool { return t.Kind != Replicas && t.Kind != Other }); unknown >= 0 {
		return pipeline("the driver lists a change of unknown kind %q", cut(string(things[unknown].Kind), shownSHA))
	}
	if found := of(Replicas); len(found) > 0 {
		return Finding{Quick, scales + " (" + list(found) + ")"}
	}
	if workloads == 0 {
		return Finding{Quick, noWorkload}
	}
	return Finding{Quick, sameWorkloads}
}

// What a finding of a quick sync says; of scales it is the beginning.
const (
	scales        = "to scale: only replicas change"
	noWorkload    = "the manifests have no workload"
	sameWorkloads = "no workload and no configuration changes"
)

// Compares reports whether a comparison has made a rollout a quick sync. It says nothing about what a later one would deploy.
func Compares(d Decision) bool {
	return d.Strategy == Quick && (d.Why == noWorkload || d.Why == sameWorkloads || strings.HasPrefix(d.Why, scales))
}

// list are the first of some things, and how many others there are.
func list(things []Thing) string {
	parts := make([]string, 0, shownThings)
	seen := map[string]bool{}
	for _, t := range things {
		if s := t.sentence(); !seen[s] {
			seen[s] = true
			parts = append(parts, s)
		}
	}
	if more := len(parts) - shownThings; more > 0 {
		return fmt.Sprintf("%s, and %d more", strings.Join(parts[:shownThings], "; "), more)
	}
	return strings.Join(parts, "; ")
}
