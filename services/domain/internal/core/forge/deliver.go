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

// program publishes one status, or one deployment.
//
//go:embed set.star
var program []byte

const (
	// window is the time within which at most rate statuses are begun at a server, and together is how many are being sent there at most.
	window = time.Minute
	rate   = 60
	// rateOfAll is how many all organizations together begin with the credentials of the operator: twice what one may begin, so that none
	// takes all of it. Pull requests, which anybody may cause, take half of it at most.
	rateOfAll = 2 * rate
	together  = 10
	// call bounds one call of the engine, and lease is how long a worker may be silent before another one repeats the call.
	call  = 10 * time.Second
	lease = 30 * time.Second
	// firstGlance is how soon a run is looked at that was just begun, and glance how soon later on, if nothing was heard of its end.
	firstGlance = 5 * time.Second
	glance      = time.Minute
	// maxAttempts is how many runs are refused before a status is given up. What the server cannot answer now is no refusal.
	maxAttempts = 10
	// firstPause doubles with each attempt and ends at maxPause.
	firstPause = 10 * time.Second
	maxPause   = 10 * time.Minute
	// maxAway is after how long a status is given up whose server does not answer, or fails.
	maxAway = 24 * time.Hour
	// longestWait bounds for how long a server may ask to wait.
	longestWait = time.Hour
	// keptByStatuses is the part of the quota of a server that statuses leave to what rollouts need, and keptByPulls what pull requests leave
	// to both: a tenth and a half.
	keptByStatuses = 10
	keptByPulls    = 2
)

// sendNext begins to send the next status of an organization, or looks at what is being sent. What calls the engine is outside of any
// transaction: a crash before the answer has the call repeated, with the same id and inputs.
func (u *UseCases) sendNext(ctx context.Context, organization int64) (Worked, bool, error) {
	var s Status
	w := Worked{Organization: organization, What: "send"}
	found, calls := false, false
	err := u.store.In(ctx, organization, func(ctx context.Context, tx Tx) (err error) {
		now := u.clock.Now()
		if s, found, err = tx.DueForgeStatus(ctx, now, together); err != nil || !found {
			return err
		}
		w.Status = s.ID
		if calls = s.State == Sending; calls {
			s.DueAt = now.Add(lease)
			return tx.SaveForgeStatus(ctx, s)
		}
		s, calls, err = u.begin(ctx, tx, organization, s, now)
		return err
	})
	if err != nil || !found {
		return w, false, err
	}
	w.State = s.State
	if !calls {
		w.What, w.Error = "put off", s.Error
		return w, true, nil
	}
	if s.Started {
		w.What = "look"
		s, err = u.look(ctx, organization, s)
	} else {
		s, err = u.start(ctx, organization, s)
	}
	w.State, w.Error = s.State, s.Error
	return w, true, err
}

// begin has a status sent, unless its server has enough to do, or nobody wants it published any more.
func (u *UseCases) begin(ctx context.Context, tx Tx, organization int64, s Status, now time.Time) (Status, bool, error) {
	mirrors, err := tx.ForgeMirrors(ctx, organization)
	if err != nil {
		return s, false, err
	}
	place, why, err := unwanted(ctx, tx, organization, s, mirrors)
	if err != nil {
		return s, false, err
	}
	if why != "" {
		s.State, s.Error = Failed, why
		u.counts.of(s.Kind).failed.Add(1)
		return s, false, tx.SaveForgeStatus(ctx, s)
	}
	h, err := tx.LockForgeHost(ctx, s.Host)
	if err != nil {
		return s, false, err
	}
	sending, err := tx.ForgeStatusesSending(ctx, s.Host)
	if err != nil {
		return s, false, err
	}
	if end := h.WindowAt.Add(window); !now.Before(end) || h.WindowAt.After(now) {
		h.WindowAt, h.WindowCount = now, 0
	}
	most := rate
	if h.Failures > 0 { // one at a time finds out whether it answers again
		most = h.WindowCount + 1
	}
	switch {
	case h.PausedUntil.After(now), sending >= together, h.Failures > 0 && sending > 0: // by another worker, just now
		return s, false, nil
	case h.WindowCount >= most:
		h.PausedUntil = h.WindowAt.Add(window)
		return s, false, tx.SaveForgeHost(ctx, h)
	}
	own, err := tx.OwnForgeCredential(ctx, s.Credential, s.Repository)
	if err != nil || !own && h.SharedUntil.After(now) {
		return s, false, err
	}
	if s.SpentAt = nil; !own {
		b, err := tx.LockForgeBudget(ctx, s.Host)
		if err != nil {
			return s, false, err
		}
		if h.SharedUntil = b.spend(now, rateOfAll); h.SharedUntil.After(now) {
			return s, false, tx.SaveForgeHost(ctx, h)
		}
		if err := keep(ctx, tx, s.Host, b, now); err != nil {
			return s, false, err
		}
		s.SpentAt = &now
	}
	h.WindowCount++
	if err := tx.SaveForgeHost(ctx, h); err != nil {
		return s, false, err
	}
	var taken []int64
	if s.Kind == PublishedDeployment && s.ForgeNumber == 0 {
		if taken, err = tx.ForgeNumbersOfOthers(ctx, s.ID, s.Repository, s.title()); err != nil {
			return s, false, err
		}
	}
	if s.Inputs, err = inputs(organization, s, place, taken); err != nil {
		return s, false, err
	}
	s.State, s.Run, s.Started, s.DueAt, s.BegunRevision = Sending, s.Run+1, false, now.Add(lease), s.Revision
	if err := tx.SaveForgeStatus(ctx, s); err != nil {
		return s, false, err
	}
	s, err = tx.LockForgeStatus(ctx, s.ID) // with the inputs as they are read again if the run is begun a second time
	return s, err == nil, err
}

