// Package rollout has the commands about rollouts.
package rollout

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/text"
	"github.com/lockstep-cd/lockstep/tools/lockstep/cli/command"
	"github.com/lockstep-cd/lockstep/tools/lockstep/client"
	"github.com/lockstep-cd/lockstep/tools/lockstep/journal"
)

// Commands are the commands of this package, for the root command.
func Commands(c *command.Command) []*cobra.Command {
	own := commands{c}
	return []*cobra.Command{own.rollout()}
}

// commands are the constructors of commands, by what they share.
type commands struct{ *command.Command }

// warn prints what to consider about a rollout that was just created, beside its output.
func (c commands) warn(r client.Rollout) {
	for _, warning := range r.VersionSet.Warnings {
		fmt.Fprintln(c.ErrOut, "warning: "+text.Line(warning))
	}
}

func (c commands) rollout() *cobra.Command {
	return command.Noun("rollout", "ro", "Rollouts: a version set on its way through environments",
		c.rolloutList(), c.rolloutGet(), c.rolloutWhy(), c.rolloutCreate(),
		c.resolve("approve", "Approve a gate of a rollout", (*client.Client).ApproveGate),
		c.resolve("reject", "Reject a gate of a rollout, which cancels the rollout", (*client.Client).RejectGate),
		c.rolloutPause(), c.rolloutResume(), c.rolloutTargets(), c.rolloutPauseWave(), c.rolloutResumeWave(),
		c.rolloutAbort(), c.rolloutRetry(), c.rolloutCancel(), c.rolloutQueue(), c.rolloutCancelQueued(),
		c.rolloutRollback(), c.rolloutBreakGlass(),
		c.rolloutBypassFreeze(),
		c.rolloutKeep(), c.rolloutWatch())
}

func (c commands) rolloutList() *cobra.Command {
	var filter client.Filter
	cmd := c.Asking("list", "List rollouts, newest first", "  lockstep rollout list --application shop --state in_progress,paused",
		command.Exactly(0),
		func(cmd *cobra.Command, api *client.Client, _ []string) error {
			all, err := api.Rollouts(cmd.Context(), filter)
			if err != nil {
				return err
			}
			var queued []client.QueuedRollout
			if c.Output == "table" && (len(filter.States) == 0 || slices.Contains(filter.States, "PENDING")) {
				if queued, err = api.QueuedRollouts(cmd.Context(), filter.Application); err != nil {
					return err
				}
			}
			return c.Print(all, func(w io.Writer) { rolloutTable(w, all, queued...) })
		})
	cmd.Flags().StringVar(&filter.Application, "application", "", "only rollouts of the application with this `name`")
	command.WordsFlag(cmd, &filter.States, "state", "only those in these states", rolloutStates())
	command.LimitFlag(cmd, &filter.Limit, 20)
	return cmd
}

