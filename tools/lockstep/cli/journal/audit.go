package journal

import (
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/tools/lockstep/cli/command"
	"github.com/lockstep-cd/lockstep/tools/lockstep/client"
)

// audit is who did what, where and when.
func (c commands) audit() *cobra.Command {
	var f client.AuditFilter
	var since, until string
	var limit int
	cmd := c.Asking("audit", "List who did what, newest first: changes of controls, and what was done to rollouts; for owners",
		"  lockstep audit --since 7d --environment production\n"+
			"  lockstep audit --who alice --action setEnvironmentApproval -o json\n"+
			"  lockstep audit --since 2026-11-01 --until 2026-12-01 --limit 0", command.Exactly(0),
		func(cmd *cobra.Command, api *client.Client, _ []string) error {
			now := c.Clock.Now()
			var err error
			if f.Since, err = instant("--since", since, now); err != nil {
				return err
			}
			if f.Until, err = instant("--until", until, now); err != nil {
				return err
			}
			entries, err := api.Audit(cmd.Context(), f, limit)
			if err != nil {
				return err
			}
			return c.Print(entries, func(w io.Writer) { auditTable(w, entries) })
		})
	cmd.Flags().StringVar(&since, "since", "", "only from this `time` on: 2026-11-23, 2026-11-23T10:00:00Z, or how long ago, such as 7d or 12h")
	cmd.Flags().StringVar(&until, "until", "", "only before this `time`")
	cmd.Flags().StringVar(&f.Principal, "who", "", "only what this `member` did: a name, or an identifier, which also finds removed members")
	cmd.Flags().StringVar(&f.Action, "action", "",
		"only this `action`: a mutation such as setRollbackPolicy, or an event of rollouts such as approve")
	cmd.Flags().StringVar(&f.Application, "application", "", "only what concerns this `application`")
	cmd.Flags().StringVar(&f.Environment, "environment", "", "only what concerns this `environment`")
	command.LimitFlag(cmd, &limit, 100)
	return cmd
}

// instant reads a time of a flag: an instant, a day, or how long ago; zero for an empty text.
func instant(flag, text string, now time.Time) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	for _, layout := range []string{time.RFC3339Nano, time.DateOnly} {
		if at, err := time.Parse(layout, text); err == nil {
			return at, nil
		}
	}
	if ago, err := command.ParseDuration(text); err == nil {
		return now.Add(-ago), nil
	}
	return time.Time{}, fault.New(
		fault.Invalid, "%s: found %q; expected a time such as 2026-11-23 or 2026-11-23T10:00:00Z, or a duration such as 7d", flag, text,
	)
}

func auditTable(w io.Writer, entries []client.AuditEntry) {
	command.Row(w, "WHEN", "WHO", "ACTION", "SUBJECT", "NAME", "WHERE", "BEFORE", "AFTER", "REASON")
	for _, e := range entries {
		where := ""
		if e.Application != nil {
			where = e.Application.Name
		}
		if e.Environment != nil {
			where += "/" + e.Environment.Name
		}
		name := e.SubjectName
		if e.Journal == "rollout" {
			name = e.Detail // the gate
		}
		command.Row(w, command.Moment(e.CreatedAt), e.PrincipalName, e.Action, e.Subject, name, where, short(e.Before), short(e.After), e.Reason)
	}
}

// short is a value as a table has room for it; -o json has all of it.
func short(value []byte) string {
	const room = 60
	text := []rune(string(value))
	if len(text) > room {
		return string(text[:room-1]) + "…"
	}
	return string(text)
}
