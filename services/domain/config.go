package domain

import (
	"cmp"
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/archive"
	"github.com/lockstep-cd/lockstep/pkg/bus"
	"github.com/lockstep-cd/lockstep/pkg/bus/authority"
	"github.com/lockstep-cd/lockstep/pkg/certs"
	"github.com/lockstep-cd/lockstep/pkg/config"
	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/pg"
	"github.com/lockstep-cd/lockstep/pkg/sealing"
	"github.com/lockstep-cd/lockstep/pkg/secret"
	"github.com/lockstep-cd/lockstep/pkg/telemetry"
	"github.com/lockstep-cd/lockstep/pkg/throttle"
)

// Config is the configuration of the service. The zero value works: the service runs, and rejects all callers, because no token exists.
type Config struct {
	pg.Database
	// Policies are the policy sets of the installation.
	Policies []PolicyConfig `koanf:"policies"`
	// OwnerDatabaseURL has the account that owns the tables and migrates them; empty for that of database_url. With a separate owner,
	// the service's own account needs no right to change tables.
	OwnerDatabaseURL string `koanf:"owner_database_url" secret:"true"`
	// DatabaseRole is the role that the service assumes after login: it sees one organization at a time, and cannot change or delete
	// append-only rows. The owner creates and grants it if allowed to. With "none" the service works as its login account, for servers
	// on which no role can be created; organizations are still isolated from each other.
	DatabaseRole string `koanf:"database_role" default:"lockstep_domain"`
	// Schema is the PostgreSQL schema that holds the service's tables; it is created if missing.
	Schema string `koanf:"schema" default:"domain"`
	// MaxConnections is the maximum number of connections to the database, per process.
	MaxConnections int32 `koanf:"max_connections" default:"16"`
	// DatabaseStandbyURL is the URL of a standby that follows the database, with the account of database_url; empty for none. Queries of
	// clients that say what they have seen before (the header Lockstep-Position; the console and the CLI do) are read there, if it has
	// that. It leads to one server, and through no pooler that gives each transaction a connection of its own.
	DatabaseStandbyURL string `koanf:"database_standby_url" secret:"true"`
	// DatabaseStandbyStaleness is how old at most what is read there may be.
	DatabaseStandbyStaleness time.Duration `koanf:"database_standby_staleness" default:"5s"`
	bus.NATS
	bus.Layout
	// NATSUser is the service's account at the event bus.
	NATSUser string `koanf:"nats_user" default:"domain"`
	// HTTPAddress is the address that serves the API, at /graphql, the documentation, at /docs, and the web console.
	HTTPAddress string `koanf:"http_address" default:":8080"`
	// HTTPCertFile and HTTPKeyFile are its server certificate; without them it serves plain HTTP, for a proxy in front that terminates
	// TLS. Replaced files take effect at the next connection.
	HTTPCertFile string `koanf:"http_cert_file"`
	HTTPKeyFile  string `koanf:"http_key_file"`
	// WorkflowAddress is the gRPC address of the workflow service, host:port, and WorkflowToken the bearer token for it. A name with
	// several addresses, such as that of a headless Kubernetes Service, is looked up again as they change, and calls are spread over all.
	WorkflowAddress string `koanf:"workflow_address" default:"127.0.0.1:8083"`
	WorkflowToken   string `koanf:"workflow_token"   secret:"true"`
	// WorkflowServerName is the name in the workflow service's certificate, where it is not the host of WorkflowAddress.
	WorkflowServerName string `koanf:"workflow_server_name"`
	// WorkflowTLS encrypts these calls. Leave it off only on loopback, or where the network encrypts. WorkflowCAFile holds the
	// certificate authorities that the server's certificate is verified against; empty for the system's.
	WorkflowTLS    bool   `koanf:"workflow_tls"`
	WorkflowCAFile string `koanf:"workflow_ca_file"`
	// WorkflowCertFile and WorkflowKeyFile are the client certificate, for a workflow service that requires one (mTLS).
	WorkflowCertFile string `koanf:"workflow_cert_file"`
	WorkflowKeyFile  string `koanf:"workflow_key_file"`
	// BootstrapToken is the bearer token of the first organization's owner. If empty, there is no such token. It should be random and have
	// at least 32 characters ("openssl rand -hex 32"): anybody who guesses it owns the installation. A weaker one is accepted with a warning,
	// one below 16 characters is refused.
	BootstrapToken string `koanf:"bootstrap_token" secret:"true"`
	// NATSAuthoritySeed makes this service decide which agents may connect to NATS (auth callout; "lockstep agent authority" generates a
	// seed). If empty, NATS's own configuration decides.
	NATSAuthoritySeed string `koanf:"nats_authority_seed" secret:"true"`
	// BootstrapAgents are created in the first organization at the start, with existing keys.
	BootstrapAgents []BootstrapAgent `koanf:"bootstrap_agents"`
	// BootstrapOrganization is the name that the first organization, whose number is 1, is made with; "lockstep organization rename"
	// changes it later.
	BootstrapOrganization string `koanf:"bootstrap_organization" default:"default"`
	// PublicURL is the address under which browsers reach the console: https://cd.example.com. OIDC needs it; links to
	// rollouts in messages and pull requests have it.
	PublicURL string `koanf:"public_url"`
	// SessionLifetime is how long a browser stays signed in with a token, at most until the token expires.
	SessionLifetime time.Duration `koanf:"session_lifetime" default:"12h"`
	// MaxSubscriptions is how many GraphQL subscriptions a member may have open in each process, whatever tokens are used for them; the
	// console has one per tab. 0 means 100, and -1 any number.
	MaxSubscriptions int `koanf:"max_subscriptions" default:"100"`
	// FailedAuthentication slows down callers whose credentials prove nothing: an address may fail 20 times at once and then 30 times a
	// minute, a credential 5 times and then 6 times a minute; then the answer is 429 until it may be tried again. A credential that has been
	// good is not slowed down. failed_authentication.off switches it off.
	FailedAuthentication throttle.Config `koanf:"failed_authentication"`
	// OIDC is the identity provider for sign-in; without an issuer people sign in with tokens.
	OIDC OIDC `koanf:"oidc"`
	// DriverDir is a folder of deploy drivers in addition to the built-in ones, one subfolder each; empty for none.
	DriverDir string `koanf:"driver_dir"`
	// Drivers configures deploy drivers that are pulled from OCI registries.
	Drivers DriversConfig `koanf:"drivers"`
	// Vault is the server that references vault:path#key in drivers.registries and credentials point to.
	Vault secret.VaultConfig `koanf:"vault"`
	// DriftEvery is how often the drivers that find drift by themselves (kubernetes@1, git@1) look at each application environment; 0s
	// switches that off. DriftPerMinute is how many looks each process begins a minute at most: of more environments each has its turn later.
	DriftEvery     time.Duration `koanf:"drift_every"      default:"10m"`
	DriftPerMinute int           `koanf:"drift_per_minute" default:"60"`
	// DriftWindow is how long after the end of a rollout these drivers do not look for drift yet.
	DriftWindow time.Duration `koanf:"drift_window" default:"5m"`
	// Archive is where settled rows are kept when their organization's rules delete them from the database; without it they are deleted.
	Archive archive.Config `koanf:"archive"`
	// Credentials are about those that organizations manage themselves: the keyset that values are sealed with, and the references that they
	// may give instead. The workflow service has the same.
	Credentials sealing.Settings `koanf:"credentials"`
	// Docs is the documentation that the service serves at /docs.
	Docs Docs `koanf:"docs"`
	// Journal is how the journals are sealed, so that later changes of them are found, and how often they are checked.
	Journal Journal `koanf:"journal"`
	// DeliveryMetrics selects the delivery metrics that are exported at /metrics.
	DeliveryMetrics DeliveryMetrics `koanf:"delivery_metrics"`
	telemetry.Settings
}

