package main

// root is the path that all our modules share.
const root = "github.com/lockstep-cd/lockstep/"

// rule says what the packages of one layer may import.
type rule struct {
	// layer names the rule in messages.
	layer string
	// packages are patterns of import paths below root; the first rule that matches a package is its rule. * stands for one
	// path element, ** at the end for any number including none. SERVICE stands for one element and is the same throughout a rule.
	packages []string
	// ours are patterns of our own packages that may be imported.
	ours []string
	// never are patterns of other packages, the standard library's included, that may not be.
	never []string
	// onlyStandard refuses every third party.
	onlyStandard bool
}

// table is the architecture. conventions: core is pure; adapters know core and one outside technology each and never each
// other; only a service's root knows two adapters; services know each other by contract only.
func table() []rule {
	var (
		sql   = []string{"database/sql/**", "github.com/jackc/pgx/**", "github.com/pressly/goose/**"}
		nats  = []string{"github.com/nats-io/**", "github.com/cloudevents/sdk-go/protocol/**"}
		kube  = []string{"k8s.io/**", "sigs.k8s.io/**"}
		star  = []string{"go.starlark.net/**"}
		grpcs = []string{"google.golang.org/grpc/**"}
	)
	return []rule{
		{layer: "contract", packages: []string{"proto/**"}, never: join(sql, nats, kube, star)},

		{layer: "leaf", packages: []string{"pkg/clock/**", "pkg/id", "pkg/fault", "pkg/turn", "pkg/fair", "pkg/near", "pkg/pattern", "pkg/text", "pkg/secret/reference"}, ours: []string{"pkg/clock"}, onlyStandard: true},
		{
			layer: "event catalogue", packages: []string{"pkg/event/**"},
			ours:  []string{"proto/**", "pkg/clock", "pkg/id", "pkg/fault", "pkg/schema", "pkg/event/**"},
			never: join(sql, nats, kube, star, grpcs),
		},
		// It speaks Git, and nothing else.
		{layer: "git", packages: []string{"pkg/gitfetch"}, ours: []string{"pkg/fault", "pkg/fair", "pkg/telemetry"}, never: join(sql, nats, kube, star, grpcs)},
		{layer: "mechanics", packages: []string{"pkg/**"}, ours: []string{"pkg/**", "proto/**"}, never: kube},

		{
			layer: "core", packages: []string{"services/SERVICE/internal/core/**"},
			ours:         []string{"pkg/clock", "pkg/id", "pkg/fault", "pkg/turn", "pkg/fair", "pkg/pattern", "pkg/text", "pkg/secret/reference", "services/SERVICE/internal/core/**"},
			never:        []string{"database/sql/**", "net/http/**", "net/rpc/**", "net/smtp", "os/exec", "log"},
			onlyStandard: true,
		},
		{
			layer: "store", packages: []string{"services/SERVICE/internal/store/**"},
			ours: []string{
				"services/SERVICE/internal/core/**", "services/SERVICE/internal/store/**",
				"pkg/clock", "pkg/id", "pkg/fault", "pkg/fair", "pkg/pg/**", "pkg/outbox", "pkg/event", "pkg/telemetry",
			},
			never: join(nats, kube, star, grpcs, []string{"net/http"}),
		},
		{
			layer: "events", packages: []string{"services/SERVICE/internal/events/**"},
			ours: []string{
				"services/SERVICE/internal/core/**", "services/SERVICE/internal/events/**", "proto/**",
				"pkg/clock", "pkg/id", "pkg/fault", "pkg/bus", "pkg/event", "pkg/telemetry",
			},
			never: join(sql, kube, star),
		},
		{
			layer: "api", packages: []string{"services/SERVICE/internal/api/**"},
			ours: []string{
				"services/SERVICE/internal/core/**", "services/SERVICE/internal/api/**", "proto/**",
				"pkg/clock", "pkg/id", "pkg/fault", "pkg/text", "pkg/throttle", "pkg/rpc", "pkg/event", "pkg/telemetry", "pkg/schema",
			},
			never: join(sql, nats, kube, star),
		},
		adapter("registry", "source", join(sql, nats, kube, star), "pkg/event", "pkg/source"),
		adapter("registry", "oci", join(sql, nats, kube, star), "pkg/source", "pkg/ociauth"),
		adapter("registry", "git", join(sql, nats, kube, star), "pkg/source", "pkg/gitfetch"),
		adapter("domain", "console", join(sql, nats, kube, star)),
		adapter("domain", "bundle", join(sql, nats, kube, star), "pkg/driver/**", "pkg/flow", "pkg/source"),
		adapter("domain", "oidc", join(sql, nats, kube, star, grpcs)),
		adapter("domain", "autoflow", join(sql, nats, kube, star), "proto/**", "pkg/rpc", "pkg/telemetry"),
		adapter("workflow", "script", join(sql, nats, kube), "pkg/yamltext"),
		adapter("workflow", "sandbox", join(sql, nats, kube, star), "pkg/fair"),
		adapter("workflow", "function", join(sql, nats, kube, star), "pkg/yamltext"),
		// The simulation runs the core with real programs: the one adapter that it knows is the machine.
		adapter("workflow", "simulation", join(sql, nats, kube, grpcs), "services/workflow/internal/script"),
		adapter("workflow", "model", join(sql, nats, kube, star, grpcs)),
		adapter("workflow", "git", join(sql, nats, kube, star), "pkg/turn", "pkg/gitfetch", "pkg/secret", "pkg/secret/reference"),
		adapter("relay", "cluster", join(sql, nats, star)),
		{
			layer: "composition root", packages: []string{"services/SERVICE"},
			ours: []string{"services/SERVICE/internal/**", "pkg/**", "proto/**"},
		},
		{layer: "command", packages: []string{"services/SERVICE/cmd/SERVICE"}, ours: []string{"services/SERVICE", "pkg/run", "pkg/config"}, onlyStandard: true},

		{layer: "tool", packages: []string{"tools/**"}, ours: []string{"**"}},
	}
}

// adapter is what a service has beside the four layers that all share: it may know its core and the leaves.
func adapter(service, name string, never []string, also ...string) rule {
	own := "services/" + service + "/internal/"
	return rule{
		layer:    "adapter " + name,
		packages: []string{own + name + "/**"},
		ours: append([]string{
			own + "core/**", own + name + "/**", "pkg/clock", "pkg/id", "pkg/fault", "pkg/telemetry",
		}, also...),
		never: never,
	}
}

func join(lists ...[]string) []string {
	var all []string
	for _, l := range lists {
		all = append(all, l...)
	}
	return all
}

// badNames say nothing about what a package holds.
func badNames() []string {
	return []string{"util", "utils", "common", "helper", "helpers", "types", "models", "base", "misc", "shared"}
}
