package core

import (
	"context"
	"fmt"
	"slices"
	"time"
)

// The states are caches (R42). What follows rebuilds them from the journal, and says where the two part.

// JournalDifference is one place where a cache is not what the journal says, or where the journal tells what cannot be.
type JournalDifference struct {
	Subject Subject
	Problem string
}

// JournalCheck is what came of checking a page of rollouts.
type JournalCheck struct {
	Rollouts, Rows int
	Differences    []JournalDifference
	// Next is where the next page begins; empty after the last one.
	Next string
}

// CheckJournal rebuilds the states of a page of rollouts, newest first, and of everything under them, and compares the cells
// of the matrix with what they are kept from: those of an application with its newest rollout, and those of applications that
// were never rolled out with the last page. It changes nothing.
func (d *Domain) CheckJournal(ctx context.Context, a Actor, p Page) (JournalCheck, error) {
	var check JournalCheck
	if err := a.May(ActionCheckJournal); err != nil {
		return check, err
	}
	page, err := d.Rollouts(ctx, a.Organization, RolloutFilter{}, p)
	if err != nil {
		return check, err
	}
	check.Rollouts = len(page.Nodes)
	if page.HasNext {
		check.Next = page.EndCursor()
	}
	for _, r := range page.Nodes {
		// Under the lock of the rollout: a look beside it would take a change under way for a difference.
		err := d.store.In(ctx, a.Organization, func(ctx context.Context, tx Tx) error {
			t, err := lockTree(ctx, tx, cause{Actor: a, at: d.clock.Now()}, r.ID)
			if err != nil {
				return err
			}
			rows, err := wholeJournal(ctx, tx, a.Organization, r.ID)
			check.Rows += len(rows)
			check.Differences = append(check.Differences, t.differences(rows)...)
			return err
		})
		if err != nil {
			return check, fmt.Errorf("check journal of rollout %d: %w", r.ID, err)
		}
	}
	if err := d.checkCells(ctx, a.Organization, page.Nodes, &check); err != nil {
		return check, err
	}
	if check.Next == "" {
		err = d.checkCellsBeforeRollouts(ctx, a.Organization, &check)
	}
	return check, err
}

// checkCells compares the cells of the applications whose newest rollout is in a page: so each is compared once.
func (d *Domain) checkCells(ctx context.Context, organization int64, page []Rollout, check *JournalCheck) error {
	var applications, here []int64
	for _, r := range page {
		applications = append(applications, r.ApplicationID)
	}
	newest, err := d.RolloutsByApplication(ctx, organization, distinct(applications), Page{First: 1})
	if err != nil {
		return err
	}
	for _, r := range page {
		// One that was made while the pages were read is on none of them: then this one is as good as the newest.
		if of := newest[r.ApplicationID].Nodes; len(of) == 0 || of[0].ID <= r.ID {
			here = append(here, r.ApplicationID)
		}
	}
	return d.compareCells(ctx, organization, here, check)
}

// checkCellsBeforeRollouts compares the cells of the applications that were never rolled out.
func (d *Domain) checkCellsBeforeRollouts(ctx context.Context, organization int64, check *JournalCheck) error {
	never := false
	for p := (Page{First: applicationsAtOnce}); ; {
		page, err := d.Applications(ctx, organization, ApplicationFilter{RolledOut: &never}, p)
		if err != nil {
			return err
		}
		ids := make([]int64, len(page.Nodes))
		for i, one := range page.Nodes {
			ids[i] = one.ID
		}
		if err := d.compareCells(ctx, organization, ids, check); err != nil || !page.HasNext {
			return err
		}
		p.After = page.EndCursor()
	}
}

// applicationsAtOnce is how many applications' cells one statement compares.
const applicationsAtOnce = 200

func (d *Domain) compareCells(ctx context.Context, organization int64, applications []int64, check *JournalCheck) error {
	cells, err := d.CellDifferences(ctx, organization, applications)
	for _, c := range cells {
		check.Differences = append(check.Differences, c.difference())
	}
	return err
}

// CellContent is what the matrix keeps of an application in an environment.
type CellContent struct {
	// Exists is whether there is such a cell; nothing else is said of one that does not exist.
	Exists bool
	// ApplicationName is what the matrix goes by, Shown whether the cell is in it, and Worst the worst health there, for people.
	ApplicationName string
	Shown           bool
	Worst           string
	// LatestStopID is the newest rollout's rollout environment, and LatestState its state; 0 and -1 for none.
	LatestStopID int64
	LatestState  int16
	// LiveStopID is that of the newest rollout that completed there, with its version set and when; 0 and empty for none.
	LiveStopID, LiveVersionSetID int64
	LiveSince                    string
}

// String says it for people.
func (c CellContent) String() string {
	if !c.Exists {
		return "nothing"
	}
	text, shown := "no stop", "shown"
	if c.LatestStopID != 0 {
		text = fmt.Sprintf("stop %d %s", c.LatestStopID, StateName(SubjectRolloutEnvironment, c.LatestState))
	}
	if !c.Shown {
		shown = "not shown"
	}
	text += fmt.Sprintf(", %s of %q, %s", shown, c.ApplicationName, c.Worst)
	if c.LiveStopID == 0 {
		return text + ", nothing live"
	}
	return text + fmt.Sprintf(", version set %d live by stop %d since %s", c.LiveVersionSetID, c.LiveStopID, c.LiveSince)
}

