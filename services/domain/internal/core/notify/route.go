package notify

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/expression"
	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/pattern"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
)

const (
	// kept is how long notifications and messages are kept.
	kept = 30 * 24 * time.Hour
	// maxProblem bounds what is wrong with the expression of a route, in characters.
	maxProblem = 200
	// forgottenAtOnce limits how many old rows are deleted with each notification.
	forgottenAtOnce = 20
)

// Worked is what a worker did, for the log.
type Worked struct {
	Organization int64
	// What is route, send, look or put off.
	What string
	// Notification and Message are what it was about; 0 for none.
	Notification, Message int64
	Moment                core.NotificationMoment
	State                 core.NotificationState
	Error                 string
}

// WorkDue does the next thing that is due: it routes a moment, or sends a message or looks at one that is being sent. It reports false if
// nothing is due. Organizations take turns.
func (u *UseCases) WorkDue(ctx context.Context) (Worked, bool, error) {
	u.warn(ctx)
	organizations, err := u.store.OrganizationsWithDueNotifications(ctx, u.clock.Now())
	if err != nil {
		return Worked{}, false, err
	}
	for _, organization := range u.turns(organizations) {
		w, worked, err := u.workIn(ctx, organization)
		if err != nil || worked {
			u.served.Store(organization)
			return w, worked, err
		}
	}
	return Worked{}, false, nil
}

// lookout is how often credentials are looked at.
const lookout = 10 * time.Minute

// warn stores, now and then, which credentials end soon. If it fails, it is tried again the next time: it keeps nothing else from being
// sent.
func (u *UseCases) warn(ctx context.Context) {
	now, last := u.clock.Now(), u.warned.Load()
	if now.Sub(time.Unix(0, last)) < lookout || !u.warned.CompareAndSwap(last, now.UnixNano()) {
		return
	}
	if err := u.store.WarnOfCredentials(ctx, now); err != nil {
		u.counts.unwarned.Add(1)
		u.unwarned(ctx, err)
	}
}

// turns returns organizations, beginning after the one served last, so that none waits for all messages of another.
func (u *UseCases) turns(organizations []int64) []int64 {
	slices.Sort(organizations)
	first := slices.IndexFunc(organizations, func(o int64) bool { return o > u.served.Load() })
	if first <= 0 {
		return organizations
	}
	return append(slices.Clone(organizations[first:]), organizations[:first]...)
}

// workIn does the next thing of an organization: routing first, because it is quick, and all of it belongs to messages. Of things for tools
// there may be very many: they are routed while nothing is to be sent.
func (u *UseCases) workIn(ctx context.Context, organization int64) (Worked, bool, error) {
	w, worked, err := u.routeNext(ctx, organization, false)
	if err != nil || worked {
		return w, worked, err
	}
	if w, worked, err = u.sendNext(ctx, organization); err != nil || worked {
		return w, worked, err
	}
	return u.routeNext(ctx, organization, true)
}

// routeNext routes the next moment of an organization, and one for tools only if these are to be.
func (u *UseCases) routeNext(ctx context.Context, organization int64, tools bool) (Worked, bool, error) {
	w := Worked{Organization: organization, What: "route"}
	worked := false
	err := u.store.In(ctx, organization, func(ctx context.Context, tx Tx) error {
		now := u.clock.Now()
		n, found, err := tx.DueNotification(ctx, now)
		if worked = found && (tools || !n.Moment.ForTools()); err != nil || !worked {
			return err
		}
		w.Notification = n.ID
		var made int
		if n, made, err = u.route(ctx, tx, organization, n, now); err != nil {
			return err
		}
		w.Moment = n.Moment
		if err := tx.NotificationRouted(ctx, n, now); err != nil {
			return err
		}
		return tx.ForgetNotifications(ctx, now.Add(-kept), forgottenAtOnce+made)
	})
	if err != nil {
		err = fmt.Errorf("route notification %d: %w", w.Notification, err)
		return w, false, u.putOff(ctx, organization, err, func(ctx context.Context, tx Tx, until time.Time) error {
			return tx.PutOffNotification(ctx, w.Notification, until)
		})
	}
	if worked {
		u.counts.routed.Add(1)
	}
	return w, worked, nil
}

