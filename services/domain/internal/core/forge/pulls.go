package forge

import (
	"cmp"
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/id"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/handoff"
)

// pullProgram reads a pull request, or comments on it.
//
//go:embed pull.star
var pullProgram []byte

// pullNext begins the next pull request of an organization, or looks at the run that is about one, as sendNext does with statuses. It comes
// after them: what anybody may cause at a forge holds up nothing else.
func (u *UseCases) pullNext(ctx context.Context, organization int64) (Worked, bool, error) {
	var p Pull
	w := Worked{Organization: organization, What: "plan"}
	found, calls := false, false
	err := u.store.In(ctx, organization, func(ctx context.Context, tx Tx) (err error) {
		now := u.clock.Now()
		if p, found, err = tx.DueForgePull(ctx, now, now.Add(-window), longestWait, pullRate, pullsTogether); err != nil || !found {
			return err
		}
		w.Pull = p.ID
		if calls = p.State == Sending; calls {
			p.DueAt = now.Add(lease)
			return tx.SaveForgePull(ctx, p)
		}
		p, calls, err = u.beginPull(ctx, tx, organization, p, now)
		return err
	})
	if err != nil || !found {
		return w, false, err
	}
	w.State = p.State
	if !calls {
		w.What, w.Error = "put off", p.Error
		return w, true, nil
	}
	if p.Started {
		w.What = "look"
		p, err = u.lookAtPull(ctx, organization, p)
	} else {
		p, err = u.startPull(ctx, organization, p)
	}
	w.State, w.Error = p.State, p.Error
	return w, true, err
}

// beginPull has a pull request read, unless its server has enough to do, or its hook has no plans written any more.
func (u *UseCases) beginPull(ctx context.Context, tx Tx, organization int64, p Pull, now time.Time) (Pull, bool, error) {
	hooks, err := tx.ForgeHooks(ctx, organization)
	if err != nil {
		return p, false, err
	}
	if p.Step = p.next(hooks); p.Step == "" {
		p.State, p.SentAt, p.Error, p.Step = Failed, &now, "its hook was removed", StepRead
		p.Inputs, p.Reading = nil, nil
		u.counts.pulls.failed.Add(1)
		return p, false, tx.SaveForgePull(ctx, p)
	}
	h, err := tx.LockForgeHost(ctx, p.Host)
	if err != nil {
		return p, false, err
	}
	sending, err := tx.ForgePullsSending(ctx, p.Host)
	if err != nil {
		return p, false, err
	}
	if !now.Before(h.PullWindowAt.Add(window)) || h.PullWindowAt.After(now) {
		h.PullWindowAt, h.PullWindowCount = now, 0
	}
	own, err := tx.OwnForgeCredential(ctx, "", p.Repository)
	if err != nil {
		return p, false, err
	}
	p.SpentAt = nil
	var b Budget
	if !own {
		if b, err = tx.LockForgeBudget(ctx, p.Host); err != nil {
			return p, false, err
		}
	}
	if until, not := h.pullsWait(now, sending, b); not {
		if until.IsZero() { // by another worker, just now: it is not due until that one is done
			return p, false, nil
		}
		h.Pulls.PausedUntil = until
		return p, false, tx.SaveForgeHost(ctx, h)
	}
	if !own {
		if wait := b.spend(now, rateOfAll/2); !wait.IsZero() {
			h.Pulls.PausedUntil = wait
			return p, false, tx.SaveForgeHost(ctx, h)
		}
		if err := keep(ctx, tx, p.Host, b, now); err != nil {
			return p, false, err
		}
		p.SpentAt = &now
	}
	h.PullWindowCount++
	if err := tx.SaveForgeHost(ctx, h); err != nil {
		return p, false, err
	}
	if p, err = u.begun(ctx, tx, organization, p, now); err != nil {
		return p, false, err
	}
	if err := tx.SaveForgePull(ctx, p); err != nil {
		return p, false, err
	}
	p, err = tx.LockForgePull(ctx, p.ID) // with the inputs as they are read again if the run is begun a second time
	return p, err == nil, err
}

