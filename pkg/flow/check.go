package flow

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"regexp/syntax"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/schema"
)

// structure checks what the schema cannot express: rising weights, one deploy step per environment, unique gate ids.
func structure(def Definition) []fault.Field {
	var found []fault.Field
	environments := map[string]int{}
	gates := map[string]string{}
	claim := func(id, at string) {
		if other, taken := gates[id]; taken {
			found = append(found, fault.Field{
				Name:    at,
				Problem: fmt.Sprintf("found gate id %q, which %s has already; expected one of its own", id, other),
			})
			return
		}
		gates[id] = at
	}
	jobs := jobNames{}
	runbook := runbookOf(def)
	found = append(found, oneKind(def.Checks, def.Checks, "/checks")...)
	found = append(found, misplaced(def.Checks, "/checks")...)
	found = append(found, calendars(def.Checks, "/checks")...)
	found = append(found, def.CommitMatcher.wrong()...)
	if _, err := def.ReadInputs(); err != nil {
		found = append(found, fault.FieldsOf(err)...)
	}
	for i, s := range def.Steps {
		at := schema.Pointer("steps", strconv.Itoa(i))
		found = append(found, skippable(def, s, at)...)
		switch s.Type {
		case Deploy:
			found = append(found, oneKind(def.Checks, s.Checks, at+"/checks")...)
			found = append(found, misplaced(s.Checks, at+"/checks")...)
			found = append(found, calendars(s.Checks, at+"/checks")...)
			if first, taken := environments[s.Environment]; taken {
				found = append(found, fault.Field{
					Name:    at + "/environment",
					Problem: fmt.Sprintf("found %q, which /steps/%d deploys to already; expected each environment once", s.Environment, first),
				})
				continue
			}
			for n, name := range s.Follows {
				if _, earlier := environments[name]; !earlier {
					found = append(found, fault.Field{
						Name:    fmt.Sprintf("%s/follows/%d", at, n),
						Problem: fmt.Sprintf("found %q; expected an environment that an earlier step deploys to", name),
					})
				}
			}
			environments[s.Environment] = i
			if s.Approval != nil {
				claim(EnvironmentGateID(s.Environment), at+"/approval")
			}
			found = append(found, rising(s.Gates, at)...)
			for j, g := range s.Gates {
				if g.Approval != nil {
					claim(WeightGateID(s.Environment, g.Weight), fmt.Sprintf("%s/gates/%d/approval", at, j))
				}
			}
			found = append(found, jobs.add(s.Environment, s, at)...)
		case Approve:
			claim(StepGateID(i, s), at+"/name")
			if runbook != nil {
				runbook.asked = at
			}
		case RunJob:
			found = append(found, jobs.add(s.Environment, s, at)...)
			if runbook != nil {
				found = append(found, runbook.add(s, at)...)
				continue
			}
			if _, deployed := environments[s.Environment]; !deployed {
				found = append(found, fault.Field{
					Name:    at + "/environment",
					Problem: fmt.Sprintf("found %q; expected an environment that an earlier step deploys to", s.Environment),
				})
			}
		case Pause, Analysis:
		}
	}
	if len(environments) == 0 && runbook == nil {
		found = append(found, fault.Field{Name: "/steps", Problem: "found no deploy step; expected at least one, or a job: a pipeline of jobs is a runbook"})
	}
	return found
}

// maxPattern is how large a compiled expression may be, in instructions: what a match costs grows with it.
const maxPattern = 2000

// wrong finds expressions that cannot be read, and those that cost too much.
func (m CommitMatcher) wrong() []fault.Field {
	var found []fault.Field
	for _, one := range []struct{ name, expression string }{{"pipeline", m.Pipeline}, {"quickSync", m.QuickSync}} {
		if problem := patternProblem(one.expression); problem != "" {
			found = append(found, fault.Field{Name: "/commitMatcher/" + one.name, Problem: problem})
		}
	}
	return found
}

