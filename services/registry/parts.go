package registry

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/lockstep-cd/lockstep/pkg/bus"
	"github.com/lockstep-cd/lockstep/pkg/certs"
	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/pkg/gitfetch"
	"github.com/lockstep-cd/lockstep/pkg/httpx"
	"github.com/lockstep-cd/lockstep/pkg/ociauth"
	"github.com/lockstep-cd/lockstep/pkg/ociauth/login"
	"github.com/lockstep-cd/lockstep/pkg/outbox"
	"github.com/lockstep-cd/lockstep/pkg/run"
	"github.com/lockstep-cd/lockstep/pkg/sealing/book"
	"github.com/lockstep-cd/lockstep/pkg/sealing/keyset"
	"github.com/lockstep-cd/lockstep/pkg/secret"
	"github.com/lockstep-cd/lockstep/services/registry/internal/api"
	"github.com/lockstep-cd/lockstep/services/registry/internal/core"
	"github.com/lockstep-cd/lockstep/services/registry/internal/core/prove"
	"github.com/lockstep-cd/lockstep/services/registry/internal/events"
	"github.com/lockstep-cd/lockstep/services/registry/internal/git"
	"github.com/lockstep-cd/lockstep/services/registry/internal/oci"
	"github.com/lockstep-cd/lockstep/services/registry/internal/source"
	"github.com/lockstep-cd/lockstep/services/registry/internal/store"
)

// publish moves events from the outbox to the bus, and keeps up with the domain's sources, until ctx ends. It is ready before the bus is:
// deliveries need only the database.
func publish(ctx context.Context, conn *bus.Conn, sender *outbox.Sender, sources *sourceSet, log *slog.Logger) error {
	// At every start, so that a bus that lost its disk has the stream again; the outbox then fills it (D44).
	if err := conn.Apply(ctx, events.Topology()); err != nil {
		return fmt.Errorf("make the stream: %w", err)
	}
	return run.Parts(ctx, log, stopWithin,
		run.Loop("outbox", sender.Run),
		run.Loop("sources", func(ctx context.Context) error { return sources.follow(ctx, conn) }),
	)
}

// intake accepts deliveries, and queries registries and repositories.
type intake struct {
	handler   http.Handler
	resolver  *core.Resolver
	sources   *sourceSet
	transport *httpx.Transport
	// forges connects to Git servers, whose responses may be longer; budget is the memory that reading them shares.
	forges *httpx.Transport
	budget *gitfetch.Budget
}

