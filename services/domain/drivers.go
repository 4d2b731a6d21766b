package domain

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/certs"
	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/pkg/driver"
	"github.com/lockstep-cd/lockstep/pkg/driver/artifact"
	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/httpx"
	"github.com/lockstep-cd/lockstep/pkg/ociauth"
	"github.com/lockstep-cd/lockstep/pkg/secret"
	"github.com/lockstep-cd/lockstep/pkg/secret/reference"
	"github.com/lockstep-cd/lockstep/services/domain/internal/bundle"
)

// DriversConfig are deploy drivers that are OCI artifacts. `lockstep driver push` makes them.
type DriversConfig struct {
	// Artifacts are their references: oci://registry/repository:tag, or oci://registry/repository@sha256:… to pin one. Anybody who may push
	// to a tag controls what deploys from then on.
	Artifacts []string `koanf:"artifacts"`
	// Refresh is how often tags are resolved again.
	Refresh time.Duration `koanf:"refresh" default:"5m"`
	// Registries are the accounts at registries.
	Registries []DriverRegistry `koanf:"registries"`
	// DockerConfig also uses the credentials in Docker's configuration of the service's account, credential helpers included.
	DockerConfig bool `koanf:"docker_config"`
	// CAFile holds certificate authorities for the registries, in addition to the system's. A replaced file takes effect at the next
	// connection.
	CAFile string `koanf:"ca_file"`
	// AllowNetworks lists what may be reached in addition to the registries of Artifacts and public addresses on ports 80 and 443:
	// networks, addresses and host names, each with an optional port. Registries redirect to their storage.
	AllowNetworks []string `koanf:"allow_networks"`
}

// DriverRegistry is an account at a registry that drivers are pulled from.
type DriverRegistry struct {
	// Host is the registry's host name, optionally with a path prefix.
	Host string `koanf:"host"`
	// Username is empty if the password is a token.
	Username string `koanf:"username"`
	// Password is a reference, resolved whenever it is needed: env:NAME, file:/path, k8s:namespace/name#key or vault:path#key.
	Password string `koanf:"password"`
	// Insecure falls back to HTTP if the registry does not offer HTTPS.
	Insecure bool `koanf:"insecure"`
}

// leastRefresh keeps Refresh within the rate limits of registries.
const leastRefresh = 10 * time.Second

// problems are what is wrong with the configuration.
func (c DriversConfig) problems() []fault.Field {
	var problems []fault.Field
	wrong := func(name, problem string) {
		problems = append(problems, fault.Field{Name: "drivers." + name, Problem: problem})
	}
	seen := map[string]bool{}
	for i, reference := range c.Artifacts {
		if _, err := artifact.ParseReference(reference); err != nil {
			wrong(fmt.Sprintf("artifacts[%d]", i), fault.Public(err))
		} else if seen[reference] {
			wrong(fmt.Sprintf("artifacts[%d]", i), fmt.Sprintf("found %q twice; expected it once", reference))
		}
		seen[reference] = true
	}
	for i, r := range c.Registries {
		// The error does not show what was found: the most likely mistake is to have written the password itself.
		if r.Password != "" && !reference.Is(r.Password) {
			wrong(fmt.Sprintf("registries[%d].password", i), "found no reference; "+reference.Expected)
		}
	}
	if _, err := ociauth.NewAccounts(c.accounts(context.Background(), nil), false); err != nil {
		for _, f := range fault.FieldsOf(err) {
			wrong(f.Name, f.Problem)
		}
	}
	if _, err := httpx.New(httpx.Config{Allow: c.AllowNetworks}); err != nil {
		for _, f := range fault.FieldsOf(err) {
			wrong(strings.Replace(f.Name, "allow", "allow_networks", 1), f.Problem)
		}
	}
	if c.Refresh != 0 && c.Refresh < leastRefresh {
		wrong("refresh", fmt.Sprintf("found %s; expected at least %s", c.Refresh, leastRefresh))
	}
	return problems
}

// accounts are the registries as their client takes them; passwords are read as long as ctx lasts.
func (c DriversConfig) accounts(ctx context.Context, secrets *secret.Reader) []ociauth.Account {
	all := make([]ociauth.Account, len(c.Registries))
	for i, r := range c.Registries {
		all[i] = ociauth.Account{Host: r.Host, Username: r.Username, Insecure: r.Insecure}
		// A function and not a value: a password that is replaced is found without a restart.
		if r.Password != "" {
			all[i].Password = func() (string, error) { return secrets.Read(ctx, r.Password) }
		}
	}
	return all
}

// references are the artifacts, and the hosts that they are at: those the operator has written, wherever they are.
func (c DriversConfig) references() (references []artifact.Reference, hosts []string, err error) {
	for _, s := range c.Artifacts {
		r, err := artifact.ParseReference(s)
		if err != nil {
			return nil, nil, fmt.Errorf("drivers.artifacts: %w", err)
		}
		references, hosts = append(references, r), append(hosts, r.Host())
	}
	return references, hosts, nil
}

// givenDrivers are the built-in drivers, those of a folder, and what is needed to pull the others; where these are kept is not known yet.
func givenDrivers(ctx context.Context, c Config, log *slog.Logger) (bundle.Deps, error) {
	d := bundle.Deps{Clock: clock.System(), Log: log, Refresh: c.Drivers.Refresh}
	var err error
	if d.BuiltIn, err = driver.Embedded(); err != nil {
		return d, fmt.Errorf("load built-in drivers: %w", err)
	}
	kinds, err := driver.EmbeddedChecks()
	if err != nil {
		return d, fmt.Errorf("load built-in check kinds: %w", err)
	}
	if d.BuiltIn, err = d.BuiltIn.With(kinds); err != nil {
		return d, fmt.Errorf("load built-in check kinds: %w", err)
	}
	if c.DriverDir != "" {
		if d.Folder, err = driver.LoadAll(os.DirFS(c.DriverDir)); err != nil {
			return d, fmt.Errorf("load drivers of %s: %w", c.DriverDir, err)
		}
	}
	var hosts []string
	if d.Artifacts, hosts, err = c.Drivers.references(); err != nil || len(d.Artifacts) == 0 {
		return d, err
	}
	guard := httpx.Config{Allow: append(hosts, c.Drivers.AllowNetworks...), Log: log}
	if guard.TLS, err = certs.Beside(c.Drivers.CAFile, log); err != nil {
		return d, fmt.Errorf("drivers.ca_file: %w", err)
	}
	transport, err := httpx.New(guard)
	if err != nil {
		return d, fmt.Errorf("drivers.allow_networks: %w", err)
	}
	secrets, err := secret.New(c.Vault, clock.System(), log)
	if err != nil {
		return d, fmt.Errorf("vault: %w", err)
	}
	accounts, err := ociauth.NewAccounts(c.Drivers.accounts(ctx, secrets), c.Drivers.DockerConfig)
	if err != nil {
		return d, fmt.Errorf("drivers: %w", err)
	}
	d.Registry = artifact.Client{Transport: transport, Accounts: accounts}
	return d, nil
}
