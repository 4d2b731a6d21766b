package workflow

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"math"
	"net"
	"net/url"
	"slices"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/lockstep-cd/lockstep/pkg/archive"
	"github.com/lockstep-cd/lockstep/pkg/bus"
	"github.com/lockstep-cd/lockstep/pkg/certs"
	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/gitfetch"
	"github.com/lockstep-cd/lockstep/pkg/httpx"
	"github.com/lockstep-cd/lockstep/pkg/rpc"
	"github.com/lockstep-cd/lockstep/pkg/run"
	"github.com/lockstep-cd/lockstep/pkg/sealing/book"
	"github.com/lockstep-cd/lockstep/pkg/sealing/keyset"
	"github.com/lockstep-cd/lockstep/pkg/secret"
	"github.com/lockstep-cd/lockstep/pkg/telemetry"
	autoflowv1 "github.com/lockstep-cd/lockstep/proto/lockstep/autoflow/v1"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/api"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/activity"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/agent"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/control"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/engine"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/reconcile"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/retention"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/events"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/function"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/git"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/render"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/sandbox"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/web"
)

// gitCredentials are those of a configuration.
func gitCredentials(c Config) []git.Credential {
	credentials := make([]git.Credential, len(c.GitCredentials))
	for i, g := range c.GitCredentials {
		credentials[i] = git.Credential{
			Name: g.Name, URLPrefix: g.URLPrefix, Username: g.Username, PasswordRef: g.PasswordRef, Forge: g.Forge, Organizations: g.Organizations,
		}
	}
	return credentials
}

// webCredentials are those of a configuration.
func webCredentials(c Config) []web.Credential {
	credentials := make([]web.Credential, len(c.HTTPCredentials))
	for i, h := range c.HTTPCredentials {
		credentials[i] = web.Credential{
			Name: h.Name, URLPrefixes: h.URLPrefixes, Username: h.Username, Header: h.Header, Ref: h.Ref, Organizations: h.Organizations,
			OAuth2: web.OAuth2{TokenURL: h.OAuth2.TokenURL, ClientID: h.OAuth2.ClientID, Scopes: h.OAuth2.Scopes, Send: h.OAuth2.Send},
			TLS:    web.TLS{Certificate: h.ClientCert.Certificate, Key: h.ClientCert.Key, CA: h.ClientCert.CA},
		}
	}
	return credentials
}

// checkScopes refuses credentials that do not say whose they are, where there are several organizations. If a
// second organization is added later, they are unusable.
func checkScopes(ctx context.Context, c Config, several func(context.Context) (bool, error)) error {
	wrong := append(git.Unscoped(gitCredentials(c)), web.Unscoped(webCredentials(c))...)
	if len(wrong) == 0 {
		return nil
	}
	if found, err := several(ctx); err != nil || !found {
		return err
	}
	return fault.InvalidFields(wrong...)
}

// functions are everything that programs may run. Which of them are carried out here and which by a relay is decided
// here alone.
func functions(
	c Config, own book.Store, several func(context.Context) (bool, error), budget *gitfetch.Budget, wall clock.Clock, log *slog.Logger,
	watching function.WatchDeps, tasks *sandbox.Tasks,
) (*activity.Functions, *git.Forge, *web.Client, error) {
	// A program names its repositories, so they are anybody's URLs (D41); those that the operator has credentials for are
	// the operator's own.
	allowed := slices.Clone(c.GitAllowNetworks)
	for _, g := range c.GitCredentials {
		if u, err := url.Parse(g.URLPrefix); err == nil && u.Host != "" {
			allowed = append(allowed, u.Host)
		}
	}
	guard := httpx.Config{Allow: allowed, Timeout: gitfetch.RequestTimeout, MaxBody: gitfetch.MaxBody, Log: log}
	var err error
	if guard.TLS, err = certs.Beside(c.GitCAFile, log); err != nil {
		return nil, nil, nil, fmt.Errorf("git_ca_file: %w", err)
	}
	transport, err := httpx.New(guard)
	if err != nil {
		return nil, nil, nil, fmt.Errorf("git_allow_networks: %w", err)
	}
	secrets, err := secret.New(c.Vault, wall, log)
	if err != nil {
		return nil, nil, nil, fmt.Errorf("vault: %w", err)
	}
	book := book.NewBook(book.Deps{
		Store: own, Open: keyset.New(secrets, c.Credentials.KeysetRef).Open, Read: secrets.Read, Settings: c.Credentials,
	})
	forge, err := git.New(git.Deps{
		Own: book, HTTP: transport, Dial: transport.Dial, Budget: budget, Several: several, Credentials: gitCredentials(c), Secrets: secrets,
		AuthorName:  c.GitAuthorName,
		AuthorEmail: c.GitAuthorEmail, Clock: wall, Log: log,
	})
	if err != nil {
		return nil, nil, nil, fmt.Errorf("configure git: %w", err)
	}
	requests, err := requester(c, book, several, secrets, log)
	if err != nil {
		return nil, nil, nil, err
	}
	all := function.All(forge, requests, render.New(tasks.Do, tasks.Preview))
	registry, err := activity.NewFunctions(append(all, function.Watching(watching)...)...)
	if err != nil {
		return nil, nil, nil, fmt.Errorf("register functions: %w", err)
	}
	return registry, forge, requests, nil
}

