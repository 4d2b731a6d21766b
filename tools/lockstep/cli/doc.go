// Package cli is the lockstep command: the root command, the completion of names, and the list of what commands print.
//
// The commands are in the packages below, one for each group of nouns, over package command, which they share. What the commands do
// is elsewhere: client calls the API, stack runs the product, demo plays its scenario.
package cli