// putOff has what failed tried again later, so that it does not keep the rest from being done. It returns the failure.
func (u *UseCases) putOff(
	ctx context.Context, organization int64, failed error, do func(ctx context.Context, tx Tx, until time.Time) error,
) error {
	err := u.store.In(ctx, organization, func(ctx context.Context, tx Tx) error { return do(ctx, tx, u.clock.Now().Add(glance)) })
	if err != nil {
		return fmt.Errorf("put it off: %w, after: %w", err, failed)
	}
	return failed
}

// facts are what routes decide by.
type facts struct {
	notification core.Notification
	rollout      Rollout
	environments []string
	tiers        []string
	// environmentIDs are those of environments.
	environmentIDs []int64
	// former are the former names of the application.
	former []string
}

// route makes messages of a moment, and returns it as what it turned out to be, with how many messages it made for members.
func (u *UseCases) route(
	ctx context.Context, tx Tx, organization int64, n core.Notification, now time.Time,
) (core.Notification, int, error) {
	f, void, err := look(ctx, tx, n)
	if err != nil || void {
		return f.notification, 0, err
	}
	n = f.notification
	if n.ApplicationID != 0 {
		former, err := tx.FormerNames(ctx, organization, []int64{n.ApplicationID})
		if err != nil {
			return n, 0, err
		}
		f.former = former[n.ApplicationID]
	}
	channels, err := tx.NotificationChannels(ctx, organization)
	if err != nil {
		return n, 0, err
	}
	// What locks messages of several channels does so in this order.
	slices.SortFunc(channels, func(a, b core.NotificationChannel) int { return cmp.Compare(a.ID, b.ID) })
	if n.Moment == core.MomentAdvanced {
		return n, 0, advance(ctx, tx, f, channels, now)
	}
	made, err := u.personal(ctx, tx, organization, f, channels, now)
	if err != nil {
		return n, made, err
	}
	return n, made, u.toChannels(ctx, tx, organization, f, channels, now)
}

// toChannels makes the messages of a moment to channels.
func (u *UseCases) toChannels(
	ctx context.Context, tx Tx, organization int64, f facts, channels []core.NotificationChannel, now time.Time,
) error {
	n := f.notification
	routes, err := tx.NotificationRoutes(ctx, organization)
	if err != nil {
		return err
	}
	if n.Moment == core.MomentApprovalUnanswered || n.Moment == core.MomentCallUnanswered {
		m, sends, err := escalated(ctx, tx, organization, n, routes, channels, now)
		if err != nil || !sends {
			return err
		}
		u.counts.escalated.Add(1)
		return tx.AttachNotification(ctx, m, n, true)
	}
	for _, c := range channels {
		if _, personal := isPersonal(c); personal || !c.Enabled {
			continue
		}
		m, sends, err := f.to(ctx, tx, c, routes, now)
		if err != nil {
			return err
		}
		unasked := !sends
		if unasked {
			// What it does not want to hear of first, it wants to see in the message that it has.
			if !follows(n) || !updates(c) {
				continue
			}
			m = core.NotificationMessage{ChannelID: c.ID, RolloutID: n.RolloutID, Key: keyIn(c, n), DueAt: now}
			if sends, err = tx.NotificationMessageExists(ctx, c.ID, m.Key); err != nil {
				return err
			}
		}
		if !sends {
			continue
		}
		m.Severity = n.Moment.Severity()
		if err := tx.AttachNotification(ctx, m, n, unasked); err != nil {
			return err
		}
		if r := slices.IndexFunc(routes, func(r core.NotificationRoute) bool { return r.ID == m.RouteID }); r >= 0 {
			if err := escalate(ctx, tx, organization, n, routes[r], now); err != nil {
				return err
			}
		}
	}
	return resolve(ctx, tx, n, now)
}

// advance has channels update what they have of a rollout that continues. The end of one has messages of its own.
func advance(ctx context.Context, tx Tx, f facts, channels []core.NotificationChannel, now time.Time) error {
	if f.rollout.State.Terminal() {
		return nil
	}
	a := Advance{Key: key(f.notification), DueAt: now.Add(core.AdvanceDelay)}
	for _, c := range channels {
		if _, personal := isPersonal(c); personal || !c.Enabled || !updates(c) || c.Kind.Alarms() {
			continue
		}
		var config channelConfig
		if err := json.Unmarshal(c.Config, &config); err != nil {
			return fmt.Errorf("read channel %q: %w", c.Name, err)
		}
		a.Channels = append(a.Channels, c.ID)
		if config.Details {
			a.Details = append(a.Details, c.ID)
		}
	}
	if len(a.Channels) == 0 {
		return nil
	}
	return tx.AttachAdvance(ctx, a, f.notification)
}

