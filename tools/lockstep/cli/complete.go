package cli

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/lockstep-cd/lockstep/pkg/text"
	"github.com/lockstep-cd/lockstep/tools/lockstep/cli/command"
	"github.com/lockstep-cd/lockstep/tools/lockstep/client"
	"github.com/lockstep-cd/lockstep/tools/lockstep/journal"
)

// completionPatience is how long a shell waits for the API after the tabulator key.
const completionPatience = 2 * time.Second

// lookup asks the API for what may be completed: a word each, with a description behind a tabulator.
type lookup func(ctx context.Context, api *client.Client) ([]string, error)

func applicationNames(ctx context.Context, api *client.Client) ([]string, error) {
	all, err := api.Applications(ctx)
	return described(all, err, func(a client.Application) (string, string) { return a.Name, a.Description })
}

func environmentNames(ctx context.Context, api *client.Client) ([]string, error) {
	all, err := api.Environments(ctx)
	return described(all, err, func(e client.Environment) (string, string) { return e.Name, strings.ToLower(e.Tier) })
}

// rolloutNames are the newest: nobody completes the number of an old one.
func rolloutNames(ctx context.Context, api *client.Client) ([]string, error) {
	all, err := api.Rollouts(ctx, client.Filter{Limit: 50})
	return described(all, err, func(r client.Rollout) (string, string) {
		return r.ID, r.Application.Name + " " + r.VersionSet.Name + ", " + journal.Human(r.Status)
	})
}

func driverRefs(ctx context.Context, api *client.Client) ([]string, error) {
	all, err := api.Drivers(ctx)
	return described(all.Drivers, err, func(d client.Driver) (string, string) { return d.Ref, d.Origin })
}

func described[T any](all []T, err error, word func(T) (name, description string)) ([]string, error) {
	if err != nil {
		return nil, err
	}
	words := make([]string, len(all))
	for i, one := range all {
		name, description := word(one)
		words[i] = cobra.CompletionWithDesc(text.Line(name), text.Line(description))
	}
	return words, nil
}

// completions lets shells complete the names of what Lockstep knows, wherever a command takes one.
func completions(c *command.Command, root *cobra.Command) {
	arguments := map[string]struct {
		placeholder string
		names       lookup
	}{
		"application": {"NAME", applicationNames}, "environment": {"NAME", environmentNames}, "rollout": {"ID", rolloutNames},
		"pipeline": {"APPLICATION", applicationNames}, "version-set": {"APPLICATION", applicationNames}, "driver": {"REF", driverRefs},
	}
	flags := map[string]lookup{"application": applicationNames, "environment": environmentNames, "driver": driverRefs}
	command.CompleteWords(root)
	for _, noun := range root.Commands() {
		for _, verb := range noun.Commands() {
			takes := arguments[noun.Name()]
			// "create NAME" makes a new one, so there is nothing to complete.
			if words := strings.Fields(verb.Use); takes.names != nil && words[0] != "create" && slices.Contains(words, takes.placeholder) {
				verb.ValidArgsFunction = completing(c, takes.names)
			}
			for flag, of := range flags {
				if verb.Flags().Lookup(flag) != nil {
					_ = verb.RegisterFlagCompletionFunc(flag, asked(c, of)) // an error says that there is one already, which is better
				}
			}
		}
	}
}

// completing completes the first argument.
func completing(c *command.Command, of lookup) cobra.CompletionFunc {
	ask := asked(c, of)
	return func(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return ask(cmd, args, typed)
	}
}

// asked completes what the API answers, and nothing where it cannot be asked: a shell's prompt is no place for errors.
func asked(c *command.Command, of lookup) cobra.CompletionFunc {
	return func(cmd *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
		api, err := c.API()
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		ctx, cancel := context.WithTimeout(cmd.Context(), completionPatience)
		defer cancel()
		words, err := of(ctx, api)
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return slices.DeleteFunc(words, func(word string) bool { return !strings.HasPrefix(word, typed) }), cobra.ShellCompDirectiveNoFileComp
	}
}
