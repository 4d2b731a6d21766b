// Package reconcile compares the record with other sources after the database was restored to an earlier time (D66): with the runs of the
// workflow service, their reports and their passages, and with the commits in Git. It lists differences, and settles one on request.
//
// A difference is compared again before it is settled, so settling one that no longer exists is a no-op.
package reconcile

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/id"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/handoff"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/rollout"
)

// Kind says what differs.
type Kind string

// The kinds.
const (
	// RunMissing is a rollout under way whose run the workflow service does not have.
	RunMissing Kind = "run_missing"
	// RecordBehind is a rollout whose run has passages or reports that the record lacks.
	RecordBehind Kind = "record_behind"
	// EngineBehind is a rollout under way with passages that the workflow service was not notified of.
	EngineBehind Kind = "engine_behind"
	// RunOutlives is a run under way whose rollout is over in the record.
	RunOutlives Kind = "run_outlives"
	// RunUnknown is a run under way of a rollout that the record does not have.
	RunUnknown Kind = "run_unknown"
	// CommitUnknown is a commit whose rollout is not in the record, or that is not in the record of its rollout.
	CommitUnknown Kind = "commit_unknown"
	// BranchUnread is a branch that could not be read. It cannot be settled.
	BranchUnread Kind = "branch_unread"
)

// Difference is one thing in which the record differs from what others know.
type Difference struct {
	Kind Kind
	// Subject is what differs: rollout_7, the id of a run, or the SHA of a commit.
	Subject string
	// Problem describes the difference, and Remedy what settling does; empty if it cannot be settled.
	Problem, Remedy string
	// Rollout is its number; 0 if the record does not have it.
	Rollout int64
}

// Page is a stretch of the comparison.
type Page struct {
	Differences []Difference
	// Next is where the next page begins; empty after the last one.
	Next string
}

// Report is an event that a run has published.
type Report struct {
	ID, Source, Workflow string
	Time                 time.Time
}

// Branch is the end of a branch with the commits that have trailers of Lockstep.
type Branch struct {
	Repository, Name string
	Commits          []Commit
	// Problem is why it could not be read; empty if it was.
	Problem string
}

// Commit is a commit. Anybody who may push to the repository can write its trailers.
type Commit struct {
	SHA      string
	Trailers map[string]string
}

// Engine reads from the workflow service and from Git.
type Engine interface {
	ListWorkflows(ctx context.Context, organization int64, f handoff.WorkflowFilter, p core.Page) (core.Slice[handoff.WorkflowRun], error)
	// WorkflowByID fails as NotFound for an unknown run.
	WorkflowByID(ctx context.Context, organization int64, id string) (handoff.WorkflowRun, error)
	Cancel(ctx context.Context, organization int64, id, reason string) error
	// Reports returns a page of the events that runs have published since a time, oldest first; of one run, or of all with "".
	Reports(ctx context.Context, organization int64, since time.Time, workflow, after string) (all []Report, next string, err error)
	// RepeatReports publishes reports again, under the same ids.
	RepeatReports(ctx context.Context, organization int64, ids []string) error
	// Passages returns the passages that were granted since a time, by run id.
	Passages(ctx context.Context, organization int64, workflows []string, since time.Time) (map[string][]rollout.GrantedPassage, error)
	// Commits are a page of the branches that belong to environments.
	Commits(ctx context.Context, organization int64, after string) (all []Branch, next string, err error)
}

// Store keeps what this package needs. Its errors have the classes of pkg/fault.
type Store interface {
	core.Transactions[Tx]
	Rollouts(ctx context.Context, organization int64, f core.RolloutFilter, p core.Page) (core.Slice[core.Rollout], error)
	RolloutsByID(ctx context.Context, organization int64, ids []int64) (map[int64]core.Rollout, error)
	// KnownCommits are those of some commits that the record has: of deployments, or by an earlier reconciliation.
	KnownCommits(ctx context.Context, organization int64, shas []string) (map[string]bool, error)
	// InForce are the applications and environments in which the reconciler reported one of some commits last, by commit.
	InForce(ctx context.Context, organization int64, shas []string) (map[string][]string, error)
}

// Tx is what a use case may do in its transaction.
type Tx interface {
	core.ChangeTx
	// HandOverAgain makes the start of a run due that was handed over before; pending reports whether it was due already.
	HandOverAgain(ctx context.Context, workflow string, at time.Time) (again, pending bool, err error)
}

