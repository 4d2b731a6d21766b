package workflow

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/bus"
	"github.com/lockstep-cd/lockstep/pkg/config"
	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/rpc"
	"github.com/lockstep-cd/lockstep/pkg/secret"
	"github.com/lockstep-cd/lockstep/pkg/telemetry"
)

// Config is what an operator may set. The zero value works, but for a database and a token: without a token nobody is
// let in.
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
	Schema string `koanf:"schema" default:"workflow"`
	// MaxConnections bounds the connections to the database.
	MaxConnections int32 `koanf:"max_connections" default:"16" was:"database_connections"`
	// NATSURL, NATSUser and NATSPassword are the event bus and our account there.
	NATSURL      string `koanf:"nats_url"      default:"nats://127.0.0.1:4222"`
	NATSUser     string `koanf:"nats_user"     default:"workflow"`
	NATSPassword string `koanf:"nats_password" secret:"true"`
	// NATSCAFile holds the certificates to check NATS's against, NATSCertFile and NATSKeyFile are ours, for a server that asks for
	// one. With any of them, a server that offers no TLS is refused. Files that are replaced take effect at the next connection.
	NATSCAFile   string `koanf:"nats_ca_file"`
	NATSCertFile string `koanf:"nats_cert_file"`
	NATSKeyFile  string `koanf:"nats_key_file"`
	// GRPCAddress is where AutoFlow is served.
	GRPCAddress string `koanf:"grpc_address" default:":8083"`
	// GRPCCertFile and GRPCKeyFile are PEM files with AutoFlow's certificate and key; without them it is served in plain text. With
	// GRPCClientCAFile as well, callers have to show a certificate that it vouches for (mTLS). Files that are replaced take
	// effect at the next connection.
	GRPCCertFile     string `koanf:"grpc_cert_file"      was:"grpc_cert"`
	GRPCKeyFile      string `koanf:"grpc_key_file"       was:"grpc_key"`
	GRPCClientCAFile string `koanf:"grpc_client_ca_file" was:"grpc_client_ca"`
	// Token is the domain service's bearer token, which may do everything.
	Token string `koanf:"token" secret:"true"`
	// Tokens are those of all other callers. To rotate one, have both in the list for a while. Without Token and Tokens
	// nobody is let in.
	Tokens []AccessToken `koanf:"tokens"`
	// Agents are the numbers of relays that get a queue of their own before anybody says whose they are. Those that the domain
	// service declares get theirs by that, and need not be listed.
	Agents []int64 `koanf:"agents"`
	// AgentOwners says which organization may call an agent where no domain service does: a service that runs by itself.
	AgentOwners []AgentOwner `koanf:"agent_owners"`
	// Instance names this process. Give it a stable name, different for each replica: a process that comes back under its
	// name continues its workflows at once, while those of a name that is gone wait for LeaseDuration. Default: host name
	// and process id.
	Instance string `koanf:"instance"`
	// LeaseDuration is how long the workflows of a dead process wait for another one to take them.
	LeaseDuration time.Duration `koanf:"lease_duration" default:"5s"`
	// CallTimeout bounds a Function for which the program gives no timeout; its end is the error "timeout".
	CallTimeout time.Duration `koanf:"call_timeout" default:"15m"`
	// WaitTimeout bounds a wait_for_event for which the program gives no timeout; its end fails the workflow.
	WaitTimeout time.Duration `koanf:"wait_timeout" default:"720h"`
	// EventRetention is how long events are kept for waits that come later, and the histories of generations that have ended. Give
	// it more than the longest rollout.
	EventRetention time.Duration `koanf:"event_retention" default:"720h"`
	// MaxLive is how many workflows may run at a time in this process; parked ones do not count.
	MaxLive int `koanf:"max_live" default:"1024"`
	// CacheBytes is how much memory parked workflows may take, about, that are kept where they stand: they go on without a
	// replay of their history. Those used last are kept. A negative number keeps none.
	CacheBytes int64 `koanf:"cache_bytes" default:"268435456"`
	// MaxActivities is how many Functions may run in this process at a time.
	MaxActivities int `koanf:"max_activities" default:"32"`
	// MaxHistory is how many entries a generation of a workflow may record before it is stopped; its program may end one before
	// by continue_with.
	MaxHistory int `koanf:"max_history" default:"100000"`
	// MaxCrashes is how many processes in a row may die with a workflow in hand before it is quarantined; at least 2.
	MaxCrashes int `koanf:"max_crashes" default:"3"`
	// DriverDir holds deploy drivers beside the built-in ones, one folder each, as the domain's; empty: none. The programs
	// of drivers run in this process, all others in child processes with limits of the operating system.
	DriverDir string `koanf:"driver_dir"`
	// TrustPrograms runs every program in this process. It is for installations in which nobody can start a workflow who
	// could not as well stop the service.
	TrustPrograms bool `koanf:"trust_programs"`
	// SandboxProcesses is how many child processes share the programs that are no driver's.
	SandboxProcesses int `koanf:"sandbox_processes" default:"2"`
	// SandboxMemory is how many MiB such a program may hold; SandboxCPU what it may compute between two waits.
	SandboxMemory int           `koanf:"sandbox_memory" default:"256"`
	SandboxCPU    time.Duration `koanf:"sandbox_cpu"    default:"10s"`
	// SandboxCommand starts such a process; empty: this program with the argument "sandbox".
	SandboxCommand []string `koanf:"sandbox_command"`
	// GitCredentials log in to Git servers, by the longest matching URL prefix.
	GitCredentials []GitCredential `koanf:"git_credentials"`
	// Vault is where references vault:path#key of password_ref lead.
	Vault secret.VaultConfig `koanf:"vault"`
	// GitAllowNetworks is what may be reached beyond public addresses on ports 80 and 443 for a repository that a program
	// names: networks, addresses, and hosts by name, each with a port or else on every port. The servers of GitCredentials
	// are allowed without being listed.
	GitAllowNetworks []string `koanf:"git_allow_networks"`
	// GitCAFile holds authorities that vouch for Git servers and forges, beside the system's; empty for those alone. A file that is
	// replaced counts from the next connection on.
	GitCAFile string `koanf:"git_ca_file"`
	// GitAuthorName and GitAuthorEmail sign the commits that workflows make.
	GitAuthorName  string `koanf:"git_author_name"  default:"Lockstep"`
	GitAuthorEmail string `koanf:"git_author_email" default:"lockstep@localhost"`
	// HealthAddress serves /healthz, /readyz and /metrics; empty for no such server.
	HealthAddress string `koanf:"health_address"`
	// LogLevel is debug, info, warn or error.
	LogLevel string `koanf:"log_level" default:"info"`
}

