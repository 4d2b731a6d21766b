package notify

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

// program sends one message.
//
//go:embed send.star
var program []byte

const (
	// window is the time within which a channel receives at most its rate of messages.
	window = time.Minute
	// burst is which part of a minute's messages all members together may receive at once.
	burst = 4
	// call bounds one call of the engine, and lease is how long a worker may be silent before another one repeats the call.
	call  = 10 * time.Second
	lease = 30 * time.Second
	// firstGlance is how soon a run is looked at that was just begun, and glance how soon later on, if nothing was heard of its end.
	firstGlance = 5 * time.Second
	glance      = time.Minute
	// patience is how long a run may take: longer than its attempt, and than a restart of the engine.
	patience = time.Hour
	// maxAttempts is how many runs send nothing before a message is given up.
	maxAttempts = 10
	// firstPause doubles with each attempt and ends at maxPause.
	firstPause = 10 * time.Second
	maxPause   = 10 * time.Minute
	// maxDigested is how many messages one digest takes up.
	maxDigested = 100
	// maxLines is how many notifications a message is about at most.
	maxLines = 200
)

// statusRun is what the program of a message reports.
type statusRun struct {
	outcome, ref, why string
	wait              time.Duration
}

// sendNext begins to send the next message of an organization, or looks at what is being sent. What calls the engine is outside of any
// transaction: a crash before the answer has the call repeated, with the same id and inputs.
func (u *UseCases) sendNext(ctx context.Context, organization int64) (Worked, bool, error) {
	var m core.NotificationMessage
	w := Worked{Organization: organization, What: "send"}
	found, calls := false, false
	err := u.store.In(ctx, organization, func(ctx context.Context, tx Tx) error {
		now := u.clock.Now()
		var err error
		if m, found, err = tx.DueMessage(ctx, now); err != nil || !found {
			return err
		}
		w.Message = m.ID
		if calls = m.State == core.MessageSending; calls {
			m.DueAt = now.Add(lease)
			return tx.SaveMessage(ctx, m)
		}
		m, calls, err = u.begin(ctx, tx, organization, m, now)
		return err
	})
	if err != nil {
		err = fmt.Errorf("take message %d: %w", w.Message, err)
		return w, false, u.putOff(ctx, organization, err, func(ctx context.Context, tx Tx, until time.Time) error {
			if w.Message == 0 {
				return nil
			}
			m, err := tx.LockMessage(ctx, w.Message)
			if err != nil {
				return err
			}
			m.DueAt, m.Error = until, "it could not be sent because of an error in Lockstep; it is tried again"
			return tx.SaveMessage(ctx, m)
		})
	}
	if !found {
		return w, false, nil
	}
	w.Message, w.State = m.ID, m.State
	if !calls {
		w.What, w.Error = "put off", m.Error
		return w, true, nil
	}
	if m.Started {
		w.What = "look"
		m, err = u.look(ctx, organization, m)
	} else {
		m, err = u.start(ctx, organization, m)
	}
	w.State, w.Error = m.State, m.Error
	return w, true, err
}