// resolve ends the alerts of rollouts that failed, once another one has completed where they were.
func resolve(ctx context.Context, tx Tx, n core.Notification, now time.Time) error {
	if n.Moment != core.MomentRolloutCompleted && n.Moment != core.MomentRolledBack {
		return nil
	}
	alerts, err := tx.AlertsOfFailedRollouts(ctx, n.RolloutID, now.Add(-kept))
	if err != nil {
		return err
	}
	for _, m := range alerts {
		m.DueAt, m.Severity = now, n.Moment.Severity()
		if err := tx.AttachNotification(ctx, m, n, true); err != nil {
			return err
		}
	}
	return nil
}

// look loads what a moment is about; void is that it is to be dropped.
func look(ctx context.Context, tx Tx, n core.Notification) (f facts, void bool, err error) {
	f.notification = n
	named, err := tx.NotificationsByID(ctx, []int64{n.ID})
	if err != nil {
		return f, false, err
	}
	if len(named) > 0 {
		n = named[0]
		f.notification = n
	}
	if n.Environment != "" {
		f.environments, f.tiers, f.environmentIDs = []string{n.Environment}, []string{string(n.Tier)}, []int64{n.EnvironmentID}
	}
	switch n.Moment { //nolint:exhaustive // the others are what they are
	case core.MomentFreezeBegan, core.MomentFreezeEnded:
		freeze, err := tx.NotifiedFreeze(ctx, n.SubjectID)
		if err != nil {
			return f, false, ignoreMissing(err)
		}
		return f, !freeze.happened(n), nil
	case core.MomentCredentialExpires:
		c, err := tx.NotifiedCredential(ctx, n.SubjectID)
		if err != nil {
			return f, true, ignoreMissing(err)
		}
		return f, !c.warnedOf(n), nil
	case core.MomentRolloutQueued, core.MomentRolloutDropped:
		environments, err := tx.NotifiedQueue(ctx, n.ID)
		f.goes(environments, 0)
		return f, false, err
	}
	if n.RolloutID == 0 {
		return f, false, nil
	}
	if f.rollout, err = tx.NotifiedRollout(ctx, n.RolloutID); err != nil {
		return f, false, err
	}
	f.notification.ApplicationID, f.notification.Application = f.rollout.ApplicationID, f.rollout.Application
	f.notification.Labels = f.rollout.Labels
	if f.rollout.RollbackOf != 0 {
		f.notification.Moment = n.Moment.OfRollback()
	}
	gate := int64(0)
	if n.Moment == core.MomentApprovalNeeded || n.Moment == core.MomentApprovalUnanswered {
		g, err := tx.NotifiedGate(ctx, n.RolloutID, n.Subject)
		if err != nil && !fault.Is(err, fault.NotFound) {
			return f, false, err
		}
		gate = f.rollout.before(n.Subject, g)
	}
	if len(f.environments) == 0 {
		f.goes(f.rollout.Environments, gate)
	}
	return f, false, nil
}

// goes adds where a rollout goes, and only one environment unless that is 0.
func (f *facts) goes(all []RolloutEnvironment, only int64) {
	for _, e := range all {
		if only == 0 || only == e.ID {
			f.environments, f.tiers = append(f.environments, e.Name), append(f.tiers, string(e.Tier))
			f.environmentIDs = append(f.environmentIDs, e.ID)
		}
	}
}

// before is the environment that an approval is about: that of its rule, or the one whose name its gate begins with. It is 0 for none.
func (r Rollout) before(gate string, g Gate) int64 {
	name, _, _ := strings.Cut(gate, "/")
	for _, e := range r.Environments {
		if g.EnvironmentID == e.ID || g.EnvironmentID == 0 && e.Name == name {
			return e.ID
		}
	}
	return 0
}

func ignoreMissing(err error) error {
	if fault.Is(err, fault.NotFound) {
		return nil
	}
	return err
}

