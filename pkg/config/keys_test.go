package config

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// TestKeysAreThoseThatLoadReads compares Keys with the schema that Load checks every layer against, and sets each key by its variable.
func TestKeysAreThoseThatLoadReads(t *testing.T) {
	t.Parallel()
	s := schemaOf(new(sample))
	var names []string
	for _, key := range Keys[sample]("example") {
		switch {
		case key.Group || strings.Contains(key.Name, "[]"):
			if key.Variable != "" {
				t.Errorf("%s has the variable %s, expected none", key.Name, key.Variable)
			}
			continue
		case key.Variable != variable("example", key.Name):
			t.Errorf("%s has the variable %q", key.Name, key.Variable)
		}
		names = append(names, key.Name)
		leaf := s.leaves[key.Name]
		if leaf == nil {
			t.Fatalf("Load knows no key %s", key.Name)
		}
		if leaf.secret != key.Secret || leaf.fallback != key.Default || leaf.target.Type() != key.Field.Type {
			t.Errorf("%s is %+v, expected what Load knows: %+v", key.Name, key, leaf)
		}
	}
	if diff := cmp.Diff(s.order, names); diff != "" {
		t.Errorf("keys (-Load +Keys):\n%s", diff)
	}
}

func TestKeysDescribe(t *testing.T) {
	t.Parallel()
	found := map[string]Key{}
	for _, key := range Keys[sample]("example") {
		found[key.Name] = key
	}
	for name, want := range map[string]Key{
		"nats_url": {
			Type: "text", Variable: "LOCKSTEP_EXAMPLE_NATS_URL", Shared: "LOCKSTEP_NATS_URL",
			Default: "nats://127.0.0.1:4222",
		},
		"lease_duration":             {Type: "duration", Variable: "LOCKSTEP_EXAMPLE_LEASE_DURATION", Default: "5s"},
		"agents":                     {Type: "list of whole numbers", Variable: "LOCKSTEP_EXAMPLE_AGENTS"},
		"tls":                        {Type: "mapping", Group: true},
		"tls.cert_file":              {Type: "text", Variable: "LOCKSTEP_EXAMPLE_TLS_CERT_FILE"},
		"git_credentials":            {Type: "list of mappings", Variable: "LOCKSTEP_EXAMPLE_GIT_CREDENTIALS"},
		"git_credentials[].password": {Type: "text", Secret: true},
		"workers":                    {Type: "whole number", Variable: "LOCKSTEP_EXAMPLE_WORKERS", Default: "4"},
		"labels":                     {Type: "mapping", Variable: "LOCKSTEP_EXAMPLE_LABELS"},
		"debug":                      {Type: "true or false", Variable: "LOCKSTEP_EXAMPLE_DEBUG"},
	} {
		if diff := cmp.Diff(want, found[name], cmpopts.IgnoreFields(Key{}, "Name", "Struct", "Field")); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}