// budgetKept is how long a budget is kept that nobody uses.
const budgetKept = 24 * time.Hour

// keep saves a budget from which something was taken. With the first of each minute some are deleted that nobody uses.
func keep(ctx context.Context, tx Tx, host string, b Budget, now time.Time) error {
	if err := tx.SaveForgeBudget(ctx, host, b); err != nil || b.WindowCount > 1 {
		return err
	}
	return tx.ForgetForgeBudgets(ctx, now.Add(-budgetKept))
}

// whereabouts are what a forge is given of an environment:
// whether people use it, and where the application is reached there; empty if that is
// not known.
type whereabouts struct {
	production bool
	address    string
}

// unwanted is why a status is not published any more, empty if it is, and what is known of its environment.
func unwanted(ctx context.Context, tx Tx, organization int64, s Status, mirrors []Mirror) (at whereabouts, why string, err error) {
	environments, err := tx.EnvironmentsByID(ctx, organization, []int64{s.EnvironmentID})
	if err != nil {
		return at, "", err
	}
	applications, err := tx.ApplicationsByID(ctx, organization, []int64{s.ApplicationID})
	if err != nil {
		return at, "", err
	}
	of := slices.IndexFunc(mirrors, func(m Mirror) bool { return m.ApplicationID == s.ApplicationID && m.Enabled })
	e, exists := environments[s.EnvironmentID]
	switch {
	case of < 0 || !mirrors[of].covers(s.EnvironmentID):
		why = "publishing was switched off"
	case s.Kind == PublishedDeployment && !mirrors[of].Deployments:
		why = "publishing of deployments was switched off"
	case !exists || e.ArchivedAt != nil:
		why = "its environment was archived"
	case applications[s.ApplicationID].ArchivedAt != nil:
		why = "its application was archived"
	}
	if of >= 0 {
		at.address = mirrors[of].Addresses[s.EnvironmentID]
	}
	at.production = e.Tier == core.TierProduction
	return at, why, nil
}

// inputs are those of the program that publishes a status, or a deployment.
func inputs(organization int64, s Status, at whereabouts, taken []int64) (json.RawMessage, error) {
	of, arguments := "status", map[string]any{
		"repo_url": s.Repository, "commit": s.Commit, "name": s.Name, "state": s.Phase, "description": s.Description, "url": s.Link,
	}
	if s.Kind == PublishedDeployment {
		of, arguments = "deployment", s.deploymentArguments(organization, at, taken)
	}
	if s.Credential != "" {
		arguments["credential"] = s.Credential
	}
	made, err := json.Marshal(map[string]any{of: arguments})
	if err != nil {
		return nil, fmt.Errorf("write the inputs of status %d: %w", s.ID, err)
	}
	return made, nil
}

