package command

import (
	"context"
	"fmt"

	"github.com/lockstep-cd/lockstep/pkg/text"
	"github.com/lockstep-cd/lockstep/tools/lockstep/client"
)

// WarnRules prints a warning for every approval that nobody is left to give, after a change that may have led to it: those of an
// environment, by identifier, or of an application's pipeline, by name; of all for empty ones. The change itself has been made: what cannot
// be read is no error.
func (c *Command) WarnRules(ctx context.Context, api *client.Client, application, environment string) {
	rules, err := api.UnanswerableRules(ctx, "", environment)
	if err != nil {
		fmt.Fprintln(c.ErrOut, "warning: approvals that can no longer be given were not looked up: "+text.Line(err.Error()))
		return
	}
	if application != "" && len(rules) > 0 { // it may be given by a former name
		if present, err := api.Application(ctx, application); err == nil {
			application = present.Name
		}
	}
	for _, r := range rules {
		if application == "" || r.Application != nil && r.Application.Name == application {
			fmt.Fprintln(c.ErrOut, "warning: "+text.Line(r.String()))
		}
	}
}
