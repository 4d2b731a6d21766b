package config

import (
	"regexp"
	"strings"

	"github.com/knadh/koanf/providers/env/v2"
)

// prefix begins every variable that is read.
const prefix = "LOCKSTEP_"

// injected matches the variables that Kubernetes sets for every Service of a namespace. For a Service called lockstep-workflow they begin
// with our prefix (LOCKSTEP_WORKFLOW_PORT=tcp://…), but they are not unknown keys.
var injected = regexp.MustCompile(`_(SERVICE_HOST|SERVICE_PORT(_[A-Z0-9_]+)?|PORT(_[0-9]+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)?)$`)

// sharedEnvironment reads the variables that all services share.
func sharedEnvironment(s *schema, environ func() []string) layer {
	return readEnvironment(environ, func(name string) string {
		for key := range s.leaves {
			if sharedVariable(key) == name {
				return key
			}
		}
		return ""
	})
}

// sharedVariable is the variable from which all services read a key that has no variable of its own set; "" for most keys.
func sharedVariable(key string) string {
	switch key {
	case "database_url", "nats_url":
		return prefix + strings.ToUpper(key)
	default:
		return ""
	}
}

// serviceEnvironment reads the variables of one service. A variable with its prefix that names no key stays in the layer under its own
// name, so that it is refused.
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

// variable returns the name of a key's environment variable.
func variable(service, key string) string {
	return prefix + strings.ToUpper(strings.NewReplacer(".", "_", "-", "_").Replace(service+"_"+key))
}

// readEnvironment reads the variables for which keyOf returns a key.
func readEnvironment(environ func() []string, keyOf func(name string) string) layer {
	l := layer{name: "environment", values: map[string]any{}, text: true, origins: map[string]string{}}
	provider := env.Provider(".", env.Opt{Prefix: prefix, EnvironFunc: environ, TransformFunc: func(name, value string) (string, any) {
		key := keyOf(name)
		if key != "" {
			l.origins[key] = name
		}
		return key, value
	}})
	l.values, _ = provider.Read() // the provider cannot fail
	return l
}
