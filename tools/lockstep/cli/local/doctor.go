package local

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/lockstep-cd/lockstep/pkg/build"
	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/pg"
	"github.com/lockstep-cd/lockstep/services/domain"
	"github.com/lockstep-cd/lockstep/services/registry"
	"github.com/lockstep-cd/lockstep/services/workflow"
	"github.com/lockstep-cd/lockstep/tools/lockstep/cli/command"
	"github.com/lockstep-cd/lockstep/tools/lockstep/doctor"
)

// unwellError is an examination that found something wrong.
type unwellError struct{ count int }

func (e unwellError) Error() string {
	if e.count == 1 {
		return "1 problem found"
	}
	return fmt.Sprintf("%d problems found", e.count)
}

func (c commands) doctor() *cobra.Command {
	var health, servers []string
	var authority, databaseStorage string
	config := doctor.Config{Listen: 15 * time.Second, Schemas: []string{"registry", "domain", "workflow"}, Clock: c.Clock}
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Check an installation, and report problems and how to fix them",
		Long: `doctor checks every part that the flags name: the API with its token, clock and certificate, and the agents, environments and
drivers of the token's organization; the health and the release of the services; PostgreSQL with its version, certificate, connections and
storage, and the services' tables, pending outboxes and rejected events; NATS with its account, certificate, streams, consumers and storage;
the heartbeats of agents; and the certificates of further servers. It changes nothing. The exit code is 8 if there is a problem, and 0 if
there are at most warnings.`,
		Example: `  lockstep doctor --endpoint https://lockstep.example.com/graphql
  lockstep doctor --health domain=http://lockstep-domain-health:9090 --health workflow=http://lockstep-workflow-health:9090
  LOCKSTEP_DATABASE_URL=postgres://… LOCKSTEP_NATS_PASSWORD=… lockstep doctor --nats-url tls://nats:4222 --nats-user workflow --agent 1`,
		Args: command.Exactly(0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := c.CheckOutput(); err != nil {
				return err
			}
			if err := c.examination(&config, health, servers, authority, databaseStorage); err != nil {
				return err
			}
			var err error
			if config.Newest, err = newest(); err != nil {
				return err
			}
			findings := doctor.Examine(cmd.Context(), config)
			if err := c.Print(findings, func(w io.Writer) {
				for _, f := range findings {
					command.Row(w, string(f.State), f.Check, f.Found)
					if f.Remedy != "" {
						command.Row(w, "", "", "→ "+f.Remedy)
					}
				}
			}); err != nil {
				return err
			}
			wrong := 0
			for _, f := range findings {
				if f.State == doctor.Wrong {
					wrong++
				}
			}
			if wrong > 0 {
				return command.Exit(command.ExitUnwell, unwellError{wrong})
			}
			return nil
		},
	}
	flags := cmd.Flags()
	flags.StringArrayVar(&health, "health", nil, "`name=URL` of a service's health server; repeatable")
	flags.StringArrayVar(&servers, "tls", nil, "`name=host:port` of a server whose certificate is checked; repeatable")
	flags.StringVar(&config.DatabaseURL, "database-url", os.Getenv("LOCKSTEP_DATABASE_URL"),
		"`URL` of PostgreSQL (prefer LOCKSTEP_DATABASE_URL, which is not visible in the list of processes)")
	flags.StringSliceVar(&config.Schemas, "schema", config.Schemas, "the services' `schemas`")
	flags.StringVar(&config.NATSURL, "nats-url", os.Getenv("LOCKSTEP_NATS_URL"), "`URL` of NATS (LOCKSTEP_NATS_URL)")
	flags.StringVar(&config.NATSUser, "nats-user", "workflow", "`account` at NATS; its password is LOCKSTEP_NATS_PASSWORD")
	flags.Int64SliceVar(&config.Agents, "agent", nil,
		"`number` of an agent whose heartbeat is expected; repeatable, needs the account workflow")
	flags.StringVar(&databaseStorage, "database-storage", "", "the `size` of the database's volume, such as 50Gi, which SQL cannot query")
	flags.StringVar(&config.NATSMonitor, "nats-monitor", "",
		"`URL` of NATS's monitoring, such as http://nats:8222, which reports how full its disk is")
	flags.StringVar(&authority, "ca-file", "", "`file` with certificate authorities, in addition to the system's")
	command.DurationFlag(cmd, &config.Listen, "listen", config.Listen, "how long to wait for heartbeats")
	return cmd
}

// newest are the versions of the tables of this release, by set of migrations.
func newest() (map[string]int64, error) {
	versions := map[string]int64{}
	for _, tables := range []map[string]fs.FS{registry.Tables(), domain.Tables(), workflow.Tables()} {
		for set, migrations := range tables {
			version, err := pg.Newest(migrations)
			if err != nil {
				return nil, fmt.Errorf("tables of %s: %w", set, err)
			}
			versions[set] = version
		}
	}
	return versions, nil
}

// examination completes what to examine. The API is examined where it is named.
func (c commands) examination(config *doctor.Config, health, servers []string, authority, databaseStorage string) error {
	config.NATSPassword, config.Version = c.Getenv("LOCKSTEP_NATS_PASSWORD"), build.Read().Version
	var err error
	if config.Health, err = named("health", "URL", health); err != nil {
		return err
	}
	if config.TLS, err = named("tls", "host:port", servers); err != nil {
		return err
	}
	if config.HTTP, err = trusting(authority); err != nil {
		return err
	}
	if databaseStorage != "" {
		quantity, err := resource.ParseQuantity(databaseStorage)
		if err != nil || quantity.Value() <= 0 {
			return fault.New(fault.Invalid, "database-storage: found %q, expected an amount such as 50Gi", databaseStorage)
		}
		config.DatabaseStorage = quantity.Value()
	}
	endpoint, token, err := c.Target()
	if err != nil {
		return err
	}
	config.Endpoint, config.Token = endpoint, token
	if endpoint == "" && len(health) == 0 && len(servers) == 0 && config.DatabaseURL == "" && config.NATSURL == "" &&
		config.NATSMonitor == "" {
		return fault.New(fault.Invalid, "found nothing to check, expected --endpoint, --health, --tls, --database-url, --nats-url or --nats-monitor")
	}
	return nil
}

// trusting is a client that trusts the authorities of a file beside the system's; nil, for doctor's own, without a file.
func trusting(file string) (*http.Client, error) {
	if file == "" {
		return nil, nil //nolint:nilnil // doctor has one of its own
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, fault.Because(err, fault.Invalid, "ca-file: %s cannot be read", file)
	}
	pool, err := x509.SystemCertPool()
	if err != nil {
		pool = x509.NewCertPool() // a machine without authorities, such as an empty image
	}
	if !pool.AppendCertsFromPEM(text) {
		return nil, fault.New(fault.Invalid, "ca-file: found no certificate in %s, expected some in PEM", file)
	}
	return &http.Client{Timeout: doctorWithin, Transport: &http.Transport{
		Proxy: http.ProxyFromEnvironment, TLSClientConfig: &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}, ForceAttemptHTTP2: true,
	}}, nil
}

// doctorWithin bounds one question.
const doctorWithin = 10 * time.Second

// named reads name=address, of a flag that is repeated.
func named(flag, what string, texts []string) (map[string]string, error) {
	all := map[string]string{}
	for _, text := range texts {
		name, address, found := strings.Cut(text, "=")
		if !found || name == "" || address == "" {
			return nil, fault.New(fault.Invalid, "%s: found %q, expected name=%s", flag, text, what)
		}
		all[name] = address
	}
	return all, nil
}