// Docs is the documentation of this release.
type Docs struct {
	// Off switches it off: /docs is not served, and the console does not link to it.
	Off bool `koanf:"off"`
}

// DeliveryMetrics selects the delivery metrics that /metrics exports. Each application in each of these environments has up to thirteen
// series, so environments are opted in here; the API has the metrics of all.
type DeliveryMetrics struct {
	// Environments are names of the first organization's environments, exported with every application whose pipeline includes them;
	// none by default.
	Environments []string `koanf:"environments"`
	// Days is the length of the window that ends now; 366 at most.
	Days int `koanf:"days" default:"30"`
	// Most is the maximum number of pairs of application and environment that are exported, in the order of the applications' names.
	Most int `koanf:"most" default:"200"`
}

// OIDC is an identity provider (OpenID Connect). The redirect address to register there is <public_url>/session/oidc/callback.
type OIDC struct {
	// Issuer is its issuer URL, exactly as in its tokens.
	Issuer string `koanf:"issuer"`
	// Label is its name on the console's button.
	Label string `koanf:"label" default:"single sign-on"`
	// ClientID and ClientSecret identify this installation to it. Public clients have no secret.
	ClientID     string `koanf:"client_id"`
	ClientSecret string `koanf:"client_secret" secret:"true"`
	// Scopes are requested in addition to openid.
	Scopes []string `koanf:"scopes" default:"email,profile"`
	// NameClaim is the claim that becomes a member's name. With email, a member who was added before under the same verified address is
	// the same person; a name from any other claim is accepted only if no member has it.
	NameClaim string `koanf:"name_claim" default:"email"`
	// GroupsClaim is the claim with a person's groups, and Roles maps groups to roles: platform=owner, shop=deployer. A role is one of the
	// first organization, or of that whose number follows: books=deployer@2. The highest role in an organization applies, and is evaluated
	// at each sign-in; a person in none of the groups has no access. Without Roles, members have the roles they were given in Lockstep.
	GroupsClaim string   `koanf:"groups_claim" default:"groups"`
	Roles       []string `koanf:"roles"`
	// SessionLifetime is how long a sign-in lasts, after which the provider is asked again. A person who is removed there keeps access for
	// no longer than this; a provider with back-channel logout ends it at once (<public_url>/session/oidc/logout).
	SessionLifetime time.Duration `koanf:"session_lifetime" default:"1h"`
	// CAFile holds the certificate authorities that its server's certificate is verified against; empty for the system's.
	CAFile string `koanf:"ca_file"`
}