// mostTimeout bounds every exchange of http.request; its calls have timeouts of their own, which are shorter.
const mostTimeout = 5*time.Minute + 5*time.Second

// requester sends the requests of programs. A program names the URL, so it is anybody's (D41).
func requester(
	c Config, own *book.Book, several func(context.Context) (bool, error), secrets *secret.Reader, log *slog.Logger,
) (*web.Client, error) {
	guard := httpx.Config{Allow: c.HTTPAllowNetworks, Timeout: mostTimeout, MaxBody: math.MaxInt64 - 1, Log: log}
	var err error
	if guard.TLS, err = certs.Beside(c.HTTPCAFile, log); err != nil {
		return nil, fmt.Errorf("http_ca_file: %w", err)
	}
	transport, err := httpx.New(guard)
	if err != nil {
		return nil, fmt.Errorf("http_allow_networks: %w", err)
	}
	deps := web.Deps{HTTP: transport, Credentials: webCredentials(c), Own: own, Several: several, Secrets: secrets, Dial: transport.Dial}
	deps.Secured = func(settings func(string) *tls.Config) web.Secured { return transport.Secured(settings) }
	if guard.TLS != nil {
		deps.TLS = guard.TLS.Config
	}
	requests, err := web.New(deps)
	if err != nil {
		return nil, fmt.Errorf("configuration: %w", err)
	}
	return requests, nil
}

// observe times an attempt at a Function, and records it in the trace of its run. A run that was started in none is not recorded: a
// trace of one Function alone says nothing.
func observe(now clock.Clock) func(context.Context, activity.Call) (context.Context, func(string)) {
	return func(ctx context.Context, call activity.Call) (inside context.Context, end func(problem string)) {
		began, endSpan := now.Now(), func(string) {}
		if call.Trace != "" {
			ctx, endSpan = telemetry.StartSpan(telemetry.WithTraceParent(ctx, call.Trace), call.Function, telemetry.Internal,
				slog.String(telemetry.KeyWorkflow, call.Workflow), slog.String(telemetry.KeyCall, call.ID),
				slog.Int(telemetry.KeyAttempt, call.Attempt))
		}
		return ctx, func(problem string) {
			telemetry.ObserveFunction(call.Function, problem == "", now.Now().Sub(began))
			endSpan(problem)
		}
	}
}

// settings are the numbers of a configuration that has its defaults: the engine takes no zero.
func settings(c Config) engine.Settings {
	return engine.Settings{
		Instance: c.Instance, Lease: c.LeaseDuration, Poll: poll,
		CallTimeout: c.CallTimeout, WaitTimeout: c.WaitTimeout, Retention: c.EventRetention,
		Live: c.MaxLive, Cache: c.CacheBytes, Activities: c.MaxActivities, History: c.MaxHistory, Generations: max(0, c.MaxGenerations),
		Crashes: c.MaxCrashes,
	}
}

// topology makes the streams and consumers of the cluster path and those that this service has elsewhere. Their
// consumers wait for them.
type topology struct {
	bus *bus.Conn
	// configured are agents that have their queue before their owner is declared.
	configured []int64
	agents     *agent.Registry
	made       atomic.Bool
}

// Run makes them as soon as the bus is available, and those of an agent as soon as it is known; from then on the connection looks
// after them.
func (t *topology) Run(ctx context.Context) error {
	for {
		agents := slices.Compact(slices.Sorted(slices.Values(append(t.agents.Known(), t.configured...))))
		if err := t.bus.Apply(ctx, events.Topology(agents)); err != nil && ctx.Err() == nil {
			return fmt.Errorf("make streams and consumers: %w", err)
		}
		t.made.Store(true)
		select {
		case <-t.agents.Changed():
		case <-ctx.Done():
			return nil
		}
	}
}

// Ready says why the bus cannot be used.
func (t *topology) Ready(context.Context) error {
	if err := t.bus.Ready(); err != nil {
		return err
	}
	if !t.made.Load() {
		return fault.New(fault.Unavailable, "streams and consumers are not made yet")
	}
	return nil
}

