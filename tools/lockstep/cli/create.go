package cli

import (
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v4"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/source"
	"github.com/lockstep-cd/lockstep/tools/lockstep/client"
)

func (c *command) applicationCreate() *cobra.Command {
	var description string
	var services []string
	cmd := c.asking("create NAME", "Create an application; `lockstep source` manages further artifact sources",
		"  lockstep application create shop --service api=registry.example.com/shop/api --service web=registry.example.com/shop/web", exactly(1),
		func(cmd *cobra.Command, api *client.Client, args []string) error {
			inputs := make([]client.ServiceInput, len(services))
			for i, s := range services {
				name, image, ok := strings.Cut(s, "=")
				if !ok || name == "" || image == "" {
					return fault.New(fault.Invalid, "service: found %q; expected a name and its image, such as api=registry.example.com/shop/api", s)
				}
				inputs[i] = client.ServiceInput{Name: name, Image: image}
			}
			one, err := api.CreateApplication(cmd.Context(), args[0], description, inputs)
			if err != nil {
				return err
			}
			// Docker's grammar lets a registry be left out, which may be what was forgotten.
			for _, s := range inputs {
				if full, err := source.NormalizeImage(s.Image); err == nil && strings.HasPrefix(full, "docker.io/") && !strings.Contains(s.Image, "docker.io/") {
					fmt.Fprintf(c.errOut, "service %s: %s has no registry; using %s\n", s.Name, s.Image, full)
				}
			}
			return c.print(one, func(w io.Writer) { applicationTable(w, []client.Application{one}) })
		})
	cmd.Flags().StringArrayVar(&services, "service", nil,
		"a service and its image, as `name=image`; repeatable. An image without a registry is one of Docker Hub")
	cmd.Flags().StringVar(&description, "description", "", "description")
	return cmd
}

func (c *command) environmentCreate() *cobra.Command {
	in := client.EnvironmentInput{}
	var config fields
	var wait waitFlags
	cmd := c.asking("create NAME", "Create an environment and start its onboarding",
		"  lockstep environment create production --tier production --set cluster_agent_id=production-eu --wait\n"+
			"  lockstep environment create production --tier production --set cluster_agent_id=42", exactly(1),
		func(cmd *cobra.Command, api *client.Client, args []string) error {
			driver, err := config.withAgent(cmd.Context(), api)
			if err != nil {
				return err
			}
			in.Name, in.DriverConfig = args[0], driver
			one, err := api.CreateEnvironment(cmd.Context(), in)
			if err == nil && wait.wait {
				one, err = c.untilReady(cmd.Context(), api, one.Name, wait.timeout)
			}
			if err != nil {
				return err
			}
			return c.print(one, func(w io.Writer) { environmentTable(w, []client.Environment{one}) })
		})
	flags := cmd.Flags()
	wordFlag(cmd, &in.Tier, "tier", "development", "what is at stake there", tiers())
	flags.StringVar(&in.DriverRef, "driver", "argo-rollouts@1", "the `driver` to deploy with")
	flags.StringVar(&in.Description, "description", "", "description")
	flags.StringArrayVar((*[]string)(&config), "set", nil,
		"a field of the driver's configuration, as `field=value`; repeatable. cluster_agent_id takes the name or number of an agent")
	wait.add(cmd, "its onboarding has ended")
	return cmd
}

// pipeline is the noun of flow definitions. What `lockstep workflow flow` registers is something else.
func (c *command) pipeline() *cobra.Command {
	get := c.asking("get APPLICATION", "Show the pipeline of an application", "  lockstep pipeline get shop -o yaml", exactly(1),
		func(cmd *cobra.Command, api *client.Client, args []string) error {
			one, err := api.FlowDefinition(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			return c.print(one, func(w io.Writer) { pipelineTable(w, one) })
		})
	var wait waitFlags
	set := c.asking("set APPLICATION FILE", "Create a new version of an application's pipeline, from YAML or JSON; - is the standard input",
		"  lockstep pipeline set shop pipeline.yaml --wait\n  lockstep pipeline get shop -o yaml > pipeline.yaml    # to change and set", exactly(2),
		func(cmd *cobra.Command, api *client.Client, args []string) error {
			document, err := readYAML(cmd.InOrStdin(), args[1])
			if err != nil {
				return err
			}
			one, err := api.CreateFlowDefinition(cmd.Context(), args[0], definitionIn(document))
			if err != nil {
				return err
			}
			if wait.wait {
				if err := c.untilSetUp(cmd.Context(), api, args[0], stops(one.Definition), wait.timeout); err != nil {
					return err
				}
			}
			if one.Unchanged {
				fmt.Fprintf(c.errOut, "version %d of the pipeline is the same; nothing has changed\n", one.Version)
			}
			return c.print(one, func(w io.Writer) { pipelineTable(w, one) })
		})
	wait.add(set, "the application is set up in every environment of it")
	return noun("pipeline", "flow", "Pipelines: the environments and gates that an application goes through", get, set)
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
	row(w, "ID", "VERSION", "CREATED", "ENVIRONMENTS")
	row(w, f.ID, number(f.Version), moment(f.CreatedAt), strings.Join(stops(f.Definition), " → "))
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