// Rollouts changes the record of rollouts.
type Rollouts interface {
	// Granted are the passages that the record has as granted, with when, by rollout.
	Granted(ctx context.Context, organization int64, rollouts []int64) (map[int64]map[string]time.Time, error)
	// AddGrants writes passages to the record of a rollout that it was granted before the restore.
	AddGrants(ctx context.Context, a core.Actor, rollout int64, granted []rollout.GrantedPassage, reason string) error
	// RepeatGrants announces passages again that the record has as granted.
	RepeatGrants(ctx context.Context, a core.Actor, rollout int64, gates []string) error
}

// Deps is what UseCases needs.
type Deps struct {
	Store    Store
	Engine   Engine
	Rollouts Rollouts
	// Received reports which of some events of a source were received, applied or refused.
	Received func(ctx context.Context, source string, ids []string) (map[string]bool, error)
	// Wake is called after a change that has to be handed over or published.
	Wake  func()
	Clock clock.Clock
}

// UseCases compares and settles. It is safe for concurrent use.
type UseCases struct{ deps Deps }

// New makes the use cases over their dependencies.
func New(d Deps) *UseCases { return &UseCases{deps: d} }

const (
	// longestAgo bounds how far back a comparison goes: both services keep events for 30 days.
	longestAgo = 14 * 24 * time.Hour
	// underWay is how long a message may take to arrive before its absence is a difference.
	underWay = time.Minute
	// endsWithin is how long a run may take to end after its rollout has: programs clean up.
	endsWithin = 15 * time.Minute
	// rolloutsAtOnce and runsAtOnce are how many one page compares.
	rolloutsAtOnce = 50
	runsAtOnce     = 100
	// trailerRollout is the trailer with which drivers name the rollout of a commit.
	trailerRollout = "Lockstep-Rollout"
)

// parts are the stretches of a comparison, in their order: what a rollout has been granted comes before what it has reported.
func (u *UseCases) parts() []part {
	return []part{
		{"rollouts", u.rollouts}, {"reports", u.reports}, {"runs", u.runs}, {"commits", u.commits},
	}
}

type part struct {
	name string
	// compare compares one page.
	compare func(ctx context.Context, organization int64, since time.Time, after string) (found []Difference, next string, err error)
}

// Differences is one page of the comparison, of what happened since a time: that to which the database was restored. It changes nothing.
func (u *UseCases) Differences(ctx context.Context, a core.Actor, since time.Time, after string) (Page, error) {
	if err := a.May(core.ActionReconcile); err != nil {
		return Page{}, err
	}
	if err := u.checkSince(since); err != nil {
		return Page{}, err
	}
	parts := u.parts()
	name, token, _ := strings.Cut(after, ":")
	if after == "" {
		name = parts[0].name
	}
	for i, p := range parts {
		if p.name != name {
			continue
		}
		found, next, err := p.compare(ctx, a.Organization, since, token)
		page := Page{Differences: found}
		switch {
		case err != nil:
			return Page{}, err
		case next != "":
			page.Next = p.name + ":" + next
		case i+1 < len(parts):
			page.Next = parts[i+1].name + ":"
		}
		return page, nil
	}
	return Page{}, fault.InvalidFields(fault.Field{
		Name:    "after",
		Problem: fmt.Sprintf("found %.40q, expected what the page before ended with", after),
	})
}

func (u *UseCases) checkSince(since time.Time) error {
	now := u.deps.Clock.Now()
	if since.After(now) || since.Before(now.Add(-longestAgo)) {
		return fault.InvalidFields(fault.Field{Name: "since", Problem: fmt.Sprintf(
			"found %s, expected a time of the past 14 days: events are not kept for longer everywhere", since.UTC().Format(time.RFC3339))})
	}
	return nil
}

// rollouts compares a page of rollouts under way with their runs.
func (u *UseCases) rollouts(ctx context.Context, organization int64, since time.Time, after string) ([]Difference, string, error) {
	page, err := u.deps.Store.Rollouts(ctx, organization, core.RolloutFilter{
		States: []core.RolloutState{core.RolloutPending, core.RolloutInProgress, core.RolloutPaused},
	}, core.Page{First: rolloutsAtOnce, After: after})
	if err != nil {
		return nil, "", err
	}
	found, err := u.compareRollouts(ctx, organization, since, page.Nodes)
	if !page.HasNext {
		return found, "", err
	}
	return found, page.EndCursor(), err
}