// begin decides what becomes of a message that waits: a run sends it, or a digest that it is a part of, or it waits for the next minute of
// its channel, or nobody can receive it any more.
func (u *UseCases) begin(
	ctx context.Context, tx Tx, organization int64, m core.NotificationMessage, now time.Time,
) (core.NotificationMessage, bool, error) {
	c, err := tx.LockNotificationChannel(ctx, m.ChannelID)
	if err != nil {
		return m, false, err
	}
	turn := m.Slotted
	m.Slotted = false // whatever becomes of it now, it had its turn
	if c.Removed || !c.Enabled {
		m.State, m.Error = core.MessageFailed, fmt.Sprintf("channel %s was %s by %s", c.Name, ended(c), c.Author.Name)
		u.counts.failed.Add(1)
		return m, false, tx.SaveMessage(ctx, m)
	}
	to, err := addresseeOf(ctx, tx, c, m, now)
	if err != nil {
		return m, false, err
	}
	if to.why != "" {
		u.fail(&m, to.why)
		return m, false, tx.SaveMessage(ctx, m)
	}
	if until, err := quietUntil(ctx, tx, m, now); err != nil || !until.IsZero() {
		return m, false, u.hold(ctx, tx, &m, until, err)
	}
	if end := to.WindowAt.Add(window); !now.Before(end) || to.WindowAt.After(now) {
		to.WindowAt, to.WindowCount = now, 0
	} else if to.WindowCount >= c.Rate {
		u.counts.postponed.Add(1)
		m.DueAt = end
		if err := tx.SaveMessage(ctx, m); err != nil {
			return m, false, err
		}
		return m, false, tx.PutOffMessages(ctx, m, now, end)
	}
	quietly, err := advances(ctx, tx, m)
	if err != nil {
		return m, false, err
	}
	if quietly { // the rest of the minute is for what people are to read
		waits, err := yields(ctx, tx, c, m, to.WindowCount, now)
		if err != nil {
			return m, false, err
		}
		if waits {
			u.counts.postponed.Add(1)
			m.DueAt = to.WindowAt.Add(window)
			return m, false, tx.SaveMessage(ctx, m)
		}
	}
	if m.MemberID != 0 && !turn {
		if waits, err := u.slot(ctx, tx, c, &m, now); err != nil || waits {
			return m, false, err
		}
	}
	to.WindowCount++
	if turn || to.WindowCount == c.Rate && !quietly {
		if m, err = u.digest(ctx, tx, c, m, now); err != nil {
			return m, false, err
		}
	}
	if err := count(ctx, tx, c, m, to.Recipient); err != nil {
		return m, false, err
	}
	r, err := u.render(ctx, tx, organization, c, m, to.to)
	if err != nil {
		return m, false, err
	}
	if m.Inputs, m.Title, m.TemplateError = r.inputs, r.title, r.templateError; m.TemplateError != "" {
		u.counts.templates.Add(1)
	}
	m.State, m.Run, m.Started, m.DueAt = core.MessageSending, m.Run+1, false, now.Add(lease)
	m.BegunRevision, m.BegunCount = m.Revision, len(m.NotificationIDs)
	if err := tx.SaveMessage(ctx, m); err != nil {
		return m, false, err
	}
	m, err = tx.LockMessage(ctx, m.ID) // with the inputs as they are read again if the run is begun a second time
	return m, err == nil, err
}

// slot gives a message to a member its turn among those to all members of its channel, and reports whether that is later. A member has one
// turn, with which all is sent that waits for it: however much happens, nobody waits longer than it takes to write to each member once. A
// question does not wait: a person is to answer it.
func (u *UseCases) slot(
	ctx context.Context, tx Tx, c core.NotificationChannel, m *core.NotificationMessage, now time.Time,
) (waits bool, err error) {
	asks, err := asks(ctx, tx, *m)
	if err != nil {
		return false, err
	}
	if !asks {
		first, err := tx.WaitingMessages(ctx, *m, time.Time{}, 1) // without those that are due: what has a turn
		if err != nil {
			return false, err
		}
		if len(first) > 0 {
			if until, err := quietUntil(ctx, tx, *m, first[0].DueAt); err != nil || !until.IsZero() {
				return true, u.hold(ctx, tx, m, until, err)
			}
			u.counts.postponed.Add(1)
			m.Slotted, m.DueAt = true, first[0].DueAt
			return true, tx.SaveMessage(ctx, *m)
		}
	}
	var config channelConfig
	if err := json.Unmarshal(c.Config, &config); err != nil {
		return false, fmt.Errorf("read channel %q: %w", c.Name, err)
	}
	turn := now.Add(-window / burst)
	if c.WindowAt.After(turn) {
		turn = c.WindowAt
	}
	if !asks { // a turn that would be within quiet hours is left to the next member
		if until, err := quietUntil(ctx, tx, *m, turn); err != nil || !until.IsZero() {
			return true, u.hold(ctx, tx, m, until, err)
		}
	}
	next := turn.Add(window / time.Duration(config.membersRate()))
	if !asks || !next.After(now.Add(window)) { // questions delay the others by a minute at most
		c.WindowAt = next
	}
	if err := tx.CountNotificationMessage(ctx, c); err != nil || asks || !turn.After(now) {
		return false, err
	}
	u.counts.postponed.Add(1)
	m.Slotted, m.DueAt = true, turn
	return true, tx.SaveMessage(ctx, *m)
}

