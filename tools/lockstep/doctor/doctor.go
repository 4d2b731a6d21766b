// Package doctor examines an installation from outside: does each part answer, with the credentials given, with the tables and streams
// that it needs, with a clock and a certificate that are right. Each problem comes with what to do about it.
//
// It changes nothing, and it knows no rollout: the API says why one makes no progress.
package doctor

import (
	"context"
	"maps"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/clock"
)

// Config says what to examine. What is empty is left out.
type Config struct {
	// Endpoint is the GraphQL API, and Token what it is shown.
	Endpoint, Token string
	// Health are the addresses of services' health servers, as http://127.0.0.1:9090, by name.
	Health map[string]string
	// DatabaseURL is PostgreSQL, Schemas the services' schemas there.
	DatabaseURL string
	Schemas     []string
	// DatabaseStorage is how many bytes the database may take; 0: nobody knows.
	DatabaseStorage int64
	// Newest are the versions that the services of this release bring their tables to, by set of migrations; a set that is not
	// named is not compared.
	Newest map[string]int64
	// NATSURL is the event bus. The account, such as workflow, decides which streams can be looked at.
	NATSURL, NATSUser, NATSPassword string
	// NATSMonitor is the address of NATS's own monitoring, as http://nats:8222.
	NATSMonitor string
	// Agents are the relays whose heartbeats are waited for, for as long as Listen. Only the account workflow hears them.
	Agents []int64
	Listen time.Duration
	// TLS are further servers, host:port by name, whose certificates are looked at: what takes webhooks, the workflow service, an ingress.
	TLS map[string]string
	// Version is this command's release, which the relays' and the services' are compared with; empty: they are not.
	Version string
	// Clock is compared with the others'; nil is the system's.
	Clock clock.Clock
	// HTTP sends requests; nil is a client with a timeout.
	HTTP *http.Client
}

// State says how bad a finding is.
type State string

// The states of a finding.
const (
	OK      State = "ok"
	Warning State = "warning"
	Wrong   State = "wrong"
)

// Finding is one thing that was looked at.
type Finding struct {
	// Check is what was looked at: "database", "stream DOMAIN", "agent 7".
	Check string `json:"check"`
	State State  `json:"state"`
	// Found says what there is, Remedy what to do; Remedy is empty where all is well.
	Found  string `json:"found"`
	Remedy string `json:"remedy,omitempty"`
}

// within bounds one look at one part.
const within = 10 * time.Second

// Examine checks everything that is configured, all of it at once, and returns the findings in a fixed order. It returns when ctx
// ends at the latest.
func Examine(ctx context.Context, c Config) []Finding {
	if c.Clock == nil {
		c.Clock = clock.System()
	}
	if c.HTTP == nil {
		c.HTTP = &http.Client{Timeout: within}
	}
	var looks []func(context.Context) []Finding
	if c.Endpoint != "" {
		looks = append(looks, c.api, c.organization)
	}
	for _, name := range slices.Sorted(maps.Keys(c.Health)) {
		looks = append(looks, func(ctx context.Context) []Finding { return c.health(ctx, name, c.Health[name]) })
	}
	for _, name := range slices.Sorted(maps.Keys(c.TLS)) {
		looks = append(looks, func(ctx context.Context) []Finding { return c.server(ctx, name, c.TLS[name]) })
	}
	if c.DatabaseURL != "" {
		looks = append(looks, c.database)
	}
	if c.NATSURL != "" {
		looks = append(looks, c.bus)
	}
	if c.NATSMonitor != "" {
		looks = append(looks, c.monitored)
	}
	results := make([][]Finding, len(looks))
	var wg sync.WaitGroup
	for i, look := range looks {
		wg.Go(func() { results[i] = look(ctx) })
	}
	wg.Wait()
	return slices.Concat(results...)
}

// Worst is the worst state of some findings.
func Worst(findings []Finding) State {
	worst := OK
	for _, f := range findings {
		if f.State == Wrong || f.State == Warning && worst == OK {
			worst = f.State
		}
	}
	return worst
}

func ok(check, found string) Finding { return Finding{Check: check, State: OK, Found: found} }

func wrong(check, found, remedy string) Finding {
	return Finding{Check: check, State: Wrong, Found: found, Remedy: remedy}
}

func warning(check, found, remedy string) Finding {
	return Finding{Check: check, State: Warning, Found: found, Remedy: remedy}
}