// newIntake assembles sources, rules, registries and outbox, which do not know each other.
func newIntake(c Config, pool *pgxpool.Pool, log *slog.Logger, wake func()) (*intake, error) {
	guard := httpx.Config{Allow: c.AllowNetworks, Log: log}
	var err error
	if guard.TLS, err = certs.Beside(c.RegistriesCAFile, log); err != nil {
		return nil, fmt.Errorf("registries_ca_file: %w", err)
	}
	transport, err := httpx.New(guard)
	if err != nil {
		return nil, fmt.Errorf("allow_networks: %w", err)
	}
	budget := gitfetch.NewBudget(c.GitLimits)
	guard.MaxBody, guard.Timeout = gitfetch.MaxBody, gitfetch.RequestTimeout
	forges, err := httpx.New(guard)
	if err != nil {
		return nil, fmt.Errorf("allow_networks: %w", err)
	}
	secrets, err := secret.New(c.Vault, clock.System(), log)
	if err != nil {
		return nil, fmt.Errorf("vault: %w", err)
	}
	accounts := make([]ociauth.Account, len(c.Registries))
	for i, r := range c.Registries {
		accounts[i] = ociauth.Account{Host: r.Host, Username: r.Username, Insecure: r.Insecure, Organizations: r.Organizations}
		// A function and not a value: a replaced password is used without a restart.
		if r.Password != "" {
			accounts[i].Password = func() (string, error) { return secrets.Read(context.Background(), r.Password) }
		}
	}
	logins, err := ociauth.NewAccounts(accounts, c.DockerConfig)
	if err != nil {
		return nil, fmt.Errorf("registries: %w", err)
	}
	owned := store.NewCredentials(pool)
	registries := oci.New(oci.Deps{Transport: transport, Accounts: logins, Clock: clock.System(), Logins: login.New(login.Deps{
		Transport: transport, Clock: clock.System(), Book: book.NewBook(book.Deps{
			Store: owned, Open: keyset.New(secrets, c.Credentials.KeysetRef).Open, Read: secrets.Read, Service: name, Settings: c.Credentials,
		}),
	})})
	in := &intake{transport: transport, forges: forges, budget: budget}
	encoder := events.NewEncoder(clock.System())
	// The store wakes the resolver, which is created below because it needs the store. Nothing is stored before both exist.
	kept := store.NewHooks(store.HooksDeps{
		Pool: pool, Encode: encoder.Encode, EncodeStatus: encoder.EncodeStatus, EncodePull: encoder.EncodePull,
		EncodeComment: encoder.EncodeComment,
		Now:           clock.System().Now, Wake: wake,
		WakeHint: func() { in.resolver.Wake() },
	})
	in.resolver = core.NewResolver(core.ResolverDeps{Queue: kept, Registries: registries, Clock: clock.System(), Log: log})

	repositories := git.New(git.Deps{
		Transport: forges, Budget: budget,
		Login: func(organization int64, repository string) (string, string, error) {
			return c.login(secrets, organization, repository)
		},
	})
	in.sources = newSourceSet(c, pool, kept, registries, repositories, log)
	in.sources.credentials = owned
	in.sources.prover = prove.NewProver(registries, c.signers(secrets))

	tokens, err := newTokenSet(c, secrets, clock.System(), log)
	if err != nil {
		return nil, fmt.Errorf("scoped_tokens: %w", err)
	}
	take := core.NewIntake(store.NewOutbox(kept), registries, naming(), clock.System())
	hooks, err := newHookSet(c, hookDeps{
		secrets: secrets, hookIntake: core.NewHookIntake(take, kept, in.sources), store: kept,
		client: transport.Client(), clock: clock.System(), log: log,
	})
	if err != nil {
		return nil, fmt.Errorf("hooks: %w", err)
	}
	in.sources.hooks = hooks
	forgeHooks, err := newForgeHooks(c.ForgeHooks, forgeHookDeps{
		secrets: secrets, intake: core.NewStatusIntake(kept, clock.System()), clock: clock.System(), log: log,
	})
	if err != nil {
		return nil, fmt.Errorf("forge_hooks: %w", err)
	}
	in.sources.forgeHooks = forgeHooks
	var trusted []api.Format
	for _, f := range source.Formats() {
		// Formats with a path are posted with a token of ours and believed; the others come through hooks only (D43).
		if f.Path != "" {
			trusted = append(trusted, api.Format{
				Name: f.Name, Path: f.Path, MediaTypes: f.MediaTypes, Parse: f.Parse, AllKinds: f.AllKinds, Strict: f.Strict, MaxBody: f.MaxBody,
			})
		}
	}
	slowing, err := c.FailedAuthentication.Guard()
	if err != nil {
		return nil, fmt.Errorf("failed_authentication: %w", err)
	}
	in.handler = api.NewHandler(api.Deps{
		Guard: slowing, Intake: take, Formats: trusted, Tokens: tokens, Hooks: hooks, ForgeHooks: forgeHooks,
		Clock: clock.System(), Log: log,
	})
	return in, nil
}

// resolve queries registries about hints until ctx ends.
func (in *intake) resolve(ctx context.Context, ready func()) error {
	ready()
	defer in.transport.Close()
	defer in.forges.Close()
	return in.resolver.Run(ctx)
}

// poll polls registries and repositories until ctx ends.
func (in *intake) poll(ctx context.Context, ready func()) error {
	ready()
	return in.sources.poller.Run(ctx)
}
