package registry

import (
	"fmt"
	"strings"

	"github.com/lockstep-cd/lockstep/pkg/bus"
	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/secret"
	"github.com/lockstep-cd/lockstep/pkg/telemetry"
)

// Config is what an operator may set. The zero value works: it listens on all interfaces and refuses every delivery,
// because nobody has a token.
type Config struct {
	// DatabaseURL is the PostgreSQL server.
	DatabaseURL string `koanf:"database_url" secret:"true"`
	// DatabaseCAFile holds the certificates to check PostgreSQL's against, DatabaseCertFile and DatabaseKeyFile are ours, for a
	// server that asks for one. With any of them, every connection is encrypted and the server's name checked, whatever the URL says of
	// sslmode. Files that are replaced take effect at the next connection.
	DatabaseCAFile   string `koanf:"database_ca_file"`
	DatabaseCertFile string `koanf:"database_cert_file"`
	DatabaseKeyFile  string `koanf:"database_key_file"`
	// Schema is the schema that holds the service's tables; it is made if it is missing.
	Schema string `koanf:"schema" default:"registry"`
	// MaxConnections bounds the connections to the database.
	MaxConnections int32 `koanf:"max_connections" default:"8"`
	// NATSURL, NATSUser and NATSPassword are the event bus and our account there.
	NATSURL      string `koanf:"nats_url"      default:"nats://127.0.0.1:4222"`
	NATSUser     string `koanf:"nats_user"     default:"registry"`
	NATSPassword string `koanf:"nats_password" secret:"true"`
	// NATSCAFile holds the certificates to check NATS's against, NATSCertFile and NATSKeyFile are ours, for a server that asks for
	// one. With any of them, a server that offers no TLS is refused. Files that are replaced take effect at the next connection.
	NATSCAFile   string `koanf:"nats_ca_file"`
	NATSCertFile string `koanf:"nats_cert_file"`
	NATSKeyFile  string `koanf:"nats_key_file"`
	// HTTPAddress is where deliveries are taken.
	HTTPAddress string `koanf:"http_address" default:":8082"`
	// HTTPCertFile and HTTPKeyFile are the certificate that it is served with; without them it is plain HTTP, and TLS ends in front
	// of it, or tokens and the paths of hooks travel in the clear. Files that are replaced take effect at the next connection.
	HTTPCertFile string `koanf:"http_cert_file"`
	HTTPKeyFile  string `koanf:"http_key_file"`
	// Tokens are the bearer tokens of those who may deliver. Several are good at once, so that a new one can be handed out
	// before the old one goes. None: nobody may.
	Tokens []string `koanf:"tokens" secret:"true"`
	// Hooks are the endpoints of senders that have a way of their own to prove who they are.
	Hooks []HookConfig `koanf:"hooks"`
	// Registries are where to log in to ask for digests and tags. Git repositories of sources are looked up here too, by host
	// and path.
	Registries []AccountConfig `koanf:"registries"`
	// Vault is where references vault:path#key of hooks and registries lead.
	Vault secret.VaultConfig `koanf:"vault"`
	// PollRate is how many looks at sources one registry or forge gets in a second, from this process.
	PollRate int `koanf:"poll_rate" default:"10"`
	// DockerConfig also logs in with what docker's configuration of this account has, credential helpers included.
	DockerConfig bool `koanf:"docker_config"`
	// AllowNetworks is what may be reached beyond public addresses on ports 80 and 443 when a registry is asked: networks,
	// addresses and names, each with or without a port.
	// Hosts come out of payloads and redirects (D41): with an empty list, no payload makes us reach inside.
	AllowNetworks []string `koanf:"allow_networks"`
	// RegistriesCAFile holds authorities that vouch for registries and Git repositories, beside the system's; empty for those alone. A
	// file that is replaced counts from the next connection on.
	RegistriesCAFile string `koanf:"registries_ca_file"`
	// HealthAddress serves /healthz, /readyz and /metrics; empty for no such server. It is an address of its own, so that
	// what the internet reaches for deliveries shows no metrics.
	HealthAddress string `koanf:"health_address"`
	// LogLevel is debug, info, warn or error.
	LogLevel string `koanf:"log_level" default:"info"`
}

// minConnections leaves something for deliveries beside the outbox, which keeps one connection to itself.
const minConnections = 4

// Validate finds mistakes that only this service knows to be some.
func (c Config) Validate() error {
	var problems []fault.Field
	// A header loses spaces at its ends and cannot carry a line break: with one left over from a file, every sender would
	// be refused.
	for i, token := range c.Tokens {
		if token == "" || strings.TrimSpace(token) != token || strings.ContainsAny(token, " \t\r\n") {
			problems = append(problems, fault.Field{
				Name: fmt.Sprintf("tokens[%d]", i), Problem: fmt.Sprintf("found %d characters, some of them spaces, or none at all; expected a token without spaces", len(token)),
			})
		}
	}
	problems = append(problems, c.hookProblems()...)
	problems = append(problems, c.tlsProblems()...)
	problems = append(problems, bus.CheckURL("nats_url", c.NATSURL)...)
	problems = append(problems, telemetry.CheckLevel("log_level", c.LogLevel)...)
	problems = append(problems, c.Vault.Check()...)
	if c.PollRate < 0 {
		problems = append(problems, fault.Field{Name: "poll_rate", Problem: fmt.Sprintf("found %d; expected 1 or more", c.PollRate)})
	}
	if c.MaxConnections < 0 || c.MaxConnections > 0 && c.MaxConnections < minConnections {
		problems = append(problems, fault.Field{Name: "max_connections", Problem: fmt.Sprintf("found %d; expected at least %d", c.MaxConnections, minConnections)})
	}
	if len(problems) > 0 {
		return fault.InvalidFields(problems...)
	}
	return nil
}