// AccessToken is a bearer token, by its digest or by a reference to it, and what it may do.
type AccessToken struct {
	// Name is the caller's, for logs.
	Name string `koanf:"name" yaml:"name" json:"name"`
	// Organization is the only one that the caller sees; 0 is all of them.
	Organization int64 `koanf:"organization" yaml:"organization" json:"organization"`
	// Scope is read (look), start (also start workflows and send events), operate (also cancel, terminate and retry) or
	// admin.
	Scope string `koanf:"scope" yaml:"scope" json:"scope"`
	// SHA256 is the token's digest, hexadecimal: printf %s "$TOKEN" | sha256sum. Either this or Ref.
	SHA256 string `koanf:"sha256" yaml:"sha256" json:"sha256"`
	// Ref is where the token is: env:NAME, or file:/path, which is read again when it changes.
	Ref string `koanf:"ref" yaml:"ref" json:"ref"`
}

// AgentOwner is an agent and the organization whose programs may call it.
type AgentOwner struct {
	Agent        int64 `koanf:"agent"        yaml:"agent"        json:"agent"`
	Organization int64 `koanf:"organization" yaml:"organization" json:"organization"`
}

// GitCredential is a user name and a reference to a password.
type GitCredential struct {
	// URLPrefix is scheme, host and the beginning of a path.
	URLPrefix string `koanf:"url_prefix" yaml:"url_prefix" json:"url_prefix"`
	// Username is what the server wants there; for tokens often anything.
	Username string `koanf:"username" yaml:"username" json:"username"`
	// PasswordRef is env:NAME, file:/path, k8s:namespace/name#key or vault:path#key, read whenever it is needed; never the password itself.
	PasswordRef string `koanf:"password_ref" yaml:"password_ref" json:"password_ref"`
	// Forge is the interface that these repositories are read and written through: git (the default), gitlab, github or gitea,
	// with the password as its token.
	Forge string `koanf:"forge" yaml:"forge" json:"forge"`
	// Organizations are those whose workflows it logs in; none means all. Any program may name any repository, so an
	// installation that several organizations share says here whose each credential is.
	Organizations []int64 `koanf:"organizations" yaml:"organizations,omitempty" json:"organizations,omitempty"`
}

