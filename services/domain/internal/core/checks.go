package core

import (
	"encoding/json"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/cron"
)

// A check is a condition of entering an environment, whose status people and systems report (D48). One of target proposed is about what
// would enter the environment; one of target active is about what is in it, and guards the entrance to the next one.

// CheckTarget is what a check is about.
type CheckTarget string

// The targets.
const (
	CheckProposed CheckTarget = "proposed"
	CheckActive   CheckTarget = "active"
)

// CheckKind is how a check gets its status.
type CheckKind string

// The kinds.
const (
	// CheckStatus is reported by people and systems.
	CheckStatus CheckKind = "status"
	// CheckTimer is green once what is active has been there for a time.
	CheckTimer CheckKind = "timer"
	// CheckSchedule is green during windows of time.
	CheckSchedule CheckKind = "schedule"
	// CheckHealth is green while everything that the rollout has deployed to an environment is healthy there.
	CheckHealth CheckKind = "health"
	// CheckPrevious is of the service itself, at every entrance but the first: it is green while nothing is known to be unhealthy that the
	// rollout has deployed to what the environment follows. No pipeline declares it, and none is pinned.
	CheckPrevious CheckKind = "previous-environment"
)

// Program reports whether the program of a check kind decides: every kind but those above, named as name@major.
func (k CheckKind) Program() bool {
	switch k {
	case CheckStatus, CheckTimer, CheckSchedule, CheckHealth, CheckPrevious:
		return false
	default:
		return true
	}
}

// InstalledCheckKind is a check kind of this installation: a bundle, as drivers are.
type InstalledCheckKind struct {
	// Ref is name@major.
	Ref, Digest, Description string
	// Targets are what checks of the kind may be about.
	Targets []CheckTarget
	// Schema is the JSON Schema of the configuration of a check.
	Schema json.RawMessage
	// Origin and ArtifactDigest are as those of a driver.
	Origin, ArtifactDigest string
}

// CheckRun is a run of the program of a check, for a rollout in one of its environments.
type CheckRun struct {
	ID, RolloutID, EnvironmentID int64
	Target                       CheckTarget
	Key                          string
	Own                          bool
	// Number counts the runs of the check, from 1.
	Number int
	// EndedAt is since when it reports nothing any more; nil while it may.
	EndedAt   *time.Time
	CreatedAt time.Time
}

// Of reports whether it is a run of a check.
func (r CheckRun) Of(c PinnedCheck) bool {
	return r.EnvironmentID == c.EnvironmentID && r.Target == c.Target && r.Key == c.Key && r.Own == c.Own
}

// Reporter is who its program reports as.
func (r CheckRun) Reporter(kind CheckKind) Author {
	return Author{Principal: Principal{Type: PrincipalSystem, ID: r.ID}, Name: string(kind)}
}

// ForgeReporter is who reports what follows from statuses that forges have of commits. No run has its number.
func ForgeReporter() Author {
	return Author{Principal: Principal{Type: PrincipalSystem}, Name: "forge"}
}

// CheckPhase is what a report says of a check.
type CheckPhase string

// The phases.
const (
	CheckPending CheckPhase = "pending"
	CheckSuccess CheckPhase = "success"
	CheckFailure CheckPhase = "failure"
)

// CheckKey is the form of the key of a check (R3-10).
var CheckKey = regexp.MustCompile(`^[a-z0-9-]{1,63}$`)

// Check is a check as a pipeline declares it.
type Check struct {
	Key  string
	Kind CheckKind
	// Duration is how long a timer runs.
	Duration time.Duration
	// InSync reports whether a check of health also waits until nothing differs from what was deployed.
	InSync bool
	// Schedule is when a schedule is open; nil for other kinds.
	Schedule *cron.Schedule
	// Config is the configuration of a check whose kind is a bundle, or of the status that a forge reports; nil for an empty one.
	Config json.RawMessage
}

// PinnedCheck is a check of a rollout in one of its environments.
type PinnedCheck struct {
	Check
	EnvironmentID int64
	Target        CheckTarget
	// Own reports whether the environment requires it, and not the pipeline.
	Own bool
	// Digest is the bundle of the kind that was pinned; empty for a kind without one.
	Digest string
}

// CheckSet are checks by target.
type CheckSet struct{ Active, Proposed []Check }

// Pinned are the checks of the set in an environment.
func (s CheckSet) Pinned(environment int64, own bool) []PinnedCheck {
	var all []PinnedCheck
	for _, c := range s.Active {
		all = append(all, PinnedCheck{Check: c, EnvironmentID: environment, Target: CheckActive, Own: own})
	}
	for _, c := range s.Proposed {
		all = append(all, PinnedCheck{Check: c, EnvironmentID: environment, Target: CheckProposed, Own: own})
	}
	return all
}

