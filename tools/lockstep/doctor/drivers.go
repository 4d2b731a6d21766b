package doctor

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/lockstep-cd/lockstep/tools/lockstep/client"
)

// unasked is how long a tag may not have been resolved at its registry before an operator should look: services ask every five minutes.
const unasked = 24 * time.Hour

// drivers looks at where the deploy drivers come from, and whether each environment's is carried.
func (c Config) drivers(ctx context.Context, api *client.Client, environments []client.Environment) []Finding {
	list, err := api.Drivers(ctx)
	if err != nil {
		return []Finding{wrong("drivers", excerpt(err.Error()), "a token that may read is needed; the log of domain says why it does not answer")}
	}
	var findings []Finding
	for _, o := range list.Origins {
		findings = append(findings, c.origin(o))
	}
	carried := make([]string, len(list.Drivers))
	for i, d := range list.Drivers {
		carried[i] = d.Ref
	}
	for _, e := range environments {
		if len(e.DriverBindings) == 0 {
			continue
		}
		newest := slices.MaxFunc(e.DriverBindings, func(a, b client.DriverBinding) int { return a.Version - b.Version })
		if !slices.Contains(carried, newest.DriverRef) {
			findings = append(findings, wrong("driver of environment "+e.Name,
				newest.DriverRef+" is carried by nothing; there are "+strings.Join(carried, ", "),
				"put it back where it came from (drivers.artifacts or driver_dir of the domain service), or give the environment another driver"))
		}
	}
	return findings
}

// origin judges one origin. What was pulled before stays in force while its registry is away, or has something that is broken.
func (c Config) origin(o client.DriverOrigin) Finding {
	check := "drivers of " + o.Origin
	found := strings.Join(o.Drivers, ", ")
	if o.Digest != "" {
		found += " of " + o.Digest
	}
	switch {
	case o.Problem == "" && o.CheckedAt != nil && !strings.Contains(o.Origin, "@sha256:") && c.Clock.Now().Sub(*o.CheckedAt) > unasked:
		return warning(check, fmt.Sprintf("%s; its registry was asked last %v ago", found, c.Clock.Now().Sub(*o.CheckedAt).Round(time.Minute)),
			"is a domain service running that lists it in drivers.artifacts? See its log")
	case o.Problem == "":
		return ok(check, found)
	case len(o.Drivers) == 0:
		return wrong(check, "nothing is in force: "+o.Problem, driverRemedy(o.ProblemCode))
	default:
		return warning(check, found+" stay in force; what the registry has now is not: "+o.Problem, driverRemedy(o.ProblemCode))
	}
}

// driverRemedy is what can be done about a kind of problem that the domain service reports. One that this release does not know is taken
// for a problem of reaching the registry: that is the most frequent one.
func driverRemedy(code string) string {
	switch code {
	case "ALTERED":
		return "the content is not that of its digest: something between changed it, or the registry is broken; have the registry checked, and push the driver again under a new tag"
	case "BROKEN":
		return "the bundle is at fault: `lockstep driver check DIR` says where; mend it and `lockstep driver push` it again, or name the tag before it in drivers.artifacts"
	case "DENIED":
		return "do drivers.registries and their passwords let the domain service in, and does drivers.allow_networks? `lockstep driver pull` tries the same from here"
	case "NOT_FOUND":
		return "the registry has nothing under that name: `lockstep driver push` puts it there, or drivers.artifacts of the domain service names another"
	default:
		return "is the registry up, do drivers.registries and drivers.ca_file let the domain service in, and does its network policy? `lockstep driver pull` tries the same from here"
	}
}
