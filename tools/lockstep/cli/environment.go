package cli

import (
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/tools/lockstep/client"
	"github.com/lockstep-cd/lockstep/tools/lockstep/journal"
)

// environmentApproval shows what an environment asks of every rollout, or changes what was named.
func (c *command) environmentApproval() *cobra.Command {
	var asked client.EnvironmentApproval
	var none bool
	var expires time.Duration
	cmd := c.asking("approval NAME", "Show or change the approval that an environment requires of every rollout",
		"  lockstep environment approval production\n"+
			"  lockstep environment approval production --quorum 2 --group release-managers --expires-after 4h\n"+
			"  lockstep environment approval production --none", exactly(1),
		func(cmd *cobra.Command, api *client.Client, args []string) error {
			if expires%time.Second != 0 {
				return fault.New(fault.Invalid, "expires-after: found %s; expected whole seconds", expires)
			}
			one, err := api.Environment(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			if next, changed := changedApproval(cmd, one.Approval, asked, none, expires); changed {
				if one, err = api.SetEnvironmentApproval(cmd.Context(), one.ID, next); err != nil {
					return err
				}
			}
			return c.print(one.Approval, func(w io.Writer) { environmentApprovalTable(w, one.Approval) })
		})
	flags := cmd.Flags()
	flags.IntVar(&asked.Quorum, "quorum", 1, "how many different people have to approve")
	flags.StringVar(&asked.Group, "group", "", "the `group` they must belong to; empty for anybody with the permission")
	flags.StringVar(&asked.Reason, "reason", "", "a reason, shown to the people who decide")
	flags.BoolVar(&asked.RequesterMayApprove, "requester-may-approve", false,
		"whether the person who requested the rollout may be one of them")
	durationFlag(cmd, &expires, "expires-after", 0, "let the approval expire after this time; 0 for never")
	wordFlag(cmd, &asked.OnExpiry, "on-expiry", "reject", "the outcome if it expires", []string{"reject", "approve"})
	flags.BoolVar(&none, "none", false, "remove the requirement")
	return cmd
}

// changedApproval is what there is, with the flags that were given; false when none was.
func changedApproval(cmd *cobra.Command, was *client.EnvironmentApproval, asked client.EnvironmentApproval, none bool, expires time.Duration) (*client.EnvironmentApproval, bool) {
	if none {
		return nil, was != nil
	}
	next := client.EnvironmentApproval{Quorum: 1, OnExpiry: "REJECT"}
	if was != nil {
		next = *was
	}
	changed := false
	for flag, take := range map[string]func(){
		"quorum":                func() { next.Quorum = asked.Quorum },
		"group":                 func() { next.Group = asked.Group },
		"reason":                func() { next.Reason = asked.Reason },
		"requester-may-approve": func() { next.RequesterMayApprove = asked.RequesterMayApprove },
		"expires-after":         func() { next.ExpiresAfterSeconds = int(expires / time.Second) },
		"on-expiry":             func() { next.OnExpiry = asked.OnExpiry },
	} {
		if cmd.Flags().Changed(flag) {
			take()
			changed = true
		}
	}
	return &next, changed
}

func environmentApprovalTable(w io.Writer, a *client.EnvironmentApproval) {
	row(w, "APPROVALS", "GROUP", "REQUESTER", "EXPIRES AFTER", "THEN", "REASON")
	if a == nil {
		row(w, "none")
		return
	}
	requester := "may not approve"
	if a.RequesterMayApprove {
		requester = "may approve"
	}
	expires, then := "never", ""
	if a.ExpiresAfterSeconds > 0 {
		expires, then = (time.Duration(a.ExpiresAfterSeconds) * time.Second).String(), journal.Human(a.OnExpiry)
	}
	row(w, number(a.Quorum), a.Group, requester, expires, then, a.Reason)
}

// environmentRetry onboards an environment again, or sets an application up in it again.
func (c *command) environmentRetry() *cobra.Command {
	var application string
	var wait waitFlags
	cmd := c.asking("retry NAME", "Repeat the onboarding of an environment, or the setup of an application in it",
		"  lockstep environment retry production\n  lockstep environment retry production --application shop", exactly(1),
		func(cmd *cobra.Command, api *client.Client, args []string) error {
			if application == "" {
				one, err := api.Environment(cmd.Context(), args[0])
				if err != nil {
					return err
				}
				if one, err = api.RetryOnboarding(cmd.Context(), one.ID); err != nil {
					return err
				}
				if wait.wait {
					if one, err = c.untilReady(cmd.Context(), api, one.Name, wait.timeout); err != nil {
						return err
					}
				}
				return c.print(one, func(w io.Writer) { environmentTable(w, []client.Environment{one}) })
			}
			a, err := api.Application(cmd.Context(), application)
			if err != nil {
				return err
			}
			for _, ae := range a.Environments {
				if ae.Environment.Name != args[0] {
					continue
				}
				one, err := api.RetrySetup(cmd.Context(), ae.ID)
				if err == nil && wait.wait {
					one, err = c.untilSetUpAgain(cmd.Context(), api, a.Name, args[0], wait.timeout)
				}
				if err != nil {
					return err
				}
				return c.print(one, func(w io.Writer) {
					row(w, "APPLICATION", "ENVIRONMENT", "READINESS", "REASON")
					row(w, a.Name, one.Environment.Name, journal.Human(one.Readiness), one.ReadinessReason)
				})
			}
			return fault.New(fault.NotFound, "environment: the pipeline of %q does not deploy to %q", application, args[0])
		})
	cmd.Flags().StringVar(&application, "application", "", "repeat the setup of the application with this `name`")
	wait.add(cmd, "the onboarding has ended; with --application, the setup")
	return cmd
}

// approvalOf says what an open gate waits for.
func approvalOf(g client.Gate) string {
	text := "approval of " + g.GateID
	if g.Quorum > 1 {
		text += fmt.Sprintf(" (%d of %d)", len(g.Approvals), g.Quorum)
	}
	if g.Group != "" {
		text += " by " + g.Group
	}
	return text
}
