package command

import (
	"math"
	"strings"

	"github.com/spf13/cobra"

	"github.com/lockstep-cd/lockstep/pkg/fault"
)

// KeysAndValues parses the key=value pairs of a flag that may be repeated, each key once.
func KeysAndValues(flag string, pairs []string) (map[string]string, error) {
	all := map[string]string{}
	for _, pair := range pairs {
		key, value, err := KeyAndValue(flag, pair)
		if err != nil {
			return nil, err
		}
		if before, twice := all[key]; twice {
			return nil, fault.New(fault.Invalid, "%s: found %s=%s and %s, expected each key once", flag, key, before, pair)
		}
		all[key] = value
	}
	return all, nil
}

// KeyAndValue parses a key=value pair of a flag.
func KeyAndValue(flag, pair string) (key, value string, err error) {
	key, value, ok := strings.Cut(pair, "=")
	if !ok || key == "" {
		return "", "", fault.New(fault.Invalid, "%s: found %q, expected key=value", flag, pair)
	}
	return key, value, nil
}

// Exactly is cobra.ExactArgs with an error of our class.
func Exactly(n int) cobra.PositionalArgs { return Between(n, n) }

// AnyNumber is no limit of arguments.
const AnyNumber = math.MaxInt

// Between refuses fewer arguments than least, and more than most.
func Between(least, most int) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) < least || len(args) > most {
			return arguments(cmd, args, least, most)
		}
		return nil
	}
}

// arguments says which arguments are missing, or which ones are too many.
func arguments(cmd *cobra.Command, args []string, least, most int) error {
	usage := strings.TrimSuffix(cmd.UseLine(), " [flags]")
	if len(args) > most {
		return fault.New(fault.Invalid, "unexpected argument %q; usage: %s", args[most], usage)
	}
	names := strings.Fields(cmd.Use)[1:]
	missing := names[min(len(args), len(names)):min(least, len(names))]
	word := "argument"
	if len(missing) > 1 {
		word = "arguments"
	}
	return fault.New(fault.Invalid, "missing %s %s; usage: %s", word, strings.Join(missing, ", "), usage)
}
