package workflow

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/archive"
	"github.com/lockstep-cd/lockstep/pkg/bus"
	"github.com/lockstep-cd/lockstep/pkg/config"
	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/gitfetch"
	"github.com/lockstep-cd/lockstep/pkg/pg"
	"github.com/lockstep-cd/lockstep/pkg/rpc"
	"github.com/lockstep-cd/lockstep/pkg/sealing"
	"github.com/lockstep-cd/lockstep/pkg/secret"
	"github.com/lockstep-cd/lockstep/pkg/telemetry"
	"github.com/lockstep-cd/lockstep/pkg/throttle"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/worker"
)

// Config is the configuration of the service. The zero value works except for a database; without a token all callers are rejected.
type Config struct {
	// Policies are the policy sets of the installation.
	Policies []PolicyConfig `koanf:"policies"`
	pg.Database
	// Schema is the PostgreSQL schema that holds the service's tables; it is created if missing.
	Schema string `koanf:"schema" default:"workflow"`
	// MaxConnections is the maximum number of connections to the database, per process.
	MaxConnections int32 `koanf:"max_connections" default:"16"`
	bus.NATS
	bus.Layout
	// NATSUser is the service's account at the event bus.
	NATSUser string `koanf:"nats_user" default:"workflow"`
	// GRPCAddress is the address that serves the AutoFlow API.
	GRPCAddress string `koanf:"grpc_address" default:":8083"`
	// GRPCCertFile and GRPCKeyFile are the server certificate, PEM files; without them AutoFlow is served unencrypted. With
	// GRPCClientCAFile callers must present a certificate issued by that authority (mTLS). Replaced files take effect at the next
	// connection.
	GRPCCertFile     string `koanf:"grpc_cert_file"`
	GRPCKeyFile      string `koanf:"grpc_key_file"`
	GRPCClientCAFile string `koanf:"grpc_client_ca_file"`
	// Token is the domain service's bearer token, which has every permission. Only it, and those of Tokens with scope admin and
	// organization 0, may start runs whose ids are reserved for rollouts, previews, onboardings and setups.
	Token string `koanf:"token" secret:"true"`
	// FailedAuthentication slows down callers whose credentials prove nothing: an address may fail 20 times at once and then 30 times a
	// minute, a credential 5 times and then 6 times a minute; then the answer is RESOURCE_EXHAUSTED until it may be tried again. A credential
	// that has been good is not slowed down. failed_authentication.off switches it off.
	FailedAuthentication throttle.Config `koanf:"failed_authentication"`
	// Tokens are the bearer tokens of all other callers. To rotate one, list the old and the new one for a while. Without Token and
	// Tokens all callers are rejected.
	Tokens []AccessToken `koanf:"tokens"`
	// Agents are the numbers of agents whose NATS consumer is created at the start. Agents that the domain service declares get one
	// then, and need not be listed.
	Agents []int64 `koanf:"agents"`
	// AgentOwners declares the organizations of agents for a workflow service that runs without a domain service.
	AgentOwners []AgentOwner `koanf:"agent_owners"`
	// Instance is the name of this process. Choose a stable one, different for each replica: a process that restarts under the same
	// name resumes its workflows at once, while those of any other process wait for LeaseDuration. Default: host name and process id.
	Instance string `koanf:"instance"`
	// LeaseDuration is the time after which the workflows of a dead process are taken over by another one.
	LeaseDuration time.Duration `koanf:"lease_duration" default:"5s"`
	// CallTimeout is the timeout of a Function call if the program gives none; the call then fails with the code "timeout".
	CallTimeout time.Duration `koanf:"call_timeout" default:"15m"`
	// WaitTimeout is the timeout of wait_for_event if the program gives none; the workflow then fails.
	WaitTimeout time.Duration `koanf:"wait_timeout" default:"720h"`
	// EventRetention is how long events are kept for later waits, and the histories of past generations. It should be longer than the
	// longest rollout.
	EventRetention time.Duration `koanf:"event_retention" default:"720h"`
	// Archive is where ended runs are kept when their organization's rules delete them from the database; without it they are deleted.
	Archive archive.Config `koanf:"archive"`
	// MaxLive is the maximum number of workflows running in this process at a time; parked ones do not count.
	MaxLive int `koanf:"max_live" default:"1024"`
	// CacheBytes is the approximate memory for parked workflows that are kept in memory, so that they resume without replaying their
	// history. The least recently used are evicted first. A negative number disables the cache.
	CacheBytes int64 `koanf:"cache_bytes" default:"268435456"`
	// WorkerHeartbeat is how long a worker may be silent before its calls are given to others; it is asked for heartbeats three times as
	// often.
	WorkerHeartbeat time.Duration `koanf:"worker_heartbeat" default:"15s"`
	// MaxActivities is the maximum number of Functions running in this process at a time. Runs that send notifications or publish to forges
	// have places of their own beside these, half as many, so that a channel that never answers slows no rollout.
	MaxActivities int `koanf:"max_activities" default:"32"`
	// MaxHistory is the maximum number of history entries in one generation of a workflow, which is stopped beyond that. A program starts a
	// new generation with continue_with.
	MaxHistory int `koanf:"max_history" default:"100000"`
	// MaxGenerations is the maximum number of generations that a workflow may begin with continue_with within a minute; beyond it the next one
	// waits. A negative number allows any number.
	MaxGenerations int `koanf:"max_generations" default:"60"`
	// MaxCrashes is the number of processes that may die in a row while running a workflow; with the next one it is quarantined, if the last
	// two died while they tried it as the only suspect and lived without it. At least 2.
	MaxCrashes int `koanf:"max_crashes" default:"3"`
	// DriverDir is a folder of deploy drivers in addition to the built-in ones, the same as the domain service's; empty for none. Programs
	// of drivers run in this process, all others in child processes with resource limits.
	DriverDir string `koanf:"driver_dir"`
	// TrustPrograms runs every program in this process. Use it only where everybody who can start a workflow is as trusted as an operator
	// of the service.
	TrustPrograms bool `koanf:"trust_programs"`
	// SandboxProcesses is the number of programs, of those that are not a driver's, that compute at the same time, each in a child process.
	// The organizations take turns, also in the middle of a program.
	SandboxProcesses int `koanf:"sandbox_processes" default:"2"`
	// SandboxChildren is the maximum number of child processes. Each runs programs of one organization only. An organization without one gets
	// that of the organization that has been idle longest, whose workflows then resume by replaying their histories.
	SandboxChildren int `koanf:"sandbox_children" default:"16"`
	// SandboxTotalMemory is the memory limit of all child processes together in MiB. Beyond it, those that have been idle longest are ended,
	// then the one that began to compute last, of the organizations that hold more than their equal share; their workflows resume by replaying
	// their histories.
	SandboxTotalMemory int `koanf:"sandbox_total_memory" default:"512"`
	// SandboxMemory is the memory limit of such a program in MiB; SandboxCPU its limit of CPU time between two waits.
	SandboxMemory int           `koanf:"sandbox_memory" default:"256"`
	SandboxCPU    time.Duration `koanf:"sandbox_cpu"    default:"10s"`
	// SandboxCommand is the command that starts such a process; by default this executable with the argument "sandbox".
	SandboxCommand []string `koanf:"sandbox_command"`
	// RenderProcesses is the number of Kustomize overlays and Helm charts that are rendered at the same time, each in a child process.
	RenderProcesses int `koanf:"render_processes" default:"2"`
	// RenderMemory is the memory limit of such a process in MiB; RenderCPU its limit of CPU time.
	RenderMemory int           `koanf:"render_memory" default:"256"`
	RenderCPU    time.Duration `koanf:"render_cpu"    default:"20s"`
	// RenderCommand is the command that starts such a process; by default this executable with the argument "render".
	RenderCommand []string `koanf:"render_command"`
	// GitCredentials are the accounts for Git servers, selected by the longest matching URL prefix.
	GitCredentials []GitCredential `koanf:"git_credentials"`
	// Credentials are about those that organizations manage themselves: the keyset that values are sealed with, and the references that they
	// may give instead. The domain service has the same.
	Credentials sealing.Settings `koanf:"credentials"`
	// Vault is the server that references vault:path#key point to.
	Vault secret.VaultConfig `koanf:"vault"`
	// GitAllowNetworks lists what may be reached for a repository that a program names, in addition to public addresses on ports 80 and
	// 443: networks, addresses and host names, each with an optional port. The servers of GitCredentials are always allowed.
	GitAllowNetworks []string `koanf:"git_allow_networks"`
	// GitCAFile holds certificate authorities for Git servers and forges, in addition to the system's; empty for the system's alone. A
	// replaced file takes effect at the next connection.
	GitCAFile string `koanf:"git_ca_file"`
	// HTTPCredentials are the secrets that programs may have sent with http.request, by name, each to its own URLs only.
	HTTPCredentials []HTTPCredential `koanf:"http_credentials"`
	// HTTPAllowNetworks lists what http.request may reach in addition to public addresses on ports 80 and 443: networks, addresses and host
	// names, each with an optional port. It holds for the programs of all organizations.
	HTTPAllowNetworks []string `koanf:"http_allow_networks"`
	// HTTPCAFile holds certificate authorities for http.request, in addition to the system's; empty for the system's alone. A replaced file
	// takes effect at the next connection.
	HTTPCAFile string `koanf:"http_ca_file"`
	// GitLimits are what reading repositories may use: memory that all fetches of this process share, and bounds of one fetch.
	GitLimits gitfetch.Limits `koanf:"git_limits"`
	// GitAuthorName and GitAuthorEmail are the author of the commits that workflows make.
	GitAuthorName  string `koanf:"git_author_name"  default:"Lockstep"`
	GitAuthorEmail string `koanf:"git_author_email" default:"lockstep@localhost"`
	// PolicySamplesPerHour is how many calls of Functions of each organization with policies about calls are recorded in an hour, by each
	// replica, although all policies permit them at once, so that simulations of policies have some; 0 for none. The domain service keeps at
	// most 200 a day.
	PolicySamplesPerHour int `koanf:"policy_samples_per_hour" default:"10"`
	telemetry.Settings
}

