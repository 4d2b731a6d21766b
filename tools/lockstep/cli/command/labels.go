package command

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/lockstep-cd/lockstep/pkg/fault"
)

// LabelsFlag is a flag that takes labels, separated by commas or by giving it again. Each key is given once, since all labels of a scope
// have to match; and none is empty, as a variable that is not set would be.
func LabelsFlag(cmd *cobra.Command, to *map[string]string, name, usage string) {
	cmd.Flags().Var(&labels{to}, name, usage)
}

type labels struct{ to *map[string]string }

// Set implements pflag.Value.
func (l *labels) Set(text string) error {
	for part := range strings.SplitSeq(text, ",") {
		key, value, ok := strings.Cut(part, "=")
		if key = strings.TrimSpace(key); !ok || key == "" {
			return fmt.Errorf("found %q; expected key=value", part)
		}
		if _, twice := (*l.to)[key]; twice {
			return fmt.Errorf("found %s twice; expected each key once: all labels have to match, so give one scope for each value", key)
		}
		if *l.to == nil {
			*l.to = map[string]string{}
		}
		(*l.to)[key] = strings.TrimSpace(value)
	}
	return nil
}

// String implements pflag.Value: what help shows as the default.
func (*labels) String() string { return "" }

// Type implements pflag.Value.
func (*labels) Type() string { return "key=value" }

// RefuseEmpty is why flags that narrow a scope are refused: one was given and says nothing, as with a variable that is not set. Left out,
// it would be a scope of everything.
func RefuseEmpty(cmd *cobra.Command, names ...string) error {
	for _, name := range names {
		f := cmd.Flags().Lookup(name)
		if f == nil || !f.Changed {
			continue
		}
		empty := false
		if many, is := f.Value.(pflag.SliceValue); is {
			words := many.GetSlice()
			empty = len(words) == 0
			for _, word := range words {
				empty = empty || strings.TrimSpace(word) == ""
			}
		}
		if empty {
			return fault.New(fault.Invalid, "%s: found no word; expected one or more, or no such flag for all", name)
		}
	}
	return nil
}
