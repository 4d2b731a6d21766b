// Package trigger has the commands about triggers, what begins rollouts without a person, about the events that are sent to them, about
// chains, and about the holds after rollbacks.
package trigger

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/id"
	"github.com/lockstep-cd/lockstep/tools/lockstep/cli/command"
	"github.com/lockstep-cd/lockstep/tools/lockstep/client"
	"github.com/lockstep-cd/lockstep/tools/lockstep/journal"
)

// Commands are the commands of this package.
func Commands(c *command.Command) []*cobra.Command {
	own := commands{c}
	return []*cobra.Command{
		command.Noun("trigger", "tg", "Triggers: what begins rollouts without a person, and why it did or did not",
			own.list(), own.decisions(), own.kinds(), own.set(), own.turn(true), own.turn(false), own.remove(), own.release()),
		command.Noun("chain", "ch", "Chains: rollouts of other applications that follow one, block after block", own.chains(), own.showChain(), own.cancelChain()),
		command.Noun("event", "ev", "Events that are sent to triggers", own.send()),
		own.plan(),
	}
}

// commands are the constructors of commands, by what they share.
type commands struct{ *command.Command }

func reasoned(cmd *cobra.Command, reason *string) {
	cmd.Flags().StringVar(reason, "reason", "", "why, for the journal")
}