// AccessToken is a bearer token, given by its digest or by a reference, and what it permits.
type AccessToken struct {
	// Name is the name of the caller in logs.
	Name string `koanf:"name" yaml:"name" json:"name"`
	// Organization is the only organization that the caller can access; 0 for all.
	Organization int64 `koanf:"organization" yaml:"organization" json:"organization"`
	// Scope is read, start (also start workflows and send events), operate (also cancel, terminate and retry) or admin; or work, which allows
	// nothing but to connect as a worker of one organization.
	Scope string `koanf:"scope" yaml:"scope" json:"scope"`
	// Prefix is what the names of the Functions begin with that a worker registers, without the last dot: shop for shop.reserve. It is
	// required with the scope work.
	Prefix string `koanf:"prefix" yaml:"prefix,omitempty" json:"prefix,omitempty"`
	// Redeclare lets a worker with this token declare a Function less strictly than it is registered: an effect that needs no passage any
	// more, or fewer places. Without it a declaration may only become stricter.
	Redeclare bool `koanf:"redeclare" yaml:"redeclare,omitempty" json:"redeclare,omitempty"`
	// SHA256 is the token's digest, hexadecimal: printf %s "$TOKEN" | sha256sum. Either this or Ref.
	SHA256 string `koanf:"sha256" yaml:"sha256" json:"sha256"`
	// Ref is a reference to the token: env:NAME, or file:/path, which is read again when it changes.
	Ref string `koanf:"ref" yaml:"ref" json:"ref"`
}