// patternProblem is what is wrong with a regular expression; "" for nothing.
func patternProblem(expression string) string {
	parsed, err := syntax.Parse(expression, syntax.Perl)
	var program *syntax.Prog
	if err == nil {
		program, err = syntax.Compile(parsed.Simplify())
	}
	switch {
	case err != nil:
		return fmt.Sprintf("found %q; expected a regular expression (RE2): %s", expression, err)
	case len(program.Inst) > maxPattern:
		return fmt.Sprintf("found %.100q, which takes %d steps; expected a regular expression of at most %d: shorten its repetitions", expression,
			len(program.Inst), maxPattern)
	default:
		return ""
	}
}

// jobNames are the places of jobs, by environment and name.
type jobNames map[[2]string]string

// add finds jobs of a step that have the name of another one of their environment.
func (n jobNames) add(environment string, s Step, at string) []fault.Field {
	var found []fault.Field
	claim := func(name, at string) {
		if other, taken := n[[2]string{environment, name}]; taken {
			found = append(found, fault.Field{Name: at, Problem: fmt.Sprintf("found %q, which %s has already; expected a name of its own", name, other)})
			return
		}
		n[[2]string{environment, name}] = at
	}
	for _, part := range s.JobLists() {
		for i, j := range part.Jobs {
			claim(j.Name, fmt.Sprintf("%s/%s/%d/name", at, part.Name, i))
		}
	}
	if s.Job != nil {
		claim(s.Job.Name, at+"/job/name")
	}
	return found
}

// unsupported finds jobs of a deploy step that its driver does not run.
func unsupported(s Step, at string, steps []string) []fault.Field {
	if s.Type != Deploy || slices.Contains(steps, string(RunJob)) {
		return nil
	}
	var found []fault.Field
	for _, part := range s.JobLists() {
		if len(part.Jobs) > 0 {
			found = append(found, fault.Field{
				Name: at + "/" + part.Name, Problem: "found jobs, which the driver does not run; expected none, or a driver that supports the step job",
			})
		}
	}
	return found
}

// rising finds the gates whose weight is not above that of the gate before.
func rising(gates []Gate, at string) []fault.Field {
	var found []fault.Field
	before := 0
	for j, g := range gates {
		if g.Weight <= before {
			found = append(found, fault.Field{
				Name:    fmt.Sprintf("%s/gates/%d/weight", at, j),
				Problem: fmt.Sprintf("found %d after %d; expected weights that rise from gate to gate", g.Weight, before),
			})
		}
		before = max(before, g.Weight)
	}
	return found
}

// reserved finds approval steps that have the gate id of an environment of the pipeline, or of one of its weights. These ids are reserved
// whether or not the pipeline has an approval there: the environment may have one of its own, and one id cannot have two rules (D46).
// Ids that two approvals of the pipeline have are found by structure.
func reserved(def Definition) []fault.Field {
	places, asked := map[string]string{}, map[string]bool{}
	for i, s := range def.Steps {
		if !def.enters(s) {
			continue
		}
		id := EnvironmentGateID(s.Environment)
		places[id], asked[id] = fmt.Sprintf("the environment of /steps/%d", i), s.Approval != nil
		for j, g := range s.Gates {
			id := WeightGateID(s.Environment, g.Weight)
			places[id], asked[id] = fmt.Sprintf("the weight of /steps/%d/gates/%d", i, j), g.Approval != nil
		}
	}
	var found []fault.Field
	for i, s := range def.Steps {
		if s.Type != Approve {
			continue
		}
		id := StepGateID(i, s)
		if place, taken := places[id]; taken && !asked[id] {
			found = append(found, fault.Field{
				Name: fmt.Sprintf("/steps/%d/name", i), Problem: fmt.Sprintf("found gate id %q, which is reserved for %s; expected another name",
					id, place),
			})
		}
	}
	return found
}

