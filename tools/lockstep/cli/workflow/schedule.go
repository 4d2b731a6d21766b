package workflow

import (
	"context"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v4"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	autoflowv1 "github.com/lockstep-cd/lockstep/proto/lockstep/autoflow/v1"
	"github.com/lockstep-cd/lockstep/tools/lockstep/cli/command"
)

// schedule is about programs that are started at given times.
func (c commands) schedule() *cobra.Command {
	e := &Engine{Command: c.Command}
	cmd := command.Noun("schedule", "", "Schedules: programs that are started at given times",
		e.scheduleRegister(), e.scheduleApply(), e.scheduleList(), e.scheduleGet(), e.schedulePause(), e.scheduleResume(), e.scheduleBackfill(),
		e.scheduleTrigger(), e.scheduleDelete())
	cmd.Long = "schedule calls the gRPC API of the workflow service (AutoFlow), as lockstep workflow does."
	flags := cmd.PersistentFlags()
	e.Flags(flags)
	flags.Int64Var(&e.organization, "organization", 0, "`number` of the organization (LOCKSTEP_ORGANIZATION); by default the token's")
	return cmd
}

// definition is a schedule in a file. Its programs are files beside it.
type definition struct {
	Name     string            `yaml:"name"`
	Program  string            `yaml:"program"`
	Modules  []string          `yaml:"modules"`
	Inputs   map[string]any    `yaml:"inputs"`
	Secrets  map[string]string `yaml:"secrets"`
	Labels   map[string]string `yaml:"labels"`
	Cron     []string          `yaml:"cron"`
	Every    string            `yaml:"every"`
	Anchor   string            `yaml:"anchor"`
	TimeZone string            `yaml:"timeZone"`
	Start    string            `yaml:"start"`
	End      string            `yaml:"end"`
	Jitter   string            `yaml:"jitter"`
	Overlap  string            `yaml:"overlap"`
	CatchUp  string            `yaml:"catchUp"`
}

// request is the definition as it is sent, without program and inputs.
func (d definition) request(organization int64) (*autoflowv1.RegisterScheduleRequest, error) {
	spec := &autoflowv1.ScheduleSpec{Cron: d.Cron, TimeZone: d.TimeZone}
	r := &autoflowv1.RegisterScheduleRequest{OrganizationId: organization, Name: d.Name, Spec: spec, Secrets: d.Secrets, Labels: d.Labels}
	for _, f := range []struct {
		name, given string
		into        **durationpb.Duration
	}{{"every", d.Every, &spec.Every}, {"jitter", d.Jitter, &spec.Jitter}, {"catch-up", d.CatchUp, &r.CatchUp}} {
		if f.given == "" {
			continue
		}
		parsed, err := command.ParseDuration(f.given)
		if err != nil {
			return nil, fault.New(fault.Invalid, "%s: %w", f.name, err)
		}
		*f.into = durationpb.New(parsed)
	}
	for _, f := range []struct {
		name, given string
		into        **timestamppb.Timestamp
	}{{"anchor", d.Anchor, &spec.Anchor}, {"start", d.Start, &spec.Start}, {"end", d.End, &spec.End}} {
		if f.given == "" {
			continue
		}
		parsed, err := moment(f.name, f.given)
		if err != nil {
			return nil, err
		}
		*f.into = parsed
	}
	if d.Overlap != "" {
		known, err := parseOverlap(d.Overlap)
		if err != nil {
			return nil, err
		}
		r.Overlap = known
	}
	return r, nil
}

func moment(name, given string) (*timestamppb.Timestamp, error) {
	parsed, err := time.Parse(time.RFC3339, given)
	if err != nil {
		return nil, fault.New(fault.Invalid, "%s: found %q, expected a time such as 2026-11-23T06:00:00Z", name, given)
	}
	return timestamppb.New(parsed), nil
}

const overlapPrefix = "SCHEDULE_OVERLAP_"

