package domain

import (
	"cmp"
	"fmt"
	"regexp"
	"strings"

	"github.com/lockstep-cd/lockstep/pkg/bus"
	"github.com/lockstep-cd/lockstep/pkg/bus/authority"
	"github.com/lockstep-cd/lockstep/pkg/config"
	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/secret"
	"github.com/lockstep-cd/lockstep/pkg/telemetry"
)

// Config is what an operator may set. The zero value works: it serves, and refuses everybody, because nobody has a token.
type Config struct {
	// DatabaseURL is the PostgreSQL server, and the account that the service signs in with.
	DatabaseURL string `koanf:"database_url" secret:"true"`
	// DatabaseCAFile holds the certificates to check PostgreSQL's against, DatabaseCertFile and DatabaseKeyFile are ours, for a
	// server that asks for one. With any of them, every connection is encrypted and the server's name checked, whatever the URL says of
	// sslmode. Files that are replaced take effect at the next connection.
	DatabaseCAFile   string `koanf:"database_ca_file"`
	DatabaseCertFile string `koanf:"database_cert_file"`
	DatabaseKeyFile  string `koanf:"database_key_file"`
	// OwnerDatabaseURL is the account that owns the tables and changes them at an upgrade; empty: that of database_url. With
	// one of its own, the service's account needs no right to change a table.
	OwnerDatabaseURL string `koanf:"owner_database_url" secret:"true"`
	// DatabaseRole is the role that the service works as, whatever account signs in: it sees one organization at a time,
	// and can neither change nor remove what is append-only. The owner makes it, and grants it, where it may. "none" works
	// as the account itself, for servers on which nobody may make a role; organizations are still walled off.
	DatabaseRole string `koanf:"database_role" default:"lockstep_domain"`
	// Schema is the schema that holds the service's tables; it is made if it is missing.
	Schema string `koanf:"schema" default:"domain"`
	// MaxConnections bounds the connections to the database.
	MaxConnections int32 `koanf:"max_connections" default:"16"`
	// NATSURL, NATSUser and NATSPassword are the event bus and our account there.
	NATSURL      string `koanf:"nats_url"      default:"nats://127.0.0.1:4222"`
	NATSUser     string `koanf:"nats_user"     default:"domain"`
	NATSPassword string `koanf:"nats_password" secret:"true"`
	// NATSCAFile holds the certificates to check NATS's against, NATSCertFile and NATSKeyFile are ours, for a server that asks for
	// one. With any of them, a server that offers no TLS is refused. Files that are replaced take effect at the next connection.
	NATSCAFile   string `koanf:"nats_ca_file"`
	NATSCertFile string `koanf:"nats_cert_file"`
	NATSKeyFile  string `koanf:"nats_key_file"`
	// HTTPAddress serves the API, at /graphql, and the web console.
	HTTPAddress string `koanf:"http_address" default:":8080"`
	// HTTPCertFile and HTTPKeyFile are the certificate that it is served with; without them it is plain HTTP, and TLS ends in front
	// of it. Files that are replaced take effect at the next connection.
	HTTPCertFile string `koanf:"http_cert_file"`
	HTTPKeyFile  string `koanf:"http_key_file"`
	// WorkflowAddress is where the workflow service takes calls, host:port, and WorkflowToken what we show it.
	WorkflowAddress string `koanf:"workflow_address" default:"127.0.0.1:8083"`
	WorkflowToken   string `koanf:"workflow_token"   secret:"true"`
	// WorkflowTLS encrypts these calls. Off is for loopback and for networks that encrypt by themselves. WorkflowCAFile
	// holds the certificates to check the server's against; empty means the system's.
	WorkflowTLS    bool   `koanf:"workflow_tls"`
	WorkflowCAFile string `koanf:"workflow_ca_file"`
	// WorkflowCertFile and WorkflowKeyFile are our certificate, for a workflow service that asks for one (mTLS).
	WorkflowCertFile string `koanf:"workflow_cert_file"`
	WorkflowKeyFile  string `koanf:"workflow_key_file"`
	// BootstrapToken is the bearer token of the owner of the first organization; empty: nobody may use the API.
	BootstrapToken string `koanf:"bootstrap_token" secret:"true"`
	// NATSAuthoritySeed lets this service say which agents may connect to NATS ("lockstep agent authority" makes one). Empty:
	// NATS's own configuration says so.
	NATSAuthoritySeed string `koanf:"nats_authority_seed" secret:"true"`
	// BootstrapAgents belong to the first organization from the start, with keys that were made beforehand.
	BootstrapAgents []BootstrapAgent `koanf:"bootstrap_agents"`
	// BootstrapOrganization is the name of the first organization, whose id is 1.
	BootstrapOrganization string `koanf:"bootstrap_organization" default:"default"`
	// PublicURL is the address of the console as browsers know it: https://cd.example.com. Only OIDC needs it.
	PublicURL string `koanf:"public_url"`
	// OIDC is the identity provider where people sign in; without an issuer they sign in with tokens.
	OIDC OIDC `koanf:"oidc"`
	// DriverDir holds deploy drivers beside the built-in ones, one folder each; empty: none.
	DriverDir string `koanf:"driver_dir"`
	// Drivers are deploy drivers that are pulled from OCI registries.
	Drivers DriversConfig `koanf:"drivers"`
	// Vault is where references vault:path#key of drivers.registries lead.
	Vault secret.VaultConfig `koanf:"vault"`
	// DeliveryMetrics are shown at /metrics, for the environments that are named.
	DeliveryMetrics DeliveryMetrics `koanf:"delivery_metrics"`
	// HealthAddress serves /healthz, /readyz and /metrics; empty for no such server.
	HealthAddress string `koanf:"health_address"`
	// LogLevel is debug, info, warn or error.
	LogLevel string `koanf:"log_level" default:"info"`
}

