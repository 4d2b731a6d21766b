package config

import (
	"regexp"
	"strings"

	"github.com/knadh/koanf/providers/env/v2"
)

// prefix begins every variable that we read.
const prefix = "LOCKSTEP_"

// injected are the variables that Kubernetes sets for every Service of a namespace. A Service called lockstep-workflow
// makes them look like ours (LOCKSTEP_WORKFLOW_PORT=tcp://…), so they are not unknown keys.
var injected = regexp.MustCompile(`_(SERVICE_HOST|SERVICE_PORT(_[A-Z0-9_]+)?|PORT(_[0-9]+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)?)$`)

// sharedEnvironment reads the variables that all services share.
func sharedEnvironment(s *schema, environ func() []string) layer {
	shared := map[string]string{prefix + "DATABASE_URL": "database_url", prefix + "NATS_URL": "nats_url"}
	return readEnvironment(environ, func(name string) string {
		if key := shared[name]; s.leaves[key] != nil {
			return key
		}
		return ""
	})
}

// serviceEnvironment reads the variables of one service. A variable with its prefix that names no key stays in the layer
// under its own name, to be refused.
func serviceEnvironment(service string, s *schema, environ func() []string) layer {
	own := variable(service, "")
	return readEnvironment(environ, func(name string) string {
		rest, ok := strings.CutPrefix(name, own)
		if !ok {
			return ""
		}
		for key := range s.leaves {
			if variable(service, key) == name {
				return key
			}
		}
		if injected.MatchString(name) {
			return ""
		}
		return strings.ToLower(rest)
	})
}

// variable is the name of the environment variable of a key.
func variable(service, key string) string {
	return prefix + strings.ToUpper(strings.NewReplacer(".", "_", "-", "_").Replace(service+"_"+key))
}

// readEnvironment reads the variables that keyOf gives a key to.
func readEnvironment(environ func() []string, keyOf func(name string) string) layer {
	l := layer{name: "environment", values: map[string]any{}, text: true, origins: map[string]string{}}
	provider := env.Provider(".", env.Opt{Prefix: prefix, EnvironFunc: environ, TransformFunc: func(name, value string) (string, any) {
		key := keyOf(name)
		if key != "" {
			l.origins[key] = name
		}
		return key, value
	}})
	l.values, _ = provider.Read() // it has no way to fail
	return l
}
