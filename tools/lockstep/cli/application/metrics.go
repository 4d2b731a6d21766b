package application

import (
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/tools/lockstep/cli/command"
	"github.com/lockstep-cd/lockstep/tools/lockstep/client"
)

// applicationMetrics shows how an application is delivered.
func (c commands) applicationMetrics() *cobra.Command {
	var environment, until string
	var days int
	cmd := c.Asking("metrics NAME", "Show the delivery metrics (DORA) of an application by environment",
		"  lockstep application metrics shop\n  lockstep application metrics shop --environment production --days 90 -o json", command.Exactly(1),
		func(cmd *cobra.Command, api *client.Client, args []string) error {
			if days < 1 || days > 366 {
				return fault.New(fault.Invalid, "days: found %d; expected 1 to 366", days)
			}
			end := c.Clock.Now()
			if until != "" {
				var err error
				if end, err = time.Parse(time.RFC3339, until); err != nil {
					return fault.New(fault.Invalid, "until: found %q; expected a time as RFC 3339 has it, such as 2026-01-31T18:00:00Z", until)
				}
			}
			all, err := api.DeliveryMetrics(cmd.Context(), args[0], environment, end.AddDate(0, 0, -days).UTC().Truncate(time.Second),
				end.UTC().Truncate(time.Second))
			if err != nil {
				return err
			}
			return c.Print(all, func(w io.Writer) { metricsTable(w, all) })
		})
	cmd.Flags().StringVar(&environment, "environment", "", "show only this `environment`; by default all of the pipeline")
	cmd.Flags().IntVar(&days, "days", 30, "the length of the window in days, at most 366")
	cmd.Flags().StringVar(&until, "until", "", "the `time` at which the window ends; by default now")
	return cmd
}

func metricsTable(w io.Writer, all []client.DeliveryMetrics) {
	command.Row(w, "ENVIRONMENT", "DEPLOYMENTS", "PER DAY", "LEAD TIME", "WAITING ON PEOPLE", "AUTOMATION", "FAIL RATE", "REWORK RATE",
		"RECOVERY", "UNRECOVERED")
	for _, m := range all {
		command.Row(w, m.Environment.Name, strconv.Itoa(m.Deployments), strconv.FormatFloat(m.DeploymentsPerDay, 'f', 2, 64),
			distribution(m.LeadTime), distribution(m.LeadTimePeople), distribution(m.LeadTimeMachine),
			percent(m.ChangeFailRate), percent(m.ReworkRate), distribution(m.RecoveryTime), strconv.Itoa(m.Unrecovered))
	}
	if len(all) > 0 {
		fmt.Fprintln(w)
		fmt.Fprintf(w, "Times are median / 90th percentile, from %s to %s.\n", command.Moment(all[0].Since), command.Moment(all[0].Until))
	}
}

func percent(ratio *float64) string {
	if ratio == nil {
		return ""
	}
	return strconv.FormatFloat(100**ratio, 'f', 0, 64) + "%"
}

func distribution(d *client.DurationSummary) string {
	if d == nil {
		return ""
	}
	return rough(d.Median) + " / " + rough(d.P90)
}

// rough is seconds with the two greatest units that say something.
func rough(seconds float64) string {
	d := time.Duration(seconds * float64(time.Second)).Round(time.Second)
	switch days := d / (24 * time.Hour); {
	case days > 0:
		return fmt.Sprintf("%dd%dh", days, d%(24*time.Hour)/time.Hour)
	case d >= time.Hour:
		return fmt.Sprintf("%dh%dm", d/time.Hour, d%time.Hour/time.Minute)
	default:
		return d.String()
	}
}
