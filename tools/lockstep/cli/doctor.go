package cli

import (
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/pg"
	"github.com/lockstep-cd/lockstep/services/domain"
	"github.com/lockstep-cd/lockstep/services/registry"
	"github.com/lockstep-cd/lockstep/services/workflow"
	"github.com/lockstep-cd/lockstep/tools/lockstep/doctor"
)

// unwellError is an examination that found something wrong.
type unwellError struct{ count int }

func (e unwellError) Error() string { return fmt.Sprintf("%d things are wrong", e.count) }

func (c *command) doctor() *cobra.Command {
	var health []string
	config := doctor.Config{Listen: 15 * time.Second, Schemas: []string{"registry", "domain", "workflow"}, Clock: c.clock}
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Examine an installation, and say what is wrong and how to mend it",
		Long: `doctor looks at every part that it is told of: the API with its token, its clock and its certificate; the services' health; PostgreSQL
with its version, its room, the services' tables and what waits in their outboxes; NATS with its account, its streams and their consumers; the relays' heartbeats.
It changes nothing. It exits with 8 when something is wrong.`,
		Example: `  lockstep doctor --endpoint https://lockstep.example.com/graphql
  lockstep doctor --health domain=http://lockstep-domain-health:9090 --health workflow=http://lockstep-workflow-health:9090
  LOCKSTEP_DATABASE_URL=postgres://… LOCKSTEP_NATS_PASSWORD=… lockstep doctor --nats-url tls://nats:4222 --nats-user workflow --agent 1`,
		Args: exactly(0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := c.checkOutput(); err != nil {
				return err
			}
			if err := c.examination(&config, health); err != nil {
				return err
			}
			var err error
			if config.Newest, err = newest(); err != nil {
				return err
			}
			findings := doctor.Examine(cmd.Context(), config)
			if err := c.print(findings, func(w io.Writer) {
				for _, f := range findings {
					row(w, string(f.State), f.Check, f.Found)
					if f.Remedy != "" {
						row(w, "", "", "→ "+f.Remedy)
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
				return unwellError{wrong}
			}
			return nil
		},
	}
	flags := cmd.Flags()
	flags.StringArrayVar(&health, "health", nil, "`name=URL` of a service's health server; repeatable")
	flags.StringVar(&config.DatabaseURL, "database-url", os.Getenv("LOCKSTEP_DATABASE_URL"), "`URL` of PostgreSQL (LOCKSTEP_DATABASE_URL, which does not show in the list of processes)")
	flags.StringSliceVar(&config.Schemas, "schema", config.Schemas, "the services' `schemas`")
	flags.StringVar(&config.NATSURL, "nats-url", os.Getenv("LOCKSTEP_NATS_URL"), "`URL` of NATS (LOCKSTEP_NATS_URL)")
	flags.StringVar(&config.NATSUser, "nats-user", "workflow", "`account` at NATS; its password is LOCKSTEP_NATS_PASSWORD")
	flags.Int64SliceVar(&config.Agents, "agent", nil, "`number` of a relay whose heartbeat is waited for; repeatable, needs the account workflow")
	flags.DurationVar(&config.Listen, "listen", config.Listen, "how long heartbeats are waited for")
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
func (c *command) examination(config *doctor.Config, health []string) error {
	config.NATSPassword = c.getenv("LOCKSTEP_NATS_PASSWORD")
	config.Health = map[string]string{}
	for _, h := range health {
		name, url, found := strings.Cut(h, "=")
		if !found || name == "" || url == "" {
			return fault.New(fault.Invalid, "health: found %q, expected name=URL", h)
		}
		config.Health[name] = url
	}
	endpoint, token, err := c.target()
	if err != nil {
		return err
	}
	config.Endpoint, config.Token = endpoint, token
	if endpoint == "" && len(health) == 0 && config.DatabaseURL == "" && config.NATSURL == "" {
		return fault.New(fault.Invalid, "found nothing to examine, expected --endpoint, --health, --database-url or --nats-url")
	}
	return nil
}
