package relay

import (
	"cmp"
	"fmt"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/bus"
	"github.com/lockstep-cd/lockstep/pkg/certs"
	"github.com/lockstep-cd/lockstep/pkg/config"
	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/telemetry"
)

// Config is the configuration of the relay. Only agent_id is required.
type Config struct {
	// AgentID is the number that environments refer to as cluster_agent_id. There is one relay per number.
	AgentID int64 `koanf:"agent_id"`

	// NATSURL is the address of the control plane's NATS server: nats://host:4222, tls://host:4222.
	NATSURL string `koanf:"nats_url" default:"nats://127.0.0.1:4222"`
	// NATSUser is the relay's account; "" means relay-<agent_id>.
	NATSUser string `koanf:"nats_user"`
	// NATSPassword is the password of NATSUser.
	NATSPassword string `koanf:"nats_password" secret:"true"`
	// NATSNKeySeedFile is a file with an NKey seed, in place of a password.
	NATSNKeySeedFile string `koanf:"nats_nkey_seed_file"`
	// NATSCAFile holds the certificate authorities that NATS's certificate is verified against. NATSCertFile and NATSKeyFile are the
	// client certificate, for a server that requires one. If any of them is set, a server without TLS is refused. Replaced files take
	// effect at the next connection.
	NATSCAFile   string `koanf:"nats_ca_file"`
	NATSCertFile string `koanf:"nats_cert_file"`
	NATSKeyFile  string `koanf:"nats_key_file"`

	// Kubeconfig is a file; "" means the service account of the pod that the relay runs in.
	Kubeconfig string `koanf:"kubeconfig"`
	// KubeContext is the context of that file; "" means its current one.
	KubeContext string `koanf:"kube_context"`
	// KubeTimeout is the timeout of a request to the Kubernetes API.
	KubeTimeout time.Duration `koanf:"kube_timeout" default:"10s"`

	// HeartbeatInterval is the time between heartbeats. After a few missing ones the control plane considers the agent offline.
	HeartbeatInterval time.Duration `koanf:"heartbeat_interval" default:"5s"`
	// PollInterval is how often a waiting call reads the cluster when no watch event arrives.
	PollInterval time.Duration `koanf:"poll_interval" default:"5s"`
	// Concurrency is the maximum number of calls in progress. A sync or a promotion takes minutes, most of them spent waiting.
	Concurrency int `koanf:"concurrency" default:"64"`

	// HealthAddress is the address that serves /healthz, /readyz, /version and /metrics; empty for none.
	HealthAddress string `koanf:"health_address"`
	// LogLevel is debug, info, warn or error.
	LogLevel string `koanf:"log_level" default:"info"`
}

// Validate reports invalid settings that package config cannot find by type. 0 is valid where a key has a default.
func (c Config) Validate() error {
	var wrong []fault.Field
	if c.AgentID <= 0 {
		wrong = append(wrong, fault.Field{Name: "agent_id", Problem: fmt.Sprintf("found %d, expected the number of this relay's agent, above zero", c.AgentID)})
	}
	if c.NATSPassword != "" && c.NATSNKeySeedFile != "" {
		wrong = append(wrong, fault.Field{Name: "nats_password", Problem: "given beside nats_nkey_seed_file, expected one of the two"})
	}
	for _, d := range []struct {
		name  string
		value time.Duration
	}{{"kube_timeout", c.KubeTimeout}, {"heartbeat_interval", c.HeartbeatInterval}, {"poll_interval", c.PollInterval}} {
		if d.value < 0 {
			wrong = append(wrong, fault.Field{Name: d.name, Problem: fmt.Sprintf("found %s, expected a duration above zero", d.value)})
		}
	}
	if c.Concurrency < 0 {
		wrong = append(wrong, fault.Field{Name: "concurrency", Problem: fmt.Sprintf("found %d, expected a number above zero", c.Concurrency)})
	}
	wrong = append(wrong, c.natsTLS().Check("nats_")...)
	wrong = append(wrong, bus.CheckURL("nats_url", c.NATSURL)...)
	wrong = append(wrong, telemetry.CheckLevel("log_level", c.LogLevel)...)
	if len(wrong) > 0 {
		return fault.InvalidFields(wrong...)
	}
	return nil
}

// natsTLS is the certificates of the connection to NATS.
func (c Config) natsTLS() certs.Files {
	return certs.Files{Cert: c.NATSCertFile, Key: c.NATSKeyFile, CA: c.NATSCAFile}
}

// withDefaults also serves callers that build a Config without package config. It adds the one default that depends on another key.
func (c Config) withDefaults() Config {
	c = config.WithDefaults(c)
	c.NATSUser = cmp.Or(c.NATSUser, bus.RelayUser(c.AgentID))
	return c
}