// CellDifference is a cell that is not what the application, its pipelines, its rollouts and its services' healths say.
type CellDifference struct {
	ApplicationID, EnvironmentID int64
	// StopID is the newest stop, by which the cell is named; 0 before the first, when its application names it.
	StopID     int64
	Kept, Told CellContent
}

func (c CellDifference) difference() JournalDifference {
	subject := Subject{SubjectRolloutEnvironment, c.StopID}
	if c.StopID == 0 {
		subject = Subject{SubjectApplication, c.ApplicationID}
	}
	return JournalDifference{subject, fmt.Sprintf("the matrix has for environment %d: %s; the record says: %s", c.EnvironmentID, c.Kept, c.Told)}
}

func wholeJournal(ctx context.Context, r Reads, organization, rollout int64) ([]Transition, error) {
	var all []Transition
	p := Page{First: 500}
	for {
		page, err := r.Journal(ctx, organization, rollout, p)
		if err != nil {
			return nil, err
		}
		all = append(all, page.Nodes...)
		if !page.HasNext {
			return all, nil
		}
		p.After = page.EndCursor()
	}
}

// account is what a journal says of one subject.
type account struct {
	state             int16
	started, finished *time.Time
	problems          []string
}

// rebuild reads a journal, oldest first.
func rebuild(rows []Transition) map[Subject]*account {
	all := map[Subject]*account{}
	for _, row := range rows {
		a, known := all[row.Subject]
		if !known {
			a = &account{}
			all[row.Subject] = a
		}
		a.read(row, known)
	}
	return all
}

func (a *account) read(row Transition, known bool) {
	wrong := func(format string, args ...any) {
		a.problems = append(a.problems, fmt.Sprintf("row %d, %s: ", row.ID, row.Verb)+fmt.Sprintf(format, args...))
	}
	switch {
	case row.From == nil && known:
		wrong("found a second creation")
	case row.From != nil && !known:
		wrong("found it from %s before any creation", row.FromName())
	case row.From != nil && *row.From != a.state:
		wrong("found it from %s; expected from %s, where the row before leaves it", row.FromName(), StateName(row.Subject.Kind, a.state))
	case row.From != nil && !legal(row):
		wrong("found %s to %s, which is no path of a %s", row.FromName(), row.ToName(), row.Subject.Kind)
	}
	moved := row.From != nil && *row.From != row.To
	a.state = row.To
	if moved && a.started == nil && row.To == int16(RolloutInProgress) { // 1 is under way for deployments, too
		a.started = &row.CreatedAt
	}
	if moved && terminal(row.Subject.Kind, row.To) {
		a.finished = &row.CreatedAt
	}
}

// legal is whether a row is a request, which changes no state (D17), or a move of the life cycle.
func legal(row Transition) bool {
	requests := []Verb{
		VerbRequestApproval, VerbApprove, VerbReject, VerbExpire, VerbReachGate, VerbPassGate, VerbRequestPassage, VerbAbort, VerbRetry, VerbPause, VerbResume,
		VerbSkip, VerbBreakGlass, VerbStopRollback,
	}
	if *row.From == row.To {
		return slices.Contains(requests, row.Verb)
	}
	to, ok := machineOf(row.Subject.Kind)[*row.From][row.Verb]
	return ok && to == row.To
}

func terminal(kind SubjectKind, state int16) bool {
	if kind == SubjectDeployment {
		return DeploymentState(state).Terminal()
	}
	return RolloutState(state).Terminal()
}

// differences compares what is cached of a locked rollout with its journal.
func (t *tree) differences(rows []Transition) []JournalDifference {
	told := rebuild(rows)
	var found []JournalDifference
	compare := func(s Subject, state int16, started, finished *time.Time) {
		a, known := told[s]
		if !known {
			found = append(found, JournalDifference{s, "found no row; expected at least its creation"})
			return
		}
		problems := a.problems
		if a.state != state {
			problems = append(problems, fmt.Sprintf("the state is %s; the journal says %s", StateName(s.Kind, state), StateName(s.Kind, a.state)))
		}
		if !sameInstant(a.started, started) {
			problems = append(problems, fmt.Sprintf("it started at %s; the journal says %s", instant(started), instant(a.started)))
		}
		if !sameInstant(a.finished, finished) {
			problems = append(problems, fmt.Sprintf("it ended at %s; the journal says %s", instant(finished), instant(a.finished)))
		}
		for _, problem := range problems {
			found = append(found, JournalDifference{s, problem})
		}
	}
	compare(Subject{SubjectRollout, t.rollout.ID}, int16(t.rollout.State), t.rollout.StartedAt, t.rollout.FinishedAt)
	for _, b := range t.environments {
		compare(Subject{SubjectRolloutEnvironment, b.ID}, int16(b.State), b.StartedAt, b.FinishedAt)
		for _, dep := range b.deployments {
			compare(Subject{SubjectDeployment, dep.ID}, int16(dep.State), dep.StartedAt, dep.FinishedAt)
		}
	}
	return found
}

func sameInstant(a, b *time.Time) bool {
	return a == nil && b == nil || a != nil && b != nil && a.Equal(*b)
}

func instant(at *time.Time) string {
	if at == nil {
		return "never"
	}
	return at.UTC().Format(time.RFC3339Nano)
}
