package schedule

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/id"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/execution"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/history"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/program"
)

// Overlap says what happens to a due time while a run of the schedule is under way. The texts are stored.
type Overlap string

// The policies.
const (
	// Skip starts no run.
	Skip Overlap = "skip"
	// BufferOne keeps one due time until the run has ended, the earliest, and skips the others.
	BufferOne Overlap = "buffer_one"
	// BufferAll keeps up to MaxBuffered due times, and starts them one after the other.
	BufferAll Overlap = "buffer_all"
	// CancelOther cancels the run, and starts the next one when it has ended.
	CancelOther Overlap = "cancel_other"
	// Allow starts a run beside it.
	Allow Overlap = "allow"
)

// MaxBuffered bounds the due times that BufferAll keeps; those beyond are skipped.
const MaxBuffered = 100

// Schedule is a program that is started at given times.
type Schedule struct {
	ID, Organization int64
	Name             string
	// Version counts the registrations with other content.
	Version int
	Spec    Spec
	Overlap Overlap
	// CatchUp is how late a run may start. Due times that have passed by more, because the service was down or its clock jumped, are missed.
	CatchUp time.Duration
	Program program.Program
	// ProgramDigest is the SHA-256 of the main source, hexadecimal.
	ProgramDigest string
	// Inputs, Secrets and Labels are those of every run.
	Inputs          []byte
	Secrets, Labels map[string]string
	// Paused schedules start nothing but what is backfilled. Note says why.
	Paused bool
	Note   string
	// NextDue is the first due time that was not dealt with; zero if there is none.
	NextDue time.Time
	// ChangedBy is the name of the token that has registered, paused or resumed it last, at ChangedAt.
	ChangedBy            string
	CreatedAt, ChangedAt time.Time
	// The outcomes of due times, over all versions.
	Started, Skipped, Missed, Refused int64
}

// State is the outcome of a due time. The texts are stored.
type State string

// The states.
const (
	// Waiting due times were not decided on, or wait for a run to end.
	Waiting State = "waiting"
	// Starting due times get a run, which may have been started.
	Starting State = "starting"
	// Started due times have a run, whose end was not seen yet.
	Started State = "started"
	// Done due times have a run that has ended.
	Done State = "done"
	// Skipped due times have no run because another one was under way.
	Skipped State = "skipped"
	// Missed due times have no run because it would have been too late. Count says how many times one row stands for.
	Missed State = "missed"
	// Refused due times have no run because its start was refused.
	Refused State = "refused"
)

// Fire is a due time of a schedule and its outcome.
type Fire struct {
	Due   time.Time
	State State
	// Backfill due times were requested, and start although the schedule is paused.
	Backfill bool
	// Overlap is the policy of a backfill; empty for the schedule's.
	Overlap Overlap
	// Count is how many due times a row of state Missed stands for, from Due on; 1 otherwise.
	Count int64
	// Detail is why there is no run, or what is waited for.
	Detail string
	// Workflow is the id of the run, which exists in the states Started and Done.
	Workflow string
	// Run is where the run is, if it exists, and Error why it failed.
	Run      execution.State
	Exists   bool
	RunError string
	EndedAt  time.Time
}

// RunID is the id of the run of a due time.
func (s Schedule) RunID(due time.Time) string { return id.ScheduleRun(s.Name, s.ID, due) }

// Input is the name of the input that has each run's schedule and due time.
const Input = "schedule"

// start is the run of a due time. All of it follows from the schedule and the due time, so that a repeat is the same start.
func (s Schedule) start(f Fire) (execution.Start, error) {
	inputs := map[string]json.RawMessage{}
	if len(s.Inputs) > 0 {
		if err := json.Unmarshal(s.Inputs, &inputs); err != nil || inputs == nil { // null is a map for encoding/json
			return execution.Start{}, fault.InvalidFields(fault.Field{Name: "inputs", Problem: "found JSON that is not an object, expected an object"})
		}
	}
	if _, taken := inputs[Input]; taken {
		return execution.Start{}, fault.InvalidFields(fault.Field{
			Name: "inputs." + Input, Problem: "found an input of this name, expected another: each run gets its schedule and due time under it",
		})
	}
	due := f.Due.UTC().Format(time.RFC3339)
	own, err := json.Marshal(map[string]any{"name": s.Name, "due_at": due, "backfill": f.Backfill})
	if err != nil {
		return execution.Start{}, fmt.Errorf("encode the due time of schedule %q: %w", s.Name, err)
	}
	inputs[Input] = own
	encoded, err := json.Marshal(inputs)
	if err != nil {
		return execution.Start{}, fmt.Errorf("encode the inputs of schedule %q: %w", s.Name, err)
	}
	labels := maps.Clone(s.Labels)
	if labels == nil {
		labels = map[string]string{}
	}
	labels["schedule"], labels["due_at"] = s.Name, due
	return execution.Start{
		Organization: s.Organization, Workflow: s.RunID(f.Due), Program: s.Program, Inputs: encoded, Secrets: s.Secrets, Labels: labels,
	}, nil
}

