package main

import (
	"bytes"
	"context"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	ociregistry "github.com/google/go-containerregistry/pkg/registry"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/lockstep-cd/lockstep/pkg/bus"
	"github.com/lockstep-cd/lockstep/pkg/pg"
	"github.com/lockstep-cd/lockstep/pkg/telemetry"
	"github.com/lockstep-cd/lockstep/pkg/testkit/natsserver"
	"github.com/lockstep-cd/lockstep/pkg/testkit/postgres"
	"github.com/lockstep-cd/lockstep/services/domain"
	"github.com/lockstep-cd/lockstep/services/registry"
	"github.com/lockstep-cd/lockstep/tools/bench/probe"
	"github.com/lockstep-cd/lockstep/tools/lockstep/gitserver"
)

const (
	token    = "a-token-for-measuring"
	username = "ci"
	// secretVariable has the secret of the hook and the OCI registry's password.
	secretVariable = "LOCKSTEP_BENCH_SECRET" //nolint:gosec // the variable's name
	secret         = "a-secret-for-measuring"
	// certificates is the variable by which Go takes other roots of trust than the machine's.
	certificates = "SSL_CERT_FILE"
)

// world is one installation without the services that have no part in it.
type world struct {
	log *slog.Logger
	// dir has what the world keeps, such as the bare repositories of Git, which are served beside the images.
	dir      string
	database *postgres.Server
	nats     *natsserver.Server
	bus      natsserver.Config
	oci      *httptest.Server
	db       *pgx.Conn
	// pool is for who asks at the same time as others.
	pool *pgxpool.Pool
	api  probe.API
	// deliveries is where the registry service takes them, and images and forge are the paths of its hooks.
	deliveries, images, forge string
	domain, registry          func() error
	domainConfig              domain.Config
}

func newWorld(ctx context.Context, dir string, log *slog.Logger) (_ *world, err error) {
	w := &world{log: log, dir: dir}
	defer func() {
		if err != nil {
			err = errors.Join(err, w.close(ctx))
		}
	}()
	if w.database, err = postgres.Start(ctx, postgres.Config{DataDir: filepath.Join(dir, "postgres"), Log: log}); err != nil {
		return nil, err
	}
	w.bus = natsserver.Config{
		StoreDir: filepath.Join(dir, "nats"), SyncAlways: true, Log: log,
		Users: []natsserver.User{{Name: "registry", Password: "registry"}, {Name: "domain", Password: "domain"}},
	}
	if w.nats, err = natsserver.Start(w.bus); err != nil {
		return nil, err
	}
	// A later start takes the port of this one.
	address, err := url.Parse(w.nats.URL())
	if err != nil {
		return nil, fmt.Errorf("the bus's address: %w", err)
	}
	if w.bus.Port, err = strconv.Atoi(address.Port()); err != nil {
		return nil, fmt.Errorf("the bus's port: %w", err)
	}
	if err := w.startOCI(ctx); err != nil {
		return nil, err
	}
	if w.db, err = pgx.Connect(ctx, w.database.URL()); err != nil {
		return nil, fmt.Errorf("connect: %w", err)
	}
	if w.pool, err = pgxpool.New(ctx, w.database.URL()); err != nil {
		return nil, fmt.Errorf("connect: %w", err)
	}
	if err := w.findHooks(ctx); err != nil {
		return nil, err
	}
	if err := w.startServices(ctx); err != nil {
		return nil, err
	}
	return w, nil
}

// repositories is the folder of the bare repositories of Git.
func (w *world) repositories() string { return filepath.Join(w.dir, "git") }

// findHooks reads the paths of the hooks as an operator does.
func (w *world) findHooks(ctx context.Context) error {
	var listed bytes.Buffer
	if err := registry.ListHooks(ctx, &listed, registry.Config{Hooks: hooks()}); err != nil {
		return err
	}
	for line := range strings.Lines(listed.String()) {
		fields := strings.Fields(line) // name, reference of the secret, path
		if len(fields) != 3 {
			return fmt.Errorf("hooks: found %q; expected three fields", line)
		}
		if fields[0] == "forge" {
			w.forge = fields[2]
		} else {
			w.images = fields[2]
		}
	}
	return nil
}