// start has the engine run what publishes a status.
func (u *UseCases) start(ctx context.Context, organization int64, s Status) (Status, error) {
	called, cancel := context.WithTimeout(ctx, call)
	defer cancel()
	_, err := u.engine.Start(called, handoff.Workflow{
		Organization: organization, ID: id.ForgeStatusRun(s.ID, s.Run), Program: handoff.Program{Source: program}, Inputs: s.Inputs,
		Labels: map[string]string{"subject": fmt.Sprintf("forge_status_%d", s.ID), "program": "forge"},
	})
	known := fault.Is(err, fault.Conflict) // the run exists, begun by another release: its id is that of this attempt alone
	if known {
		err = nil
	}
	return u.settle(ctx, organization, s, func(s *Status, _ *Host, now time.Time) {
		switch {
		case known:
			s.Started, s.DueAt = true, now
		case err == nil:
			s.Started, s.DueAt = true, now.Add(firstGlance)
		case handoff.RefusedPermanently(err):
			s.again(u.counts.of(s.Kind), now, "the engine refused to send it: "+fault.Public(err))
		default: // it is tried again for as long as the engine is away, with the same run
			s.DueAt, s.Error = now.Add(lease), "the engine cannot be reached: "+fault.Public(err)
		}
	}, err)
}

// look looks at the run that publishes a status, and takes from it what came of it. Only the engine is believed: events say when to look.
// A run that has not ended is waited for, however long it takes: another one could be overtaken by it.
func (u *UseCases) look(ctx context.Context, organization int64, s Status) (Status, error) {
	called, cancel := context.WithTimeout(ctx, call)
	defer cancel()
	run, err := u.engine.WorkflowByID(called, organization, id.ForgeStatusRun(s.ID, s.Run))
	gone := missing(err)
	if gone {
		err = nil
	}
	return u.settle(ctx, organization, s, func(s *Status, h *Host, now time.Time) {
		switch {
		case err != nil:
			s.DueAt = now.Add(lease)
		case gone:
			s.again(u.counts.of(s.Kind), now, "its run is not known to the engine any more")
		case run.State == handoff.WorkflowRunning || run.State == handoff.WorkflowParked:
			s.DueAt = now.Add(glance)
			if run.State == handoff.WorkflowParked {
				s.Error = cut(core.Because("its run is parked", run.Error), maxError)
			}
		case run.State == handoff.WorkflowCompleted:
			u.ended(s, h, now, read(run.Status))
		default:
			s.again(u.counts.of(s.Kind), now, core.Because("its run is "+string(run.State), run.Error))
		}
	}, err)
}

// settle changes a status and what is known of its server, unless another worker has done so since.
func (u *UseCases) settle(
	ctx context.Context, organization int64, s Status, do func(s *Status, h *Host, now time.Time), called error,
) (Status, error) {
	err := u.store.In(ctx, organization, func(ctx context.Context, tx Tx) error {
		now, err := tx.LockForgeStatus(ctx, s.ID)
		if err != nil || now.State != Sending || now.Run != s.Run || now.Started != s.Started {
			return err
		}
		h, err := tx.LockForgeHost(ctx, s.Host)
		if err != nil {
			return err
		}
		before := now.ForgeNumber
		do(&now, &h, u.clock.Now())
		if err := u.own(ctx, tx, &now, before, u.clock.Now()); err != nil {
			return err
		}
		spent := now.SpentAt
		if h.news.unused { // it is given back once
			now.SpentAt = nil
		}
		s = now
		if err := tx.SaveForgeHost(ctx, h); err != nil {
			return err
		}
		if err := tx.SaveForgeStatus(ctx, s); err != nil {
			return err
		}
		return settleBudget(ctx, tx, s.Host, spent, h.news)
	})
	if err != nil {
		return s, fmt.Errorf("settle status %d: %w", s.ID, err)
	}
	return s, called
}

// outcome is what the program of a status reports.
type outcome struct {
	outcome, why, link string
	// unset is why a comment has no status beside it; empty if it has, or needs none.
	unset string
	// held is why a comment stays as it was; empty if it was written.
	held  string
	wait  time.Duration
	quota *Quota
	// number is what the forge calls a deployment; 0 if it has not said.
	number int64
	// shared is whether a credential of the operator was used; nil if the program has not said.
	shared *bool
}

// ended is a run that reports what came of the status.
func (u *UseCases) ended(s *Status, h *Host, now time.Time, o outcome) {
	sent := s.settled(u.counts.of(s.Kind), h, &h.Standing, keptByStatuses, now, o)
	if o.number > 0 {
		s.ForgeNumber = o.number
	}
	if h.Problem = ""; h.Failures > 0 {
		h.Problem = s.Error
	}
	if sent {
		s.SentRevision = s.BegunRevision
		if s.Revision > s.SentRevision { // something has happened since
			s.State, s.DueAt = Pending, now
		}
	}
}

