package registry

import (
	"fmt"
	"strings"

	"github.com/lockstep-cd/lockstep/pkg/bus"
	"github.com/lockstep-cd/lockstep/pkg/certs"
	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/gitfetch"
	"github.com/lockstep-cd/lockstep/pkg/pg"
	"github.com/lockstep-cd/lockstep/pkg/sealing"
	"github.com/lockstep-cd/lockstep/pkg/secret"
	"github.com/lockstep-cd/lockstep/pkg/telemetry"
	"github.com/lockstep-cd/lockstep/pkg/throttle"
)

// Config is the configuration of the service. The zero value works: the service listens on all interfaces and rejects every delivery,
// because no token exists.
type Config struct {
	pg.Database
	// Schema is the PostgreSQL schema that holds the service's tables; it is created if missing.
	Schema string `koanf:"schema" default:"registry"`
	// MaxConnections is the maximum number of connections to the database, per process.
	MaxConnections int32 `koanf:"max_connections" default:"8"`
	bus.NATS
	bus.Layout
	// NATSUser is the service's account at the event bus.
	NATSUser string `koanf:"nats_user" default:"registry"`
	// HTTPAddress is the address that receives deliveries.
	HTTPAddress string `koanf:"http_address" default:":8082"`
	// HTTPCertFile and HTTPKeyFile are its server certificate. Without them it serves plain HTTP: put a proxy in front that terminates
	// TLS, or tokens and hook paths are sent unencrypted. Replaced files take effect at the next connection.
	HTTPCertFile string `koanf:"http_cert_file"`
	HTTPKeyFile  string `koanf:"http_key_file"`
	// Tokens are bearer tokens without a name, for one organization: their holders may report any repository. Several may be valid at once,
	// so that they can be rotated. ScopedTokens name their owner.
	Tokens []string `koanf:"tokens" secret:"true"`
	// SharedTokens states that Tokens may report for every organization. Without it, the service does not start with Tokens and more than
	// one organization: use ScopedTokens.
	SharedTokens bool `koanf:"shared_tokens"`
	// ScopedTokens are bearer tokens for one sender each, with a name, an organization, the repositories that it may report, and an expiry.
	ScopedTokens []TokenConfig `koanf:"scoped_tokens"`
	// FailedAuthentication slows down callers with invalid credentials: an address may fail 20 times at once and then 30 times a minute, a
	// credential 5 times and then 6 times a minute; beyond that the answer is 429 until the next attempt is allowed. A credential that has
	// proved valid is not slowed down. failed_authentication.off disables it.
	FailedAuthentication throttle.Config `koanf:"failed_authentication"`
	// Hooks are the endpoints for senders that authenticate in their own way, such as a signature.
	Hooks []HookConfig `koanf:"hooks"`
	// ForgeHooks are the endpoints to which forges report statuses of commits. Organizations make them.
	ForgeHooks ForgeHooksConfig `koanf:"forge_hooks"`
	// Registries are the accounts for requests to registries (digests, tags) and, by host and path, to the Git repositories of sources.
	Registries []AccountConfig `koanf:"registries"`
	// Credentials are about those that organizations manage themselves: the keyset that values are sealed with, and the references that they
	// may give instead. The domain service has the same. Without them, organizations have no accounts at registries of their own.
	Credentials sealing.Settings `koanf:"credentials"`
	// Vault is the server that references vault:path#key in hooks, registries and credentials point to.
	Vault secret.VaultConfig `koanf:"vault"`
	// PollRate is the maximum number of polls per second that this process sends to one registry or forge.
	PollRate int `koanf:"poll_rate" default:"10"`
	// DockerConfig also uses the credentials in Docker's configuration of the service's account, credential helpers included.
	DockerConfig bool `koanf:"docker_config"`
	// AllowNetworks lists what requests to registries may reach in addition to public addresses on ports 80 and 443: networks, addresses
	// and host names, each with an optional port. Hosts come from payloads and redirects; with an empty list none of them can make
	// the service connect to an internal address.
	AllowNetworks []string `koanf:"allow_networks"`
	// RegistriesCAFile holds certificate authorities for registries and Git servers, in addition to the system's; empty for the system's
	// alone. A replaced file takes effect at the next connection.
	RegistriesCAFile string `koanf:"registries_ca_file"`
	// Signers are trusted to state where images come from: what they have signed or attested, and is attached to an image in its registry,
	// becomes facts about its version. Without any, nothing is looked up.
	Signers []SignerConfig `koanf:"signers"`
	// GitLimits bound the resources for reading Git repositories: memory that all reads of this process share, and limits of one read.
	GitLimits gitfetch.Limits `koanf:"git_limits"`
	telemetry.Settings
}

// minConnections leaves connections for deliveries: the outbox holds one permanently.
const minConnections = 4

// Validate reports invalid settings that package config cannot find by type. 0 is valid where a key has a default.
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
	problems = append(problems, c.FailedAuthentication.Check("failed_authentication")...)
	problems = append(problems, c.tokenProblems()...)
	problems = append(problems, c.hookProblems()...)
	problems = append(problems, c.ForgeHooks.problems()...)
	problems = append(problems, c.signerProblems()...)
	problems = append(problems, c.NATS.Check()...)
	problems = append(problems, c.Layout.Check()...)
	problems = append(problems, c.Database.Certificates().Check("database_")...)
	problems = append(problems, c.httpTLS().Check("http_")...)
	problems = append(problems, c.Settings.Check()...)
	problems = append(problems, c.Vault.Check()...)
	problems = append(problems, c.Credentials.Check("credentials")...)
	problems = append(problems, c.GitLimits.Check("git_limits")...)
	if c.PollRate < 0 {
		problems = append(problems, fault.Field{Name: "poll_rate", Problem: fmt.Sprintf("found %d; expected 1 or more", c.PollRate)})
	}
	if c.MaxConnections < 0 || c.MaxConnections > 0 && c.MaxConnections < minConnections {
		problems = append(problems, fault.Field{
			Name:    "max_connections",
			Problem: fmt.Sprintf("found %d; expected at least %d", c.MaxConnections, minConnections),
		})
	}
	if len(problems) > 0 {
		return fault.InvalidFields(problems...)
	}
	return nil
}

// httpTLS is the certificate of the HTTP server.
func (c Config) httpTLS() certs.Files { return certs.Files{Cert: c.HTTPCertFile, Key: c.HTTPKeyFile} }
