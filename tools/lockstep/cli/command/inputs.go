package command

import (
	"encoding/json"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v4"

	"github.com/lockstep-cd/lockstep/pkg/fault"
)

// InputFlags are the inputs of a rollout: those of a file, and single ones that override them.
type InputFlags struct {
	pairs []string
	file  string
}

// Add adds the flags to a command.
func (f *InputFlags) Add(cmd *cobra.Command) {
	cmd.Flags().StringArrayVar(&f.pairs, "input", nil,
		"an input that the pipeline declares, as `name=value`; JSON counts as such, so 3 is a number and '\"3\"' a text; repeatable")
	cmd.Flags().StringVar(&f.file, "inputs", "", "a `file` of inputs by name, in YAML or JSON; - is the standard input. --input overrides it")
}

// JSON is the inputs as an object; nil if none are given.
func (f *InputFlags) JSON(in io.Reader) (json.RawMessage, error) {
	if len(f.pairs) == 0 && f.file == "" {
		return nil, nil
	}
	inputs := map[string]any{}
	if f.file != "" {
		text, err := readAll(in, f.file)
		if err != nil {
			return nil, err
		}
		if err := yaml.Unmarshal(text, &inputs); err != nil {
			return nil, fault.New(fault.Invalid, "--inputs: %s: found text that is not a YAML or JSON object: %w", f.file, err)
		}
	}
	given := map[string]bool{}
	for _, pair := range f.pairs {
		name, value, separated := strings.Cut(pair, "=")
		if !separated || name == "" || given[name] {
			return nil, fault.New(fault.Invalid, "--input: found %q; expected name=value, each name once", pair)
		}
		given[name] = true
		if json.Valid([]byte(value)) {
			inputs[name] = json.RawMessage(value)
		} else {
			inputs[name] = value
		}
	}
	return json.Marshal(inputs)
}

func readAll(in io.Reader, path string) ([]byte, error) {
	if path == "-" {
		text, err := io.ReadAll(in)
		if err != nil {
			return nil, fault.New(fault.Invalid, "--inputs: read the standard input: %w", err)
		}
		return text, nil
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fault.New(fault.Invalid, "--inputs: %w", err)
	}
	return text, nil
}
