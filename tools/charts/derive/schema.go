package derive

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/lockstep-cd/lockstep/services/domain"
	"github.com/lockstep-cd/lockstep/services/registry"
	"github.com/lockstep-cd/lockstep/services/relay"
	"github.com/lockstep-cd/lockstep/services/workflow"
)

// service is a service's configuration that a chart passes on.
type service struct {
	// definition is its name in the schema.
	definition string
	config     reflect.Type
	// own are the keys that the chart sets itself, from other values.
	own []string
}

// certificates returns the keys of the certificates for NATS and PostgreSQL.
func certificates() []string {
	return []string{"nats_ca_file", "nats_cert_file", "nats_key_file", "database_ca_file", "database_cert_file", "database_key_file"}
}

// configs returns the services of each chart.
func configs() map[string][]service {
	return map[string][]service{
		"lockstep": {
			{
				"registryConfig", reflect.TypeFor[registry.Config](),
				slices.Concat(certificates(), []string{"nats_url", "http_address", "http_cert_file", "http_key_file", "health_address"}),
			},
			{"domainConfig", reflect.TypeFor[domain.Config](), slices.Concat(certificates(), []string{
				"nats_url", "http_address", "http_cert_file", "http_key_file", "health_address",
				"workflow_address", "workflow_tls", "workflow_ca_file", "workflow_cert_file", "workflow_key_file",
			})},
			{"workflowConfig", reflect.TypeFor[workflow.Config](), slices.Concat(certificates(), []string{
				"nats_url", "grpc_address", "grpc_cert_file", "grpc_key_file", "grpc_client_ca_file", "health_address", "agents",
				"git_credentials", "instance",
			})},
		},
		"lockstep-relay": {
			{"relayConfig", reflect.TypeFor[relay.Config](), []string{
				"agent_id", "nats_url", "nats_nkey_seed_file", "nats_ca_file", "nats_cert_file", "nats_key_file", "health_address",
				"allow_projects", "allow_application_namespaces", "allow_destination_namespaces", "allow_destination_servers", "allow_repositories",
				"allow_cluster_kinds", "allow_workflow_namespaces", "allow_job_namespaces", "allow_analysis_namespaces", "allow_unauthorized_applications",
				"allow_apply", "allow_patch", "allow_delete", "allow_objects", "allow_logs", "allow_requests",
			}},
		},
	}
}

// withConfig returns a schema whose definitions of configurations are those of the services, so that a misspelt key is refused before
// anything is installed. Keys of secrets are omitted: they come from Secrets.
func withConfig(path string, services []service) ([]byte, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read schema: %w", err)
	}
	var schema ordered
	if err := json.Unmarshal(text, &schema); err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	for i, member := range schema {
		if member.key != "definitions" {
			continue
		}
		var definitions ordered
		if err := json.Unmarshal(member.value, &definitions); err != nil {
			return nil, fmt.Errorf("read definitions of %s: %w", path, err)
		}
		for _, s := range services {
			if err := definitions.set(s.definition, object(s.config, s.own)); err != nil {
				return nil, err
			}
		}
		if schema[i].value, err = json.Marshal(definitions); err != nil {
			return nil, fmt.Errorf("encode definitions of %s: %w", path, err)
		}
	}
	compact, err := json.Marshal(schema)
	if err != nil {
		return nil, fmt.Errorf("encode %s: %w", path, err)
	}
	var out bytes.Buffer
	if err := json.Indent(&out, compact, "", "  "); err != nil {
		return nil, fmt.Errorf("format %s: %w", path, err)
	}
	out.WriteByte('\n')
	return out.Bytes(), nil
}

// object returns the schema of a struct by its koanf tags.
func object(t reflect.Type, without []string) map[string]any {
	properties := map[string]any{}
	for _, f := range reflect.VisibleFields(t) { // with those of embedded structs, whose keys are on the same level
		key := f.Tag.Get("koanf")
		if key == "" || key == "-" || f.Tag.Get("secret") == "true" || strings.Contains(","+strings.Join(without, ",")+",", ","+key+",") {
			continue
		}
		properties[key] = value(f.Type)
	}
	return map[string]any{"type": "object", "additionalProperties": false, "properties": properties}
}

// value returns the schema of a field. It panics on a new type, for which a schema has to be decided.
func value(t reflect.Type) map[string]any {
	if t == reflect.TypeFor[time.Duration]() {
		return map[string]any{"type": "string", "pattern": `^([0-9]+(\.[0-9]+)?(ns|us|ms|s|m|h))+$`}
	}
	switch t.Kind() { //nolint:exhaustive // the rest is the panic below
	case reflect.String:
		return map[string]any{"type": "string"}
	case reflect.Bool:
		return map[string]any{"type": "boolean"}
	case reflect.Int, reflect.Int32, reflect.Int64:
		return map[string]any{"type": "integer"}
	case reflect.Float64:
		return map[string]any{"type": "number"}
	case reflect.Slice:
		return map[string]any{"type": "array", "items": value(t.Elem())}
	case reflect.Map:
		return map[string]any{"type": "object", "additionalProperties": value(t.Elem())}
	case reflect.Struct:
		return object(t, nil)
	}
	panic(fmt.Sprintf("configuration has a field of type %s; teach package derive its schema", t))
}

// ordered is a JSON object that keeps the order of its members, so that members that are not derived stay as written.
type ordered []member

type member struct {
	key   string
	value json.RawMessage
}

// UnmarshalJSON implements json.Unmarshaler.
func (o *ordered) UnmarshalJSON(text []byte) error {
	decoder := json.NewDecoder(bytes.NewReader(text))
	if _, err := decoder.Token(); err != nil {
		return fmt.Errorf("object: %w", err)
	}
	for decoder.More() {
		token, err := decoder.Token()
		if err != nil {
			return fmt.Errorf("key: %w", err)
		}
		key, ok := token.(string)
		if !ok {
			return fmt.Errorf("key: found %v, expected a string", token)
		}
		var value json.RawMessage
		if err := decoder.Decode(&value); err != nil {
			return fmt.Errorf("value of %s: %w", key, err)
		}
		*o = append(*o, member{key, value})
	}
	return nil
}

// MarshalJSON implements json.Marshaler.
func (o ordered) MarshalJSON() ([]byte, error) {
	var out bytes.Buffer
	out.WriteByte('{')
	for i, m := range o {
		if i > 0 {
			out.WriteByte(',')
		}
		key, err := json.Marshal(m.key)
		if err != nil {
			return nil, fmt.Errorf("key: %w", err)
		}
		out.Write(key)
		out.WriteByte(':')
		out.Write(m.value)
	}
	out.WriteByte('}')
	return out.Bytes(), nil
}

// set replaces the member of a name, or adds it.
func (o *ordered) set(key string, value any) error {
	text, err := json.Marshal(value)
	if err != nil {
		return fmt.Errorf("encode %s: %w", key, err)
	}
	for i := range *o {
		if (*o)[i].key == key {
			(*o)[i].value = text
			return nil
		}
	}
	*o = append(*o, member{key, text})
	return nil
}
