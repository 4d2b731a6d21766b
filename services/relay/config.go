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

// Config is everything that an operator can set. Only the agent's id has no default.
type Config struct {
	// AgentID is the number that environments name as their cluster_agent_id; one relay per number.
	AgentID int64 `koanf:"agent_id"`

	// NATSURL is where the control plane's NATS listens: nats://host:4222, tls://host:4222.
	NATSURL string `koanf:"nats_url" default:"nats://127.0.0.1:4222"`
	// NATSUser is the relay's account; "" means relay-<agent_id>.
	NATSUser string `koanf:"nats_user"`
	// NATSPassword belongs to NATSUser.
	NATSPassword string `koanf:"nats_password" secret:"true"`
	// NATSNKeySeedFile is a file with an NKey seed, instead of a password.
	NATSNKeySeedFile string `koanf:"nats_nkey_seed_file"`
	// NATSCAFile holds the certificates to check NATS's against, NATSCertFile and NATSKeyFile are ours, for a server that asks for
	// one. With any of them, a server that offers no TLS is refused. Files that are replaced take effect at the next connection.
	NATSCAFile   string `koanf:"nats_ca_file"`
	NATSCertFile string `koanf:"nats_cert_file"`
	NATSKeyFile  string `koanf:"nats_key_file"`

	// Kubeconfig is a file; "" means the service account of the pod that the relay runs in.
	Kubeconfig string `koanf:"kubeconfig"`
	// KubeContext is the context of that file; "" means its current one.
	KubeContext string `koanf:"kube_context"`
	// KubeTimeout ends a request to the cluster that is not answered.
	KubeTimeout time.Duration `koanf:"kube_timeout" default:"10s"`

	// HeartbeatInterval is how often the relay says that it is alive. The control plane takes an agent for lost after a few.
	HeartbeatInterval time.Duration `koanf:"heartbeat_interval" default:"5s"`
	// PollInterval is how long a wait goes without looking when no watch reports a change.
	PollInterval time.Duration `koanf:"poll_interval" default:"5s"`
	// Concurrency is how many calls are carried out at once. A sync or a promotion holds its place for minutes, mostly
	// waiting.
	Concurrency int `koanf:"concurrency" default:"64"`

	// HealthAddress is where /healthz, /readyz and /metrics listen; "" means nowhere.
	HealthAddress string `koanf:"health_address"`
	// LogLevel is debug, info, warn or error.
	LogLevel string `koanf:"log_level" default:"info"`
}

// Validate finds mistakes that only this service knows to be some. 0 passes, but for the agent's id: it means the default.
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

// withDefaults is for callers that make a Config without package config, and adds the one default that depends on another key.
func (c Config) withDefaults() Config {
	c = config.WithDefaults(c)
	c.NATSUser = cmp.Or(c.NATSUser, bus.RelayUser(c.AgentID))
	return c
}