// grpcPart serves AutoFlow, and is ready when its address is taken.
func grpcPart(c Config, log *slog.Logger, deps api.Deps, known *reconcile.Service) (run.Part, error) {
	config := rpc.ServerConfig{Log: log, Tokens: map[string]rpc.Caller{}, Scopes: api.Scopes()}
	var err error
	if config.Guard, err = c.FailedAuthentication.Guard(); err != nil {
		return run.Part{}, fmt.Errorf("failed_authentication: %w", err)
	}
	// Without a token nobody is let in, so an empty one must not become a key.
	if c.Token != "" {
		config.Tokens[c.Token] = rpc.Caller{Scope: rpc.ScopeAdmin, Name: receiver}
	}
	keys := make([]rpc.Key, len(c.Tokens))
	for i, t := range c.Tokens {
		scope, err := rpc.ParseScope(t.Scope)
		if err != nil {
			return run.Part{}, fmt.Errorf("token of %s: %w", t.Name, err)
		}
		caller := rpc.Caller{Organization: t.Organization, Scope: scope, Name: t.Name, Prefix: t.Prefix, Redeclare: t.Redeclare}
		keys[i] = rpc.Key{Caller: caller, SHA256: t.SHA256, Ref: t.Ref}
	}
	if config.Keyring, err = rpc.NewKeyring(keys); err != nil {
		return run.Part{}, fmt.Errorf("tokens: %w", err)
	}
	if c.GRPCCertFile != "" {
		if config.TLS, err = (certs.Files{Cert: c.GRPCCertFile, Key: c.GRPCKeyFile, CA: c.GRPCClientCAFile}).Server(log, "h2"); err != nil {
			return run.Part{}, fmt.Errorf("serve AutoFlow: %w", err)
		}
	}
	return rpc.Listening("grpc", c.GRPCAddress, log, func(ctx context.Context, listener net.Listener) error {
		deps.Stopping = ctx.Done()
		server := rpc.NewServer(config)
		autoflowv1.RegisterAutoFlowServer(server, api.New(deps))
		autoflowv1.RegisterReconciliationServer(server, api.Reconciliation{Known: known})
		return rpc.Serve(ctx, server, listener)
	}), nil
}

// own declares the agents of the configuration, and from then on polls for those that were declared to other processes. PostgreSQL
// may be away at the start: what is configured counts as soon as it is stored.
func own(ctx context.Context, owners *agent.Registry, configured []AgentOwner, wall clock.Clock, log *slog.Logger) error {
	agents := make([]agent.Agent, len(configured))
	for i, o := range configured {
		agents[i] = agent.Agent{ID: o.Agent, Organization: o.Organization}
	}
	for ctx.Err() == nil {
		err := owners.Declare(ctx, agents)
		if err == nil {
			break
		}
		if !fault.Is(err, fault.Unavailable) && ctx.Err() == nil {
			return fmt.Errorf("agent_owners: %w", err)
		}
		log.WarnContext(ctx, "agents are not declared yet", telemetry.KeyError, err)
		_ = clock.Sleep(ctx, wall, poll) // ends early with ctx
	}
	return owners.Run(ctx)
}

// consumers receive what relays and the domain service send.
func consumers(conn *bus.Conn, cluster events.Cluster, domain events.Domain) []run.Part {
	return []run.Part{
		run.Loop("cluster", func(ctx context.Context) error {
			return conn.Consume(ctx, events.ClusterConsumer(), cluster.Handle, nil)
		}),
		run.Loop("domain", func(ctx context.Context) error {
			return conn.Consume(ctx, events.DomainConsumer(), domain.Handle, domain.Rejected)
		}),
	}
}

// health is the server of health checks and metrics, where one is configured.
func health(c Config, log *slog.Logger, ready func(context.Context) error, metrics exposition) []run.Part {
	if c.HealthAddress == "" {
		return nil
	}
	checks := map[string]func(context.Context) error{"database": metrics.pool.Ping, "bus": ready}
	return []run.Part{rpc.PlainHTTPPart("health", c.HealthAddress, log, telemetry.Health(checks, metrics.collectors()...))}
}

// keep makes what deletes ended runs, and the archive that keeps them; the latter is nil if none is configured.
func keep(
	c Config, operator *control.Operator, store retention.Store, counted *prometheus.CounterVec, wall clock.Clock, log *slog.Logger,
) (*retention.Retention, control.Archive, error) {
	secrets, err := secret.New(c.Vault, wall, log)
	if err != nil {
		return nil, nil, fmt.Errorf("vault: %w", err)
	}
	bucket, err := archive.Open(c.Archive, secrets, wall, log)
	if err != nil {
		return nil, nil, err
	}
	d := retention.Deps{Store: store, Kept: func(outcome string) { counted.WithLabelValues(outcome).Inc() }, Clock: wall, Log: log}
	if bucket == nil {
		return retention.New(d), nil, nil
	}
	shelf := archived{operator: operator, bucket: bucket}
	d.Archive = shelf
	return retention.New(d), shelf, nil
}