// overlapNames are the policies as the command line has them.
func overlapNames() []string {
	return []string{"skip", "buffer-one", "buffer-all", "cancel-other", "allow"}
}

func parseOverlap(name string) (autoflowv1.ScheduleOverlap, error) {
	word, err := command.Chosen(overlapNames(), name)
	if err != nil {
		return 0, fault.New(fault.Invalid, "overlap: %w", err)
	}
	return autoflowv1.ScheduleOverlap(autoflowv1.ScheduleOverlap_value[overlapPrefix+strings.ToUpper(strings.ReplaceAll(word, "-", "_"))]), nil
}

func wordOf(constant, prefix string) string {
	return strings.ReplaceAll(strings.ToLower(strings.TrimPrefix(constant, prefix)), "_", "-")
}

func (e *Engine) scheduleRegister() *cobra.Command {
	var given programFlags
	var d definition
	var paused, keep bool
	var expected int32
	var note string
	var flags *pflag.FlagSet
	cmd := e.asking("register NAME [PROGRAM]", "Register a program that is started at given times, or replace it",
		"  lockstep schedule register nightly nightly.star --cron '0 3 * * *' --time-zone Europe/Berlin\n  lockstep schedule register poll poll.star --every 90s --overlap buffer-one --jitter 10s\n  lockstep schedule register nightly --keep --expected-version 3 --cron '30 3 * * *' --time-zone Europe/Berlin",
		command.Between(1, 2), func(ctx context.Context, client autoflowv1.AutoFlowClient, args []string) error {
			d.Name = args[0]
			request, err := d.request(e.organization)
			if err != nil {
				return err
			}
			request.Paused, request.Note, request.Keep = paused, note, keep
			if version := flags.Lookup("expected-version"); version.Changed {
				request.ExpectedVersion = &expected
			}
			switch {
			case len(args) == 2:
				request.Starlark, request.Modules, request.Inputs, err = given.read(args[1])
			case keep:
				request.Modules, request.Inputs, err = given.beside()
			default:
				err = fault.New(fault.Invalid, "found no program; name its file, or keep that of the schedule with --keep")
			}
			if err != nil {
				return err
			}
			answer, err := client.RegisterSchedule(ctx, request)
			if err != nil {
				return err
			}
			return e.Print(message{answer}, func(w io.Writer) { scheduleTable(w, answer.GetSchedule()) })
		})
	given.add(cmd)
	flags = cmd.Flags()
	flags.StringArrayVar(&d.Cron, "cron", nil, "an `expression` of five fields, @daily and the like, or '@every 10m'; repeatable")
	flags.StringVar(&d.Every, "every", "", "an `interval`, such as 90s or 1d")
	flags.StringVar(&d.Anchor, "anchor", "", "a `time` from which intervals are counted; by default 1970")
	flags.StringVar(&d.TimeZone, "time-zone", "", "IANA `name` of the time zone of --cron; by default UTC")
	flags.StringVar(&d.Start, "start", "", "not due before this `time`")
	flags.StringVar(&d.End, "end", "", "not due at this `time` or later")
	flags.StringVar(&d.Jitter, "jitter", "", "delay each start by less than this `duration`")
	flags.StringVar(&d.CatchUp, "catch-up", "", "how late a run may start, as a `duration`; by default 10m")
	flags.StringVar(&d.Overlap, "overlap", "", "`policy` while a run is under way: "+strings.Join(overlapNames(), ", ")+"; by default skip")
	flags.StringToStringVar(&d.Secrets, "secret", nil, "a secret's `name=reference`")
	flags.StringToStringVar(&d.Labels, "label", nil, "a label of every run, as `name=value`")
	flags.BoolVar(&paused, "paused", false, "a schedule that is new begins paused")
	flags.StringVar(&note, "note", "", "why, for a schedule that is new")
	flags.BoolVar(&keep, "keep", false, "program, modules, inputs, secrets and labels that are not given stay those of the schedule, which has to exist")
	flags.Int32Var(&expected, "expected-version", 0, "refuse if the schedule has another version than this `number` by now; 0 if there may be none of this name")
	return cmd
}