// next is what is to be done with a pull request; empty if no hook is for it any more. Answers come first, for which people wait, unless
// the last run was about answers: they keep no plan from being written.
func (p Pull) next(hooks []Hook) Step {
	plans := slices.ContainsFunc(hooks, func(h Hook) bool { return h.ID == p.HookID && h.Plans })
	switch {
	case p.Step == StepAnswer && plans && p.Revision > p.BegunRevision:
		return StepRead
	case p.Answers > p.AnswersWritten && slices.ContainsFunc(hooks, func(h Hook) bool { return h.Commands && h.Covers(p.Name) }):
		return StepAnswer
	case plans:
		return StepRead
	}
	return ""
}

// begun is a pull request with the run of its step.
func (u *UseCases) begun(ctx context.Context, tx Tx, organization int64, p Pull, now time.Time) (Pull, error) {
	p.Reading = nil
	if p.Step == StepAnswer {
		all, err := tx.ForgeAnswers(ctx, p.Name, p.Number, shownAnswers)
		if err != nil {
			return p, err
		}
		p.AnswersBegun = p.Answers
		return p.run(now, map[string]any{"comment": withKnown(map[string]any{
			"repo_url": p.Repository, "number": p.Number, "marker": answersMarker(organization), "body": answers(all, u.url), "only_known": false,
		}, p.AnswersLink)})
	}
	change := map[string]any{"repo_url": p.Repository, "number": p.Number}
	if len(p.AskedBy) > 0 {
		change["asked_by"] = p.AskedBy
	}
	p.BegunRevision = p.Revision
	return p.run(now, map[string]any{"change": change})
}

// withKnown names the comment that there is already, which another account may have written.
func withKnown(comment map[string]any, link string) map[string]any {
	if link != "" {
		comment["known"] = link
	}
	return comment
}

// attempts counts those of the step of a pull request.
func (u *UseCases) attempts(p *Pull) *attempts {
	if p.Step == StepAnswer {
		return &u.counts.answers
	}
	return &u.counts.pulls
}

// pullsWait reports whether no pull request may be begun at a server now, and until when; the zero time if that is known already.
func (h *Host) pullsWait(now time.Time, sending int, shared Budget) (until time.Time, not bool) {
	quota := cmp.Or(shared.Quota, h.Quota)
	switch {
	case h.PausedUntil.After(now), h.Pulls.PausedUntil.After(now), sending >= pullsTogether, h.Pulls.Failures > 0 && sending > 0:
		return time.Time{}, true
	case quota.scarce(keptByPulls, now) && !quota.ResetsAt.After(now.Add(longestWait)):
		return quota.ResetsAt, true
	case h.PullWindowCount >= pullRate:
		return h.PullWindowAt.Add(window), true
	}
	return time.Time{}, false
}

// maxLink bounds the address of a comment.
const maxLink = 2000

// run is a pull request with its next run, and the arguments of the run.
func (p Pull) run(now time.Time, arguments map[string]any) (Pull, error) {
	p.State, p.Run, p.Started, p.DueAt = Sending, p.Run+1, false, now.Add(lease)
	arguments["pull"] = map[string]any{"id": p.ID, "run": p.Run}
	inputs, err := json.Marshal(arguments)
	if err != nil {
		return p, fmt.Errorf("write the inputs of pull request %d: %w", p.ID, err)
	}
	p.Inputs = inputs
	return p, nil
}

// startPull has the engine run what is next for a pull request.
func (u *UseCases) startPull(ctx context.Context, organization int64, p Pull) (Pull, error) {
	called, cancel := context.WithTimeout(ctx, call)
	defer cancel()
	_, err := u.engine.Start(called, handoff.Workflow{
		Organization: organization, ID: id.ForgePullRun(p.ID, p.Run), Program: handoff.Program{Source: pullProgram}, Inputs: p.Inputs,
		Labels: map[string]string{"subject": fmt.Sprintf("forge_pull_%d", p.ID), "program": "forge"},
	})
	known := fault.Is(err, fault.Conflict) // the run exists, begun by another release: its id is that of this attempt alone
	if known {
		err = nil
	}
	return u.settlePull(ctx, organization, p, func(p *Pull, _ *Host, now time.Time) error {
		switch {
		case known:
			p.Started, p.DueAt = true, now
		case err == nil:
			p.Started, p.DueAt = true, now.Add(firstGlance)
		case handoff.RefusedPermanently(err):
			p.again(u.attempts(p), now, "the engine refused to run it: "+fault.Public(err))
		default: // it is tried again for as long as the engine is away, with the same run
			p.DueAt, p.Error = now.Add(lease), "the engine cannot be reached: "+fault.Public(err)
		}
		return nil
	}, err)
}