// publicKey is how the public half of a user's key looks.
var publicKey = regexp.MustCompile(`^U[A-Z2-7]{55}$`)

const (
	// minToken is the minimum length of the bootstrap token, against guessing.
	minToken = 16
	// strongToken is the length, and strongSymbols the number of different characters, below which it is called weak.
	strongToken, strongSymbols = 32, 10
	// maxSessionLife is the longest session: a month.
	maxSessionLife = 31 * 24 * time.Hour
	// minConnections leaves connections for the API: the outbox holds one permanently.
	minConnections = 4
	// minStaleness is twice as long as it takes until it is found out again how far a standby is.
	minStaleness = 2 * time.Second
)

// isWeak reports whether a token may be guessed: it is short, or of few different characters.
func isWeak(token string) bool {
	symbols := map[rune]bool{}
	for _, r := range token {
		symbols[r] = true
	}
	return len(token) < strongToken || len(symbols) < strongSymbols
}

// BootstrapAgent is an agent that is created at the start.
type BootstrapAgent struct {
	// Number is the number by which environment configurations refer to it.
	Number int64 `koanf:"number" yaml:"number" json:"number"`
	// Name is its display name.
	Name string `koanf:"name" yaml:"name" json:"name"`
	// PublicKey is the public half of its key; it begins with U.
	PublicKey string `koanf:"public_key" yaml:"public_key" json:"public_key"`
}