// PlainLink reports whether a link is an http or https address without credentials.
func PlainLink(link string) bool {
	u, err := url.Parse(link)
	return err == nil && u.Host != "" && (u.Scheme == "http" || u.Scheme == "https") && u.User == nil
}

// CheckReport is one status that was reported about a version set in an environment.
type CheckReport struct {
	ID                                         int64
	ApplicationID, EnvironmentID, VersionSetID int64
	Key                                        string
	Phase                                      CheckPhase
	Description, Link                          string
	Reporter                                   Author
	// ObservedAt is when the reporter found it out, CreatedAt when it was accepted.
	ObservedAt, CreatedAt time.Time
	// Asks reports whether the program which reports it cannot decide, and a person has to.
	Asks bool
	// Environments are the phases of environments by name, if the program has found them out together; empty if it has not.
	Environments map[string]CheckPhase
	// ProposedCommit is the commit of a proposal that it is about: it counts while that commit is the one that would be merged. Empty for one
	// about the version set.
	ProposedCommit string
}

// CheckState is what a check of a rollout has come to.
type CheckState struct {
	PinnedCheck
	Phase CheckPhase
	// Detail says it for people, with the reporter.
	Detail string
	Link   string
	// Since is the latest report, or when the timer began; nil for none.
	Since *time.Time
	// Next is when the phase may change by itself; nil where it does not.
	Next *time.Time
	// By are those whose reports it follows from.
	By []ConditionBy
	// Reports are the latest of each reporter; none for a kind that is not reported.
	Reports []CheckReport
	// Run is the latest run of its program; nil for none.
	Run *CheckRun
	// Due reports whether there is what its program is about: its run can be opened.
	Due bool
	// Asks reports whether its program cannot decide, and a person has to.
	Asks bool
}

// CheckPlace is an environment of a rollout, as far as checks depend on it.
type CheckPlace struct {
	EnvironmentID int64
	// Completed is when the rollout completed there; nil before.
	Completed *time.Time
	// Deployments are the rollout's there.
	Deployments []Deployment
	// Follows and NeedsHealth are as those of RolloutEnvironment.
	Follows     []int64
	NeedsHealth bool
}

// Checks are those of a rollout, with what was reported about its version set.
type Checks struct {
	Pinned []PinnedCheck
	// Reports are the latest of each environment, key and reporter (R3-06: about any other version set there are none here).
	Reports []CheckReport
	// Observed is what observers have seen in the environments that have a check of kind health.
	Observed HealthObservations
	// InForce is what is known to differ from what was deployed in the environments that have a check which asks that, by environment.
	InForce map[int64]Reconciliation
	// Services are the names of the services, where they are known.
	Services map[int64]string
	// Retired are services that were retired: nothing follows from their health.
	Retired map[int64]bool
	// Runs are the latest runs of the programs of checks, one for each.
	Runs []CheckRun
}

// Entering are the states of the checks that guard the entrance of an environment, which is at an index of the rollout's: the proposed ones
// of its own, and the active ones of the environments that it follows (R3-11, R3-12, R3-16). What an environment requires by itself also
// guards the one behind it in the order of the pipeline, whichever that follows: no pipeline weakens it.
func (c Checks) Entering(places []CheckPlace, index int, at time.Time) []CheckState {
	followed := following(places, index)
	var all []CheckState
	for _, pinned := range c.Pinned {
		switch {
		case pinned.EnvironmentID == places[index].EnvironmentID && pinned.Target == CheckProposed:
			all = append(all, c.state(pinned, places[index], at))
		case pinned.Target == CheckActive:
			i := slices.IndexFunc(places[:index], func(p CheckPlace) bool { return p.EnvironmentID == pinned.EnvironmentID })
			if i >= 0 && (slices.Contains(followed, i) || pinned.Own && i == index-1) {
				all = append(all, c.state(pinned, places[i], at))
			}
		}
	}
	if places[index].NeedsHealth {
		all = append(all, c.unhealthy(places, followed)...)
	}
	return all
}

// following are the indexes of the environments that one follows, in order.
func following(places []CheckPlace, index int) []int {
	if places[index].Follows == nil {
		if index == 0 {
			return nil
		}
		return []int{index - 1}
	}
	var all []int
	for i, p := range places[:index] {
		if slices.Contains(places[index].Follows, p.EnvironmentID) {
			all = append(all, i)
		}
	}
	return all
}