// happened reports whether a freeze began or ended as it was to when the moment was stored: it may have been ended or extended since.
func (f Freeze) happened(n core.Notification) bool {
	if n.Moment == core.MomentFreezeBegan {
		return f.EndedAt == nil || f.EndedAt.After(f.StartsAt)
	}
	if f.EndedAt != nil {
		return f.EndedAt.Equal(n.At) && f.EndedAt.After(f.StartsAt)
	}
	return f.EndsAt.Equal(n.At)
}

// key is that of the message that a moment belongs to.
func key(n core.Notification) string {
	switch {
	case n.RolloutID != 0:
		return fmt.Sprintf("rollout:%d", n.RolloutID)
	case ofCall(n):
		return fmt.Sprintf("call:%d", n.SubjectID)
	case n.Moment.Ends() != "":
		return "notification:" + strings.TrimPrefix(n.Cause, "end:")
	default:
		return fmt.Sprintf("notification:%d", n.ID)
	}
}

// keyIn is the key in a channel. An alert is one for all warnings of a value of a credential; elsewhere each of them is to be noticed.
func keyIn(c core.NotificationChannel, n core.Notification) string {
	if !c.Kind.Alarms() || n.Moment != core.MomentCredentialExpires && n.Moment != core.MomentCredentialReplaced {
		return key(n)
	}
	parts := strings.SplitN(n.Cause, ":", 4) // what it is, the credential, the version, and when
	if len(parts) < 4 {
		return key(n)
	}
	return "credential:" + parts[1] + ":" + parts[2]
}

// ofCall is whether a moment is about a call request.
func ofCall(n core.Notification) bool {
	return n.Moment == core.MomentCallRequested || n.Moment == core.MomentCallUnanswered ||
		n.Moment == core.MomentProceeded && n.SubjectID != 0
}

// follows is whether a moment may be about something that a message is about already.
func follows(n core.Notification) bool {
	if n.Moment.IsStep() { // messages that do not ask for it are updated by what else its row is
		return false
	}
	return n.RolloutID != 0 || ofCall(n) || n.Moment.Ends() != "" || n.Moment == core.MomentCredentialReplaced
}

// warnedOf reports whether a credential still has the value that a moment is about.
func (c Credential) warnedOf(n core.Notification) bool {
	return strings.HasPrefix(n.Cause, fmt.Sprintf("credential:%d:%d:%d:", n.SubjectID, c.Version, c.ExpiresAt.Unix()))
}

// Defaults are the moments that a channel of a kind without routes is sent.
func Defaults(kind core.NotificationKind) []core.NotificationMoment {
	if kind.Alarms() { // it wakes people
		return []core.NotificationMoment{
			core.MomentRolloutFailed, core.MomentRollbackBegan, core.MomentBreach, core.MomentAgentOffline,
		}
	}
	return slices.DeleteFunc(core.AllNotificationMoments(), func(m core.NotificationMoment) bool {
		return m == core.MomentTriggerDeclined || m.Named()
	})
}

// to is the message of a channel that a moment belongs to: by its first route that matches, or by default where it has no route.
func (f facts) to(
	ctx context.Context, tx Tx, c core.NotificationChannel, routes []core.NotificationRoute, now time.Time,
) (m core.NotificationMessage, sends bool, err error) {
	n := f.notification
	m = core.NotificationMessage{ChannelID: c.ID, RolloutID: n.RolloutID, Key: keyIn(c, n), DueAt: now}
	if n.Moment == core.MomentProceeded || n.Moment == core.MomentAdvanced || n.Moment == core.MomentCredentialReplaced ||
		c.Kind.Alarms() && n.Moment.OfQueue() { // nothing would end its alert
		return m, false, nil
	}
	own := 0
	for _, r := range routes {
		if r.ChannelID != c.ID {
			continue
		}
		own++
		if !r.Enabled {
			continue
		}
		var config RouteConfig
		if err := json.Unmarshal(r.Config, &config); err != nil {
			return m, false, fmt.Errorf("read route %q: %w", r.Name, err)
		}
		matches, problem := f.match(ctx, config)
		problem = cut(problem, maxProblem)
		if problem != "" && !strings.HasSuffix(r.Problem, ": "+problem) { // the same at another time is no news
			if err := tx.SetRouteProblem(ctx, r.ID, line(fmt.Sprintf("event %s at %s: %s", n.Moment, stamp(n.At), problem))); err != nil {
				return m, false, err
			}
		}
		if !matches {
			continue
		}
		m.RouteID, m.Quiet = r.ID, config.Quiet.stored()
		var digest time.Time
		if m.DueAt, digest = config.due(n.Moment, now); !digest.IsZero() && (!n.Moment.ForTools() || !interchanges(c)) {
			m.Key, m.RolloutID = fmt.Sprintf("digest:%d:%d", r.ID, digest.Unix()), 0
		}
		return m, true, nil
	}
	return m, own == 0 && slices.Contains(Defaults(c.Kind), n.Moment), nil
}