// AgentOwner is an agent and the organization whose programs may call it.
type AgentOwner struct {
	// Agent is the agent's number.
	Agent int64 `koanf:"agent" yaml:"agent" json:"agent"`
	// Organization is the number of its organization.
	Organization int64 `koanf:"organization" yaml:"organization" json:"organization"`
}

// GitCredential is a user name and a reference to a password.
type GitCredential struct {
	// Name is what programs call it that choose among several (argument credential of git.read_file and git.commit); it may be empty.
	Name string `koanf:"name" yaml:"name,omitempty" json:"name,omitempty"`
	// URLPrefix is scheme, host and the beginning of a path.
	URLPrefix string `koanf:"url_prefix" yaml:"url_prefix" json:"url_prefix"`
	// Username is the user name; many servers accept any if the password is a token.
	Username string `koanf:"username" yaml:"username" json:"username"`
	// PasswordRef is a reference to the password, never the password itself: env:NAME, file:/path, k8s:namespace/name#key or
	// vault:path#key. It is resolved whenever it is needed.
	PasswordRef string `koanf:"password_ref" yaml:"password_ref" json:"password_ref"`
	// Forge is the API used for these repositories: git (the default), or gitlab, github, gitea or bitbucket, with the password as the token.
	// Bitbucket Cloud takes an access token with the user name x-token-auth, or an API token with the e-mail address of its account.
	Forge string `koanf:"forge" yaml:"forge" json:"forge"`
	// Organizations are those whose workflows the credential is for. It is required where there are several: any program may name any
	// repository, so the service does not start with a credential that does not say whose it is, and stops using it when a second
	// organization appears.
	Organizations []int64 `koanf:"organizations" yaml:"organizations,omitempty" json:"organizations,omitempty"`
}