// All are the states of all checks, in the order of the environments.
func (c Checks) All(places []CheckPlace, at time.Time) []CheckState {
	var all []CheckState
	for _, place := range places {
		for _, pinned := range c.Pinned {
			if pinned.EnvironmentID == place.EnvironmentID {
				all = append(all, c.state(pinned, place, at))
			}
		}
	}
	return all
}

func (c Checks) state(pinned PinnedCheck, place CheckPlace, at time.Time) CheckState {
	switch pinned.Kind {
	case CheckTimer:
		return timer(pinned, place, at)
	case CheckSchedule:
		return scheduled(pinned, at)
	case CheckHealth:
		return c.healthy(pinned, place)
	case CheckStatus:
		return c.reported(pinned)
	default:
		return c.byProgram(pinned, place)
	}
}

// byProgram is what the latest run of the check's program has reported last. What runs for other rollouts have reported about the same
// version set decides nothing: what they looked at may have changed since.
func (c Checks) byProgram(pinned PinnedCheck, place CheckPlace) CheckState {
	s := CheckState{PinnedCheck: pinned, Phase: CheckPending, Due: pinned.Target == CheckProposed || place.Completed != nil}
	at := slices.IndexFunc(c.Runs, func(r CheckRun) bool { return r.Of(pinned) })
	switch {
	case at < 0 && !s.Due:
		s.Detail = "the rollout has not completed there yet"
		return s
	case at < 0:
		s.Detail = "its program begins once the passage is requested"
		return s
	}
	s.Run, s.Since, s.Detail = &c.Runs[at], &c.Runs[at].CreatedAt, "its program runs, and has not reported yet"
	for _, r := range c.Reports {
		if r.EnvironmentID == pinned.EnvironmentID && r.Key == pinned.Key && r.Reporter.Principal == s.Run.Reporter(pinned.Kind).Principal {
			s.Reports = []CheckReport{r}
			s.Phase, s.Since, s.Link = r.Phase, &r.CreatedAt, r.Link
			s.Detail = Because(fmt.Sprintf("%s by %s", r.Phase, pinned.Kind), r.Description)
			s.By = []ConditionBy{{Type: r.Reporter.Type, ID: r.Reporter.ID, At: r.CreatedAt}}
			s.Asks = r.Asks
		}
	}
	if s.Asks {
		c.decidedByPerson(&s)
	}
	return s
}

// decidedByPerson makes the state of a check whose program asks the latest answer of a person to it, if there is one.
func (c Checks) decidedByPerson(s *CheckState) {
	question := s.Reports[0]
	s.Detail = Because("a person has to decide", question.Description)
	answer := question
	for i, r := range c.Reports {
		if r.EnvironmentID == s.EnvironmentID && r.Key == s.Key && r.Reporter.Type == PrincipalUser && r.ID > answer.ID {
			answer = c.Reports[i]
		}
	}
	if answer.ID == question.ID {
		return
	}
	s.Reports = append(s.Reports, answer)
	s.Phase, s.Since, s.Detail = answer.Phase, &answer.CreatedAt, Because(fmt.Sprintf("%s by %s", answer.Phase, answer.Reporter.Name),
		answer.Description)
	s.By = []ConditionBy{{Type: answer.Reporter.Type, ID: answer.Reporter.ID, At: answer.CreatedAt}}
}

// scheduled is green while its windows are open (R3-27). Windows that cannot be read are not open.
func scheduled(pinned PinnedCheck, at time.Time) CheckState {
	s := CheckState{PinnedCheck: pinned, Phase: CheckPending, Detail: "its windows are not known"}
	if pinned.Schedule == nil {
		return s
	}
	calendar, wrong := pinned.Schedule.Calendar()
	if len(wrong) > 0 {
		s.Detail = fmt.Sprintf("its windows cannot be read: %s: %s", wrong[0].Name, wrong[0].Problem)
		return s
	}
	open, window := calendar.At(at)
	if window != "" {
		window = fmt.Sprintf(" (%s)", window)
	}
	if open {
		s.Phase, s.Detail = CheckSuccess, "open"+window
		if end := calendar.Closes(at); !end.IsZero() {
			s.Detail, s.Next = s.Detail+" until "+end.UTC().Format(time.RFC3339), &end
		}
		return s
	}
	next, opens := calendar.Opens(at)
	switch {
	case opens:
		s.Detail = fmt.Sprintf("closed%s, opens at %s", window, next.UTC().Format(time.RFC3339))
	case next.IsZero():
		s.Detail = fmt.Sprintf("closed%s, and does not open", window)
	default:
		s.Detail = fmt.Sprintf("closed%s, at least until %s", window, next.UTC().Format(time.RFC3339))
	}
	if !next.IsZero() {
		s.Next = &next
	}
	return s
}