// scheduleName is short enough for a label, and for the id of a run.
var scheduleName = regexp.MustCompile(`^[a-z0-9][a-z0-9._-]{0,99}$`)

// The bounds of a schedule.
const (
	// MaxSchedules is how many an organization may have.
	MaxSchedules = 20_000
	// DefaultCatchUp is used where none is given.
	DefaultCatchUp = 10 * time.Minute
	minCatchUp     = 10 * time.Second
	maxCatchUp     = 7 * 24 * time.Hour
	maxNote        = 1024
	// marginOfInputs is room for the due time.
	marginOfInputs = 1 << 10
)

func checkName(name string) error {
	if !scheduleName.MatchString(name) {
		return fault.InvalidFields(fault.Field{
			Name: "name", Problem: fmt.Sprintf("found %.120q, expected 1 to 100 lower-case letters, digits, \".\", \"_\" and \"-\"", name),
		})
	}
	return nil
}

func checkNote(note string) error {
	if n := utf8.RuneCountInString(note); n > maxNote {
		return fault.InvalidFields(fault.Field{Name: "note", Problem: fmt.Sprintf("found %d characters, expected at most %d", n, maxNote)})
	}
	return nil
}

func checkOverlap(o Overlap) error {
	known := []Overlap{Skip, BufferOne, BufferAll, CancelOther, Allow}
	if !slices.Contains(known, o) {
		return fault.InvalidFields(fault.Field{Name: "overlap", Problem: fmt.Sprintf("found %.40q, expected one of %v", o, known)})
	}
	return nil
}

// check refuses a schedule whose runs could not start, and sets what was left out.
func (s *Schedule) check(scripts program.Scripts) (Plan, error) {
	if s.Overlap == "" {
		s.Overlap = Skip
	}
	if s.CatchUp == 0 {
		s.CatchUp = DefaultCatchUp
	}
	if err := checkName(s.Name); err != nil {
		return Plan{}, err
	}
	if err := checkOverlap(s.Overlap); err != nil {
		return Plan{}, err
	}
	if s.CatchUp < minCatchUp || s.CatchUp > maxCatchUp {
		return Plan{}, fault.InvalidFields(fault.Field{
			Name: "catch_up", Problem: fmt.Sprintf("found %s, expected %s to %s", s.CatchUp, minCatchUp, maxCatchUp),
		})
	}
	plan, err := s.Spec.Plan()
	if err != nil {
		return Plan{}, err
	}
	basis := execution.Start{
		Organization: s.Organization, Workflow: "schedule/" + s.Name, Program: s.Program, Inputs: s.Inputs, Secrets: s.Secrets, Labels: s.Labels,
	}
	if err := basis.Admit(); err != nil {
		return Plan{}, err
	}
	if most := history.InputsDoor.Limits().Size - marginOfInputs; len(s.Inputs) > most {
		return Plan{}, fault.InvalidFields(fault.Field{Name: "inputs", Problem: fmt.Sprintf("found %d bytes, expected at most %d", len(s.Inputs), most)})
	}
	// What the runs will be started with is checked now.
	start, err := s.start(Fire{Due: time.Unix(0, 0)})
	if err == nil {
		err = start.Validate()
	}
	if err == nil {
		err = program.ScriptsFor(scripts, s.Organization).Check(start.Program, start.Inputs)
	}
	s.ProgramDigest = program.Hex(program.Digest(s.Program.Source))
	return plan, err
}

// digest distinguishes contents of a schedule.
func (s Schedule) digest() ([32]byte, error) {
	parts, err := execution.Start{Program: s.Program, Inputs: s.Inputs, Secrets: s.Secrets}.Digests()
	if err != nil {
		return [32]byte{}, err
	}
	rest, err := json.Marshal(struct {
		Spec    Spec
		Overlap Overlap
		CatchUp time.Duration
		Labels  map[string]string
	}{s.Spec, s.Overlap, s.CatchUp, s.Labels})
	if err != nil {
		return [32]byte{}, fmt.Errorf("encode schedule %q: %w", s.Name, err)
	}
	return sha256.Sum256(slices.Concat(parts.Program[:], parts.Modules[:], parts.Inputs[:], parts.Secrets[:], rest)), nil
}
