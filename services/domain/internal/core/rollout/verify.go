package rollout

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
)

// The states are caches (R42). What follows rebuilds them from the journal, and says where the two part.

// JournalDifference is one place where a cache differs from the journal, or where the journal contains what is impossible.
type JournalDifference struct {
	Subject core.Subject
	Problem string
	// Breach reports whether the journal has something beyond a passage that was not granted; the states agree.
	Breach bool
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
func (u *UseCases) CheckJournal(ctx context.Context, a core.Actor, p core.Page) (JournalCheck, error) {
	var check JournalCheck
	if err := a.May(core.ActionCheckJournal); err != nil {
		return check, err
	}
	page, err := u.store.Rollouts(ctx, a.Organization, core.RolloutFilter{}, p)
	if err != nil {
		return check, err
	}
	check.Rollouts = len(page.Nodes)
	if page.HasNext {
		check.Next = page.EndCursor()
	}
	for _, r := range page.Nodes {
		// Under the lock of the rollout: a look beside it would take a change under way for a difference.
		err := u.store.In(ctx, a.Organization, func(ctx context.Context, tx Tx) error {
			t, err := lockTree(ctx, tx, cause{Actor: a, at: u.clock.Now()}, r.ID)
			if err != nil {
				return err
			}
			rows, err := wholeJournal(ctx, tx, a.Organization, r.ID)
			if err != nil {
				return err
			}
			check.Rows += len(rows)
			check.Differences = append(check.Differences, t.differences(rows)...)
			found, err := t.breaches(ctx, rows)
			check.Differences = append(check.Differences, found...)
			return err
		})
		if err != nil {
			return check, fmt.Errorf("check journal of rollout %d: %w", r.ID, err)
		}
	}
	if err := u.checkCells(ctx, a.Organization, page.Nodes, &check); err != nil {
		return check, err
	}
	if check.Next == "" {
		err = u.checkCellsBeforeRollouts(ctx, a.Organization, &check)
	}
	return check, err
}

// checkCells compares the cells of the applications whose newest rollout is in a page: so each is compared once.
func (u *UseCases) checkCells(ctx context.Context, organization int64, page []core.Rollout, check *JournalCheck) error {
	var applications, here []int64
	for _, r := range page {
		applications = append(applications, r.ApplicationID)
	}
	newest, err := u.store.RolloutsByApplication(ctx, organization, core.Distinct(applications), core.Page{First: 1})
	if err != nil {
		return err
	}
	for _, r := range page {
		// One that was made while the pages were read is on none of them: then this one is as good as the newest.
		if of := newest[r.ApplicationID].Nodes; len(of) == 0 || of[0].ID <= r.ID {
			here = append(here, r.ApplicationID)
		}
	}
	return u.compareCells(ctx, organization, here, check)
}

// checkCellsBeforeRollouts compares the cells of the applications that were never rolled out.
func (u *UseCases) checkCellsBeforeRollouts(ctx context.Context, organization int64, check *JournalCheck) error {
	never := false
	for p := (core.Page{First: applicationsAtOnce}); ; {
		page, err := u.store.Applications(ctx, organization, core.ApplicationFilter{RolledOut: &never}, p)
		if err != nil {
			return err
		}
		ids := make([]int64, len(page.Nodes))
		for i, one := range page.Nodes {
			ids[i] = one.ID
		}
		if err := u.compareCells(ctx, organization, ids, check); err != nil || !page.HasNext {
			return err
		}
		p.After = page.EndCursor()
	}
}

// applicationsAtOnce is how many applications' cells one statement compares.
const applicationsAtOnce = 200

func (u *UseCases) compareCells(ctx context.Context, organization int64, applications []int64, check *JournalCheck) error {
	cells, err := u.store.CellDifferences(ctx, organization, applications)
	for _, c := range cells {
		check.Differences = append(check.Differences, difference(c))
	}
	return err
}

func difference(c core.CellDifference) JournalDifference {
	subject := core.Subject{Kind: core.SubjectRolloutEnvironment, ID: c.StopID}
	if c.StopID == 0 {
		subject = core.Subject{Kind: core.SubjectApplication, ID: c.ApplicationID}
	}
	return JournalDifference{
		Subject: subject, Problem: fmt.Sprintf("the matrix has for environment %d: %s; the record says: %s", c.EnvironmentID, c.Kept, c.Rebuilt),
	}
}

func wholeJournal(ctx context.Context, r Tx, organization, rollout int64) ([]core.Transition, error) {
	var all []core.Transition
	p := core.Page{First: 500}
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
	state             core.State
	started, finished *time.Time
	problems          []string
}

// rebuild reads a journal, oldest first.
func rebuild(rows []core.Transition) map[core.Subject]*account {
	all := map[core.Subject]*account{}
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

func (a *account) read(row core.Transition, known bool) {
	wrong := func(format string, args ...any) {
		a.problems = append(a.problems, fmt.Sprintf("row %d, %s: ", row.ID, row.Verb)+fmt.Sprintf(format, args...))
	}
	switch {
	case row.From == "" && known:
		wrong("found a second creation")
	case row.From != "" && !known:
		wrong("found it from %s before any creation", row.From)
	case row.From != "" && row.From != a.state:
		wrong("found it from %s; expected from %s, where the row before leaves it", row.From, a.state)
	case row.From != "" && !core.Legal(row):
		wrong("found %s to %s, which is no path of a %s", row.From, row.To, row.Subject.Kind)
	}
	moved := row.From != "" && row.From != row.To
	a.state = row.To
	if moved && a.started == nil && (row.To == core.State(core.RolloutInProgress) || row.To == core.State(core.DeploymentDeploying)) {
		a.started = &row.CreatedAt
	}
	if moved && row.To.Terminal() {
		a.finished = &row.CreatedAt
	}
}

// differences compares what is cached of a locked rollout with its journal.
func (t *tree) differences(rows []core.Transition) []JournalDifference {
	rebuilt := rebuild(rows)
	var found []JournalDifference
	compare := func(s core.Subject, state core.State, started, finished *time.Time) {
		a, known := rebuilt[s]
		if !known {
			found = append(found, JournalDifference{Subject: s, Problem: "found no row; expected at least its creation"})
			return
		}
		problems := a.problems
		if a.state != state {
			problems = append(problems, fmt.Sprintf("the state is %s; the journal says %s", state, a.state))
		}
		if !sameInstant(a.started, started) {
			problems = append(problems, fmt.Sprintf("it started at %s; the journal says %s", instant(started), instant(a.started)))
		}
		if !sameInstant(a.finished, finished) {
			problems = append(problems, fmt.Sprintf("it ended at %s; the journal says %s", instant(finished), instant(a.finished)))
		}
		for _, problem := range problems {
			found = append(found, JournalDifference{Subject: s, Problem: problem})
		}
	}
	compare(core.Subject{Kind: core.SubjectRollout, ID: t.rollout.ID}, core.State(t.rollout.State), t.rollout.StartedAt, t.rollout.FinishedAt)
	for _, b := range t.environments {
		compare(core.Subject{Kind: core.SubjectRolloutEnvironment, ID: b.ID}, core.State(b.State), b.StartedAt, b.FinishedAt)
		for _, dep := range b.deployments {
			compare(core.Subject{Kind: core.SubjectDeployment, ID: dep.ID}, core.State(dep.State), dep.StartedAt, dep.FinishedAt)
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

// What follows brings a record that was restored to an earlier time together with what the workflow service knows (D66).

// GrantedPassage is a passage that the workflow service was notified of. Pinned are the weights of the environment, in percent, that each
// need a passage of their own; only of an entrance.
type GrantedPassage struct {
	GateID string
	Pinned []int
}

// Granted are the passages that the record has as granted, with when, by rollout. Those of skipped weights are not among them: they are not
// announced.
func (u *UseCases) Granted(ctx context.Context, organization int64, rollouts []int64) (map[int64]map[string]time.Time, error) {
	granted := make(map[int64]map[string]time.Time, len(rollouts))
	err := u.store.In(ctx, organization, func(ctx context.Context, tx Tx) error {
		rows, err := tx.GateWordsByRollout(ctx, organization, rollouts)
		for id, of := range rows {
			granted[id] = map[string]time.Time{}
			for _, row := range of {
				if row.Verb == core.VerbPassGate && row.Subject.Kind == core.SubjectRollout {
					granted[id][row.GateID] = row.CreatedAt
				}
			}
		}
		return err
	})
	return granted, err
}

// AddGrants writes passages to the record of a rollout under way: the record was restored to a time before it granted them. Which approvals
// they had is no longer known, so CheckJournal reports those that are missing.
func (u *UseCases) AddGrants(ctx context.Context, a core.Actor, rollout int64, granted []GrantedPassage, reason string) error {
	return u.store.In(ctx, a.Organization, func(ctx context.Context, tx Tx) error {
		t, err := lockTree(ctx, tx, cause{Actor: a, at: u.clock.Now(), triggeredBy: "reconciliation"}, rollout)
		if err != nil || t.rollout.State.Terminal() {
			return err
		}
		if err := t.moveRollout(ctx, core.VerbStart, ""); err != nil {
			return err
		}
		p, err := t.passages(ctx)
		if err != nil {
			return err
		}
		for _, g := range granted {
			if p.hold.Granted[g.GateID] {
				continue
			}
			row := t.requestRow(core.VerbPassGate, g.GateID, core.Because("it was granted before the record was restored", reason))
			if b := p.entrance(g.GateID); b != nil {
				row.Conditions = p.skips(b, notPinned(b, g))
			}
			if err := tx.Record(ctx, row); err != nil {
				return err
			}
			p.hold.Read(row)
		}
		return nil
	})
}

// notPinned are the weights at which the rollout would stop and that need no passage of their own: its program skips them.
func notPinned(b *branch, g GrantedPassage) (skipped []core.Condition) {
	entrance, _, _ := strings.Cut(g.GateID, "/")
	for _, w := range b.Weights {
		if !slices.Contains(g.Pinned, w.Weight) {
			skipped = append(skipped, core.Condition{
				Kind: core.ConditionSkippedWeight, GateID: weightGate(entrance, w.Weight), Cause: core.SkipsProgram,
			})
		}
	}
	return skipped
}

// RepeatGrants announces passages again that the record has as granted. The workflow service takes the later announcement of two.
func (u *UseCases) RepeatGrants(ctx context.Context, a core.Actor, rollout int64, gates []string) error {
	err := u.store.In(ctx, a.Organization, func(ctx context.Context, tx Tx) error {
		t, err := lockTree(ctx, tx, cause{Actor: a, at: u.clock.Now()}, rollout)
		if err != nil || t.rollout.State.Terminal() {
			return err
		}
		p, err := t.passages(ctx)
		if err != nil {
			return err
		}
		for _, gate := range gates {
			if !p.hold.Passed[gate] {
				continue
			}
			if err := t.grant(ctx, gate, p.skipped(gate)); err != nil {
				return err
			}
		}
		return nil
	})
	u.wake()
	return err
}