// timer is pending until what is active has been there for the time (R3-20, R3-21).
func timer(pinned PinnedCheck, place CheckPlace, at time.Time) CheckState {
	s := CheckState{PinnedCheck: pinned, Phase: CheckPending, Since: place.Completed}
	if place.Completed == nil { // also while a promotion is under way there (R3-22)
		s.Detail = fmt.Sprintf("requires %s; the rollout has not completed there yet", forPeopleToRead(pinned.Duration))
		return s
	}
	end := place.Completed.Add(pinned.Duration)
	if at.Before(end) {
		s.Next = &end
		s.Detail = fmt.Sprintf("requires %s, of which at most %s remain", forPeopleToRead(pinned.Duration), end.Sub(at).Round(time.Second))
		return s
	}
	s.Phase, s.Detail = CheckSuccess, forPeopleToRead(pinned.Duration)+" have passed"
	return s
}

// reported follows from the latest report of each reporter: all have to agree (R3-06). While only what forges report is pending, and all
// others have reported success, nobody contradicts anybody: it is waited for.
func (c Checks) reported(pinned PinnedCheck) CheckState {
	s := CheckState{PinnedCheck: pinned, Phase: CheckPending, Detail: "no report about this version set yet"}
	var votes []string
	differ, forge := false, false
	for _, r := range c.Reports {
		program := r.Reporter.Type == PrincipalSystem && r.Reporter.Principal != ForgeReporter().Principal
		if r.EnvironmentID != pinned.EnvironmentID || r.Key != pinned.Key || program {
			continue // what the program of a check has reported is no status by a reporter
		}
		if r.Phase == CheckPending && r.Reporter.Principal == ForgeReporter().Principal {
			forge = true
		}
		differ = differ || len(votes) > 0 && s.Phase != r.Phase
		votes = append(votes, fmt.Sprintf("%s by %s", r.Phase, r.Reporter.Name))
		s.Reports = append(s.Reports, r)
		s.By = append(s.By, ConditionBy{Type: r.Reporter.Type, ID: r.Reporter.ID, At: r.CreatedAt})
		if s.Since == nil || r.CreatedAt.After(*s.Since) {
			s.Phase, s.Since, s.Link = r.Phase, &r.CreatedAt, r.Link
			s.Detail = Because(fmt.Sprintf("%s by %s", r.Phase, r.Reporter.Name), r.Description)
		}
	}
	if !differ {
		return s
	}
	slices.Sort(votes)
	others := func(r CheckReport) bool {
		return r.Phase != CheckSuccess && r.Reporter.Principal != ForgeReporter().Principal
	}
	if forge && !slices.ContainsFunc(s.Reports, others) {
		s.Phase, s.Detail = CheckPending, "waits for what forges report: "+strings.Join(votes, ", ")
	} else {
		s.Phase, s.Detail = CheckFailure, "the reporters contradict each other: "+strings.Join(votes, ", ")
	}
	return s
}

// PhasesOf are those of a check before and after a report about it, and why the latter is so: of one that people and systems report what
// all their reports together say, and of one by a program what that has reported.
func PhasesOf(before []CheckReport, r CheckReport) (was, is CheckPhase, why string) {
	same := func(one CheckReport) bool {
		return one.EnvironmentID == r.EnvironmentID && one.Key == r.Key && one.Reporter.Principal == r.Reporter.Principal
	}
	if r.Reporter.Type == PrincipalSystem && r.Reporter.Principal != ForgeReporter().Principal {
		was = CheckPending
		if i := slices.IndexFunc(before, same); i >= 0 {
			was = before[i].Phase
		}
		return was, r.Phase, r.Description
	}
	pinned := PinnedCheck{Check: Check{Key: r.Key, Kind: CheckStatus}, EnvironmentID: r.EnvironmentID}
	was = Checks{Reports: before}.reported(pinned).Phase
	after := Checks{Reports: append(slices.DeleteFunc(slices.Clone(before), same), r)}.reported(pinned)
	if len(after.Reports) == 1 {
		return was, after.Phase, r.Description
	}
	return was, after.Phase, after.Detail
}

// PassedBy is the state as the journal row of a granted passage has it where a person has broken the glass.
func (s CheckState) PassedBy(glass Transition) Condition {
	c := s.Condition()
	c.Outcome, c.By = OutcomeBreakGlass, []ConditionBy{conditionBy(glass)}
	return c
}

// Condition is the state as the journal row of a granted passage has it.
func (s CheckState) Condition() Condition {
	return Condition{Kind: ConditionCheck, GateID: s.Key, ControlID: s.EnvironmentID, Outcome: string(s.Phase), By: s.By}
}