func (c commands) list() *cobra.Command {
	return c.Asking("list APPLICATION", "List the triggers of an application with their last decisions, and where automation is held",
		"  lockstep trigger list shop", command.Exactly(1), func(cmd *cobra.Command, api *client.Client, args []string) error {
			all, err := api.Triggers(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			return c.Print(all, func(w io.Writer) { table(w, all) })
		})
}

func table(w io.Writer, all client.ApplicationTriggers) {
	command.Row(w, "NAME", "KIND", "STATE", "LAST", "AT", "WHY")
	for _, t := range all.Triggers {
		state, last, at, why := "off", "", "", ""
		if t.Enabled {
			state = "on"
		}
		if d := t.LastDecision; d != nil {
			last, at, why = journal.Human(d.Outcome), command.Moment(d.DecidesAt), d.Reason
		}
		command.Row(w, t.Name, journal.Human(t.Kind), state, last, at, why)
	}
	for _, h := range all.PromotionHolds {
		command.Row(w, "", "", "held", h.Environment.Name, command.Moment(h.Since), h.Rollout.ID+" rolled back there; automation waits for a release")
	}
}

func (c commands) decisions() *cobra.Command {
	return c.Asking("decisions APPLICATION NAME", "List what a trigger decided, the latest first: why a rollout began, and why none did",
		"  lockstep trigger decisions shop deploy-staging", command.Exactly(2),
		func(cmd *cobra.Command, api *client.Client, args []string) error {
			all, err := api.TriggerDecisions(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			of, known := all[args[1]]
			if !known {
				return fault.New(fault.NotFound, "trigger %q of application %q not found", args[1], args[0])
			}
			return c.Print(of, func(w io.Writer) {
				command.Row(w, "HAPPENED", "OUTCOME", "ROLLOUT", "CAUSE", "BY", "EDIT", "WHY")
				for _, d := range of {
					rollout := ""
					if d.Rollout != nil {
						rollout = d.Rollout.ID
					}
					command.Row(w, command.Moment(d.At), journal.Human(d.Outcome), rollout, d.Cause, senderOf(d), editOf(d), d.Reason)
				}
			})
		})
}

// senderOf is who has sent an event; empty for what nobody sends.
func senderOf(d client.TriggerDecision) string {
	if d.Sender == nil {
		return ""
	}
	return fmt.Sprintf("%s (%s %d)", d.Sender.Name, d.Sender.PrincipalType, d.Sender.PrincipalID)
}

// editOf says what came of the files that a trigger edits first, and where that is to be seen; empty if it edits none.
func editOf(d client.TriggerDecision) string {
	if d.Edit == nil {
		return ""
	}
	return strings.TrimSpace(journal.Human(d.Edit.State) + " " + cmp.Or(d.Edit.Link, d.Edit.CommitLink, d.Edit.Commit))
}

func (c commands) set() *cobra.Command {
	var kind, reason string
	var set command.Fields
	var off bool
	cmd := c.Asking("set APPLICATION NAME", "Save a trigger; one of that name gets the new configuration",
		"  lockstep trigger set shop deploy-staging --kind version --set until=staging --set quiet_seconds=60\n"+
			"  lockstep trigger set shop nightly --kind schedule --set 'cron=0 6 * * 1-5' --set time_zone=Europe/Berlin\n"+
			`  lockstep trigger set shop builds --kind event --set 'types=["build.passed"]' --set 'data={"build.branch":"main"}'`+"\n"+
			`  lockstep trigger set shop then --kind chain --set 'blocks=[{"applications":["blog","cart"]},{"applications":["web-*"]}]'`,
		command.Exactly(2), func(cmd *cobra.Command, api *client.Client, args []string) error {
			config, err := set.JSON()
			if err != nil {
				return err
			}
			one, err := api.PutTrigger(cmd.Context(), args[0],
				client.Trigger{Name: args[1], Kind: kind, Config: config, Enabled: !off}, reason)
			if err != nil {
				return err
			}
			return c.printOne(one)
		})
	command.WordFlag(cmd, &kind, "kind", "version", "the kind, which lockstep trigger kinds describes",
		[]string{"version", "git", "manual", "drift", "schedule", "event", "chain"})
	cmd.Flags().StringArrayVar((*[]string)(&set), "set", nil, "a field of its configuration, as `field=value`; lists and objects as JSON; repeatable")
	cmd.Flags().BoolVar(&off, "off", false, "save it switched off")
	reasoned(cmd, &reason)
	return cmd
}

func (c commands) printOne(t client.Trigger) error {
	return c.Print(t, func(w io.Writer) { table(w, client.ApplicationTriggers{Triggers: []client.Trigger{t}}) })
}

// turn switches a trigger on or off.
func (c commands) turn(on bool) *cobra.Command {
	var reason string
	verb, short := "disable", "Switch a trigger off; the trigger manual keeps people and machines from creating rollouts"
	if on {
		verb, short = "enable", "Switch a trigger on"
	}
	cmd := c.Asking(verb+" APPLICATION NAME", short, "  lockstep trigger "+verb+" shop deploy-staging", command.Exactly(2),
		func(cmd *cobra.Command, api *client.Client, args []string) error {
			all, err := api.Triggers(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			for _, t := range all.Triggers {
				if t.Name != args[1] {
					continue
				}
				t.Enabled = on
				one, err := api.PutTrigger(cmd.Context(), args[0], t, reason)
				if err != nil {
					return err
				}
				return c.printOne(one)
			}
			return fault.New(fault.NotFound, "trigger %q of application %q not found", args[1], args[0])
		})
	reasoned(cmd, &reason)
	return cmd
}

func (c commands) remove() *cobra.Command {
	var reason string
	cmd := c.Asking("remove APPLICATION NAME", "Remove a trigger, and list those that are left", "  lockstep trigger remove shop nightly",
		command.Exactly(2), func(cmd *cobra.Command, api *client.Client, args []string) error {
			left, err := api.RemoveTrigger(cmd.Context(), args[0], args[1], reason)
			if err != nil {
				return err
			}
			return c.Print(left, func(w io.Writer) { table(w, left) })
		})
	reasoned(cmd, &reason)
	return cmd
}

func (c commands) release() *cobra.Command {
	var reason string
	cmd := c.Asking("release APPLICATION ENVIRONMENT", "Let automation begin rollouts in an environment again, after a rollback there",
		"  lockstep trigger release shop production --reason 'mended in 1.4'", command.Exactly(2),
		func(cmd *cobra.Command, api *client.Client, args []string) error {
			all, err := api.ReleasePromotionHold(cmd.Context(), args[0], args[1], reason)
			if err != nil {
				return err
			}
			return c.Print(all, func(w io.Writer) { table(w, all) })
		})
	reasoned(cmd, &reason)
	return cmd
}

func (c commands) send() *cobra.Command {
	var e client.Event
	var data string
	cmd := c.Asking("send TYPE", "Send an event to the triggers that it matches",
		`  lockstep event send build.passed --source /ci/shop --id "$CI_PIPELINE_ID" --data '{"build":{"branch":"main"}}'`,
		command.Exactly(1), func(cmd *cobra.Command, api *client.Client, args []string) error {
			if e.Type = args[0]; e.ID == "" {
				e.ID = id.New(time.Now()) //nolint:forbidigo // the time of the person who sends it
			}
			if name, isFile := strings.CutPrefix(data, "@"); isFile {
				content, err := os.ReadFile(name)
				if err != nil {
					return fault.Because(err, fault.Invalid, "data: %s", err)
				}
				data = string(content)
			}
			if data != "" {
				if !json.Valid([]byte(data)) {
					return fault.New(fault.Invalid, "data: found no JSON; expected an object, or @FILE")
				}
				e.Data = json.RawMessage(data)
			}
			sent, err := api.SendEvent(cmd.Context(), e)
			if err != nil {
				return err
			}
			return c.Print(sent, func(w io.Writer) {
				command.Row(w, "TRIGGERS", "FULL")
				command.Row(w, command.Number(sent.Triggers), command.Number(sent.Full))
			})
		})
	cmd.Flags().StringVar(&e.Source, "source", "", "where it happened, such as /ci/shop")
	cmd.Flags().StringVar(&e.ID, "id", "", "identifies the event together with its source; one that is sent twice counts once; a new one without it")
	cmd.Flags().StringVar(&data, "data", "", "a JSON `object`, or @FILE")
	_ = cmd.MarkFlagRequired("source")
	return cmd
}