// quietUntil is when the quiet hours of a message end which an instant is in: those of the route or subscription that made it last. It is
// the zero time where there are none, and for a message that has something of high severity to say, or nothing new.
func quietUntil(ctx context.Context, tx Tx, m core.NotificationMessage, at time.Time) (time.Time, error) {
	if len(m.Quiet) == 0 {
		return time.Time{}, nil
	}
	var q Quiet
	if err := json.Unmarshal(m.Quiet, &q); err != nil {
		return time.Time{}, fmt.Errorf("read the quiet hours of message %d: %w", m.ID, err)
	}
	until := q.until(at)
	if until.IsZero() {
		return until, nil
	}
	fresh, err := tx.NotificationsByID(ctx, m.NotificationIDs[min(m.SentCount, len(m.NotificationIDs)):])
	loud := func(n core.Notification) bool { return n.Moment.Severity() >= core.SeverityHigh }
	if err != nil || len(fresh) == 0 || slices.ContainsFunc(fresh, loud) {
		return time.Time{}, err
	}
	return until, nil
}

// advances is whether all that a message has to say is that its rollout continues. Such an update takes at most half of a channel's rate,
// and is no part of a digest.
func advances(ctx context.Context, tx Tx, m core.NotificationMessage) (bool, error) {
	if m.RolloutID == 0 || m.SentRevision == 0 || m.SentCount >= len(m.NotificationIDs) {
		return false, nil
	}
	fresh, err := tx.NotificationsByID(ctx, m.NotificationIDs[m.SentCount:])
	other := func(n core.Notification) bool { return n.Moment != core.MomentAdvanced }
	return err == nil && len(fresh) > 0 && !slices.ContainsFunc(fresh, other), err
}

// yields is whether what only says that a rollout continues leaves the present minute of a channel to other messages: half of its rate, and
// the only one of a channel that is sent one within a minute if anything else waits.
func yields(ctx context.Context, tx Tx, c core.NotificationChannel, m core.NotificationMessage, begun int, now time.Time) (bool, error) {
	if begun >= max(1, c.Rate/2) {
		return true, nil
	}
	if c.Rate > 1 {
		return false, nil
	}
	others, err := toRead(ctx, tx, m, now)
	return len(others) > 0, err
}

// toRead is what waits beside a message where it goes and is to be read now: without what only updates a message or is within quiet hours.
func toRead(ctx context.Context, tx Tx, m core.NotificationMessage, now time.Time) ([]core.NotificationMessage, error) {
	others, err := tx.WaitingMessages(ctx, m, now, maxDigested)
	if err != nil {
		return nil, err
	}
	all := make([]core.NotificationMessage, 0, len(others))
	for _, one := range others {
		until, err := quietUntil(ctx, tx, one, now)
		if err != nil {
			return nil, err
		}
		quietly, err := advances(ctx, tx, one)
		if err != nil {
			return nil, err
		}
		if until.IsZero() && !quietly {
			all = append(all, one)
		}
	}
	return all, nil
}

// hold has a message wait for the end of quiet hours. It has no turn then.
func (u *UseCases) hold(ctx context.Context, tx Tx, m *core.NotificationMessage, until time.Time, err error) error {
	if err != nil {
		return err
	}
	u.counts.postponed.Add(1)
	m.Slotted, m.DueAt = false, until
	return tx.SaveMessage(ctx, *m)
}

// asks is whether what a message has to say is a question.
func asks(ctx context.Context, tx Tx, m core.NotificationMessage) (bool, error) {
	if m.Severity < core.SeverityHigh {
		return false, nil
	}
	fresh, err := tx.NotificationsByID(ctx, m.NotificationIDs[min(m.SentCount, len(m.NotificationIDs)):])
	return slices.ContainsFunc(fresh, func(n core.Notification) bool { return n.Moment.Asks() }), err
}

