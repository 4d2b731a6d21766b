package application

import (
	"io"

	"github.com/spf13/cobra"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/tools/lockstep/cli/command"
	"github.com/lockstep-cd/lockstep/tools/lockstep/client"
)

// environmentChecks shows which checks an environment requires of every rollout, or sets them.
func (c commands) environmentChecks() *cobra.Command {
	var file string
	var none bool
	cmd := c.Asking("checks NAME", "Show or set the checks that an environment requires of every rollout, whatever its pipeline declares",
		"  lockstep environment checks production\n"+
			"  lockstep environment checks production --file checks.yaml    # active and proposed, as in a pipeline\n"+
			"  lockstep environment checks production --none", command.Exactly(1),
		func(cmd *cobra.Command, api *client.Client, args []string) error {
			if none && file != "" {
				return fault.New(fault.Invalid, "expected either --file or --none")
			}
			one, err := api.Environment(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			if none {
				one, err = api.SetEnvironmentChecks(cmd.Context(), one.ID, nil)
			}
			if file != "" {
				document, unreadable := readYAML(cmd.InOrStdin(), file)
				if unreadable != nil {
					return unreadable
				}
				one, err = api.SetEnvironmentChecks(cmd.Context(), one.ID, document)
			}
			if err != nil {
				return err
			}
			return c.Print(one, func(w io.Writer) { environmentChecksTable(w, one.Checks) })
		})
	cmd.Flags().StringVar(&file, "file", "", "a YAML or JSON `file` with active and proposed; - is the standard input")
	cmd.Flags().BoolVar(&none, "none", false, "require none")
	return cmd
}

func environmentChecksTable(w io.Writer, checks any) {
	command.Row(w, "CHECK", "ABOUT", "DECLARED AS")
	targets, _ := checks.(map[string]any)
	found := false
	for _, target := range []string{"active", "proposed"} {
		all, _ := targets[target].([]any)
		for _, one := range all {
			declared, _ := one.(map[string]any)
			key, _ := declared["key"].(string)
			command.Row(w, key, target, command.Compact(one))
			found = true
		}
	}
	if !found {
		command.Row(w, "none")
	}
}