// startOCI starts the OCI registry and, beside it, the server of Git repositories, which want a password.
func (w *world) startOCI(ctx context.Context) error {
	repositories, err := gitserver.Handler(ctx, gitserver.Config{Dir: w.repositories(), Username: username, Password: secret})
	if err != nil {
		return err
	}
	inner := ociregistry.New(ociregistry.WithReferrersSupport(true),
		ociregistry.Logger(slog.NewLogLogger(slog.DiscardHandler, slog.LevelInfo)))
	w.oci = httptest.NewTLSServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if user, password, _ := r.BasicAuth(); user != username || password != secret {
			rw.Header().Set("WWW-Authenticate", `Basic realm="registry"`)
			rw.WriteHeader(http.StatusUnauthorized)
			return
		}
		if strings.Contains(r.URL.Path, ".git/") {
			repositories.ServeHTTP(rw, r)
			return
		}
		inner.ServeHTTP(rw, r)
	}))
	certificate := filepath.Join(w.dir, "oci.pem")
	if err := os.WriteFile(certificate, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: w.oci.Certificate().Raw}),
		0o600); err != nil {
		return fmt.Errorf("write the certificate: %w", err)
	}
	// Read once, when the first connection is checked, which is after this.
	return errors.Join(os.Setenv(certificates, certificate), os.Setenv(secretVariable, secret))
}

// host is the OCI registry as images are named by it.
func (w *world) host() string { return strings.TrimPrefix(w.oci.URL, "https://") }

func (w *world) startServices(ctx context.Context) error {
	api, err := probe.FreeAddress()
	if err != nil {
		return err
	}
	intake, err := probe.FreeAddress()
	if err != nil {
		return err
	}
	w.api, w.deliveries = probe.API{URL: "http://" + api + "/graphql", Token: token}, "http://"+intake
	w.domainConfig = domain.Config{
		Database: pg.Database{DatabaseURL: w.database.URL()}, HTTPAddress: api, BootstrapToken: token,
		Settings: telemetry.Settings{LogLevel: "error"}, NATS: bus.NATS{NATSURL: w.nats.URL(), NATSPassword: "domain"},
		WorkflowAddress: "127.0.0.1:1", // nothing is rolled out
	}
	w.startDomain(ctx)
	w.registry = start(ctx, func(ctx context.Context) error {
		return registry.Run(ctx, registry.Config{
			Database: pg.Database{DatabaseURL: w.database.URL()}, HTTPAddress: intake, Settings: telemetry.Settings{LogLevel: "error"},
			NATS:          bus.NATS{NATSURL: w.nats.URL(), NATSPassword: "registry"},
			Tokens:        []string{token},
			Hooks:         hooks(),
			Registries:    []registry.AccountConfig{{Host: w.host(), Username: username, Password: "env:" + secretVariable}},
			AllowNetworks: []string{w.host()},
		})
	})
	return w.api.Await(ctx)
}

// hooks are those of the registry service.
func hooks() []registry.HookConfig {
	secrets := []string{"env:" + secretVariable}
	return []registry.HookConfig{
		{Name: "bench", Source: "generic", Secrets: secrets, Rate: 10_000}, {Name: "forge", Source: "github", Secrets: secrets},
	}
}

func (w *world) startDomain(ctx context.Context) {
	w.domain = start(ctx, func(ctx context.Context) error { return domain.Run(ctx, w.domainConfig) })
}

// restartBus ends NATS and starts it again on its port and its files.
func (w *world) restartBus(meanwhile func() error) error {
	w.nats.Shutdown()
	if err := meanwhile(); err != nil {
		return err
	}
	var err error
	w.nats, err = natsserver.Start(w.bus)
	return err
}

// start runs a service; the function that it returns ends it.
func start(ctx context.Context, run func(context.Context) error) func() error {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	ended := make(chan error, 1)
	go func() { ended <- run(ctx) }()
	return func() error { cancel(); return <-ended }
}

func (w *world) close(ctx context.Context) error {
	var errs []error
	for _, stop := range []func() error{w.registry, w.domain} {
		if stop != nil {
			errs = append(errs, stop())
		}
	}
	if w.pool != nil {
		w.pool.Close()
	}
	if w.db != nil {
		errs = append(errs, w.db.Close(context.WithoutCancel(ctx)))
	}
	if w.oci != nil {
		w.oci.Close()
	}
	if w.nats != nil {
		w.nats.Shutdown()
	}
	if w.database != nil {
		errs = append(errs, w.database.Stop())
	}
	return errors.Join(errs...)
}