// HTTPCredential is a secret and the URLs that it may be sent to.
type HTTPCredential struct {
	// Name is what programs call it (argument credential).
	Name string `koanf:"name" yaml:"name" json:"name"`
	// URLPrefixes are the URLs that it may be sent to, also after a redirect: scheme, host and the beginning of a path.
	URLPrefixes []string `koanf:"url_prefixes" yaml:"url_prefixes" json:"url_prefixes"`
	// Username makes it a user name and a password (basic authentication). Header makes it the value of that header, such as X-Api-Key.
	// Without either it is a bearer token.
	Username string `koanf:"username" yaml:"username,omitempty" json:"username,omitempty"`
	Header   string `koanf:"header" yaml:"header,omitempty" json:"header,omitempty"`
	// Ref is a reference to the secret, never the secret itself: env:NAME, file:/path, k8s:namespace/name#key or vault:path#key. It is
	// resolved for each request. A run whose secrets have the same reference may use the credential under its own name for it.
	Ref string `koanf:"ref" yaml:"ref" json:"ref"`
	// OAuth2 makes the secret that of a client, for which a server issues the bearer tokens that are sent (OAuth 2.0 client credentials).
	OAuth2 OAuth2Client `koanf:"oauth2" yaml:"oauth2,omitempty" json:"oauth2,omitzero"`
	// ClientCert is a certificate that proves the client to servers, also beside one of the others. With it, Ref may be empty.
	ClientCert ClientCertificate `koanf:"tls" yaml:"tls,omitempty" json:"tls,omitzero"`
	// Organizations are those whose workflows the credential is for; it is required where there are several. To the programs of others it
	// does not exist.
	Organizations []int64 `koanf:"organizations" yaml:"organizations,omitempty" json:"organizations,omitempty"`
}

// ClientCertificate is a certificate with its key, by references.
type ClientCertificate struct {
	// Certificate and Key are references to the certificate, with the chain to its authority, and to its key, in PEM.
	Certificate string `koanf:"certificate" yaml:"certificate,omitempty" json:"certificate,omitempty"`
	Key         string `koanf:"key" yaml:"key,omitempty" json:"key,omitempty"`
	// CA is a reference to the authorities that may vouch for the server, in PEM, in place of all others; empty for those of http_ca_file and
	// the system.
	CA string `koanf:"ca" yaml:"ca,omitempty" json:"ca,omitempty"`
}

// OAuth2Client is a client of a server that issues tokens.
type OAuth2Client struct {
	// TokenURL is where tokens are issued; it is reached like every other URL (http_allow_networks). Empty for no OAuth 2.0.
	TokenURL string `koanf:"token_url" yaml:"token_url,omitempty" json:"token_url,omitempty"`
	// ClientID is the name of the client at that server.
	ClientID string `koanf:"client_id" yaml:"client_id,omitempty" json:"client_id,omitempty"`
	// Scopes are what a token is requested for; none for the server's default.
	Scopes []string `koanf:"scopes" yaml:"scopes,omitempty" json:"scopes,omitempty"`
	// Send is how the client proves itself: header (the default; basic authentication) or body.
	Send string `koanf:"send" yaml:"send,omitempty" json:"send,omitempty"`
}