// DeliveryMetrics says whose delivery metrics /metrics shows. Each application in each of these environments has up to thirteen series of its
// own, so they are named here; the API has them all.
type DeliveryMetrics struct {
	// Environments are those of the first organization that are shown, by name, with every application whose pipeline goes there; none
	// by default.
	Environments []string `koanf:"environments"`
	// Days is how long a window they are of, up to now; 366 at most.
	Days int `koanf:"days" default:"30"`
	// Most is how many pairs of application and environment are shown, in the order of applications' names.
	Most int `koanf:"most" default:"200"`
}

// OIDC is an identity provider (OpenID Connect). The redirect address to register there is <public_url>/session/oidc/callback.
type OIDC struct {
	// Issuer is its address, as its tokens spell it.
	Issuer string `koanf:"issuer"`
	// Label is what the console's button calls it.
	Label string `koanf:"label" default:"single sign-on"`
	// ClientID and ClientSecret are what it knows this installation by. Public clients have no secret.
	ClientID     string `koanf:"client_id"`
	ClientSecret string `koanf:"client_secret" secret:"true"`
	// Scopes are asked for beside openid.
	Scopes []string `koanf:"scopes" default:"email,profile"`
	// NameClaim says what somebody is called here. With email, whoever was added under a verified address beforehand is the same
	// person; any other name is taken only while nobody has it.
	NameClaim string `koanf:"name_claim" default:"email"`
	// GroupsClaim says which groups somebody is in, and Roles what these make of them: platform=owner, shop=deployer. The
	// greatest counts, at each sign-in anew; who is in none has no access. Without any, roles are those given here.
	GroupsClaim string   `koanf:"groups_claim" default:"groups"`
	Roles       []string `koanf:"roles"`
	// CAFile holds the certificates to check its server's against; empty means the system's.
	CAFile string `koanf:"ca_file"`
}

// publicKey is how the public half of a user's key looks.
var publicKey = regexp.MustCompile(`^U[A-Z2-7]{55}$`)

const (
	// minToken keeps tokens from being guessed.
	minToken = 16
	// minConnections leaves something for the API beside the outbox, which keeps one connection to itself.
	minConnections = 4
)

// BootstrapAgent is an agent that is there from the start.
type BootstrapAgent struct {
	// Number is what environments name it by.
	Number int64 `koanf:"number" yaml:"number" json:"number"`
	// Name is what people call it.
	Name string `koanf:"name" yaml:"name" json:"name"`
	// PublicKey is the public half of its key; it begins with U.
	PublicKey string `koanf:"public_key" yaml:"public_key" json:"public_key"`
}

// Validate finds mistakes that only this service knows to be some.
func (c Config) Validate() error {
	var problems []fault.Field
	if c.BootstrapToken != "" && (len(c.BootstrapToken) < minToken || strings.ContainsAny(c.BootstrapToken, " \t\r\n")) {
		problems = append(problems, fault.Field{Name: "bootstrap_token", Problem: "found a token that is short or has spaces in it; expected at least 16 characters without spaces"})
	}
	if c.MaxConnections < 0 || c.MaxConnections > 0 && c.MaxConnections < minConnections {
		problems = append(problems, fault.Field{Name: "max_connections", Problem: fmt.Sprintf("found %d; expected at least %d", c.MaxConnections, minConnections)})
	}
	if d := c.DeliveryMetrics.Days; d < 0 || d > 366 {
		problems = append(problems, fault.Field{Name: "delivery_metrics.days", Problem: fmt.Sprintf("found %d; expected 1 to 366", d)})
	}
	if n := c.DeliveryMetrics.Most; n < 0 {
		problems = append(problems, fault.Field{Name: "delivery_metrics.most", Problem: fmt.Sprintf("found %d; expected at least 1", n)})
	}
	if (c.WorkflowCertFile == "") != (c.WorkflowKeyFile == "") || c.WorkflowCertFile != "" && !c.WorkflowTLS {
		problems = append(problems, fault.Field{Name: "workflow_cert_file", Problem: "expected workflow_tls, workflow_cert_file and workflow_key_file together, or no certificate"})
	}
	if c.WorkflowCAFile != "" && !c.WorkflowTLS {
		problems = append(problems, fault.Field{Name: "workflow_ca_file", Problem: "found without workflow_tls; expected both, or neither"})
	}
	problems = append(problems, bus.CheckURL("nats_url", c.NATSURL)...)
	problems = append(problems, telemetry.CheckLevel("log_level", c.LogLevel)...)
	problems = append(problems, c.oidcProblems()...)
	problems = append(problems, c.tlsProblems()...)
	problems = append(problems, c.Drivers.problems()...)
	problems = append(problems, c.Vault.Check()...)
	for i, a := range c.BootstrapAgents {
		if a.Number <= 0 || a.Name == "" || !publicKey.MatchString(a.PublicKey) {
			problems = append(problems, fault.Field{Name: fmt.Sprintf("bootstrap_agents[%d]", i), Problem: "expected a number above zero, a name, and a public key that begins with U"})
		}
	}
	if c.NATSAuthoritySeed != "" {
		if _, err := authority.NewIdentity(c.NATSAuthoritySeed); err != nil {
			problems = append(problems, fault.Field{Name: "nats_authority_seed", Problem: fault.Public(err)})
		}
	}
	if len(problems) > 0 {
		return fault.InvalidFields(problems...)
	}
	return nil
}

// withDefaults is for callers that make a Config without package config, and adds the one default that depends on another key.
func (c Config) withDefaults() Config {
	c = config.WithDefaults(c)
	c.OwnerDatabaseURL = cmp.Or(c.OwnerDatabaseURL, c.DatabaseURL)
	return c
}