// readDefinitions reads a file of schedules.
func readDefinitions(file string) ([]definition, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, fault.New(fault.Invalid, "schedules: %w", err)
	}
	var whole struct {
		Schedules []definition `yaml:"schedules"`
	}
	decoder := yaml.NewDecoder(strings.NewReader(string(text)))
	decoder.KnownFields(true)
	if err := decoder.Decode(&whole); err != nil {
		return nil, fault.New(fault.Invalid, "%s: %w", file, err)
	}
	if len(whole.Schedules) == 0 {
		return nil, fault.New(fault.Invalid, "%s: found no schedules, expected a list under `schedules`", file)
	}
	return whole.Schedules, nil
}

func (e *Engine) scheduleApply() *cobra.Command {
	cmd := e.asking("apply FILE", "Register the schedules of a file; what is registered already and has not changed stays as it is",
		"  lockstep schedule apply schedules.yaml", command.Exactly(1),
		func(ctx context.Context, client autoflowv1.AutoFlowClient, args []string) error {
			definitions, err := readDefinitions(args[0])
			if err != nil {
				return err
			}
			requests := make([]*autoflowv1.RegisterScheduleRequest, len(definitions))
			for i, d := range definitions { // all are read before the first is sent
				if requests[i], err = d.whole(e.organization, filepath.Dir(args[0])); err != nil {
					return fault.New(fault.Invalid, "%s: schedule %q: %w", args[0], d.Name, err)
				}
			}
			answers := []*autoflowv1.RegisterScheduleResponse{}
			for _, request := range requests {
				answer, err := client.RegisterSchedule(ctx, request)
				if err != nil {
					return fault.Because(err, fault.ClassOf(err), "schedule %q: %s", request.GetName(), fault.Public(err))
				}
				answers = append(answers, answer)
			}
			return e.Print(messages(answers), func(w io.Writer) {
				command.Row(w, "NAME", "VERSION", "CHANGED")
				for _, a := range answers {
					command.Row(w, a.GetSchedule().GetName(), command.Number(int(a.GetSchedule().GetVersion())), strconv.FormatBool(a.GetCreated()))
				}
			})
		})
	cmd.ValidArgsFunction = func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		return []string{"yaml", "yml"}, cobra.ShellCompDirectiveFilterFileExt
	}
	return cmd
}

// whole is the definition as it is sent. Files are named relative to a folder.
func (d definition) whole(organization int64, folder string) (*autoflowv1.RegisterScheduleRequest, error) {
	request, err := d.request(organization)
	if err != nil {
		return nil, err
	}
	files := programFlags{}
	for _, module := range d.Modules {
		files.modules = append(files.modules, filepath.Join(folder, module))
	}
	if len(d.Inputs) > 0 {
		encoded, err := json.Marshal(d.Inputs)
		if err != nil {
			return nil, fault.New(fault.Invalid, "inputs: %w", err)
		}
		files.inputs = string(encoded)
	}
	if d.Program == "" || d.Program == "-" {
		return nil, fault.New(fault.Invalid, "program: found %q, expected a file", d.Program)
	}
	request.Starlark, request.Modules, request.Inputs, err = files.read(filepath.Join(folder, d.Program))
	return request, err
}

func (e *Engine) scheduleList() *cobra.Command {
	return e.asking("list", "List schedules in the order of their creation", "  lockstep schedule list", command.Exactly(0),
		func(ctx context.Context, client autoflowv1.AutoFlowClient, _ []string) error {
			all, err := pages(0, func(size int32, token string) ([]*autoflowv1.Schedule, string, error) {
				request := &autoflowv1.ListSchedulesRequest{OrganizationId: e.organization, PageSize: size, PageToken: token}
				page, err := client.ListSchedules(ctx, request)
				return page.GetSchedules(), page.GetNextPageToken(), err
			})
			if err != nil {
				return err
			}
			return e.Print(messages(all), func(w io.Writer) { scheduleTable(w, all...) })
		})
}