// Validate reports invalid settings that package config cannot find by type. 0 is valid where a key has a default.
func (c Config) Validate() error {
	var problems []fault.Field
	if c.BootstrapToken != "" && (len(c.BootstrapToken) < minToken || strings.ContainsAny(c.BootstrapToken, " \t\r\n")) {
		problems = append(problems, fault.Field{
			Name:    "bootstrap_token",
			Problem: "found a token that is short or has spaces in it; expected at least 16 characters without spaces",
		})
	}
	if c.MaxConnections < 0 || c.MaxConnections > 0 && c.MaxConnections < minConnections {
		problems = append(problems, fault.Field{
			Name:    "max_connections",
			Problem: fmt.Sprintf("found %d; expected at least %d", c.MaxConnections, minConnections),
		})
	}
	if c.Journal.SealEvery < 0 || c.Journal.CheckEvery < 0 {
		problems = append(problems, fault.Field{
			Name:    "journal",
			Problem: "found a negative seal_every or check_every; expected durations such as 10s and 24h",
		})
	}
	if d := c.DatabaseStandbyStaleness; d != 0 && (d < minStaleness || d > time.Hour) {
		problems = append(problems, fault.Field{
			Name: "database_standby_staleness", Problem: fmt.Sprintf("found %s; expected between %s and 1h", d, minStaleness),
		})
	}
	if c.DriftEvery < 0 || c.DriftEvery > 0 && c.DriftEvery < time.Minute || c.DriftPerMinute < 0 {
		problems = append(problems, fault.Field{
			Name:    "drift_every",
			Problem: fmt.Sprintf("found %s, and drift_per_minute %d; expected 0s or at least 1m, and at least 0", c.DriftEvery, c.DriftPerMinute),
		})
	}
	if c.DriftWindow < 0 || c.DriftWindow > 24*time.Hour {
		problems = append(problems, fault.Field{Name: "drift_window", Problem: fmt.Sprintf("found %s; expected 0s to 24h", c.DriftWindow)})
	}
	if d := c.DeliveryMetrics.Days; d < 0 || d > 366 {
		problems = append(problems, fault.Field{Name: "delivery_metrics.days", Problem: fmt.Sprintf("found %d; expected 1 to 366", d)})
	}
	if n := c.DeliveryMetrics.Most; n < 0 {
		problems = append(problems, fault.Field{Name: "delivery_metrics.most", Problem: fmt.Sprintf("found %d; expected at least 1", n)})
	}
	if (c.WorkflowCertFile == "") != (c.WorkflowKeyFile == "") || c.WorkflowCertFile != "" && !c.WorkflowTLS {
		problems = append(problems, fault.Field{
			Name:    "workflow_cert_file",
			Problem: "expected workflow_tls, workflow_cert_file and workflow_key_file together, or no certificate",
		})
	}
	if c.WorkflowCAFile != "" && !c.WorkflowTLS {
		problems = append(problems, fault.Field{Name: "workflow_ca_file", Problem: "found without workflow_tls; expected both, or neither"})
	}
	for name, life := range map[string]time.Duration{"session_lifetime": c.SessionLifetime, "oidc.session_lifetime": c.OIDC.SessionLifetime} {
		if life != 0 && (life < time.Minute || life > maxSessionLife) {
			problems = append(problems, fault.Field{Name: name, Problem: fmt.Sprintf("found %s; expected between 1m and %s", life, maxSessionLife)})
		}
	}
	problems = append(problems, c.Settings.Check()...)
	problems = append(problems, c.FailedAuthentication.Check("failed_authentication")...)
	problems = append(problems, c.oidcProblems()...)
	problems = append(problems, c.NATS.Check()...)
	problems = append(problems, c.Layout.Check()...)
	problems = append(problems, c.Database.Certificates().Check("database_")...)
	problems = append(problems, c.httpTLS().Check("http_")...)
	problems = append(problems, c.Drivers.problems()...)
	problems = append(problems, c.Vault.Check()...)
	problems = append(problems, c.Archive.Check()...)
	problems = append(problems, c.Credentials.Check("credentials")...)
	for i, a := range c.BootstrapAgents {
		if a.Number <= 0 || a.Name == "" || !publicKey.MatchString(a.PublicKey) {
			problems = append(problems, fault.Field{
				Name:    fmt.Sprintf("bootstrap_agents[%d]", i),
				Problem: "expected a number above zero, a name, and a public key that begins with U",
			})
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

// withDefaults also serves callers that build a Config without package config. It adds the one default that depends on another key.
func (c Config) withDefaults() Config {
	c = config.WithDefaults(c)
	c.OwnerDatabaseURL = cmp.Or(c.OwnerDatabaseURL, c.DatabaseDirectURL, c.DatabaseURL)
	return c
}

// httpTLS is the certificate of the HTTP server.
func (c Config) httpTLS() certs.Files { return certs.Files{Cert: c.HTTPCertFile, Key: c.HTTPKeyFile} }
