package application

import (
	"context"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/tools/lockstep/cli/command"
	"github.com/lockstep-cd/lockstep/tools/lockstep/client"
	"github.com/lockstep-cd/lockstep/tools/lockstep/journal"
)

// environmentApproval shows what an environment asks of every rollout, or changes what was named.
func (c commands) environmentApproval() *cobra.Command {
	var asked client.EnvironmentApproval
	var none bool
	var expires time.Duration
	cmd := c.Asking("approval NAME", "Show or change the approval that an environment requires of every rollout",
		"  lockstep environment approval production\n"+
			"  lockstep environment approval production --quorum 2 --group release-managers --expires-after 4h\n"+
			"  lockstep environment approval production --none", command.Exactly(1),
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
				c.WarnRules(cmd.Context(), api, "", one.ID)
			}
			return c.Print(one.Approval, func(w io.Writer) { environmentApprovalTable(w, one.Approval) })
		})
	flags := cmd.Flags()
	flags.IntVar(&asked.Quorum, "quorum", 1, "how many different people have to approve")
	flags.StringVar(&asked.Group, "group", "", "the `group` they must belong to; empty for anybody with the permission")
	flags.StringVar(&asked.Reason, "reason", "", "a reason, shown to the people who decide")
	flags.BoolVar(&asked.RequesterMayApprove, "requester-may-approve", false,
		"whether the person who requested the rollout may be one of them")
	command.DurationFlag(cmd, &expires, "expires-after", 0, "let the approval expire after this time; 0 for never")
	command.WordFlag(cmd, &asked.OnExpiry, "on-expiry", "reject", "the outcome if it expires", []string{"reject", "approve"})
	flags.BoolVar(&none, "none", false, "remove the requirement")
	return cmd
}

// directChanges decides whether workflows that belong to no rollout may change a protected environment.
func (c commands) directChanges() *cobra.Command {
	var allow, forbid bool
	var reason string
	cmd := c.Asking("direct-changes NAME", "Allow workflows that belong to no rollout to change a protected environment, or forbid it again",
		"  lockstep environment direct-changes production --allow --reason \"the nightly restore writes there\"\n"+
			"  lockstep environment direct-changes production --forbid", command.Exactly(1),
		func(cmd *cobra.Command, api *client.Client, args []string) error {
			if allow == forbid {
				return fault.New(fault.Invalid, "expected either --allow or --forbid")
			}
			one, err := api.Environment(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			if one, err = api.SetDirectChanges(cmd.Context(), one.ID, allow, reason); err != nil {
				return err
			}
			return c.Print(one, func(w io.Writer) {
				command.Row(w, "ENVIRONMENT", "DIRECT CHANGES")
				command.Row(w, one.Name, map[bool]string{true: "allowed", false: "forbidden"}[allow])
			})
		})
	flags := cmd.Flags()
	flags.BoolVar(&allow, "allow", false, "allow them")
	flags.BoolVar(&forbid, "forbid", false, "protect the environment again")
	flags.StringVar(&reason, "reason", "", "why; required to allow them, and kept in the journal of changes")
	return cmd
}

// environmentPin pins an environment, or ends its pin.
func (c commands) environmentPin(
	verb, short, example string, change func(*client.Client, context.Context, string, string) (client.Environment, error),
) *cobra.Command {
	var reason string
	cmd := c.Asking(verb+" NAME", short, example, command.Exactly(1), func(cmd *cobra.Command, api *client.Client, args []string) error {
		one, err := api.Environment(cmd.Context(), args[0])
		if err != nil {
			return err
		}
		if one, err = change(api, cmd.Context(), one.ID, reason); err != nil {
			return err
		}
		return c.Print(one, func(w io.Writer) {
			command.Row(w, "ENVIRONMENT", "STATE")
			command.Row(w, one.Name, verb+"ned")
		})
	})
	cmd.Flags().StringVar(&reason, "reason", "", "why, for the journal")
	return cmd
}

// changeControl decides whether changes of an environment's controls take a second person.
func (c commands) changeControl() *cobra.Command {
	var on, off bool
	var reason string
	cmd := c.Asking("change-control NAME", "Let changes of an environment's controls take a second person, or end that",
		"  lockstep environment change-control production --on --reason \"audited\"\n"+
			"  lockstep environment change-control production --off", command.Exactly(1),
		func(cmd *cobra.Command, api *client.Client, args []string) error {
			if on == off {
				return fault.New(fault.Invalid, "expected either --on or --off")
			}
			one, err := api.Environment(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			if one, err = api.SetChangeControl(cmd.Context(), one.ID, on, reason); err != nil {
				return err
			}
			return c.Print(one, func(w io.Writer) {
				command.Row(w, "ENVIRONMENT", "CHANGE CONTROL")
				command.Row(w, one.Name, map[bool]string{true: "on", false: "off"}[on])
			})
		})
	flags := cmd.Flags()
	flags.BoolVar(&on, "on", false, "let them take a second person")
	flags.BoolVar(&off, "off", false, "let them take one person; a second person has to confirm this, too")
	flags.StringVar(&reason, "reason", "", "why, for the record")
	return cmd
}

// changedApproval is what there is, with the flags that were given; false when none was.
func changedApproval(
	cmd *cobra.Command, was *client.EnvironmentApproval, asked client.EnvironmentApproval, none bool, expires time.Duration,
) (*client.EnvironmentApproval, bool) {
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
	command.Row(w, "APPROVALS", "GROUP", "REQUESTER", "EXPIRES AFTER", "THEN", "REASON")
	if a == nil {
		command.Row(w, "none")
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
	command.Row(w, command.Number(a.Quorum), a.Group, requester, expires, then, a.Reason)
}
