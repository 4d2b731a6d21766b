package cli

import (
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// TestEveryOutputIsDeclared: the reference of the commands' output is written from Outputs, so a command that is in neither list fails.
func TestEveryOutputIsDeclared(t *testing.T) {
	t.Parallel()
	known, other := Outputs(), OtherOutputs()
	var check func(cmd *cobra.Command, path string)
	check = func(cmd *cobra.Command, path string) {
		if _, excused := other[path]; excused {
			delete(other, path)
			for _, sub := range cmd.Commands() { // some of them have outputs of their own
				own := strings.TrimSpace(path + " " + sub.Name())
				delete(known, own)
				delete(other, own)
			}
			return
		}
		if _, ok := known[path]; !ok && !cmd.HasSubCommands() {
			t.Errorf("lockstep %s is new: declare in Outputs what it prints with -o json", path)
		}
		delete(known, path)
		for _, sub := range cmd.Commands() {
			check(sub, strings.TrimSpace(path+" "+sub.Name()))
		}
	}
	check(Command("v1.2.3"), "")
	for path := range known {
		t.Errorf("lockstep %s: there is no such command", path)
	}
	for path := range other {
		t.Errorf("lockstep %s: there is no such command", path)
	}
}
