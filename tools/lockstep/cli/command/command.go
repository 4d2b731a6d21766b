// Package command is what the commands of the command line share: how they reach the API, print, take flags, wait and end.
package command

import (
	"io"

	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/text"
	"github.com/lockstep-cd/lockstep/tools/lockstep/client"
	"github.com/lockstep-cd/lockstep/tools/lockstep/stack"
)

// Command is what all subcommands share.
type Command struct {
	Version string
	// Out and ErrOut escape control sequences. Terminal is below Out and does not: it is for commands that write styles.
	Out, ErrOut, Terminal io.Writer
	Getenv                func(string) string
	Clock                 clock.Clock
	// Endpoint, Token, EndpointsFile and Output are the flags of all commands.
	Endpoint, Token, EndpointsFile, Output string
	// ColourTerminal reports whether Out is a terminal that shows colours.
	ColourTerminal bool
}

// New is a command line that writes to two terminals, or to files in their place.
func New(version string, out, errOut io.Writer, getenv func(string) string) *Command {
	return &Command{
		Version: version, Out: text.NewWriter(out), ErrOut: text.NewWriter(errOut), Terminal: out, Getenv: getenv,
		Clock: clock.System(),
	}
}

// API is the client for the endpoint that the caller named.
func (c *Command) API() (*client.Client, error) {
	endpoint, token, err := c.Target()
	if err != nil {
		return nil, err
	}
	if endpoint == "" {
		return nil, fault.New(fault.Invalid, "missing endpoint; expected --endpoint URL, LOCKSTEP_ENDPOINT or --endpoints-file FILE")
	}
	return client.New(client.Config{Endpoint: endpoint, Token: token}), nil
}

// Target is the endpoint that the caller named, "" for none, and the token for it.
func (c *Command) Target() (endpoint, token string, err error) {
	endpoint, token = c.Endpoint, c.Token
	if endpoint == "" && c.EndpointsFile == "" {
		endpoint = c.Getenv("LOCKSTEP_ENDPOINT")
	}
	if endpoint == "" && c.EndpointsFile != "" {
		e, err := stack.ReadEndpoints(c.EndpointsFile)
		if err != nil {
			return "", "", fault.New(fault.Invalid, "%w", err)
		}
		endpoint = e.GraphQL
		if token == "" {
			token = e.Token
		}
	}
	if token == "" {
		token = c.Getenv("LOCKSTEP_TOKEN")
	}
	return endpoint, token, nil
}
