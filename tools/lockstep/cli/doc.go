// Package cli is the lockstep command: its subcommands, flags, output formats and exit codes.
//
// What the commands do is elsewhere: client asks the API, stack runs the product, demo tells its story.
package cli
