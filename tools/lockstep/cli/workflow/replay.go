package workflow

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	autoflowv1 "github.com/lockstep-cd/lockstep/proto/lockstep/autoflow/v1"
	"github.com/lockstep-cd/lockstep/services/workflow"
	"github.com/lockstep-cd/lockstep/tools/lockstep/cli/command"
)

func (e *Engine) export() *cobra.Command {
	var archived bool
	cmd := e.asking("export ID", "Write what a workflow began with and its history, as a file for replay",
		"  lockstep workflow export rollout-12 > rollout-12.json\n  lockstep workflow export nightly-1 --archived > nightly-1.json", command.Exactly(1),
		func(ctx context.Context, client autoflowv1.AutoFlowClient, args []string) error {
			stream, err := client.ExportWorkflow(ctx, &autoflowv1.ExportWorkflowRequest{
				OrganizationId: e.organization, WorkflowId: args[0], Archived: archived,
			})
			if err != nil {
				return err
			}
			var r workflow.Recording
			for {
				part, err := stream.Recv()
				if errors.Is(err, io.EOF) {
					break
				}
				if err != nil {
					return err
				}
				if head := part.GetWorkflow(); head != nil {
					r = recordingOf(head)
				}
				if entry := part.GetEntry(); entry != nil {
					at := entry.GetRecordedAt().AsTime()
					err := r.Add(workflow.RecordedEntry{
						Sequence: entry.GetSequence(), Branch: int(entry.GetBranch()), Operation: int(entry.GetOperation()), Kind: entry.GetKind(),
						Name: entry.GetName(), Digest: entry.GetDigest(), Value: entry.GetValue(), Error: entry.GetError(), Event: entry.GetEvent(), At: at,
					})
					if err != nil {
						return err
					}
				}
			}
			file := *e.Command
			if file.Output == "table" {
				file.Output = "json" // it is a file, and no table
			}
			return file.Print(r, nil)
		})
	cmd.Flags().BoolVar(&archived, "archived", false, "read the archive, which has the workflows that were deleted after their end")
	return cmd
}

func recordingOf(head *autoflowv1.ExportedWorkflow) workflow.Recording {
	r := workflow.Recording{
		Workflow: head.GetWorkflow().GetWorkflowId(), State: stateName(head.GetWorkflow().GetState()), Ref: head.GetHandle(),
		Program: map[string]string{}, Inputs: head.GetInputs(), Continuation: head.GetContinuation(),
		Generation: int(head.GetWorkflow().GetGeneration()), Concealed: head.GetConcealed(),
	}
	for name, source := range head.GetModules() {
		r.Program[name] = string(source)
	}
	r.Program[workflow.MainFile] = string(head.GetStarlark())
	return r
}

// replay needs no service.
func (e *Engine) replay() *cobra.Command {
	var breaks []string
	var main string
	var modules []string
	var until int64
	cmd := &cobra.Command{
		Use: "replay FILE", Short: "Replay an exported workflow here, with breakpoints, and say where its history no longer fits",
		Example: "  lockstep workflow replay rollout-12.json --break main.star:40\n  lockstep workflow replay rollout-12.json --until 25\n" +
			"  lockstep workflow replay rollout-12.json --program new.star --module lib.star",
		Args: command.Exactly(1),
		ValidArgsFunction: func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			return []string{"json"}, cobra.ShellCompDirectiveFilterFileExt
		},
		RunE: func(_ *cobra.Command, args []string) error {
			if err := e.CheckOutput(); err != nil {
				return err
			}
			text, err := os.ReadFile(args[0])
			if err != nil {
				return fault.New(fault.Invalid, "recording: %w", err)
			}
			recording, err := workflow.ReadRecording(text)
			if err != nil {
				return err
			}
			options := workflow.ReplayOptions{Until: until, Breakpoints: map[string][]int{}}
			for _, given := range breaks {
				file, line, err := workflow.ParseBreakpoint(given)
				if err != nil {
					return err
				}
				options.Breakpoints[file] = append(options.Breakpoints[file], line)
			}
			if options.Program, err = otherProgram(recording, main, modules); err != nil {
				return err
			}
			report, err := workflow.Replay(recording, options)
			if err != nil {
				return err
			}
			if err := e.Print(report, func(w io.Writer) { replayTable(w, report, len(breaks) > 0) }); err != nil {
				return err
			}
			if p := report.Problem; p != nil {
				return fault.New(fault.Conflict, "entry %d of the history does not fit the program at %s: %s", p.Sequence, orNowhere(p.Position),
					p.Differs)
			}
			return nil
		},
	}
	cmd.Flags().StringSliceVar(&breaks, "break", nil, "show the variables whenever this `FILE:LINE` is reached; a line alone is of main.star; repeatable")
	cmd.Flags().Int64Var(&until, "until", 0, "replay up to the history entry with this `sequence` only")
	cmd.Flags().StringVar(&main, "program", "", "replay under the program in this `file` instead of the recorded one")
	cmd.Flags().StringSliceVar(&modules, "module", nil, "replace the module with the name of this `file`, or add it; repeatable")
	return cmd
}

// otherProgram are the recorded files with those that the caller has; nil where there are none.
func otherProgram(r workflow.Recording, main string, modules []string) (map[string]string, error) {
	if main == "" && len(modules) == 0 {
		return nil, nil
	}
	files := map[string]string{}
	for name, source := range r.Program {
		files[name] = source
	}
	given := programFlags{modules: modules}
	source := []byte(files[workflow.MainFile])
	if main == "" {
		main = os.DevNull
	}
	text, loaded, _, err := given.read(main)
	if err != nil {
		return nil, err
	}
	if main != os.DevNull {
		source = text
	}
	for name, module := range loaded {
		files[name] = string(module)
	}
	files[workflow.MainFile] = string(source)
	return files, nil
}

func orNowhere(position string) string {
	if position == "" {
		return "no place that it has reached"
	}
	return position
}

func replayTable(w io.Writer, r workflow.ReplayReport, stopsOnly bool) {
	stops := r.Stops
	showStops := func(upTo int64) {
		for len(stops) > 0 && stops[0].Sequence <= upTo {
			stop := stops[0]
			stops = stops[1:]
			command.Row(w, "break", stop.Position, fmt.Sprintf("%s, branch %d, after entry %d", stop.Function, stop.Branch, stop.Sequence))
			for _, v := range stop.Variables {
				command.Row(w, "", v.Name, v.Value)
			}
		}
	}
	for _, step := range r.Steps {
		showStops(step.Sequence - 1)
		if stopsOnly {
			continue
		}
		outcome := string(step.Value)
		if step.Error != "" {
			outcome = "error " + step.Error
		}
		command.Row(w, strconv.FormatInt(step.Sequence, 10), step.Position, fmt.Sprintf("branch %d: %s %s", step.Branch, step.Kind, step.Name),
			firstLineOf(outcome))
	}
	if n := len(r.Steps); n > 0 {
		showStops(r.Steps[n-1].Sequence)
	}
	showStops(int64(^uint64(0) >> 1))
	command.Row(w, r.Outcome, fmt.Sprintf("%d entries replayed", r.Replayed), firstLineOf(r.Error))
	for _, wait := range r.Waits {
		command.Row(w, "waits", wait.Position, fmt.Sprintf("branch %d: %s %s", wait.Branch, wait.Kind, wait.Name))
	}
}