// Known is the context of a check: what exists at the time.
type Known struct {
	// Stored means that the definition was accepted earlier. A name that has become reserved since is accepted then: a rollout merges
	// the rules that meet under one gate id.
	Stored bool
	// Steps are the step types that the driver supports: of several, those that every one does.
	Steps []string
	// StepsIn are, by the name of an environment, the step types that its driver supports. They are what counts for steps and jobs in it;
	// for an environment without any, Steps are.
	StepsIn map[string][]string
	// Environments are the names of the organization's environments.
	Environments []string
	// ValidateConfig checks the config of the deploy step to an environment that exists. The fields of its error are
	// JSON pointers into the config. Nil accepts everything.
	ValidateConfig func(environment string, config json.RawMessage) error
	// CheckRules finds reasons why nobody could answer under such rules. The fields are JSON pointers into the rules. Nil accepts
	// everything: a definition that was valid when written is not refused later because a member has left a group.
	CheckRules func(Rules) []fault.Field
	// ValidateCheck checks the configuration of a check of a check kind, for a target: active or proposed. The error is Invalid, its fields
	// JSON pointers into the configuration; one without fields is about the kind. Nil accepts everything.
	ValidateCheck func(kind, target string, config json.RawMessage) error
}

// Check checks a definition from Parse against what is known. The error is Invalid, with one field for each finding. An error of
// ValidateConfig that has no fields and is not Invalid is returned unchanged: the check itself failed.
func Check(def Definition, known Known) error {
	found := structure(def)
	wrong, err := known.programs(def)
	if err != nil {
		return err
	}
	found = append(found, wrong...)
	if !known.Stored {
		found = append(found, reserved(def)...)
		found = append(found, opens(def)...)
	}
	for i, s := range def.Steps {
		at := schema.Pointer("steps", strconv.Itoa(i))
		found = append(found, known.rules(s, at)...)
		steps := known.stepsOf(s)
		found = append(found, unsupported(s, at, steps)...)
		if !slices.Contains(steps, string(s.Type)) {
			found = append(found, fault.Field{
				Name:    at + "/type",
				Problem: fmt.Sprintf("found %q, which the driver does not support; expected one of %s", s.Type, strings.Join(steps, ", ")),
			})
			continue
		}
		if !def.enters(s) {
			continue
		}
		if !slices.Contains(known.Environments, s.Environment) {
			found = append(found, fault.Field{
				Name:    at + "/environment",
				Problem: fmt.Sprintf("found %q; expected an environment that exists: %s", s.Environment, names(known.Environments)),
			})
			continue
		}
		if known.ValidateConfig == nil || s.Type != Deploy {
			continue
		}
		fields, err := config(known.ValidateConfig(s.Environment, s.Config), at+"/config")
		if err != nil {
			return fmt.Errorf("check config of step %d: %w", i, err)
		}
		found = append(found, fields...)
	}
	if len(found) > 0 {
		return fault.InvalidFields(found...)
	}
	return nil
}

// stepsOf are the step types that count for a step: those of the driver of its environment, if it is in one.
func (k Known) stepsOf(s Step) []string {
	if steps, known := k.StepsIn[s.Environment]; known && s.Environment != "" {
		return steps
	}
	return k.Steps
}

// rules returns the findings in the rules of all approvals of a step.
func (k Known) rules(s Step, at string) []fault.Field {
	if k.CheckRules == nil {
		return nil
	}
	asked := map[string]Rules{at: s.Rules} // the zero value except for an approval step
	if s.Approval != nil {
		asked[at+"/approval"] = s.Approval.Rules
	}
	for j, g := range s.Gates {
		if g.Approval != nil {
			asked[fmt.Sprintf("%s/gates/%d/approval", at, j)] = g.Approval.Rules
		}
	}
	var found []fault.Field
	for _, place := range slices.Sorted(maps.Keys(asked)) {
		for _, f := range k.CheckRules(asked[place]) {
			found = append(found, fault.Field{Name: place + f.Name, Problem: f.Problem})
		}
	}
	return found
}

// config returns the findings of a config's own check, located in the definition.
func config(err error, at string) ([]fault.Field, error) {
	if err == nil {
		return nil, nil
	}
	if !fault.Is(err, fault.Invalid) {
		return nil, err
	}
	fields := slices.Clone(fault.FieldsOf(err))
	if len(fields) == 0 {
		return []fault.Field{{Name: at, Problem: fault.Public(err)}}, nil
	}
	for i := range fields {
		fields[i].Name = at + fields[i].Name
	}
	return fields, nil
}

