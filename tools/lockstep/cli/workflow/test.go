package workflow

import (
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/rogpeppe/go-internal/txtar"
	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v4"

	"github.com/lockstep-cd/lockstep/pkg/driver"
	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/services/workflow"
	"github.com/lockstep-cd/lockstep/tools/lockstep/cli/command"
)

// Tested is the outcome of a case, with the file that has it.
type Tested struct {
	// File is the file with the case.
	File string `json:"file"`
	// Cluster is set if the case was played against the simulated cluster: runs then counts its rollouts, and entries the rows of their
	// journals.
	Cluster bool `json:"cluster,omitempty"`
	workflow.TestOutcome
}

// maxSeeds is how often a case is repeated with crashes at the most.
const maxSeeds = 10_000

// test needs no service.
func (e *Engine) test() *cobra.Command {
	var seeds int
	var seed uint64
	var only string
	cmd := &cobra.Command{
		Use: "test FILE...", Short: "Test programs here, in virtual time, with Functions that answer as a table says, and crashes at random",
		Example: "  lockstep workflow test order.test.yaml\n  lockstep workflow test *.test.yaml --seeds 200 --run late\n" +
			"  lockstep workflow test order.test.yaml --seed 17\n  lockstep workflow test elsewhere.test.star",
		Args: command.Between(1, 1000),
		ValidArgsFunction: func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			return []string{"yaml", "yml", "star", "txtar"}, cobra.ShellCompDirectiveFilterFileExt
		},
		RunE: func(_ *cobra.Command, args []string) error {
			if err := e.CheckOutput(); err != nil {
				return err
			}
			chosen, err := Seeds(seeds)
			if err != nil {
				return err
			}
			wanted, err := regexp.Compile(only)
			if err != nil {
				return fault.New(fault.Invalid, "--run: %w", err)
			}
			if seed > 0 {
				chosen = []uint64{seed}
			}
			all, err := Play(args, chosen, wanted)
			if err != nil {
				return err
			}
			return Report(e.Command, all)
		},
	}
	cmd.Flags().IntVar(&seeds, "seeds", 20, "how often each case is repeated with crashes at random, as a `number`")
	cmd.Flags().Uint64Var(&seed, "seed", 0, "repeat each case with the crashes of this `seed` only")
	cmd.Flags().StringVar(&only, "run", "", "only cases whose name matches this `pattern`")
	return cmd
}

// Seeds are so many seeds. The error is Invalid for too many.
func Seeds(n int) ([]uint64, error) {
	if n < 0 || n > maxSeeds {
		return nil, fault.New(fault.Invalid, "--seeds: found %d, expected 0 to %d", n, maxSeeds)
	}
	all := make([]uint64, n)
	for i := range all {
		all[i] = uint64(i) + 1
	}
	return all, nil
}

// Play plays the cases of files whose names match.
func Play(files []string, seeds []uint64, wanted *regexp.Regexp) ([]Tested, error) {
	all := []Tested{}
	for _, file := range files {
		cases, err := readCases(file)
		if err != nil {
			return nil, err
		}
		for _, one := range cases {
			if wanted.MatchString(one.Name) {
				all = append(all, Tested{File: file, TestOutcome: workflow.Test(one, seeds)})
			}
		}
	}
	if len(all) == 0 && len(files) > 0 {
		return nil, fault.New(fault.Invalid, "found no case whose name matches %q", wanted)
	}
	return all, nil
}

// PrintTested prints what tests have led to.
func PrintTested(c *command.Command, all []Tested) error {
	return c.Print(all, func(w io.Writer) { testTable(w, all) })
}

// Report prints outcomes. The error is Refused if a case failed.
func Report(c *command.Command, all []Tested) error {
	if err := PrintTested(c, all); err != nil {
		return err
	}
	failed := 0
	for _, t := range all {
		if !t.Passed {
			failed++
		}
	}
	if failed > 0 {
		return fault.New(fault.Refused, "%d of %d cases failed", failed, len(all))
	}
	return nil
}

// readCases reads the cases of a file: tables in YAML or Starlark, or a scenario of several files in one (txtar).
func readCases(file string) ([]workflow.TestCase, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, fault.New(fault.Invalid, "cases: %w", err)
	}
	if strings.HasSuffix(file, ".txtar") {
		files := map[string][]byte{}
		for _, part := range txtar.Parse(text).Files {
			files[part.Name] = part.Data
		}
		c, err := workflow.ReadTestScenario(strings.TrimSuffix(filepath.Base(file), ".txtar"), files)
		if err != nil {
			return nil, fault.New(fault.Invalid, "%s: %w", file, err)
		}
		return []workflow.TestCase{c}, nil
	}
	beside := func(name string) ([]byte, error) {
		if text, exists := driver.HostModule(name); exists {
			return text, nil
		}
		return os.ReadFile(filepath.Join(filepath.Dir(file), filepath.FromSlash(name)))
	}
	if strings.HasSuffix(file, ".star") {
		cases, err := workflow.ReadTestStarlark(filepath.Base(file), text, beside)
		if err != nil {
			return nil, fault.New(fault.Invalid, "%s: %w", file, err)
		}
		return cases, nil
	}
	var table any
	if err := yaml.Unmarshal(text, &table); err != nil {
		return nil, fault.New(fault.Invalid, "%s: %w", file, err)
	}
	encoded, err := json.Marshal(table)
	if err != nil {
		return nil, fault.New(fault.Invalid, "%s: %w", file, err)
	}
	cases, err := workflow.ReadTestTable(encoded, beside)
	if err != nil {
		return nil, fault.New(fault.Invalid, "%s: %w", file, err)
	}
	return cases, nil
}

func testTable(w io.Writer, all []Tested) {
	command.Row(w, "RESULT", "FILE", "CASE", "RUNS", "CRASHES", "ENTRIES")
	for _, t := range all {
		result := "ok"
		if !t.Passed {
			result = "FAILED"
		}
		command.Row(w, result, t.File, t.Case, command.Number(t.Runs), command.Number(t.Crashes), command.Number(t.Entries))
		for _, failure := range t.Failures {
			for line := range strings.Lines(failure) {
				command.Row(w, "", "  "+strings.TrimRight(line, "\n"))
			}
		}
	}
}
