package workflow

import (
	"context"
	"io"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	autoflowv1 "github.com/lockstep-cd/lockstep/proto/lockstep/autoflow/v1"
	"github.com/lockstep-cd/lockstep/tools/lockstep/cli/command"
)

// function has what there is to know of Functions.
func (c commands) function() *cobra.Command {
	e := &Engine{Command: c.Command}
	cmd := command.Noun("function", "", "Functions: what programs of the workflow service can call", e.functions())
	cmd.Long = `function calls the gRPC API of the workflow service, as workflow does.`
	flags := cmd.PersistentFlags()
	e.Flags(flags)
	flags.Int64Var(&e.organization, "organization", 0, "`number` of the organization (LOCKSTEP_ORGANIZATION); by default the token's")
	return cmd
}

func (e *Engine) functions() *cobra.Command {
	return e.asking("list", "List the Functions that programs can call, with those of the organization's workers",
		"  lockstep function list", command.Exactly(0),
		func(ctx context.Context, client autoflowv1.AutoFlowClient, _ []string) error {
			found, err := client.ListFunctions(ctx, &autoflowv1.ListFunctionsRequest{OrganizationId: e.organization})
			if err != nil {
				return err
			}
			return e.Print(message{found}, func(w io.Writer) {
				command.Row(w, "NAME", "EFFECT", "WORKERS", "DOES")
				for _, f := range found.GetFunctions() {
					workers := ""
					if f.GetWorker() {
						workers = strconv.Itoa(int(f.GetWorkers()))
					}
					effect := strings.ReplaceAll(strings.ToLower(strings.TrimPrefix(f.GetEffect().String(), "FUNCTION_EFFECT_")), "_", " ")
					does, _, _ := strings.Cut(strings.ReplaceAll(f.GetDoc(), "\n", " "), ". ")
					command.Row(w, f.GetName(), effect, workers, strings.TrimSuffix(does, "."))
				}
			})
		})
}