// names lists names for an error, and shortens long lists.
func names(all []string) string {
	const most = 20
	if len(all) == 0 {
		return "there is none yet"
	}
	if len(all) > most {
		return strings.Join(all[:most], ", ") + " …"
	}
	return strings.Join(all, ", ")
}

// oneKind finds checks whose key another check of the same target has with another kind: reports would mean either.
func oneKind(all, own Checks, at string) []fault.Field {
	var found []fault.Field
	for _, target := range []struct {
		name     string
		all, own []Condition
	}{{"active", all.Active, own.Active}, {"proposed", all.Proposed, own.Proposed}} {
		for i, c := range target.own {
			differs := func(o Condition) bool { return o.Key == c.Key && o.kind() != c.kind() }
			otherwise := func(o Condition) bool { return o.Key == c.Key && o.kind() == c.kind() && !same(o.With, c.With) }
			if slices.ContainsFunc(target.all, otherwise) || slices.ContainsFunc(target.own, otherwise) {
				found = append(found, fault.Field{
					Name:    fmt.Sprintf("%s/%s/%d/with", at, target.name, i),
					Problem: fmt.Sprintf("found another configuration than that of the other check %q; expected a key of its own", c.Key),
				})
			}
			if slices.ContainsFunc(target.all, differs) || slices.ContainsFunc(target.own, differs) {
				found = append(found, fault.Field{
					Name:    fmt.Sprintf("%s/%s/%d/key", at, target.name, i),
					Problem: fmt.Sprintf("found %q, which another check has with a different kind; expected one kind for each key", c.Key),
				})
			}
		}
	}
	return found
}

// misplaced finds checks whose kind is about the other target only.
func misplaced(own Checks, at string) []fault.Field {
	var found []fault.Field
	for _, target := range []struct {
		name     string
		checks   []Condition
		others   []string
		expected string
	}{
		{"active", own.Active, []string{"schedule"}, "status, timer, health or a check kind"},
		{"proposed", own.Proposed, []string{"timer", "health"}, "status, schedule or a check kind"},
	} {
		for i, c := range target.checks {
			if slices.Contains(target.others, c.Kind) {
				found = append(found, fault.Field{
					Name:    fmt.Sprintf("%s/%s/%d/kind", at, target.name, i),
					Problem: fmt.Sprintf("found %q; expected one of what is %s: %s", c.Kind, target.name, target.expected),
				})
			}
		}
	}
	return found
}

// same reports whether two configurations of checks are the same, whatever their layout.
func same(a, b json.RawMessage) bool {
	one, err := canonical(a)
	other, otherErr := canonical(b)
	return err == nil && otherErr == nil && bytes.Equal(one, other)
}

// canonical is a JSON text with its members in order and without spaces; nil stands for an empty object.
func canonical(text json.RawMessage) ([]byte, error) {
	if len(text) == 0 {
		return []byte("{}"), nil
	}
	var value any
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	if err := d.Decode(&value); err != nil {
		return nil, fmt.Errorf("read the configuration of a check: %w", err)
	}
	return json.Marshal(value)
}

// programs finds what is wrong with the checks whose kind is a check kind.
func (k Known) programs(def Definition) ([]fault.Field, error) {
	if k.ValidateCheck == nil {
		return nil, nil
	}
	var found []fault.Field
	look := func(own Checks, at string) error {
		for _, target := range []struct {
			name   string
			checks []Condition
		}{{"active", own.Active}, {"proposed", own.Proposed}} {
			for i, c := range target.checks {
				if !c.Program() {
					continue
				}
				place := fmt.Sprintf("%s/%s/%d", at, target.name, i)
				err := k.ValidateCheck(c.Kind, target.name, c.With)
				if err != nil && len(fault.FieldsOf(err)) == 0 { // the kind itself
					place += "/kind"
				} else {
					place += "/with"
				}
				fields, err := config(err, place)
				if err != nil {
					return fmt.Errorf("check %s: %w", place, err)
				}
				found = append(found, fields...)
			}
		}
		return nil
	}
	if err := look(def.Checks, "/checks"); err != nil {
		return nil, err
	}
	for i, s := range def.Steps {
		if err := look(s.Checks, fmt.Sprintf("/steps/%d/checks", i)); err != nil {
			return nil, err
		}
	}
	return found, nil
}