// Validate reports invalid settings that package config cannot find by type. 0 is valid where a key has a default.
func (c Config) Validate() error {
	problems := c.checkAgents()
	problems = append(problems, c.FailedAuthentication.Check("failed_authentication")...)
	if (c.GRPCCertFile == "") != (c.GRPCKeyFile == "") {
		problems = append(problems, fault.Field{Name: "grpc_cert_file", Problem: "expected grpc_cert_file and grpc_key_file, or neither"})
	}
	if c.GRPCClientCAFile != "" && c.GRPCCertFile == "" {
		problems = append(problems, fault.Field{
			Name:    "grpc_client_ca_file",
			Problem: "found without grpc_cert_file, expected a certificate of our own as well",
		})
	}
	problems = append(problems, c.Settings.Check()...)
	problems = append(problems, c.NATS.Check()...)
	problems = append(problems, c.Layout.Check()...)
	problems = append(problems, c.Database.Certificates().Check("database_")...)
	problems = append(problems, c.Vault.Check()...)
	problems = append(problems, c.Credentials.Check("credentials")...)
	problems = append(problems, c.Archive.Check()...)
	problems = append(problems, c.GitLimits.Check("git_limits")...)
	for i, t := range c.Tokens {
		if _, err := rpc.ParseScope(t.Scope); err != nil {
			problems = append(problems, fault.Field{Name: fmt.Sprintf("tokens[%d].scope", i), Problem: err.Error()})
		}
		problems = append(problems, t.checkWork(fmt.Sprintf("tokens[%d].", i))...)
		if t.Name == "" || t.Organization < 0 {
			problems = append(problems, fault.Field{
				Name:    fmt.Sprintf("tokens[%d]", i),
				Problem: "expected a name, and an organization's number or 0",
			})
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
		{"render_cpu", c.RenderCPU},
		{"worker_heartbeat", c.WorkerHeartbeat},
	} {
		if d.value < 0 {
			problems = append(problems, fault.Field{Name: d.name, Problem: fmt.Sprintf("found %s, expected a duration above zero", d.value)})
		}
	}
	for _, n := range []struct {
		name  string
		value int
	}{
		{"max_live", c.MaxLive},
		{"max_activities", c.MaxActivities},
		{"max_history", c.MaxHistory},
		{"max_crashes", c.MaxCrashes},
		{"policy_samples_per_hour", c.PolicySamplesPerHour},
		{"sandbox_processes", c.SandboxProcesses},
		{"sandbox_memory", c.SandboxMemory},
		{"sandbox_children", c.SandboxChildren},
		{"sandbox_total_memory", c.SandboxTotalMemory},
		{"render_processes", c.RenderProcesses},
		{"render_memory", c.RenderMemory},
		{"max_connections", int(c.MaxConnections)},
	} {
		if n.value < 0 {
			problems = append(problems, fault.Field{Name: n.name, Problem: fmt.Sprintf("found %d, expected a number above zero", n.value)})
		}
	}
	if c.SandboxChildren > 0 && c.SandboxChildren < c.SandboxProcesses {
		problems = append(problems, fault.Field{
			Name:    "sandbox_children",
			Problem: fmt.Sprintf("found %d, expected at least sandbox_processes, %d", c.SandboxChildren, c.SandboxProcesses),
		})
	}
	if c.SandboxTotalMemory > 0 && c.SandboxTotalMemory < c.SandboxMemory {
		problems = append(problems, fault.Field{
			Name:    "sandbox_total_memory",
			Problem: fmt.Sprintf("found %d, expected at least sandbox_memory, %d: one program has to fit", c.SandboxTotalMemory, c.SandboxMemory),
		})
	}
	if c.MaxCrashes == 1 {
		problems = append(problems, fault.Field{
			Name:    "max_crashes",
			Problem: "found 1, expected at least 2: one crash says nothing about whose fault it was",
		})
	}
	if len(problems) > 0 {
		return fault.InvalidFields(problems...)
	}
	return nil
}

// checkAgents finds what is wrong with the agents and their owners.
func (c Config) checkAgents() (problems []fault.Field) {
	for i, agent := range c.Agents {
		if agent <= 0 || slices.Contains(c.Agents[:i], agent) {
			problems = append(problems, fault.Field{
				Name:    fmt.Sprintf("agents[%d]", i),
				Problem: fmt.Sprintf("found %d, expected a number above zero, once", agent),
			})
		}
	}
	for i, o := range c.AgentOwners {
		if o.Agent <= 0 || o.Organization <= 0 {
			problems = append(problems, fault.Field{
				Name:    fmt.Sprintf("agent_owners[%d]", i),
				Problem: fmt.Sprintf("found agent %d of organization %d, expected numbers above zero", o.Agent, o.Organization),
			})
		}
	}
	return problems
}

// checkWork finds what is wrong with the token of a worker.
func (t AccessToken) checkWork(at string) (problems []fault.Field) {
	if t.Scope != rpc.ScopeWork.String() {
		if t.Prefix != "" {
			problems = append(problems, fault.Field{Name: at + "prefix", Problem: "found with the scope " + t.Scope + ", expected only with work"})
		}
		return problems
	}
	if t.Organization <= 0 {
		problems = append(problems, fault.Field{Name: at + "organization", Problem: "found 0, expected the organization of the worker"})
	}
	if problem := worker.CheckPrefix(t.Prefix); problem != "" {
		problems = append(problems, fault.Field{Name: at + "prefix", Problem: problem})
	}
	return problems
}

// withDefaults also serves callers that build a Config without package config. It adds the one default that depends on the process.
func (c Config) withDefaults() Config {
	c = config.WithDefaults(c)
	// It contains the process id, so after a restart the name differs, and workflows wait for LeaseDuration.
	if c.Instance == "" {
		host, err := os.Hostname()
		if err != nil {
			host = name
		}
		c.Instance = host + "-" + strconv.Itoa(os.Getpid())
	}
	return c
}
