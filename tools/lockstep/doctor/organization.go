package doctor

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/lockstep-cd/lockstep/tools/lockstep/client"
)

// forgotten is how long an agent may be away before that is an error: a relay that is moved to another node is back sooner.
const forgotten = 5 * time.Minute

// organization checks what the token's organization has set up: whether its agents are connected, and its environments ready. Without a
// valid token it has nothing to add to the finding about the API.
func (c Config) organization(ctx context.Context) []Finding {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	api := client.New(client.Config{Endpoint: c.Endpoint, Token: c.Token, HTTP: c.HTTP})
	agents, err := api.Agents(ctx, true)
	if err != nil {
		return nil
	}
	var findings []Finding
	for _, a := range agents {
		if f, found := c.registered(a); found {
			findings = append(findings, f)
		}
	}
	environments, err := api.Environments(ctx)
	if err != nil {
		return findings
	}
	findings = append(findings, c.drivers(ctx, api, environments)...)
	for _, e := range environments {
		check := "environment " + e.Name
		switch e.Readiness {
		case "READY":
			findings = append(findings, ok(check, "is ready"))
		case "NOT_READY":
			findings = append(findings, wrong(check, "is not ready: "+e.ReadinessReason,
				"mend what the reason says, then `lockstep environment retry "+e.Name+"`"))
		default:
			findings = append(findings, warning(check, "is being checked",
				"if it stays so, see the workflow: `lockstep workflow list`; an agent that is away holds it up"))
		}
	}
	return findings
}

// registered is the finding about an agent's record; there is none about a revoked agent that no environment names any more.
func (c Config) registered(a client.Agent) (f Finding, found bool) {
	check := fmt.Sprintf("agent %d, %s", a.Number, a.Name)
	names := make([]string, len(a.Environments))
	for i, e := range a.Environments {
		names[i] = e.Name
	}
	switch {
	case a.RevokedAt != nil && len(names) > 0:
		return wrong(check, "is revoked, and environments name it: "+strings.Join(names, ", "),
			"register another with `lockstep agent register`, and give the environments its number; or archive them"), true
	case a.RevokedAt != nil:
		return Finding{}, false
	case usable(a, c.Clock.Now()) == 0:
		return wrong(check, "has no key that is good",
			fmt.Sprintf("`lockstep agent rotate %s --seed-file relay.nk` makes one; give it to the relay", a.Name)), true
	case a.Connected:
		return ok(check, "is connected"), true
	case a.LastSeenAt == nil:
		return warning(check, "has never connected",
			"give its relay number and seed (charts/lockstep-relay), and let it reach NATS; revoke an agent that is not needed"), true
	}
	away := c.Clock.Now().Sub(*a.LastSeenAt).Round(time.Second)
	if away < forgotten {
		return warning(check, fmt.Sprintf("is not connected, and was seen %v ago", away), "it may be restarting: look again in a minute"),
			true
	}
	return wrong(check, fmt.Sprintf("is not connected, and was seen %v ago", away),
		"is its relay running, with the key that was rotated last, and can it reach NATS? kubectl -n lockstep-relay logs deployment/lockstep-relay"), true
}

// usable counts the keys of an agent that are good now.
func usable(a client.Agent, now time.Time) int {
	n := 0
	for _, k := range a.Keys {
		if k.RevokedAt == nil && (k.ExpiresAt == nil || k.ExpiresAt.After(now)) {
			n++
		}
	}
	return n
}
