package application

import (
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v4"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/tools/lockstep/cli/command"
	"github.com/lockstep-cd/lockstep/tools/lockstep/client"
)

// pipeline is the noun of flow definitions. What `lockstep workflow flow` registers is something else.
func (c commands) pipeline() *cobra.Command {
	get := c.Asking("get APPLICATION", "Show the pipeline of an application", "  lockstep pipeline get shop -o yaml", command.Exactly(1),
		func(cmd *cobra.Command, api *client.Client, args []string) error {
			one, err := api.FlowDefinition(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			return c.Print(one, func(w io.Writer) { pipelineTable(w, one) })
		})
	var wait command.WaitFlags
	set := c.Asking("set APPLICATION FILE", "Create a new version of an application's pipeline, from YAML or JSON; - is the standard input",
		"  lockstep pipeline set shop pipeline.yaml --wait\n  lockstep pipeline get shop -o yaml > pipeline.yaml    # to change and set",
		command.Exactly(2),
		func(cmd *cobra.Command, api *client.Client, args []string) error {
			document, err := readYAML(cmd.InOrStdin(), args[1])
			if err != nil {
				return err
			}
			one, err := api.CreateFlowDefinition(cmd.Context(), args[0], definitionIn(document))
			if err != nil {
				return err
			}
			c.WarnRules(cmd.Context(), api, args[0], "")
			if wait.Wait {
				if err := c.untilSetUp(cmd.Context(), api, args[0], stops(one.Definition), wait.Timeout); err != nil {
					return err
				}
			}
			if one.Unchanged {
				fmt.Fprintf(c.ErrOut, "version %d of the pipeline is the same; nothing has changed\n", one.Version)
			}
			return c.Print(one, func(w io.Writer) { pipelineTable(w, one) })
		})
	wait.Add(set, "the application is set up in every environment of it")
	return command.Noun("pipeline", "flow", "Pipelines: the environments and gates that an application goes through", get, set)
}

// definitionIn is a pipeline's definition: the document itself, or what is in one as `pipeline get` writes it.
func definitionIn(document map[string]any) any {
	inside, wrapped := document["definition"]
	if _, bare := document["steps"]; wrapped && !bare {
		return inside
	}
	return document
}

// readYAML is one document of a file, or of the standard input for "-".
func readYAML(in io.Reader, path string) (map[string]any, error) {
	var (
		text []byte
		err  error
	)
	if path == "-" {
		text, err = io.ReadAll(in)
	} else {
		text, err = os.ReadFile(path)
	}
	if err != nil {
		return nil, fault.New(fault.Invalid, "%w", err)
	}
	var value map[string]any
	if err := yaml.Unmarshal(text, &value); err != nil {
		return nil, fault.New(fault.Invalid, "%s: found text that is not a YAML or JSON object: %w", path, err)
	}
	if value == nil {
		return nil, fault.New(fault.Invalid, "%s: found nothing; expected a YAML or JSON object", path)
	}
	return value, nil
}

func pipelineTable(w io.Writer, f client.FlowDefinition) {
	command.Row(w, "ID", "VERSION", "CREATED", "ENVIRONMENTS")
	command.Row(w, f.ID, command.Number(f.Version), command.Moment(f.CreatedAt), strings.Join(stops(f.Definition), " → "))
}

// stops are the environments of a pipeline, in order.
func stops(definition any) []string {
	object, _ := definition.(map[string]any)
	steps, _ := object["steps"].([]any)
	var all []string
	for _, s := range steps {
		step, _ := s.(map[string]any)
		if environment, ok := step["environment"].(string); ok {
			all = append(all, environment)
		}
	}
	return all
}