// due is when a moment is sent, and when the digest ends that it is a part of; the zero time for none.
func (c RouteConfig) due(moment core.NotificationMoment, now time.Time) (at, digest time.Time) {
	at = now
	if c.DigestMinutes > 0 {
		every := time.Duration(c.DigestMinutes) * time.Minute
		digest = now.Truncate(every).Add(every)
		at = digest
	}
	if until := c.Quiet.until(at); !until.IsZero() && moment.Severity() < core.SeverityHigh {
		at = until
	}
	return at, digest
}

// match reports whether a route is for a moment. An expression that cannot be evaluated matches nothing; problem is why.
func (f facts) match(ctx context.Context, c RouteConfig) (matches bool, problem string) {
	n := f.notification
	anyOf := func(patterns, names []string) bool {
		return len(patterns) == 0 || slices.ContainsFunc(names, func(name string) bool {
			return slices.ContainsFunc(patterns, func(p string) bool { return pattern.Match(p, name) })
		})
	}
	var tiers []string
	for _, tier := range c.Tiers {
		tiers = append(tiers, string(tier))
	}
	switch {
	case (len(c.Events) > 0 || n.Moment.Named()) && !slices.Contains(c.Events, n.Moment):
		return false, ""
	case len(c.Severities) > 0 && !slices.Contains(c.Severities, n.Moment.Severity().String()):
		return false, ""
	case !anyOf(c.Applications, []string{n.Application}) && !slices.ContainsFunc(c.Applications, f.formerly),
		!anyOf(c.Environments, f.environments), !anyOf(tiers, f.tiers):
		return false, ""
	case len(c.Labels) > 0 && !core.HasLabels(n.Labels, c.Labels):
		return false, ""
	case c.Expression == "":
		return true, ""
	}
	program, err := expression.Compile(c.Expression, expressionNames()...)
	if err != nil {
		return false, err.Error()
	}
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	result, err := program.Evaluate(ctx, map[string]any{
		"event": string(n.Moment), "application": n.Application, "environments": texts(f.environments), "tiers": texts(f.tiers),
		"severity": n.Moment.Severity().String(), "rollout": n.RolloutID, "subject": n.Subject, "reason": n.Reason, "principal": n.PrincipalName,
		"labels": labelled(n.Labels),
	})
	if err != nil {
		return false, err.Error()
	}
	matches, is := result.(bool)
	if !is {
		return false, "found no boolean"
	}
	return matches, ""
}

// formerly is whether an entry of a route is as a whole a former name of the application (D57).
func (f facts) formerly(one string) bool { return slices.Contains(f.former, one) }

// labelled are labels as expressions read them.
func labelled(labels map[string]string) map[string]any {
	all := make(map[string]any, len(labels))
	for key, value := range labels {
		all[key] = value
	}
	return all
}

func texts(all []string) []any {
	made := make([]any, len(all))
	for i, one := range all {
		made[i] = one
	}
	return made
}

// counts counts what this process has done, for the metrics.
type counts struct {
	routed, sent, again, failed, postponed, digested, opened, unsigned, escalated, personal, templates, unwarned atomic.Int64
}

// Counts returns the number of things that this process has done, by what.
func (u *UseCases) Counts() map[string]int64 {
	return map[string]int64{
		"routed": u.counts.routed.Load(), "sent": u.counts.sent.Load(), "retried": u.counts.again.Load(), "failed": u.counts.failed.Load(),
		"postponed": u.counts.postponed.Load(), "digested": u.counts.digested.Load(), "opened": u.counts.opened.Load(),
		"unsigned": u.counts.unsigned.Load(), "escalated": u.counts.escalated.Load(), "personal": u.counts.personal.Load(),
		"template_failed": u.counts.templates.Load(), "credentials_failed": u.counts.unwarned.Load(),
	}
}
