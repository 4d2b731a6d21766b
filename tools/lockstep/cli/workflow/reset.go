package workflow

import (
	"context"

	"github.com/spf13/cobra"

	autoflowv1 "github.com/lockstep-cd/lockstep/proto/lockstep/autoflow/v1"
	"github.com/lockstep-cd/lockstep/tools/lockstep/cli/command"
)

func (e *Engine) reset() *cobra.Command {
	var reason string
	var to int64
	var watch bool
	cmd := e.asking("reset ID NEW-ID", "Start a workflow that continues from an entry of one that has ended",
		"  lockstep workflow reset nightly-7 nightly-7b --to 12 --reason 'mirror was down'\n  lockstep workflow reset nightly-7 nightly-7b --watch",
		command.Exactly(2), func(ctx context.Context, client autoflowv1.AutoFlowClient, args []string) error {
			answer, err := client.ResetWorkflow(ctx, &autoflowv1.ResetWorkflowRequest{
				OrganizationId: e.organization, WorkflowId: args[0], NewWorkflowId: args[1], ToSequence: to, Reason: reason,
			})
			if err != nil {
				return err
			}
			if watch {
				return e.follow(ctx, client, args[1], answer.GetWorkflow().GetLastSequence())
			}
			return e.show(answer.GetWorkflow())
		})
	cmd.Flags().StringVar(&reason, "reason", "", "why, for the record")
	cmd.Flags().Int64Var(&to, "to", 0, "keep the history before the entry with this `sequence`; by default before the step that failed")
	cmd.Flags().BoolVar(&watch, "watch", false, "follow the new workflow to its end")
	return cmd
}

func (e *Engine) changeProgram() *cobra.Command {
	var given programFlags
	var reason string
	var dryRun bool
	cmd := e.asking("change-program ID PROGRAM", "Give a workflow that waits another program, if its history replays under it",
		"  lockstep workflow change-program nightly-7 nightly.star --dry-run\n  lockstep workflow change-program nightly-7 nightly.star --module lib.star --reason 'see incident 81'",
		command.Exactly(2), func(ctx context.Context, client autoflowv1.AutoFlowClient, args []string) error {
			program, modules, _, err := given.read(args[1])
			if err != nil {
				return err
			}
			answer, err := client.ChangeProgram(ctx, &autoflowv1.ChangeProgramRequest{
				OrganizationId: e.organization, WorkflowId: args[0], Starlark: program, Modules: modules, Reason: reason, DryRun: dryRun,
			})
			if err != nil {
				return err
			}
			return e.show(answer.GetWorkflow())
		})
	cmd.Flags().StringSliceVar(&given.modules, "module", nil, "a module that the program loads, by the name of its `file`; repeatable")
	cmd.Flags().StringVar(&reason, "reason", "", "why, for the record")
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "only check whether the program fits")
	return cmd
}
