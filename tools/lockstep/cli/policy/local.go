package policy

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v4"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/policy"
	"github.com/lockstep-cd/lockstep/tools/lockstep/cli/command"
	"github.com/lockstep-cd/lockstep/tools/lockstep/journal"
)

// TestedCase is what `policy test` prints for a case.
type TestedCase struct {
	Name string `json:"name"`
	// Passed reports whether the verdict is the expected one, by the expected policy where one is named.
	Passed  bool   `json:"passed"`
	Verdict string `json:"verdict"`
	// Summary says which policies decided.
	Summary string `json:"summary"`
	// Expected is the verdict, with the policy where one is named.
	Expected string `json:"expected"`
}

func (c commands) test() *cobra.Command {
	return &cobra.Command{
		Use:   "test FILE",
		Short: "Decide the cases of a file by the policies that it names, without a server",
		Example: "  lockstep policy test production.cases.yaml   # policies: production.cedar, time_zone: Europe/Berlin, " +
			"cases: [{name, request, verdict, by}]",
		Args: command.Exactly(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			done, err := tested(cmd, args[0])
			if err != nil {
				return err
			}
			failed := 0
			for _, one := range done {
				if !one.Passed {
					failed++
				}
			}
			if err := c.Print(done, func(w io.Writer) {
				command.Row(w, "CASE", "RESULT", "VERDICT", "EXPECTED", "BECAUSE")
				for _, one := range done {
					result := "passed"
					if !one.Passed {
						result = "FAILED"
					}
					command.Row(w, one.Name, result, journal.Human(strings.ToUpper(one.Verdict)), one.Expected, one.Summary)
				}
			}); err != nil {
				return err
			}
			if failed > 0 {
				return command.Exit(1, fmt.Errorf("%d of %d cases failed", failed, len(done)))
			}
			return nil
		},
	}
}

// tested decides the cases of a file.
func tested(cmd *cobra.Command, name string) ([]TestedCase, error) {
	text, err := read(cmd, name)
	if err != nil {
		return nil, err
	}
	// Through JSON, so that the names of fields are those of recorded requests.
	var tree any
	if err := yaml.Unmarshal([]byte(text), &tree); err != nil {
		return nil, fault.Because(err, fault.Invalid, "%s is not YAML: %v", name, err)
	}
	plain, err := json.Marshal(tree)
	if err != nil {
		return nil, fault.Because(err, fault.Invalid, "%s: %v", name, err)
	}
	cases, err := policy.ReadCases(plain)
	if err != nil {
		return nil, fault.Because(err, fault.Invalid, "%s: %v", name, err)
	}
	if cases.Policies == "" {
		return nil, fault.New(fault.Invalid, "%s: found no policies; expected the name of a file beside it", name)
	}
	policies, err := read(cmd, filepath.Join(filepath.Dir(name), cases.Policies))
	if err != nil {
		return nil, err
	}
	outcomes, problems := cases.Run(policies)
	if len(problems) > 0 {
		lines := make([]error, len(problems))
		for i, p := range problems {
			lines[i] = errors.New(p.String())
		}
		return nil, fault.Because(errors.Join(lines...), fault.Invalid, "%s: %v", cases.Policies, errors.Join(lines...))
	}
	done := make([]TestedCase, len(outcomes))
	for i, o := range outcomes {
		done[i] = TestedCase{
			Name: o.Case.Name, Passed: o.Passed, Verdict: string(o.Decision.Verdict), Summary: o.Decision.Sentence(), Expected: o.Expected(),
		}
	}
	return done, nil
}

// Text is what commands print that write a file of ours.
type Text struct {
	Text string `json:"text"`
}

func (c commands) print(text string) error {
	if c.Output == "table" {
		_, err := io.WriteString(c.Out, text)
		return err
	}
	return c.Print(Text{text}, nil)
}

func (c commands) schema() *cobra.Command {
	calls, controls := false, false
	cmd := &cobra.Command{
		Use: "schema", Short: "Print what policies may ask of, as a Cedar schema with comments",
		Example: "  lockstep policy schema\n  lockstep policy schema --calls\n  lockstep policy schema --controls", Args: command.Exactly(0),
		RunE: func(*cobra.Command, []string) error {
			switch {
			case calls && controls:
				return fault.New(fault.Invalid, "found --calls and --controls; expected one of them")
			case calls:
				return c.print(policy.CallSchema)
			case controls:
				return c.print(policy.ControlSchema())
			}
			return c.print(policy.Schema)
		},
	}
	cmd.Flags().BoolVar(&calls, "calls", false, "that of policies about calls of Functions")
	cmd.Flags().BoolVar(&controls, "controls", false, "that of policies about the end of rollouts, bypasses of freezes and changes of controls")
	return cmd
}

func (c commands) template() *cobra.Command {
	return &cobra.Command{
		Use: "template [NAME]", Short: "List templates of policies, or print one",
		Example: "  lockstep policy template\n  lockstep policy template no-friday-evenings > production.cedar",
		Args:    command.Between(0, 1),
		RunE: func(_ *cobra.Command, args []string) error {
			all, err := policy.Templates()
			if err != nil {
				return err
			}
			if len(args) == 0 {
				return c.Print(all, func(w io.Writer) {
					command.Row(w, "NAME", "WHAT IT DOES")
					for _, t := range all {
						command.Row(w, t.Name, t.Summary)
					}
				})
			}
			for _, t := range all {
				if t.Name == args[0] {
					return c.print(t.Text)
				}
			}
			return fault.New(fault.NotFound, "template %q does not exist; lockstep policy template lists them", args[0])
		},
	}
}