// lookAtPull looks at the run that is about a pull request, and takes from it what came of it. What was read is planned outside of any
// transaction: after a crash it is planned again.
func (u *UseCases) lookAtPull(ctx context.Context, organization int64, p Pull) (Pull, error) {
	called, cancel := context.WithTimeout(ctx, call)
	defer cancel()
	run, err := u.engine.WorkflowByID(called, organization, id.ForgePullRun(p.ID, p.Run))
	gone := missing(err)
	if gone {
		err = nil
	}
	var o outcome
	var made planned
	var unplanned error
	unrendered := false
	if err == nil {
		if !gone && run.State == handoff.WorkflowCompleted {
			o = read(run.Status)
		}
		// The plan is written whatever becomes of the rendering.
		if before := p.readBefore(); before != nil && len(p.Reading) == 0 && (gone || endedUnread(run, o, u.clock.Now())) {
			p.Reading, unrendered = before, true
		}
		if unrendered || o.outcome == "read" && len(p.Reading) > 0 {
			if made, unplanned = u.plan(ctx, organization, p); fault.Is(unplanned, fault.Unavailable) {
				return p, unplanned // the database is away
			}
		}
	}
	return u.settlePull(ctx, organization, p, func(p *Pull, h *Host, now time.Time) error {
		switch {
		case err != nil:
			p.DueAt = now.Add(lease)
		case unrendered && unplanned == nil && len(p.Reading) == 0:
			return u.pullRead(p, h, now, organization, outcome{}, made)
		case gone:
			p.again(u.attempts(p), now, "its run is not known to the engine any more")
		case run.State == handoff.WorkflowRunning || run.State == handoff.WorkflowParked:
			p.DueAt = now.Add(glance)
			if run.State == handoff.WorkflowParked {
				p.Error = cut(core.Because("its run is parked", run.Error), maxError)
			}
		case run.State != handoff.WorkflowCompleted:
			p.again(u.attempts(p), now, core.Because("its run is "+string(run.State), run.Error))
		case o.outcome != "read":
			u.pullEnded(p, h, now, o)
		case len(p.Reading) == 0 && run.FinishedAt != nil && now.Sub(*run.FinishedAt) > glance:
			p.again(u.attempts(p), now, "its run ended without saying what it has read")
		case len(p.Reading) == 0 || made.head == "" && unplanned == nil: // the event has not arrived, or only just
			p.DueAt = now.Add(firstGlance)
		case unplanned != nil:
			p.again(u.attempts(p), now, "it cannot be planned: "+fault.Public(unplanned))
		default:
			return u.pullRead(p, h, now, organization, o, made)
		}
		return nil
	}, err)
}

// endedUnread reports whether a run has ended without saying what it has read.
func endedUnread(run handoff.WorkflowRun, o outcome, now time.Time) bool {
	switch run.State {
	case handoff.WorkflowRunning, handoff.WorkflowParked:
		return false
	case handoff.WorkflowCompleted:
		return o.outcome != "read" || run.FinishedAt != nil && now.Sub(*run.FinishedAt) > glance
	default:
		return true
	}
}

// pullRead is a pull request that was read: what it changes of overlays and charts is rendered next. Once it is planned, its comment is
// written, if there is something to write.
func (u *UseCases) pullRead(p *Pull, h *Host, now time.Time, organization int64, o outcome, made planned) (err error) {
	p.Head, p.Outcome = made.head, made.outcome
	if made.outcome != "" {
		o.outcome = "sent"
		u.pullEnded(p, h, now, o)
		return nil
	}
	h.learn(&h.Pulls, o, false)
	h.Pulls.Failures, p.Error = 0, ""
	if len(made.render) > 0 {
		*p, err = p.run(now, map[string]any{
			"render":  map[string]any{"repo_url": p.Repository, "targets": made.render},
			"reading": p.Reading,
		})
		p.Reading, p.DueAt = nil, now
		return err
	}
	p.Step, p.Reading = StepWrite, made.reading
	u.counts.renderings(p.Reading)
	*p, err = p.run(now, map[string]any{
		"comment": withKnown(map[string]any{
			"repo_url": p.Repository, "number": p.Number, "marker": marker(organization), "body": made.body, "only_known": made.onlyKnown,
		}, p.Link),
		"status": map[string]any{
			"repo_url": p.Repository, "commit": made.head, "name": planStatus, "state": "success", "description": made.summary,
		},
	})
	p.DueAt = now
	return err
}