// Validate finds mistakes that only this service knows to be some. 0 passes: it means the default.
func (c Config) Validate() error {
	var problems []fault.Field
	for i, agent := range c.Agents {
		if agent <= 0 || slices.Contains(c.Agents[:i], agent) {
			problems = append(problems, fault.Field{Name: fmt.Sprintf("agents[%d]", i), Problem: fmt.Sprintf("found %d, expected a number above zero, once", agent)})
		}
	}
	for i, o := range c.AgentOwners {
		if o.Agent <= 0 || o.Organization <= 0 {
			problems = append(problems, fault.Field{Name: fmt.Sprintf("agent_owners[%d]", i), Problem: fmt.Sprintf("found agent %d of organization %d, expected numbers above zero", o.Agent, o.Organization)})
		}
	}
	if (c.GRPCCertFile == "") != (c.GRPCKeyFile == "") {
		problems = append(problems, fault.Field{Name: "grpc_cert_file", Problem: "expected grpc_cert_file and grpc_key_file, or neither"})
	}
	if c.GRPCClientCAFile != "" && c.GRPCCertFile == "" {
		problems = append(problems, fault.Field{Name: "grpc_client_ca_file", Problem: "found without grpc_cert_file, expected a certificate of our own as well"})
	}
	problems = append(problems, bus.CheckURL("nats_url", c.NATSURL)...)
	problems = append(problems, telemetry.CheckLevel("log_level", c.LogLevel)...)
	problems = append(problems, c.tlsProblems()...)
	problems = append(problems, c.Vault.Check()...)
	for i, t := range c.Tokens {
		if _, err := rpc.ParseScope(t.Scope); err != nil {
			problems = append(problems, fault.Field{Name: fmt.Sprintf("tokens[%d].scope", i), Problem: err.Error()})
		}
		if t.Name == "" || t.Organization < 0 {
			problems = append(problems, fault.Field{Name: fmt.Sprintf("tokens[%d]", i), Problem: "expected a name, and an organization's number or 0"})
		}
	}
	for _, d := range []struct {
		name  string
		value time.Duration
	}{
		{"lease_duration", c.LeaseDuration},
		{"call_timeout", c.CallTimeout},
		{"wait_timeout", c.WaitTimeout},
		{"event_retention", c.EventRetention},
		{"sandbox_cpu", c.SandboxCPU},
	} {
		if d.value < 0 {
			problems = append(problems, fault.Field{Name: d.name, Problem: fmt.Sprintf("found %s, expected a duration above zero", d.value)})
		}
	}
	for _, n := range []struct {
		name  string
		value int
	}{{"max_live", c.MaxLive}, {"max_activities", c.MaxActivities}, {"max_history", c.MaxHistory}, {"max_crashes", c.MaxCrashes}, {"sandbox_processes", c.SandboxProcesses}, {"sandbox_memory", c.SandboxMemory}, {"max_connections", int(c.MaxConnections)}} {
		if n.value < 0 {
			problems = append(problems, fault.Field{Name: n.name, Problem: fmt.Sprintf("found %d, expected a number above zero", n.value)})
		}
	}
	if c.MaxCrashes == 1 {
		problems = append(problems, fault.Field{Name: "max_crashes", Problem: "found 1, expected at least 2: one crash says nothing about whose fault it was"})
	}
	if len(problems) > 0 {
		return fault.InvalidFields(problems...)
	}
	return nil
}

// withDefaults is for callers that make a Config without package config, and adds the one default that depends on the process.
func (c Config) withDefaults() Config {
	c = config.WithDefaults(c)
	// It has a process id in it, so a restart has another name and its workflows wait for LeaseDuration.
	if c.Instance == "" {
		host, err := os.Hostname()
		if err != nil {
			host = name
		}
		c.Instance = host + "-" + strconv.Itoa(os.Getpid())
	}
	return c
}
