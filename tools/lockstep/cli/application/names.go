package application

import (
	"github.com/spf13/cobra"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/tools/lockstep/cli/command"
)

// Environments and services keep their names (D57): gates, policies and programs of drivers know them by these, and a text that is no
// longer about what it was written for opens what it kept closed. Both commands say what to do instead.

func (c commands) environmentRename() *cobra.Command {
	return c.keeping("rename NAME NEW-NAME", "Says how an environment comes to another name: it keeps the one that it was made with",
		"  lockstep environment rename staging stage", command.Exactly(2),
		func(args []string) error {
			return fault.New(fault.Refused, "environment %.100q keeps its name: pipelines, gates, policies and drivers go by it; make another one "+
				"(lockstep environment create %.100s), with the same grants, freezes and policies, save pipelines that name it (lockstep pipeline set), "+
				"roll out there, and archive this one (lockstep environment archive)", args[0], args[1])
		})
}

func (c commands) serviceRename() *cobra.Command {
	return c.keeping("rename APPLICATION SERVICE NEW-NAME", "Says how a service comes to another name: it keeps the one that it was made with",
		"  lockstep service rename shop api backend", command.Exactly(3),
		func(args []string) error {
			return fault.New(fault.Refused, "service %.100q keeps its name: pipelines and drivers go by it, and would deploy nothing under another one; "+
				"add another one with the same sources (lockstep service add %.100s %.100s), save a pipeline that has it (lockstep pipeline set), and retire "+
				"this one (lockstep service retire)", args[1], args[0], args[2])
		})
}

// keeping is a command that changes nothing.
func (c commands) keeping(use, short, example string, args cobra.PositionalArgs, refuse func(args []string) error) *cobra.Command {
	return &cobra.Command{
		Use: use, Short: short, Example: example, Args: args, ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(_ *cobra.Command, args []string) error { return refuse(args) },
	}
}
