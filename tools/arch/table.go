package main

import (
	"path"
	"slices"
)

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
	// never are patterns of packages that may not be imported: other people's, the standard library's, and exceptions to ours.
	never []string
	// onlyStandard refuses every third party.
	onlyStandard bool
}

// secretRules are about what logs in somewhere. outside are technologies that none of it knows.
func secretRules(outside []string) []rule {
	return []rule{
		// Keys of SSH: a library.
		{layer: "keys", packages: []string{"pkg/sshkey"}, ours: []string{"pkg/fault"}, never: outside},
		// What credentials are bound to; the keys are above it.
		{layer: "sealing", packages: []string{"pkg/sealing"}, ours: []string{"pkg/fault", "pkg/secret/reference", "pkg/sshkey"}, onlyStandard: true},
		{layer: "credentials", packages: []string{"pkg/sealing/book"}, ours: []string{"pkg/clock/**", "pkg/fault", "pkg/sealing"}, onlyStandard: true},
		// Clients of registries and of what issues their tokens; the transport is their caller's.
		{
			layer: "logins", packages: []string{"pkg/ociauth/login"},
			ours: []string{"pkg/clock/**", "pkg/fault", "pkg/sealing", "pkg/sealing/book"}, never: outside,
		},
	}
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
		// kit runs servers for tests and tools; nothing that goes into production contains it.
		kit = []string{"pkg/testkit/**"}
	)
	return slices.Concat(roomRules(), secretRules(join(sql, nats, kube, star, grpcs)), []rule{
		{layer: "contract", packages: []string{"proto/**"}, never: join(sql, nats, kube, star)},

		{layer: "leaf", packages: []string{
			"pkg/clock/**", "pkg/id", "pkg/fault", "pkg/keylock", "pkg/fair", "pkg/pattern", "pkg/proof", "pkg/text",
			"pkg/secret/reference", "pkg/secret/redact",
		}, ours: []string{"pkg/clock"}, onlyStandard: true},
		// JSON as plain values: a library.
		{layer: "values", packages: []string{"pkg/plain"}, never: join(sql, nats, kube, star, grpcs)},
		{
			layer: "event catalogue", packages: []string{"pkg/event/**"},
			ours:  []string{"proto/**", "pkg/clock", "pkg/id", "pkg/fault", "pkg/schema", "pkg/event/**"},
			never: join(sql, nats, kube, star, grpcs),
		},
		// A client of the Git protocol only.
		{
			layer: "git", packages: []string{"pkg/gitfetch"}, ours: []string{"pkg/fault", "pkg/fair", "pkg/sshkey", "pkg/telemetry"},
			never: join(sql, nats, kube, star, grpcs),
		},
		// Cron expressions: a library, and the clock's changes.
		{layer: "calendar", packages: []string{"pkg/cron"}, ours: []string{"pkg/fault"}, never: join(sql, nats, kube, star, grpcs)},
		{layer: "provenance", packages: []string{"pkg/provenance"}, never: join(sql, nats, kube, star, grpcs), onlyStandard: true},
		// Cedar policies: a library, and of ours only the facts that policies see.
		{layer: "policies", packages: []string{"pkg/policy"}, ours: []string{"pkg/provenance"}, never: join(sql, nats, kube, star, grpcs)},
		{layer: "test kit", packages: kit, ours: []string{"pkg/**", "proto/**"}, never: kube},
		{layer: "mechanics", packages: []string{"pkg/**"}, ours: []string{"pkg/**", "proto/**"}, never: join(kube, kit)},

		{
			layer: "core", packages: []string{"services/SERVICE/internal/core/**"},
			ours:         append(leaves(), "services/SERVICE/internal/core/**"),
			never:        pure(),
			onlyStandard: true,
		},
		{
			layer: "store", packages: []string{"services/SERVICE/internal/store/**"},
			ours: []string{
				"services/SERVICE/internal/core/**", "services/SERVICE/internal/store/**",
				"pkg/clock", "pkg/id", "pkg/fault", "pkg/fair", "pkg/pg", "pkg/outbox", "pkg/event", "pkg/telemetry", "pkg/provenance", "pkg/sealing",
				"pkg/sealing/book",
			},
			never: join(nats, kube, star, grpcs, []string{"net/http"}),
		},
		{
			layer: "events", packages: []string{"services/SERVICE/internal/events/**"},
			ours: []string{
				"services/SERVICE/internal/core/**", "services/SERVICE/internal/events/**", "proto/**",
				"pkg/clock", "pkg/id", "pkg/fault", "pkg/bus", "pkg/event", "pkg/telemetry", "pkg/provenance", "pkg/sealing",
				"pkg/sealing/book", "pkg/text",
			},
			never: join(sql, kube, star),
		},
		{
			layer: "api", packages: []string{"services/SERVICE/internal/api/**"},
			ours: []string{
				"services/SERVICE/internal/core/**", "services/SERVICE/internal/api/**", "proto/**",
				"pkg/clock", "pkg/id", "pkg/fault", "pkg/text", "pkg/throttle", "pkg/rpc", "pkg/event", "pkg/telemetry", "pkg/schema",
				"pkg/policy", "pkg/provenance", "pkg/sealing",
			},
			never: join(sql, nats, kube, star),
		},
	}, adapters(sql, nats, kube, star, grpcs), []rule{
		// What the tests of a service have in common, in more than one of its packages.
		{
			layer: "test kit of a service", packages: []string{"services/SERVICE/internal/storetest"},
			ours: []string{"services/SERVICE/internal/store", "pkg/**"}, never: join(nats, kube, star, grpcs),
		},
		{
			layer: "composition root", packages: []string{"services/SERVICE"},
			ours: []string{"services/SERVICE/internal/**", "pkg/**", "proto/**"}, never: append(kit, "services/SERVICE/internal/storetest"),
		},
		{
			layer: "command", packages: []string{"services/SERVICE/cmd/SERVICE"}, ours: []string{"services/SERVICE", "pkg/run", "pkg/config"},
			onlyStandard: true,
		},

		{layer: "tool", packages: []string{"tools/**"}, ours: []string{"**"}},
	})
}