func scheduleTable(w io.Writer, all ...*autoflowv1.Schedule) {
	command.Row(w, "NAME", "VERSION", "DUE", "OVERLAP", "NEXT", "STARTED", "SKIPPED", "MISSED", "REFUSED", "NOTE")
	for _, s := range all {
		next := ""
		if s.GetNextDueAt() != nil {
			next = command.Moment(s.GetNextDueAt().AsTime())
		}
		if s.GetPaused() {
			next = "paused"
		}
		due := s.GetSpec().GetCron()
		if s.GetSpec().GetEvery() != nil {
			due = append(due, "@every "+s.GetSpec().GetEvery().AsDuration().String())
		}
		text := strings.Join(due, ", ")
		if zone := s.GetSpec().GetTimeZone(); zone != "" {
			text += " " + zone
		}
		command.Row(w, s.GetName(), command.Number(int(s.GetVersion())), text, wordOf(s.GetOverlap().String(), overlapPrefix), next,
			command.Number(int(s.GetStarted())), command.Number(int(s.GetSkipped())), command.Number(int(s.GetMissed())),
			command.Number(int(s.GetRefused())), firstLineOf(s.GetNote()))
	}
}

func (e *Engine) scheduleGet() *cobra.Command {
	return e.asking("get NAME", "Show a schedule, its next ten due times, and the outcomes of the last ones",
		"  lockstep schedule get nightly",
		command.Exactly(1), func(ctx context.Context, client autoflowv1.AutoFlowClient, args []string) error {
			found, err := client.GetSchedule(ctx, &autoflowv1.GetScheduleRequest{OrganizationId: e.organization, Name: args[0]})
			if err != nil {
				return err
			}
			return e.Print(message{found}, func(w io.Writer) {
				scheduleTable(w, found.GetSchedule())
				for i, due := range found.GetNextDueAt() {
					if i == 0 {
						command.Row(w)
						command.Row(w, "NEXT DUE")
					}
					command.Row(w, command.Moment(due.AsTime()))
				}
				for i, f := range found.GetFires() {
					if i == 0 {
						command.Row(w)
						command.Row(w, "WAS DUE", "OUTCOME", "RUN", "STATE", "DETAIL")
					}
					fireRow(w, f)
				}
			})
		})
}

func fireRow(w io.Writer, f *autoflowv1.ScheduleFire) {
	outcome, run := wordOf(f.GetState().String(), "SCHEDULE_FIRE_STATE_"), ""
	if f.GetBackfill() {
		outcome += " (requested)"
	}
	if f.GetWorkflowId() != "" {
		run = stateName(f.GetWorkflowState())
	}
	detail := f.GetDetail()
	if detail == "" {
		detail = f.GetWorkflowError()
	}
	command.Row(w, command.Moment(f.GetDueAt().AsTime()), outcome, f.GetWorkflowId(), run, firstLineOf(detail))
}

func (e *Engine) schedulePause() *cobra.Command {
	var note string
	cmd := e.asking("pause NAME", "Have a schedule start nothing until it is resumed", "  lockstep schedule pause nightly --note 'see incident 81'",
		command.Exactly(1), func(ctx context.Context, client autoflowv1.AutoFlowClient, args []string) error {
			answer, err := client.PauseSchedule(ctx, &autoflowv1.PauseScheduleRequest{OrganizationId: e.organization, Name: args[0], Note: note})
			if err != nil {
				return err
			}
			return e.Print(message{answer.GetSchedule()}, func(w io.Writer) { scheduleTable(w, answer.GetSchedule()) })
		})
	cmd.Flags().StringVar(&note, "note", "", "why")
	return cmd
}