// pullEnded is a run that reports what came of a pull request.
func (u *UseCases) pullEnded(p *Pull, h *Host, now time.Time, o outcome) {
	if !p.settled(u.attempts(p), h, &h.Pulls, keptByPulls, now, o) {
		return
	}
	switch p.Step {
	case StepAnswer:
		p.AnswersWritten, p.AnswersLink = p.AnswersBegun, linkOf(o.link)
		switch {
		case o.held != "":
			p.Outcome = heldComment("the comment with answers", p.AnswersLink, o.held)
		case p.Outcome == "":
			p.Outcome = "another comment has the answers to commands"
		}
	case StepWrite:
		p.Link, p.Outcome = linkOf(o.link), "its comment has the plan"+renderings(p.Reading).words()
		switch {
		case o.held != "":
			p.Outcome = heldComment("its comment", p.Link, o.held)
		case o.link == "":
			p.Link, p.Outcome = "", "it touches no application"
		case o.unset != "":
			p.Outcome = cut(p.Outcome+"; the status of its commit was not set: "+o.unset, maxError)
		}
	case StepRead:
	}
	if p.Step != StepAnswer && p.Revision == p.BegunRevision {
		p.AskedBy = []string{}
	}
	p.more(now)
}

// linkOf is the address of a comment; empty for a malformed one.
func linkOf(link string) string {
	if len(link) > maxLink || !core.PlainLink(link) {
		return ""
	}
	return link
}

// heldComment says that a comment stays as it is, and what to do.
func heldComment(what, link, why string) string {
	text := fmt.Sprintf("%s is not up to date: %s. Delete it at %s, and a new one is written with the next push or comment", what, why, link)
	return cut(text, maxError)
}

// more has a pull request begun again that is done with, if there is something else to do.
func (p *Pull) more(now time.Time) {
	switch {
	case p.Answers > p.AnswersWritten && p.Step != StepAnswer:
		p.State, p.DueAt = Pending, now
	case p.Answers > p.AnswersWritten && p.Revision == p.BegunRevision:
		p.State, p.DueAt = Pending, now.Add(BetweenAnswers)
	case p.Revision > p.BegunRevision: // something has happened since
		p.State, p.DueAt = Pending, now.Add(betweenPlans)
	}
}

// unfinished is a pull request whose run has not done its work: what was to be done is still to be done, unless it was given up.
func (p *Pull) unfinished(now time.Time) {
	switch p.State {
	case Pending:
		if p.Step != StepAnswer && p.BegunRevision == p.Revision {
			p.BegunRevision--
		}
	case Failed:
		if p.Step == StepAnswer {
			p.AnswersWritten = p.AnswersBegun
		}
		why := p.Error
		if p.more(now); p.State == Pending {
			p.Attempts, p.Error = 0, why
		}
	case Sending, Sent:
	}
}

// settlePull changes a pull request and what is known of its server, unless another worker has done so since.
func (u *UseCases) settlePull(
	ctx context.Context, organization int64, p Pull, do func(p *Pull, h *Host, now time.Time) error, called error,
) (Pull, error) {
	err := u.store.In(ctx, organization, func(ctx context.Context, tx Tx) error {
		now, err := tx.LockForgePull(ctx, p.ID)
		if err != nil || now.State != Sending || now.Run != p.Run || now.Started != p.Started {
			return err
		}
		h, err := tx.LockForgeHost(ctx, p.Host)
		if err != nil {
			return err
		}
		at := u.clock.Now()
		if err := do(&now, &h, at); err != nil {
			return err
		}
		if now.unfinished(at); now.State == Failed {
			now.SentAt = &at
		}
		if now.State != Sending { // what was read is read again when it is begun
			now.Inputs, now.Reading = nil, nil
		}
		spent := now.SpentAt
		if h.news.unused { // it is given back once
			now.SpentAt = nil
		}
		p = now
		if err := tx.SaveForgeHost(ctx, h); err != nil {
			return err
		}
		if err := tx.SaveForgePull(ctx, p); err != nil {
			return err
		}
		if err := tx.ForgetForgePulls(ctx, at.Add(-kept), forgottenAtOnce); err != nil {
			return err
		}
		return settleBudget(ctx, tx, p.Host, spent, h.news)
	})
	if err != nil {
		return p, fmt.Errorf("settle pull request %d: %w", p.ID, err)
	}
	return p, called
}