// settled takes the outcome of a run, and reports whether it has done its work. It pauses the server where less than a part of its quota is
// left.
func (d *Delivery) settled(c *attempts, h *Host, at *Standing, part int64, now time.Time, o outcome) bool {
	h.learn(at, o, false)
	switch o.outcome {
	case "sent":
		d.State, d.Attempts, d.Error, d.SentAt, d.AwaySince = Sent, 0, "", &now, nil
		at.Failures = 0
		if h.Quota.scarce(part, now) { // the rest is for what rollouts need
			at.PausedUntil = earlier(h.Quota.ResetsAt, now.Add(longestWait))
			h.learn(at, o, true)
		}
		if o.unset != "" && o.wait > 0 { // what is beside it was not accepted, and the server says when it accepts more
			at.PausedUntil = now.Add(min(o.wait, longestWait))
			h.learn(at, o, true)
		}
		c.sent.Add(1)
		return true
	case "limited":
		c.limited.Add(1)
		d.busy(at, now, cmp.Or(o.why, "it accepts no more requests for now"), o.wait)
		h.learn(at, o, true)
	case "away":
		c.away.Add(1)
		d.busy(at, now, cmp.Or(o.why, "it does not answer"), 0)
		d.away(c, now)
	case "unsupported": // another attempt would be the same
		at.Failures = 0
		d.State, d.Attempts, d.Error, d.AwaySince = Failed, max(1, d.Attempts), cut(cmp.Or(o.why, "the forge has nothing of the kind"),
			maxError), nil
		c.failed.Add(1)
	default:
		at.Failures = 0
		d.again(c, now, cmp.Or(o.why, "its run ended without saying what came of it"))
	}
	return false
}

// away gives up what its server has failed to answer for longest: it may be what the server fails at, and would slow down the others for
// ever.
func (d *Delivery) away(c *attempts, now time.Time) {
	if d.AwaySince == nil {
		d.AwaySince = &now
	}
	if now.Sub(*d.AwaySince) < maxAway {
		return
	}
	d.State, d.Attempts, d.AwaySince = Failed, max(1, d.Attempts), nil
	d.Error = cut(fmt.Sprintf("%s; it was tried for %s", d.Error, maxAway), maxError)
	c.failed.Add(1)
}

// busy is a server that cannot be used now: all of the kind that is for it waits, with growing pauses.
func (d *Delivery) busy(at *Standing, now time.Time, why string, wait time.Duration) {
	at.Failures++
	pause := min(maxPause, firstPause<<min(at.Failures-1, 10))
	at.PausedUntil = now.Add(max(pause, min(wait, longestWait)))
	d.State, d.Error, d.DueAt = Pending, cut(why, maxError), now
}

// again has it begun again after a pause, or gives it up.
func (d *Delivery) again(c *attempts, now time.Time, why string) {
	d.Attempts++
	if d.Attempts >= maxAttempts {
		d.State, d.Error = Failed, cut(fmt.Sprintf("%s; it was tried %d times", why, d.Attempts), maxError)
		c.failed.Add(1)
		return
	}
	d.State, d.Error, d.DueAt = Pending, cut(why, maxError), now.Add(min(maxPause, firstPause<<min(d.Attempts-1, 10)))
	c.retried.Add(1)
}

const maxError = 1000

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

// read reads what a program reports. What cannot be read is ignored.
func read(pairs []handoff.WorkflowPair) (o outcome) {
	q := Quota{Limit: -1, Remaining: -1}
	for _, p := range pairs {
		switch p.Key {
		case "outcome":
			_ = json.Unmarshal([]byte(p.Value), &o.outcome)
		case "why":
			_ = json.Unmarshal([]byte(p.Value), &o.why)
		case "link":
			_ = json.Unmarshal([]byte(p.Value), &o.link)
		case "unset":
			_ = json.Unmarshal([]byte(p.Value), &o.unset)
		case "held":
			_ = json.Unmarshal([]byte(p.Value), &o.held)
		case "wait":
			var seconds int64
			_ = json.Unmarshal([]byte(p.Value), &seconds)
			o.wait = time.Duration(max(0, min(seconds, 24*3600))) * time.Second
		case "shared":
			_ = json.Unmarshal([]byte(p.Value), &o.shared)
		case "number":
			_ = json.Unmarshal([]byte(p.Value), &o.number)
		case "limit":
			_ = json.Unmarshal([]byte(p.Value), &q.Limit)
		case "remaining":
			_ = json.Unmarshal([]byte(p.Value), &q.Remaining)
		case "resets_at":
			_ = json.Unmarshal([]byte(p.Value), &q.ResetsAt)
		}
	}
	if q.Limit >= 0 && q.Remaining >= 0 && !q.ResetsAt.IsZero() {
		o.quota = &q
	}
	return o
}