func (c commands) rolloutGet() *cobra.Command {
	return c.Asking("get ID", "Show one rollout with its journal", "  lockstep rollout get rollout_12", command.Exactly(1),
		func(cmd *cobra.Command, api *client.Client, args []string) error {
			one, err := api.RolloutWithCauses(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			if err := c.Print(one, func(w io.Writer) { rolloutDetail(w, one) }); err != nil || c.Output != "table" {
				return err
			}
			fmt.Fprintln(c.Out)
			return journal.Table(c.Out, one)
		})
}

func (c commands) rolloutWhy() *cobra.Command {
	return c.Asking("why ID", "Say why a rollout does not continue: each condition that is missing, since when, and who can end it",
		"  lockstep rollout why rollout_12", command.Exactly(1),
		func(cmd *cobra.Command, api *client.Client, args []string) error {
			one, err := api.Rollout(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			var drifted []client.Drifted
			if c.Output == "table" && one.FinishedAt == nil && len(one.Environments) > 0 {
				if drifted, err = driftOf(cmd.Context(), api, one); err != nil {
					return err
				}
			}
			return c.Print(one.WaitingOn, func(w io.Writer) {
				if row, ok := one.Breach(); ok {
					command.Row(w, one.ID+" failed as a BREACH at "+command.Moment(row.CreatedAt)+": "+row.Reason)
					return
				}
				if len(one.WaitingOn) == 0 {
					command.Row(w, one.ID+" waits for nothing: it is "+journal.Human(one.Status))
				} else {
					waitTable(w, one.WaitingOn)
				}
				deadlineTable(w, one)
				strategyLine(w, one)
				if len(drifted) > 0 {
					fmt.Fprintln(w)
					command.DriftTable(w, drifted)
				}
			})
		})
}

// driftOf is what differs in the environments to which a rollout goes: what it was begun for, or what it will take back.
func driftOf(ctx context.Context, api *client.Client, r client.Rollout) ([]client.Drifted, error) {
	a, err := api.Application(ctx, r.Application.Name)
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(a.Drifts(), func(d client.Drifted) bool {
		return !slices.ContainsFunc(r.Environments, func(e client.RolloutEnvironment) bool { return e.Environment.ID == d.Environment.ID })
	}), nil
}

func (c commands) rolloutCreate() *cobra.Command {
	var application, strategy string
	var n client.NewRollout
	var watch bool
	var most watchFlags
	var inputs command.InputFlags
	cmd := c.Asking("create [VERSION-SET]", "Start a rollout of a version set; an earlier set is a rollback",
		"  lockstep rollout create versionset_3 --reason 'ticket 81' --watch\n  lockstep rollout create --application shop    # its newest set\n"+
			"  lockstep rollout create --application shop --only staging\n"+
			"  lockstep rollout create --application shop --strategy quick --reason 'incident 99'\n"+
			"  lockstep rollout create --application backfill --input region=eu --input dry_run=false\n"+
			"  lockstep rollout create --application shop --watch --until approval --timeout 10m\n"+
			"  ROLLOUT=$(lockstep rollout create --application shop -o name)", command.Between(0, 1),
		func(cmd *cobra.Command, api *client.Client, args []string) error {
			if err := most.check(cmd, watch); err != nil {
				return err
			}
			var err error
			if n.Strategy, err = strategyNamed(strategy); err != nil {
				return err
			}
			if n.Inputs, err = inputs.JSON(cmd.InOrStdin()); err != nil {
				return err
			}
			if n.VersionSet, err = chooseVersionSet(cmd, api, application, args); err != nil {
				return err
			}
			one, err := api.CreateRollout(cmd.Context(), n)
			if err != nil {
				return err
			}
			c.warn(one)
			if watch {
				return c.watch(cmd.Context(), api, one.ID, most)
			}
			return c.Print(one, func(w io.Writer) { rolloutTable(w, []client.Rollout{one}) })
		})
	cmd.Flags().StringVar(&application, "application", "", "promote the newest version set of the application with this `name`")
	cmd.Flags().StringVar(&n.Reason, "reason", "", "why, for the journal")
	cmd.Flags().BoolVar(&watch, "watch", false, "follow the rollout")
	most.add(cmd, "with --watch,")
	cmd.Flags().BoolVar(&n.Again, "again", false, "deploy it again even if it is live in every environment")
	cmd.Flags().StringVar(&strategy, "strategy", "auto",
		"`auto`, quick (stop at no weight; what the weights require is required before), or pipeline (stop at every weight)")
	inputs.Add(cmd)
	cmd.Flags().StringSliceVar(&n.Only, "only", nil, "go only to this `environment`; repeatable, or separated by commas. None can be left out before it")
	return cmd
}

// strategyNamed is the strategy that a flag names; empty for auto.
func strategyNamed(name string) (string, error) {
	switch name {
	case "auto":
		return "", nil
	case "quick", "pipeline":
		return strings.ToUpper(name), nil
	default:
		return "", fault.New(fault.Invalid, "--strategy: found %q; expected auto, quick or pipeline", name)
	}
}

func chooseVersionSet(cmd *cobra.Command, api *client.Client, application string, args []string) (string, error) {
	switch {
	case len(args) == 1 && application == "":
		return args[0], nil
	case len(args) == 1 || application == "":
		return "", fault.New(fault.Invalid, "version set: expected either VERSION-SET or --application NAME")
	}
	set, err := api.NewestVersionSet(cmd.Context(), application)
	return set.ID, err
}

// resolve is approve or reject.
func (c commands) resolve(
	verb, short string, do func(api *client.Client, ctx context.Context, rollout, gate, reason string) (client.Rollout, error),
) *cobra.Command {
	var reason string
	cmd := c.Asking(verb+" ID [GATE]", short+"; by default the only open one",
		"  lockstep rollout "+verb+" rollout_12 release --reason 'looked at it'", command.Between(1, 2),
		func(cmd *cobra.Command, api *client.Client, args []string) error {
			gate, err := chooseGate(cmd.Context(), api, args)
			if err != nil {
				return err
			}
			one, err := do(api, cmd.Context(), args[0], gate, reason)
			if err != nil {
				return err
			}
			return c.Print(one, func(w io.Writer) { rolloutTable(w, []client.Rollout{one}) })
		})
	cmd.Flags().StringVar(&reason, "reason", "", "why, for the journal")
	return cmd
}

// chooseGate is the gate named, or the only one that waits for approval.
func chooseGate(ctx context.Context, api *client.Client, args []string) (string, error) {
	if len(args) == 2 {
		return args[1], nil
	}
	r, err := api.Rollout(ctx, args[0])
	if err != nil {
		return "", err
	}
	gates := make([]string, len(r.OpenGates))
	for i, g := range r.OpenGates {
		gates[i] = g.GateID
	}
	switch len(gates) {
	case 0:
		return "", fault.New(fault.Refused, "%s is %s and has no pending approval", r.ID, journal.Human(r.Status))
	case 1:
		return gates[0], nil
	default:
		return "", fault.New(fault.Invalid, "gate: %s waits at %s; expected one of them as GATE", r.ID, strings.Join(gates, ", "))
	}
}

func (c commands) rolloutCancel() *cobra.Command {
	var reason, then string
	cmd := c.Asking("cancel ID", "Cancel a rollout, and choose what happens to what it has deployed",
		"  lockstep rollout cancel rollout_12 --reason 'wrong set'\n"+
			"  lockstep rollout cancel rollout_12 --then abort --reason 'errors at 25 %'\n"+
			"  lockstep rollout cancel rollout_12 --then rollback --reason 'incident 99'", command.Exactly(1),
		func(cmd *cobra.Command, api *client.Client, args []string) error {
			one, err := api.CancelThen(cmd.Context(), args[0], then, reason)
			if err != nil {
				return err
			}
			return c.Print(one, func(w io.Writer) { rolloutTable(w, []client.Rollout{one}) })
		})
	command.WordFlag(cmd, &then, "then", "leave",
		"what happens then: everything stays; what is being deployed is taken back first; or a rollback begins, which is printed",
		[]string{"leave", "abort", "rollback"})
	cmd.Flags().StringVar(&reason, "reason", "", "why, for the journal")
	return cmd
}

func (c commands) rolloutQueue() *cobra.Command {
	var application string
	cmd := c.Asking("queue", "List the rollouts that are pending in queues, and why: the first to begin first",
		"  lockstep rollout queue --application shop", command.Exactly(0),
		func(cmd *cobra.Command, api *client.Client, _ []string) error {
			all, err := api.QueuedRollouts(cmd.Context(), application)
			if err != nil {
				return err
			}
			return c.Print(all, func(w io.Writer) { queueTable(w, all) })
		})
	cmd.Flags().StringVar(&application, "application", "", "only that of the application with this `name`")
	return cmd
}

func (c commands) rolloutCancelQueued() *cobra.Command {
	var application, reason string
	cmd := c.Asking("cancel-queued [ID]", "Take a rollout out of the queue before it begins: one that waits for another, or for the drivers",
		"  lockstep rollout cancel-queued queuedrollout_12 --reason 'wrong set'\n"+
			"  lockstep rollout cancel-queued --application shop    # the one that waits there", command.Between(0, 1),
		func(cmd *cobra.Command, api *client.Client, args []string) error {
			queued, err := chooseQueued(cmd.Context(), api, application, args)
			if err != nil {
				return err
			}
			one, err := api.CancelQueuedRollout(cmd.Context(), queued, reason)
			if err != nil {
				return err
			}
			return c.Print(one, func(w io.Writer) { queueTable(w, []client.QueuedRollout{one}) })
		})
	cmd.Flags().StringVar(&application, "application", "", "take out what waits for the application with this `name`")
	cmd.Flags().StringVar(&reason, "reason", "", "why, for the journal")
	return cmd
}

// chooseQueued is the identifier that was given, or that of what waits for an application.
func chooseQueued(ctx context.Context, api *client.Client, application string, args []string) (string, error) {
	switch {
	case len(args) == 1 && application == "":
		return args[0], nil
	case len(args) == 1 || application == "":
		return "", fault.New(fault.Invalid, "queued rollout: expected either ID or --application NAME")
	}
	all, err := api.QueuedRollouts(ctx, application)
	if err != nil {
		return "", err
	}
	if len(all) == 0 {
		return "", fault.New(fault.NotFound, "application %q has no rollout in its queue", application)
	}
	return all[0].ID, nil
}

func rolloutStates() []string {
	return []string{"pending", "in_progress", "paused", "completed", "failed", "cancelled"}
}
