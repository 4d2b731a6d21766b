package application

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/source"
	"github.com/lockstep-cd/lockstep/tools/lockstep/cli/command"
	"github.com/lockstep-cd/lockstep/tools/lockstep/client"
)

func (c commands) applicationCreate() *cobra.Command {
	var description string
	var services []string
	cmd := c.Asking("create NAME", "Create an application; `lockstep source` manages further artifact sources",
		"  lockstep application create shop --service api=registry.example.com/shop/api --service web=registry.example.com/shop/web",
		command.Exactly(1),
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
				if full, err := source.NormalizeImage(s.Image); err == nil && strings.HasPrefix(full, "docker.io/") &&
					!strings.Contains(s.Image, "docker.io/") {
					fmt.Fprintf(c.ErrOut, "service %s: %s has no registry; using %s\n", s.Name, s.Image, full)
				}
			}
			return c.Print(one, func(w io.Writer) { applicationTable(w, []client.Application{one}) })
		})
	cmd.Flags().StringArrayVar(&services, "service", nil,
		"a service and its image, as `name=image`; repeatable. An image without a registry is one of Docker Hub")
	cmd.Flags().StringVar(&description, "description", "", "description")
	return cmd
}

func tiers() []string { return []string{"development", "qa", "staging", "production"} }