// adapters are the rules of the adapters that not all services have. The lists are the outside technologies.
func adapters(sql, nats, kube, star, grpcs []string) []rule {
	return []rule{
		adapter("registry", "source", join(sql, nats, kube, star), "pkg/event", "pkg/source"),
		adapter("registry", "oci", join(sql, nats, kube, star), "pkg/source", "pkg/ociauth", "pkg/ociauth/login", "pkg/provenance"),
		adapter("registry", "git", join(sql, nats, kube, star), "pkg/source", "pkg/gitfetch"),
		adapter("registry", "sigstore", join(sql, nats, kube, star), "pkg/provenance", "pkg/secret", "pkg/secret/reference"),
		adapter("domain", "console", join(sql, nats, kube, star)),
		adapter("domain", "bundle", join(sql, nats, kube, star), "pkg/driver/**", "pkg/flow", "pkg/source"),
		adapter("domain", "cdevents", join(sql, nats, kube, star, grpcs)),
		adapter("domain", "oidc", join(sql, nats, kube, star, grpcs)),
		adapter("domain", "autoflow", join(sql, nats, kube, star), "proto/**", "pkg/rpc", "pkg/telemetry"),
		adapter("workflow", "script", join(sql, nats, kube), "pkg/yamltext"),
		adapter("workflow", "sandbox", join(sql, nats, kube, star), "pkg/fair"),
		// Kustomize and Helm: their libraries, in child processes.
		adapter("workflow", "render", join(sql, nats, star, grpcs)),
		adapter("workflow", "function", join(sql, nats, kube, star), "pkg/secret/redact", "pkg/yamltext", "pkg/schema", "pkg/expression",
			"pkg/rendering"),
		// The simulation runs the core with real programs: the only adapter that it imports is the interpreter.
		adapter("workflow", "simulation", join(sql, nats, kube, grpcs), "services/workflow/internal/script", "pkg/event"),
		// Programs without the service: the interpreter, and nothing that stores or calls.
		adapter("workflow", "offline", join(sql, nats, kube, grpcs), "services/workflow/internal/script", "pkg/event"),
		adapter("workflow", "model", join(sql, nats, kube, star, grpcs)),
		adapter("workflow", "git", join(sql, nats, kube, star), "pkg/keylock", "pkg/gitfetch", "pkg/secret", "pkg/secret/reference", "pkg/sealing",
			"pkg/sealing/book", "pkg/sshkey"),
		// It publishes on NATS servers that programs name, through the guarded transport; the service's own server is the bus's alone.
		adapter("workflow", "web", join(sql, kube, star, grpcs), "pkg/ociauth", "pkg/ociauth/login", "pkg/secret", "pkg/secret/reference", "pkg/sealing", "pkg/sealing/book"),
		adapter("relay", "cluster", join(sql, nats, star)),
		adapter("relay", "web", join(sql, nats, kube, star, grpcs), "pkg/sealing"),
	}
}

