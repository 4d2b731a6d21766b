package config

import (
	"context"
)

// A Program is the program of a service: with its configuration T it runs the service, or does what a subcommand names.
type Program[T any] struct {
	// Service is its name, as for Load.
	Service string
	// Run runs the service until its context ends.
	Run func(context.Context, T) error
	// Subcommands are what it does when the first argument is one of these names.
	Subcommands map[string]func(context.Context, T) error
}

// Start loads the configuration from the arguments behind the subcommand, if there is one, and does what was requested. An unknown
// subcommand is Invalid, as every argument is that is no flag.
func (p Program[T]) Start(ctx context.Context, args []string) error {
	do := p.Run
	if len(args) > 0 {
		if named, is := p.Subcommands[args[0]]; is {
			do, args = named, args[1:]
		}
	}
	c, err := Load[T](p.Service, args)
	if err != nil {
		return err
	}
	return do(ctx, c)
}