// count stores the window of who receives a message.
func count(ctx context.Context, tx Tx, c core.NotificationChannel, m core.NotificationMessage, r Recipient) error {
	if m.MemberID != 0 {
		return tx.CountPersonalMessage(ctx, m.MemberID, r)
	}
	c.WindowAt, c.WindowCount = r.WindowAt, r.WindowCount
	return tx.CountNotificationMessage(ctx, c)
}

func ended(c core.NotificationChannel) string {
	if c.Removed {
		return "removed"
	}
	return "switched off"
}

// digest takes up what else waits for a channel with the last message of its minute, and for a member with the one whose turn it
// is. A message that waits alone stays what it is.
func (u *UseCases) digest(
	ctx context.Context, tx Tx, c core.NotificationChannel, m core.NotificationMessage, now time.Time,
) (core.NotificationMessage, error) {
	others, err := toRead(ctx, tx, m, now)
	if err == nil && interchanges(c) {
		others, err = alike(ctx, tx, m, others)
	}
	if err != nil || len(others) == 0 {
		return m, err
	}
	d := core.NotificationMessage{
		ChannelID: m.ChannelID, MemberID: m.MemberID, Key: fmt.Sprintf("digest:%d:%d", m.ID, m.Revision), DueAt: now, Quiet: m.Quiet,
	}
	for _, one := range append([]core.NotificationMessage{m}, others...) {
		fresh := one.NotificationIDs[min(one.SentCount, len(one.NotificationIDs)):]
		room := min(len(fresh), maxLines-len(d.NotificationIDs))
		d.NotificationIDs, d.LeftOut = append(d.NotificationIDs, fresh[:room]...), d.LeftOut+one.LeftOut+len(fresh)-room
		d.Severity = max(d.Severity, one.Severity)
		one.State, one.SentRevision, one.SentCount = core.MessageDigested, one.Revision, len(one.NotificationIDs)
		one.Error, one.Attempts, one.Slotted = "", 0, false
		if err := tx.SaveMessage(ctx, one); err != nil {
			return m, err
		}
	}
	if len(d.NotificationIDs) == 0 { // what waits is to be sent again, without anything new
		d.NotificationIDs = m.NotificationIDs
	}
	u.counts.digested.Add(int64(len(others) + 1))
	return tx.AddDigest(ctx, d)
}

// start has the engine run what sends a message.
func (u *UseCases) start(ctx context.Context, organization int64, m core.NotificationMessage) (core.NotificationMessage, error) {
	run := id.NotificationRun(m.ID, m.Run)
	called, cancel := context.WithTimeout(ctx, call)
	defer cancel()
	_, err := u.engine.Start(called, handoff.Workflow{
		Organization: organization, ID: run, Program: handoff.Program{Source: program}, Inputs: m.Inputs,
		Labels: map[string]string{"subject": fmt.Sprintf("notification_%d", m.ID), "program": "notify"},
	})
	known := fault.Is(err, fault.Conflict) // begun by another release, with another program: the id is that of this run alone
	if known {
		err = nil
	}
	return u.settle(ctx, organization, m, func(m *core.NotificationMessage, now time.Time) {
		switch {
		case known: // what came of it is asked
			m.Started, m.DueAt = true, now
		case err == nil:
			m.Started, m.DueAt = true, now.Add(firstGlance)
		case handoff.RefusedPermanently(err):
			u.fail(m, "the engine refused to send it: "+fault.Public(err))
		default: // it is tried again for as long as the engine is away, with the same run
			m.DueAt, m.Error = now.Add(lease), "the engine cannot be reached: "+fault.Public(err)
		}
	}, err)
}

