package config

import (
	"context"
	"fmt"
	"strings"

	"github.com/lockstep-cd/lockstep/pkg/fault"
)

// A Program is the program of a service: with its configuration T it runs the service, or does what a subcommand names.
type Program[T any] struct {
	// Service is its name, as for Load.
	Service string
	// Run runs the service until its context ends.
	Run func(context.Context, T) error
	// Subcommands are what it does when the first argument is one of these names.
	Subcommands map[string]func(context.Context, T) error
	// Commands are subcommands with arguments, which stand behind their names and before the flags.
	Commands map[string]Command[T]
}

// Command is a subcommand with arguments.
type Command[T any] struct {
	// Arguments are the names of its arguments; all of them are required.
	Arguments []string
	Run       func(ctx context.Context, c T, arguments []string) error
}

// Start loads the configuration from the arguments behind the subcommand, if there is one, and does what was requested. An unknown
// subcommand is Invalid, as every argument is that is no flag.
func (p Program[T]) Start(ctx context.Context, args []string) error {
	do := p.Run
	if len(args) > 0 {
		if named, is := p.Subcommands[args[0]]; is {
			do, args = named, args[1:]
		} else if command, is := p.Commands[args[0]]; is {
			given := args[1:]
			for i, name := range command.Arguments {
				if i >= len(given) || strings.HasPrefix(given[i], "-") {
					return fault.InvalidFields(fault.Field{Name: name, Problem: fmt.Sprintf(
						"missing; expected %s %s and then flags", args[0], strings.Join(command.Arguments, " "),
					)})
				}
			}
			arguments := given[:len(command.Arguments)]
			do = func(ctx context.Context, c T) error { return command.Run(ctx, c, arguments) }
			args = given[len(arguments):]
		}
	}
	c, err := Load[T](p.Service, args)
	if err != nil {
		return err
	}
	return do(ctx, c)
}
