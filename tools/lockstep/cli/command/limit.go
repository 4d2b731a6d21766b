package command

import (
	"fmt"
	"strconv"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// limit is how many a list prints at most; 0 for all of them. A number below that is a mistake, not another way to say all.
type limit int

var _ pflag.Value = (*limit)(nil)

// LimitFlag gives a list its --limit.
func LimitFlag(cmd *cobra.Command, into *int, otherwise int) {
	*into = otherwise
	cmd.Flags().Var((*limit)(into), "limit", "at most this many; 0 for all")
}

// Set implements pflag.Value.
func (l *limit) Set(text string) error {
	n, err := strconv.ParseInt(text, 0, 32)
	if err != nil || n < 0 {
		return fmt.Errorf("found %q; expected a whole number, 0 or more", text)
	}
	*l = limit(n)
	return nil
}

// String implements pflag.Value.
func (l *limit) String() string { return strconv.Itoa(int(*l)) }

// Type is what the help calls it.
func (l *limit) Type() string { return "int" }