// look looks at the run that sends a message, and takes from it what came of it. Only the engine is believed: events say when to look.
func (u *UseCases) look(ctx context.Context, organization int64, m core.NotificationMessage) (core.NotificationMessage, error) {
	called, cancel := context.WithTimeout(ctx, call)
	defer cancel()
	run, err := u.engine.WorkflowByID(called, organization, id.NotificationRun(m.ID, m.Run))
	missing := fault.Is(err, fault.NotFound)
	if missing {
		err = nil
	}
	return u.settle(ctx, organization, m, func(m *core.NotificationMessage, now time.Time) {
		switch {
		case err != nil:
			m.DueAt = now.Add(lease)
		case missing:
			u.again(m, now, statusRun{why: "its run is not known to the engine any more"})
		case (run.State == handoff.WorkflowRunning || run.State == handoff.WorkflowParked) && now.Sub(run.CreatedAt) < patience:
			m.DueAt = now.Add(glance)
		case run.State == handoff.WorkflowCompleted:
			u.ended(m, now, read(run.Status))
		default:
			u.again(m, now, statusRun{why: core.Because("its run is "+string(run.State), run.Error)})
		}
	}, err)
}

// settle changes a message, unless another worker has done so since.
func (u *UseCases) settle(
	ctx context.Context, organization int64, m core.NotificationMessage, do func(m *core.NotificationMessage, now time.Time), called error,
) (core.NotificationMessage, error) {
	err := u.store.In(ctx, organization, func(ctx context.Context, tx Tx) error {
		now, err := tx.LockMessage(ctx, m.ID)
		if err != nil || now.State != core.MessageSending || now.Run != m.Run || now.Started != m.Started {
			return err
		}
		do(&now, u.clock.Now())
		m = now
		return tx.SaveMessage(ctx, m)
	})
	if err != nil {
		return m, fmt.Errorf("settle notification_%d: %w", m.ID, err)
	}
	return m, called
}

// ended is a run that reports what came of the message.
func (u *UseCases) ended(m *core.NotificationMessage, now time.Time, s statusRun) {
	switch s.outcome {
	case "sent":
		m.State, m.SentRevision, m.SentCount, m.Attempts, m.Error, m.SentAt = core.MessageSent, m.BegunRevision, m.BegunCount, 0, "", &now
		m.Ref = cmp.Or(m.Ref, s.ref)
		u.counts.sent.Add(1)
		if m.Revision > m.SentRevision { // something has happened since
			m.State, m.DueAt = core.MessagePending, now
		}
	case "refused":
		u.fail(m, s.why)
	default:
		u.again(m, now, s)
	}
}

// again has a message sent again after a pause, or gives it up.
func (u *UseCases) again(m *core.NotificationMessage, now time.Time, s statusRun) {
	m.Attempts++
	why := cmp.Or(s.why, "its run ended without saying what came of it")
	if m.Attempts >= maxAttempts {
		u.fail(m, fmt.Sprintf("%s; it was tried %d times", why, m.Attempts))
		return
	}
	pause := min(maxPause, firstPause<<min(m.Attempts-1, 10))
	m.State, m.Error, m.DueAt = core.MessagePending, bounded(why), now.Add(max(pause, s.wait))
	u.counts.again.Add(1)
}

func (u *UseCases) fail(m *core.NotificationMessage, why string) {
	m.State, m.Error, m.Slotted = core.MessageFailed, bounded(why), false
	u.counts.failed.Add(1)
}

func bounded(text string) string { return cut(cmp.Or(text, "no reason was given"), 1000) }

// read reads what a program reports.
func read(pairs []handoff.WorkflowPair) statusRun {
	var s statusRun
	var wait int
	for _, p := range pairs {
		switch p.Key {
		case "outcome":
			_ = json.Unmarshal([]byte(p.Value), &s.outcome) // without one, it is as if it had not said anything
		case "ref":
			_ = json.Unmarshal([]byte(p.Value), &s.ref)
		case "why":
			_ = json.Unmarshal([]byte(p.Value), &s.why)
		case "wait":
			_ = json.Unmarshal([]byte(p.Value), &wait)
		}
	}
	s.wait = time.Duration(max(0, min(wait, 3600))) * time.Second
	return s
}