func (u *UseCases) compareRollouts(
	ctx context.Context, organization int64, since time.Time, all []core.Rollout,
) (found []Difference, err error) {
	if len(all) == 0 {
		return nil, nil
	}
	ids, workflows := make([]int64, len(all)), make([]string, len(all))
	for i, r := range all {
		ids[i], workflows[i] = r.ID, id.RolloutRun(r.ID)
	}
	recorded, err := u.deps.Rollouts.Granted(ctx, organization, ids)
	if err != nil {
		return nil, err
	}
	known, err := u.deps.Engine.Passages(ctx, organization, workflows, since)
	if err != nil {
		return nil, err
	}
	for i, r := range all {
		if r.WorkflowRef == "" { // not handed over yet, or without an answer: the dispatcher does that
			continue
		}
		switch _, err := u.deps.Engine.WorkflowByID(ctx, organization, workflows[i]); {
		case fault.Is(err, fault.NotFound):
			found = append(found, Difference{
				Kind: RunMissing, Subject: name(r.ID), Rollout: r.ID,
				Problem: fmt.Sprintf("it is %s, and the workflow service has no run %s", r.State, workflows[i]),
				Remedy:  "hand the run over again; what it finds done it does not do again",
			})
			continue
		case err != nil:
			return nil, err
		}
		if gates := unannounced(recorded[r.ID], known[workflows[i]], since, u.deps.Clock.Now().Add(-underWay)); len(gates) > 0 {
			found = append(found, Difference{
				Kind: EngineBehind, Subject: name(r.ID), Rollout: r.ID,
				Problem: "the workflow service was not notified of granted passages: " + strings.Join(gates, ", "),
				Remedy:  "announce these passages again",
			})
		}
		if missing := unrecorded(recorded[r.ID], known[workflows[i]]); len(missing) > 0 {
			found = append(found, behind(r.ID, missing, 0))
		}
	}
	return found, nil
}

func name(rollout int64) string { return fmt.Sprintf("rollout_%d", rollout) }

// behind is the difference of a rollout whose record lacks passages or reports.
func behind(number int64, missing []rollout.GrantedPassage, reports int) Difference {
	var problems []string
	if len(missing) > 0 {
		gates := make([]string, len(missing))
		for i, p := range missing {
			gates[i] = p.GateID
		}
		problems = append(problems, "passages that it was granted: "+strings.Join(gates, ", "))
	}
	if reports > 0 {
		problems = append(problems, strconv.Itoa(reports)+" reports of its run")
	}
	return Difference{
		Kind: RecordBehind, Subject: name(number), Rollout: number, Problem: "the record does not have " + strings.Join(problems, ", and "),
		Remedy: "write the passages to its journal, and have its run's reports sent again",
	}
}

// unannounced are the passages that the record has granted within a stretch of time and the workflow service does not know.
func unannounced(recorded map[string]time.Time, known []rollout.GrantedPassage, since, until time.Time) (gates []string) {
	has := map[string]bool{}
	for _, p := range known {
		has[p.GateID] = true
	}
	for gate, at := range recorded {
		if !has[gate] && at.After(since) && at.Before(until) {
			gates = append(gates, gate)
		}
	}
	return sorted(gates)
}

// unrecorded are the passages that the workflow service knows to be granted and the record does not have.
func unrecorded(recorded map[string]time.Time, known []rollout.GrantedPassage) (missing []rollout.GrantedPassage) {
	for _, p := range known {
		if _, has := recorded[p.GateID]; !has {
			missing = append(missing, p)
		}
	}
	return missing
}

// reports finds what runs have published and the record has not received.
func (u *UseCases) reports(ctx context.Context, organization int64, since time.Time, after string) ([]Difference, string, error) {
	all, next, err := u.deps.Engine.Reports(ctx, organization, since, "", after)
	if err != nil {
		return nil, "", err
	}
	missing, err := u.missingReports(ctx, all)
	if err != nil {
		return nil, "", err
	}
	counts, ids := map[int64]int{}, []int64{}
	for _, r := range missing {
		if number := id.Rollout(r.Workflow); number != 0 {
			if counts[number] == 0 {
				ids = append(ids, number)
			}
			counts[number]++
		}
	}
	known, err := u.deps.Store.RolloutsByID(ctx, organization, ids)
	if err != nil {
		return nil, "", err
	}
	var found []Difference
	for _, number := range ids {
		if _, is := known[number]; is { // of a rollout that the record lacks, the run or the commits are reported
			found = append(found, behind(number, nil, counts[number]))
		}
	}
	return found, next, nil
}

// missingReports are those that have not come here, apart from those that may be on their way.
func (u *UseCases) missingReports(ctx context.Context, all []Report) (missing []Report, err error) {
	bySource := map[string][]string{}
	for _, r := range all {
		bySource[r.Source] = append(bySource[r.Source], r.ID)
	}
	received := map[string]map[string]bool{}
	for source, ids := range bySource {
		if received[source], err = u.deps.Received(ctx, source, ids); err != nil {
			return nil, err
		}
	}
	until := u.deps.Clock.Now().Add(-underWay)
	for _, r := range all {
		if !received[r.Source][r.ID] && r.Time.Before(until) {
			missing = append(missing, r)
		}
	}
	return missing, nil
}

