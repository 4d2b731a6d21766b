package access

import (
	"io"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/lockstep-cd/lockstep/pkg/bus/authority"
	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/tools/lockstep/cli/command"
	"github.com/lockstep-cd/lockstep/tools/lockstep/client"
)

// agent is the relay beside a cluster.
func (c commands) agent() *cobra.Command {
	var revoked bool
	list := c.Asking("list", "List agents", "  lockstep agent list\n  lockstep agent list --revoked -o json", command.Exactly(0),
		func(cmd *cobra.Command, api *client.Client, _ []string) error {
			all, err := api.Agents(cmd.Context(), revoked)
			if err != nil {
				return err
			}
			return c.Print(all, func(w io.Writer) { agentTable(w, all) })
		})
	list.Flags().BoolVar(&revoked, "revoked", false, "include revoked agents")
	get := c.Asking("get AGENT", "Show an agent, by name or number, with its keys", "  lockstep agent get production", command.Exactly(1),
		func(cmd *cobra.Command, api *client.Client, args []string) error {
			one, err := api.Agent(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			return c.showAgent(one)
		})
	return command.Noun("agent", "agents", "Agents: the relays beside clusters, and their keys", list, get, c.registerAgent(),
		c.labelAgent(), c.rotateAgent(), c.revokeAgent(), c.authority())
}

// authority makes what an installation is set up with, once.
func (c commands) authority() *cobra.Command {
	return &cobra.Command{
		Use: "authority", Short: "Create the key with which the control plane authorizes agents at NATS",
		Long: "Create the key with which the control plane authorizes agents at NATS. The seed is a secret of the domain service; the public\n" +
			"keys belong in the configuration of NATS. An installation has one; a new one takes effect when both have it.",
		Example: "  lockstep agent authority >> deploy/.env\n  lockstep agent authority -o json", Args: command.Exactly(0),
		RunE: func(*cobra.Command, []string) error {
			seed, err := authority.NewSeed()
			if err != nil {
				return err
			}
			made, err := authority.NewIdentity(seed)
			if err != nil {
				return err
			}
			keys := struct {
				Issuer string `json:"issuer"`
				User   string `json:"user"`
				Seed   string `json:"seed"`
			}{made.Issuer, made.User, seed}
			return c.Print(keys, func(w io.Writer) {
				command.Row(w, "NATS_AUTHORITY_ISSUER="+keys.Issuer)
				command.Row(w, "NATS_AUTHORITY_USER="+keys.User)
				command.Row(w, "LOCKSTEP_DOMAIN_NATS_AUTHORITY_SEED="+keys.Seed)
			})
		},
	}
}

func (c commands) registerAgent() *cobra.Command {
	var file string
	register := c.Asking("register NAME", "Register the agent (relay) of a cluster; the seed of its key is shown only once",
		"  lockstep agent register production --seed-file relay.nk\n"+
			"  kubectl create secret generic lockstep-relay --from-file=seed=relay.nk", command.Exactly(1),
		func(cmd *cobra.Command, api *client.Client, args []string) error {
			return c.keyed(file, func() (client.Agent, error) { return api.RegisterAgent(cmd.Context(), args[0]) })
		})
	seedFile(register, &file)
	return register
}

func (c commands) labelAgent() *cobra.Command {
	return c.Asking("label AGENT KEY=VALUE...", "Set labels of an agent, by which fleets select their targets; KEY- ends one",
		"  lockstep agent label eu-1 region=eu ring=2\n  lockstep agent label eu-1 ring-", cobra.MinimumNArgs(2),
		func(cmd *cobra.Command, api *client.Client, args []string) error {
			one, err := api.Agent(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			set, unset := map[string]string{}, []string{}
			for _, arg := range args[1:] {
				key, value, sets := strings.Cut(arg, "=")
				ended, ends := strings.CutSuffix(arg, "-")
				switch {
				case sets:
					set[key] = value
				case ends:
					unset = append(unset, ended)
				default:
					return fault.New(fault.Invalid, "found %q; expected KEY=VALUE, or KEY- to end a label", arg)
				}
			}
			if one, err = api.SetAgentLabels(cmd.Context(), one.ID, set, unset...); err != nil {
				return err
			}
			return c.showAgent(one)
		})
}

func (c commands) rotateAgent() *cobra.Command {
	var file string
	var overlap time.Duration
	rotate := c.Asking("rotate AGENT", "Create a new key for an agent; the previous one stays valid for a while",
		"  lockstep agent rotate production --seed-file relay.nk\n  lockstep agent rotate production --overlap 1h -o json | jq -r .seed",
		command.Exactly(1),
		func(cmd *cobra.Command, api *client.Client, args []string) error {
			if overlap%time.Second != 0 || overlap < 0 {
				return fault.New(fault.Invalid, "overlap: found %s; expected whole seconds", overlap)
			}
			one, err := api.Agent(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			return c.keyed(file, func() (client.Agent, error) { return api.RotateAgent(cmd.Context(), one.ID, overlap) })
		})
	command.DurationFlag(rotate, &overlap, "overlap", command.Day,
		"how long the previous key stays valid, at most 30 days; 0 revokes it at once")
	seedFile(rotate, &file)
	return rotate
}

func (c commands) revokeAgent() *cobra.Command {
	var key string
	revoke := c.Asking("revoke AGENT", "Revoke an agent, or one of its keys, at once; its connections are closed",
		"  lockstep agent revoke production\n  lockstep agent revoke production --key agentkey_7", command.Exactly(1),
		func(cmd *cobra.Command, api *client.Client, args []string) error {
			one, err := api.Agent(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			if key == "" {
				one, err = api.RevokeAgent(cmd.Context(), one.ID)
			} else {
				one, err = revokeKey(cmd, api, one, key)
			}
			if err != nil {
				return err
			}
			return c.showAgent(one)
		})
	revoke.Flags().StringVar(&key, "key", "", "revoke only this key, by `identifier` or public key")
	return revoke
}

func revokeKey(cmd *cobra.Command, api *client.Client, of client.Agent, which string) (client.Agent, error) {
	for _, k := range of.Keys {
		if k.ID == which || k.PublicKey == which {
			return api.RevokeAgentKey(cmd.Context(), k.ID)
		}
	}
	return of, fault.New(fault.NotFound, "key %q of agent %q not found", which, of.Name)
}

func seedFile(cmd *cobra.Command, file *string) {
	cmd.Flags().StringVar(file, "seed-file", "", "write the seed to this new `file`, readable only by you, instead of showing it")
}

// keyed creates a key and hands over its seed. The file is created before the key, because a seed that cannot be written is lost.
func (c commands) keyed(file string, do func() (client.Agent, error)) error {
	var into *os.File
	if file != "" {
		var err error
		if into, err = os.OpenFile(file, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600); err != nil {
			return fault.New(fault.Invalid, "seed-file: %w; expected a new file in an existing folder", err)
		}
	}
	made, err := do()
	if into != nil {
		if err == nil {
			_, err = io.WriteString(into, made.Seed+"\n")
			made.Seed = ""
		}
		if closed := into.Close(); err == nil {
			err = closed
		}
		if err != nil {
			_ = os.Remove(file) // it is empty
		}
	}
	if err != nil {
		return err
	}
	return c.showAgent(made)
}

// showAgent shows one with its keys, and the seed where there is one.
func (c commands) showAgent(one client.Agent) error {
	return c.Print(one, func(w io.Writer) {
		agentTable(w, []client.Agent{one})
		command.Row(w)
		command.Row(w, "KEY", "STATE", "PUBLIC", "GOOD UNTIL", "LAST SEEN")
		now := c.Clock.Now()
		for _, k := range one.Keys {
			state := "good"
			switch {
			case one.RevokedAt != nil || k.RevokedAt != nil:
				state = "revoked"
			case k.ExpiresAt != nil && k.ExpiresAt.Before(now):
				state = "replaced"
			}
			command.Row(w, k.ID, state, k.PublicKey, command.Optional(k.ExpiresAt), command.Optional(k.LastSeenAt))
		}
		if one.Seed != "" {
			command.Row(w)
			command.Row(w, "SEED (not shown again)")
			command.Row(w, one.Seed)
		}
	})
}

func agentTable(w io.Writer, all []client.Agent) {
	command.Row(w, "NAME", "NUMBER", "STATE", "LAST SEEN", "ENVIRONMENTS", "LABELS")
	for _, a := range all {
		state := "not connected"
		switch {
		case a.RevokedAt != nil:
			state = "revoked"
		case a.Connected:
			state = "connected"
		}
		command.Row(w, a.Name, strconv.FormatInt(a.Number, 10), state, command.Optional(a.LastSeenAt), names(a.Environments), labels(a.Labels))
	}
}

// labels are those of an agent, by key.
func labels(all map[string]string) string {
	parts := make([]string, 0, len(all))
	for _, key := range slices.Sorted(maps.Keys(all)) {
		parts = append(parts, key+"="+all[key])
	}
	return strings.Join(parts, ",")
}

// access is the log of who gave or took whose access.
func (c commands) access() *cobra.Command {
	var limit int
	list := c.Asking("list", "List the changes to access, newest first", "  lockstep access list --limit 20 -o json", command.Exactly(0),
		func(cmd *cobra.Command, api *client.Client, _ []string) error {
			changes, err := api.AccessChanges(cmd.Context(), limit)
			if err != nil {
				return err
			}
			return c.Print(changes, func(w io.Writer) {
				command.Row(w, "WHEN", "WHO", "WHAT", "WHOSE", "NAME", "DETAIL")
				for _, one := range changes {
					command.Row(w, command.Moment(one.CreatedAt), one.Who(), one.Action, one.Subject, one.SubjectName, one.Detail)
				}
			})
		})
	command.LimitFlag(list, &limit, 0)
	check := c.Asking("check", "List the approvals that cannot be given, because too few members are left who may give them",
		"  lockstep access check", command.Exactly(0),
		func(cmd *cobra.Command, api *client.Client, _ []string) error {
			rules, err := api.UnanswerableRules(cmd.Context(), "", "")
			if err != nil {
				return err
			}
			return c.Print(rules, func(w io.Writer) {
				command.Row(w, "GATE", "APPLICATION", "ENVIRONMENT", "ROLLOUT", "PROBLEM")
				for _, one := range rules {
					command.Row(w, one.GateID, nameOf(one.Application), nameOf(one.Environment), idOf(one.Rollout), one.Problem)
				}
			})
		})
	return command.Noun("access", "grants", "Changes to access, for owners, and what they have led to", list, check)
}

// nameOf is the name of what is referred to, and idOf its identifier; empty for nothing.
func nameOf(r *client.Reference) string {
	if r == nil {
		return ""
	}
	return r.Name
}

func idOf(r *client.Reference) string {
	if r == nil {
		return ""
	}
	return r.ID
}