func (e *Engine) scheduleResume() *cobra.Command {
	var note string
	cmd := e.asking("resume NAME", "End a pause; what was due meanwhile can be backfilled", "  lockstep schedule resume nightly",
		command.Exactly(1), func(ctx context.Context, client autoflowv1.AutoFlowClient, args []string) error {
			answer, err := client.ResumeSchedule(ctx, &autoflowv1.ResumeScheduleRequest{OrganizationId: e.organization, Name: args[0], Note: note})
			if err != nil {
				return err
			}
			return e.Print(message{answer.GetSchedule()}, func(w io.Writer) { scheduleTable(w, answer.GetSchedule()) })
		})
	cmd.Flags().StringVar(&note, "note", "", "why")
	return cmd
}

func (e *Engine) scheduleBackfill() *cobra.Command {
	var from, to, overlap string
	cmd := e.asking("backfill NAME", "Start runs for the due times of a range that have none",
		"  lockstep schedule backfill nightly --from 2026-11-20T00:00:00Z --to 2026-11-23T00:00:00Z", command.Exactly(1),
		func(ctx context.Context, client autoflowv1.AutoFlowClient, args []string) error {
			request := &autoflowv1.BackfillScheduleRequest{OrganizationId: e.organization, Name: args[0]}
			var err error
			if request.From, err = moment("--from", from); err != nil {
				return err
			}
			if request.To, err = moment("--to", to); err != nil {
				return err
			}
			if overlap != "" {
				if request.Overlap, err = parseOverlap(overlap); err != nil {
					return err
				}
			}
			answer, err := client.BackfillSchedule(ctx, request)
			if err != nil {
				return err
			}
			return e.Print(message{answer}, func(w io.Writer) {
				command.Row(w, "DUE", "ADDED")
				command.Row(w, command.Number(int(answer.GetDue())), command.Number(int(answer.GetAdded())))
			})
		})
	cmd.Flags().StringVar(&from, "from", "", "due times from this `time` on; required")
	cmd.Flags().StringVar(&to, "to", "", "due times before this `time`; required")
	cmd.Flags().StringVar(&overlap, "overlap", "", "`policy` for them: "+strings.Join(overlapNames(), ", ")+"; by default buffer-all")
	return cmd
}

func (e *Engine) scheduleTrigger() *cobra.Command {
	var overlap string
	cmd := e.asking("trigger NAME", "Start a run of a schedule now", "  lockstep schedule trigger nightly --overlap allow", command.Exactly(1),
		func(ctx context.Context, client autoflowv1.AutoFlowClient, args []string) error {
			request := &autoflowv1.TriggerScheduleRequest{OrganizationId: e.organization, Name: args[0]}
			var err error
			if overlap != "" {
				if request.Overlap, err = parseOverlap(overlap); err != nil {
					return err
				}
			}
			answer, err := client.TriggerSchedule(ctx, request)
			if err != nil {
				return err
			}
			return e.Print(message{answer}, func(w io.Writer) {
				command.Row(w, "RUN")
				command.Row(w, answer.GetWorkflowId())
			})
		})
	cmd.Flags().StringVar(&overlap, "overlap", "", "`policy` for this run: "+strings.Join(overlapNames(), ", ")+"; by default the schedule's")
	return cmd
}

func (e *Engine) scheduleDelete() *cobra.Command {
	return e.asking("delete NAME", "Delete a schedule; the runs that it has started continue", "  lockstep schedule delete nightly",
		command.Exactly(1), func(ctx context.Context, client autoflowv1.AutoFlowClient, args []string) error {
			answer, err := client.DeleteSchedule(ctx, &autoflowv1.DeleteScheduleRequest{OrganizationId: e.organization, Name: args[0]})
			if err != nil {
				return err
			}
			return e.Print(message{answer}, func(w io.Writer) { command.Row(w, args[0]+" is gone") })
		})
}