// runs finds runs of rollouts under way that are over in the record, or not in it.
func (u *UseCases) runs(ctx context.Context, organization int64, _ time.Time, after string) ([]Difference, string, error) {
	page, err := u.deps.Engine.ListWorkflows(ctx, organization, handoff.WorkflowFilter{
		States:             []handoff.WorkflowState{handoff.WorkflowRunning, handoff.WorkflowParked},
		WorkflowConditions: handoff.WorkflowConditions{IDPrefix: "rollout-"},
	}, core.Page{First: runsAtOnce, After: after})
	if err != nil {
		return nil, "", err
	}
	found, err := u.compareRuns(ctx, organization, page.Nodes)
	if !page.HasNext {
		return found, "", err
	}
	return found, page.EndCursor(), err
}

func (u *UseCases) compareRuns(ctx context.Context, organization int64, runs []handoff.WorkflowRun) (found []Difference, err error) {
	var ids []int64
	for _, w := range runs {
		if number := id.Rollout(w.ID); number != 0 {
			ids = append(ids, number)
		}
	}
	known, err := u.deps.Store.RolloutsByID(ctx, organization, ids)
	if err != nil {
		return nil, err
	}
	now := u.deps.Clock.Now()
	for _, w := range runs {
		number := id.Rollout(w.ID)
		if number == 0 {
			continue
		}
		switch r, is := known[number]; {
		case !is && w.CreatedAt.Before(now.Add(-underWay)):
			found = append(found, Difference{
				Kind: RunUnknown, Subject: w.ID,
				Problem: fmt.Sprintf("the workflow service runs it (%s), and the record has no %s", w.State, name(number)),
				Remedy:  "cancel the run",
			})
		case is && r.State.Terminal() && r.FinishedAt != nil && r.FinishedAt.Before(now.Add(-endsWithin)):
			found = append(found, Difference{
				Kind: RunOutlives, Subject: w.ID, Rollout: number,
				Problem: fmt.Sprintf("%s is %s in the record, and its run is %s", name(number), r.State, w.State),
				Remedy:  "cancel the run",
			})
		}
	}
	return found, nil
}

// commits finds commits in the branches of environments that the record does not have.
func (u *UseCases) commits(
	ctx context.Context, organization int64, _ time.Time, after string,
) (found []Difference, next string, err error) {
	branches, next, err := u.deps.Engine.Commits(ctx, organization, after)
	if err != nil {
		return nil, "", err
	}
	for _, b := range branches {
		if b.Problem != "" {
			found = append(found, Difference{
				Kind: BranchUnread, Subject: strings.TrimSpace(b.Repository + " " + b.Name), Problem: "it could not be read: " + b.Problem,
			})
			continue
		}
		missing, err := u.compareCommits(ctx, organization, b)
		if err != nil {
			return nil, "", err
		}
		found = append(found, missing...)
	}
	return found, next, nil
}

func (u *UseCases) compareCommits(ctx context.Context, organization int64, b Branch) (found []Difference, err error) {
	var shas []string
	var ids []int64
	of := map[string]int64{}
	for _, c := range b.Commits {
		number, err := strconv.ParseInt(c.Trailers[trailerRollout], 10, 64)
		if err != nil || number <= 0 { // of no rollout
			continue
		}
		shas, ids, of[c.SHA] = append(shas, c.SHA), append(ids, number), number
	}
	if len(shas) == 0 {
		return nil, nil
	}
	commits, err := u.deps.Store.KnownCommits(ctx, organization, shas)
	if err != nil {
		return nil, err
	}
	rollouts, err := u.deps.Store.RolloutsByID(ctx, organization, core.Distinct(ids))
	if err != nil {
		return nil, err
	}
	inForce, err := u.deps.Store.InForce(ctx, organization, shas)
	if err != nil {
		return nil, err
	}
	for _, sha := range shas {
		r, is := rollouts[of[sha]]
		if commits[sha] || is && !r.State.Terminal() { // one under way finds its commits by itself
			continue
		}
		d := Difference{
			Kind: CommitUnknown, Subject: sha, Problem: fmt.Sprintf("%s %s has it for rollout %d, which the record does not have",
				b.Repository, b.Name, of[sha]),
			Remedy: "keep in the journal that the commit exists; what it deployed stays, and a new rollout replaces it",
		}
		if is {
			d.Rollout = r.ID
			d.Problem = fmt.Sprintf("%s %s has it for %s, whose record does not have the commit", b.Repository, b.Name, name(r.ID))
		}
		if places := inForce[sha]; len(places) > 0 {
			d.Problem += "; it is in force in " + strings.Join(places, ", ")
		}
		found = append(found, d)
	}
	return found, nil
}
