package driver

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/lockstep-cd/lockstep/pkg/driver"
	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/telemetry"
	engine "github.com/lockstep-cd/lockstep/services/workflow"
	"github.com/lockstep-cd/lockstep/tools/lockstep/cli/command"
	"github.com/lockstep-cd/lockstep/tools/lockstep/cli/workflow"
	"github.com/lockstep-cd/lockstep/tools/lockstep/trial"
)

// driverTest needs no service.
func (c commands) driverTest() *cobra.Command {
	seeds, cluster := 20, false
	cmd := &cobra.Command{
		Use: "test FOLDER", Short: "Validate a driver and play the tables of cases in its folder (*.test.yaml), also with crashes at random",
		Long: `Functions answer as the tables say, and no service is needed.

With --cluster, the tables *.cluster.yaml are played, too: with a complete Lockstep in a temporary folder, as lockstep dev starts it, in
which only the cluster is simulated. Each case has an application, an environment, a namespace and a repository of its own, and rollouts
with what is expected of them. Nothing is left running.`,
		Example: "  lockstep driver test ./shop-deploy\n  lockstep driver test ./shop-deploy --seeds 200\n  lockstep driver test ./shop-deploy --cluster",
		Args:    command.Exactly(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			texts, err := c.tested(args[0], "a driver", func(b *driver.Bundle) bool { return !b.IsCheck() })
			if err != nil {
				return err
			}
			files, err := tables(args[0], ".test.yaml")
			if err != nil {
				return err
			}
			cases, err := clusterCases(args[0])
			if err != nil {
				return err
			}
			switch {
			case cluster && len(cases) == 0:
				return fault.New(fault.Invalid, "folder: found no *%s in %s, expected a table of cases for --cluster", trial.Suffix, args[0])
			case !cluster && len(files) == 0:
				return fault.New(fault.Invalid, "folder: found no *.test.yaml in %s, expected a table of cases; --cluster plays those in *%s", args[0],
					trial.Suffix)
			}
			all, err := playOffline(files, seeds)
			if err != nil {
				return err
			}
			if !cluster && len(cases) > 0 {
				fmt.Fprintf(c.ErrOut, "cases of *%s that were not played: %d; --cluster plays them against a simulated cluster\n", trial.Suffix, len(cases))
			}
			if cluster {
				played, err := c.playCluster(cmd.Context(), texts, cases)
				all = append(all, played...)
				if err != nil && len(all) > 0 {
					err = errors.Join(err, workflow.PrintTested(c.Command, all)) // what was found until then
				}
				if err != nil {
					return err
				}
			}
			return workflow.Report(c.Command, all)
		},
	}
	seedsFlag(cmd, &seeds)
	cmd.Flags().BoolVar(&cluster, "cluster", false, "also play the tables *"+trial.Suffix+", against a simulated cluster")
	return cmd
}

// clusterCases are the cases of a folder for the simulated cluster.
func clusterCases(folder string) ([]trial.Case, error) {
	files, err := tables(folder, trial.Suffix)
	if err != nil {
		return nil, err
	}
	var all []trial.Case
	for _, file := range files {
		cases, err := trial.Read(file)
		if err != nil {
			return nil, err
		}
		all = append(all, cases...)
	}
	return all, nil
}

// playCluster plays cases against the simulated cluster.
func (c commands) playCluster(ctx context.Context, texts map[string][]byte, cases []trial.Case) ([]workflow.Tested, error) {
	fmt.Fprintf(c.ErrOut, "starting a Lockstep with a simulated cluster; cases to play: %d\n", len(cases))
	var all []workflow.Tested
	err := trial.Run(ctx, trial.Config{
		Files: texts, Clock: c.Clock, Log: telemetry.Logger(c.ErrOut, "warn"),
		Played: func(o trial.Outcome) {
			all = append(all, workflow.Tested{File: o.Case.File, Cluster: true, TestOutcome: engine.TestOutcome{
				Case: o.Case.Name, Passed: len(o.Failures) == 0, Failures: o.Failures, Runs: o.Rollouts, Entries: o.Entries, History: o.History,
			}})
			result := "passed"
			if len(o.Failures) > 0 {
				result = "failed"
			}
			fmt.Fprintf(c.ErrOut, "played %d of %d: %s: %s\n", len(all), len(cases), o.Case.Name, result)
		},
	}, cases)
	return all, err
}