// CheckChecks checks the checks of an environment from ParseChecks against the check kinds that are known. The error is as that of Check.
func CheckChecks(own Checks, known Known) error {
	found, err := known.programs(Definition{Checks: own})
	if err == nil && len(found) > 0 {
		err = fault.InvalidFields(found...)
	}
	return err
}

// kind is the kind with its default.
func (c Condition) kind() string {
	if c.Kind == "" {
		return "status"
	}
	return c.Kind
}

// calendars finds what is wrong with the windows of schedules.
func calendars(own Checks, at string) []fault.Field {
	var found []fault.Field
	for i, c := range own.Proposed {
		if c.Schedule == nil {
			continue
		}
		_, wrong := c.Schedule.Calendar()
		for _, f := range wrong {
			found = append(found, fault.Field{Name: fmt.Sprintf("%s/proposed/%d/schedule%s", at, i, f.Name), Problem: f.Problem})
		}
	}
	return found
}

// Merge are the checks of a target of a whole definition with those of one step (R3-05), one for each key. Of two timers the longer one
// counts, and of two of health that one of them waits for what differs. The windows of two schedules are all in force, so that exclude
// beats allow (R3-27).
func Merge(all, own []Condition) []Condition {
	var merged []Condition
	for _, c := range slices.Concat(all, own) {
		at := slices.IndexFunc(merged, func(m Condition) bool { return m.Key == c.Key && m.kind() == c.kind() })
		if at < 0 {
			merged = append(merged, c)
			continue
		}
		merged[at].Duration = max(merged[at].Duration, c.Duration)
		merged[at].InSync = merged[at].InSync || c.InSync
		if c.Schedule != nil && merged[at].Schedule != nil {
			both := merged[at].Schedule.With(*c.Schedule)
			merged[at].Schedule = &both
		}
	}
	return merged
}

// maxSchedules is how many different schedules a definition may have: whether each ever opens is searched for.
const maxSchedules = 50

// opens finds schedules that never open.
func opens(def Definition) []fault.Field {
	var found []fault.Field
	searched, seen := 0, map[string]bool{}
	for i, s := range def.Steps {
		own := func(key string) bool {
			return slices.ContainsFunc(s.Checks.Proposed, func(o Condition) bool { return o.Key == key })
		}
		for _, c := range Merge(def.Checks.Proposed, s.Checks.Proposed) {
			if !def.enters(s) || c.Schedule == nil || !own(c.Key) && seen[c.Key] {
				continue
			}
			if !own(c.Key) {
				seen[c.Key] = true
			}
			if searched++; searched > maxSchedules {
				return append(found, fault.Field{
					Name: "/steps", Problem: fmt.Sprintf("found more than %d schedules; expected at most %d different ones", maxSchedules, maxSchedules),
				})
			}
			calendar, wrong := c.Schedule.Calendar()
			// From the year from which expressions are checked, so that the answer does not depend on the day.
			_, opens := calendar.Opens(time.Date(2028, 1, 1, 0, 0, 0, 0, time.UTC))
			if len(wrong) == 0 && opens {
				continue
			}
			at := fmt.Sprintf("/steps/%d/checks/proposed", i)
			if !own(c.Key) {
				at = "/checks/proposed"
			}
			problem := fmt.Sprintf("found windows of %q that never open; expected a time that is allowed and not excluded", c.Key)
			if len(wrong) > 0 {
				problem = fmt.Sprintf("the windows of %q of the pipeline and the step together: %s", c.Key, wrong[0].Problem)
			}
			found = append(found, fault.Field{Name: at, Problem: problem})
		}
	}
	return found
}