// leaves are the packages of ours that a core may import.
func leaves() []string {
	return []string{
		"pkg/clock", "pkg/id", "pkg/fault", "pkg/keylock", "pkg/fair", "pkg/pattern", "pkg/proof", "pkg/text",
		"pkg/secret/reference", "pkg/secret/redact", "pkg/cron", "pkg/expression", "pkg/policy", "pkg/provenance", "pkg/plain",
		"pkg/rendering", "pkg/sealing", "pkg/sealing/book",
	}
}

// pure lists what a core never imports.
func pure() []string {
	return []string{"database/sql/**", "net/http/**", "net/rpc/**", "net/smtp", "os/exec", "log"}
}

// room is one package of a core, with the rooms of the same core that it may import.
type room struct {
	name  string
	below []string
}

// rooms lists the packages of the cores that are split, per service and lowest first: a room imports only rooms listed before
// it, so no arrow runs back up (TestRoomsImportOnlyWhatIsBelow). A core that is listed has no other packages.
func rooms() map[string][]room {
	return map[string][]room{
		"domain": {
			{"drift", nil},
			{"planner", []string{"drift"}},
			{"fleet", nil},
			{nouns, []string{"drift", "planner", "fleet"}},
			{"access", []string{"fleet", nouns}},
			{"intake", []string{nouns}},
			{"freeze", []string{nouns}},
			{"check", []string{nouns}},
			{"origin", []string{nouns}},
			{"credential", []string{nouns}},
			{"setup", []string{"fleet", nouns, "access"}},
			{"policy", []string{nouns, "access", "setup"}},
			{"rollout", []string{"drift", "planner", "fleet", nouns, "access", "setup", "policy"}},
			{"handoff", []string{nouns, "rollout"}},
			{"trigger", []string{nouns, "rollout", "handoff"}},
			{"notify", []string{nouns, "handoff"}},
			{"forge", []string{nouns, "rollout", "trigger", "handoff"}},
			{"feed", []string{nouns}},
			{"view", []string{"fleet", nouns, "access", "setup"}},
			{"chat", []string{nouns, "forge", "freeze", "notify", "rollout", "view"}},
			{"control", []string{nouns, "access", "freeze", "setup", "policy"}},
			{"evidence", []string{nouns, "rollout"}},
			{"reconcile", []string{nouns, "rollout", "handoff"}},
			{"retention", []string{nouns}},
		},
		"workflow": {
			{"wake", nil},
			{"history", nil},
			{"program", []string{"history"}},
			{"activity", []string{"history"}},
			{"agent", []string{"wake", "history"}},
			{"execution", []string{"history", "program"}},
			{"eventtype", []string{"history", "program", "execution"}},
			{"limit", []string{"history", "program", "execution"}},
			{"retention", []string{"history", "program", "execution"}},
			{"flow", []string{"wake", "history", "program", "execution"}},
			{"schedule", []string{"wake", "history", "program", "execution"}},
			{"guard", []string{"history", "activity", "agent"}},
			{"reconcile", nil},
			{"worker", []string{"wake", "history", "activity"}},
			{"callpolicy", nil},
			{"credential", nil},
			{"engine", []string{"wake", "history", "program", "activity", "agent", "execution", "callpolicy", "limit"}},
			{"control", []string{"history", "program", "activity", "agent", "execution", "engine"}},
			{"batch", []string{"wake", "history", "execution", "control"}},
		},
	}
}

// nouns is the room that is the package core itself, below all others.
const nouns = "."

// roomRules are the rules of all rooms, and one for each core with rooms that no other package of it satisfies.
func roomRules() []rule {
	var rules []rule
	for service, all := range rooms() {
		core := "services/" + service + "/internal/core"
		for _, r := range all {
			ours := leaves()
			for _, below := range r.below {
				ours = append(ours, path.Join(core, below))
			}
			rules = append(rules, rule{
				layer: "room " + r.name, packages: []string{path.Join(core, r.name)}, ours: ours, never: pure(),
				onlyStandard: true,
			})
		}
		rules = append(rules, rule{layer: unlisted, packages: []string{core + "/**"}})
	}
	return rules
}

// unlisted is the layer of packages in a core with rooms that its list does not have.
const unlisted = "unlisted room"

// adapter is the rule of an adapter beside the four layers that all services share: it may import its core and the leaves.
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

// badNames are names that do not describe what a package holds.
func badNames() []string {
	return []string{"util", "utils", "common", "helper", "helpers", "types", "models", "base", "misc", "shared"}
}
