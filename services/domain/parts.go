package domain

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/bus"
	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/telemetry"
	"github.com/lockstep-cd/lockstep/services/domain/internal/api"
	"github.com/lockstep-cd/lockstep/services/domain/internal/api/graph"
	"github.com/lockstep-cd/lockstep/services/domain/internal/api/graph/transport"
	"github.com/lockstep-cd/lockstep/services/domain/internal/console"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/handoff"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/rollout"
	"github.com/lockstep-cd/lockstep/services/domain/internal/events"
)

// handler is the HTTP side of the service.
func (s *service) handler(c Config) (http.Handler, error) {
	s.streams = transport.NewStreams(c.MaxSubscriptions)
	pages, err := console.Handler(!c.Docs.Off)
	if err != nil {
		return nil, err
	}
	var docs http.Handler
	if !c.Docs.Off {
		if docs, err = console.Docs(api.DocsPath); err != nil {
			return nil, err
		}
	}
	signOn, err := s.signOn(c)
	if err != nil {
		return nil, err
	}
	guard, err := c.FailedAuthentication.Guard()
	if err != nil {
		return nil, fmt.Errorf("failed_authentication: %w", err)
	}
	feedGuard, err := c.FailedAuthentication.Guard()
	if err != nil {
		return nil, fmt.Errorf("failed_authentication: %w", err)
	}
	var reads transport.Reads
	if s.standby != nil {
		reads = s.standby
	}
	return api.NewHandler(api.Deps{
		Guard: guard, FeedGuard: feedGuard,
		SignOn: signOn,
		GraphQL: graph.NewHandler(graph.Deps{
			Domain: graph.Domain{
				Access: s.access, Setup: s.setup, Intake: s.intake, Rollouts: s.rollouts, Freezes: s.freezes, Policies: s.policies,
				Checks: s.checks, Triggers: s.triggers, Notify: s.notify, Forges: s.forges, Workflows: s.handoffs, View: s.view,
				Credentials: s.credentials, Chats: s.chats, Feeds: s.feeds,
				Evidence: s.evidence, Control: s.control, Reconcile: s.reconcile, Retention: s.retention, Origins: s.origins,
			},
			Clock: clock.System(), Log: s.log, Streams: s.streams, Reads: reads,
		}),
		Console: pages,
		Docs:    docs,
		Tokens: api.Tokens{c.BootstrapToken: {
			Organization: ownerOrganization, Type: core.PrincipalUser, ID: owner, Name: ownerName, Permissions: core.RoleOwner.Permissions(),
		}},
		Access: s.access,
		Export: s.evidence, Everything: s.access, Archived: s.retention,
		Checks: s.checks, Evaluations: s.rollouts, Deployments: s.rollouts, Triggers: s.triggers,
		Chats: s.chats, Feeds: s.feeds, Log: s.log,
		Clock: clock.System(),
	}), nil
}

const (
	// dispatchers is how many hand-overs are under way at once, so that a slow answer holds up few others.
	dispatchers = 4
	// dispatchPoll is how soon a hand-over is found that came due by time, or that another replica left.
	dispatchPoll = time.Second
)

// dispatch hands over whatever is due, as long as there is something, and waits to be woken otherwise. One idle worker
// is woken every dispatchPoll, and each that finds work wakes another.
func (s *service) dispatch(ctx context.Context, engine handoff.Engine, ready func()) error {
	ready()
	var wg sync.WaitGroup
	wg.Go(func() {
		for clock.Sleep(ctx, clock.System(), dispatchPoll) == nil {
			s.wakeOne()
		}
	})
	for range dispatchers {
		wg.Go(func() {
			for ctx.Err() == nil {
				if s.handOver(ctx, engine) {
					s.wakeOne()
				} else {
					s.idle(ctx)
				}
			}
		})
	}
	wg.Wait()
	return nil
}

// chore does one thing that is due by time: what it was, for the log; false when nothing was due.
type chore func(ctx context.Context) (what string, attrs []slog.Attr, worked bool, err error)

// chores are what policies want done by time.
func (s *service) chores() []chore {
	return []chore{
		func(ctx context.Context) (string, []slog.Attr, bool, error) {
			r, worked, err := s.rollouts.RollBackDue(ctx)
			return "automatic rollback", []slog.Attr{
				slog.Int64(telemetry.KeyRollout, r.RolloutID), slog.String("outcome", r.Outcome), slog.Int64("made", r.MadeRolloutID),
			}, worked, err
		},
		func(ctx context.Context) (string, []slog.Attr, bool, error) {
			c, worked, err := s.rollouts.CloseDue(ctx)
			return "rollout closed", []slog.Attr{slog.Int64(telemetry.KeyRollout, c.RolloutID)}, worked, err
		},
		func(ctx context.Context) (string, []slog.Attr, bool, error) {
			q, worked, err := s.rollouts.BeginQueued(ctx)
			if worked && q.MadeRolloutID == 0 && q.Outcome == "" {
				q.Outcome = fmt.Sprintf("waits for comparison %d of the manifests", q.ComparisonID)
			}
			return "queued rollout", []slog.Attr{slog.Int64(telemetry.KeyRollout, q.MadeRolloutID), slog.String("outcome", q.Outcome)}, worked, err
		},
		func(ctx context.Context) (string, []slog.Attr, bool, error) {
			e, worked, err := s.rollouts.ExpireDue(ctx)
			return "gate expired", []slog.Attr{
				slog.Int64(telemetry.KeyRollout, e.RolloutID), slog.String("gate", e.GateID), slog.String("outcome", e.Outcome),
			}, worked, err
		},
		func(ctx context.Context) (string, []slog.Attr, bool, error) {
			if _, err := s.rollouts.NoticeAbsence(ctx); err != nil {
				return "", nil, false, err
			}
			d, worked, err := s.rollouts.PassDue(ctx)
			return "deadline due", []slog.Attr{slog.Int64(telemetry.KeyRollout, d.RolloutID), slog.String("outcome", d.Outcome)}, worked, err
		},
		func(ctx context.Context) (string, []slog.Attr, bool, error) {
			application, worked, err := s.intake.RankDue(ctx)
			return "newest version set", []slog.Attr{slog.Int64("application", application)}, worked, err
		},
	}
}

// attend does what is due by time, as long as there is something. One worker is enough: it is rare, and quick.
func (s *service) attend(ctx context.Context, ready func()) error {
	ready()
	for ctx.Err() == nil {
		again := false
		for _, do := range s.chores() {
			again = s.carryOut(ctx, do) || again
		}
		if !again {
			s.pauseUntil(ctx, s.chore)
		}
	}
	return nil
}

// carryOut does one thing, and reports whether there was something to do.
func (s *service) carryOut(ctx context.Context, do chore) bool {
	what, attrs, worked, err := do(ctx)
	// What fails because the process stops is no news.
	if ctx.Err() != nil || !worked && err == nil {
		return false
	}
	level := slog.LevelInfo
	if err != nil {
		level, attrs = fault.Describe(fault.ClassOf(err)).Level, append(attrs, slog.Any(telemetry.KeyError, err))
	}
	s.log.LogAttrs(ctx, level, "policy carried out", append(attrs, slog.String(telemetry.KeyPart, what))...)
	return err == nil
}

// reviewWorkers is how many rollouts are reviewed at once: people and programs that report wait for it.
const reviewWorkers = 3

// reviewPassages evaluates the passages of rollouts for which that is due, as long as there are some. It waits for nothing else that is
// due by time. The first worker looks each chorePoll or when it is woken; each that evaluates a rollout wakes another.
func (s *service) reviewPassages(ctx context.Context, ready func()) error {
	ready()
	review := func(ctx context.Context) (string, []slog.Attr, bool, error) {
		rollout, worked, err := s.rollouts.ReviewDue(ctx)
		if worked {
			s.wakeReviewer()
		}
		return "passages evaluated again", []slog.Attr{slog.Int64(telemetry.KeyRollout, rollout)}, worked, err
	}
	var wg sync.WaitGroup
	for i := range reviewWorkers {
		wg.Go(func() {
			for ctx.Err() == nil {
				if s.carryOut(ctx, review) {
					continue
				}
				if i == 0 {
					s.pauseUntil(ctx, s.review)
					continue
				}
				select {
				case <-ctx.Done():
				case <-s.review:
				}
			}
		})
	}
	wg.Wait()
	return nil
}

// wakeReviewer wakes a worker that reviews passages, unless one is woken already.
func (s *service) wakeReviewer() {
	select {
	case s.review <- struct{}{}:
	default:
	}
}

const (
	// deciders is how many triggers decide at once.
	deciders = 2
	// edits is how many edits of files call the engine at once.
	edits = 8
)

// editAside makes a call for an edit of files without keeping a decider waiting, so that an engine that does not answer holds up nobody.
// What finds no room is repeated after its lease.
func (s *service) editAside(ctx context.Context, call func(context.Context) error) error {
	select {
	case s.editing <- struct{}{}:
	default:
		return nil
	}
	s.edits.Go(func() {
		defer func() { <-s.editing }()
		if err := call(ctx); err != nil && ctx.Err() == nil {
			s.log.LogAttrs(ctx, fault.Describe(fault.ClassOf(err)).Level, "edit of files is tried again", slog.Any(telemetry.KeyError, err))
		}
	})
	return nil
}

// decideAll has triggers decide as long as one has something to decide about, and looks again each chorePoll or when it is woken.
func (s *service) decideAll(ctx context.Context, ready func()) error {
	ready()
	var wg sync.WaitGroup
	for range deciders {
		wg.Go(func() {
			for ctx.Err() == nil {
				if s.decideOne(ctx) {
					s.wakeTriggers() // another decides what is due besides
				} else {
					s.pauseUntil(ctx, s.decide)
				}
			}
		})
	}
	wg.Wait()
	s.edits.Wait()
	return nil
}

// decideOne has the next trigger decide, writes the one line about it, and reports whether to continue at once.
func (s *service) decideOne(ctx context.Context) bool {
	d, worked, err := s.triggers.DecideDue(ctx)
	if ctx.Err() != nil || err == nil && (!worked || d.Outcome == core.TriggerPending) {
		return worked
	}
	attrs := []slog.Attr{
		slog.Int64(telemetry.KeyOrganization, d.Organization), slog.String("trigger", d.Trigger.Name), slog.String("kind", string(d.Trigger.Kind)),
		slog.Int64("application", d.Trigger.ApplicationID), slog.String("outcome", string(d.Outcome)), slog.String("reason", d.Reason),
		slog.Int64(telemetry.KeyRollout, d.RolloutID),
	}
	level := slog.LevelInfo
	if err != nil {
		level, attrs = fault.Describe(fault.ClassOf(err)).Level, append(attrs, slog.Any(telemetry.KeyError, err))
	}
	s.log.LogAttrs(ctx, level, "trigger decided", attrs...)
	return err == nil
}

// notifierCount is how many route and begin to send notifications at once. Neither waits for a channel.
const notifierCount = 2

// notifyAll routes and sends notifications as long as something is due, and looks again each chorePoll or when it is woken: one statement
// for all organizations.
func (s *service) notifyAll(ctx context.Context, ready func()) error {
	ready()
	var wg sync.WaitGroup
	for range notifierCount {
		wg.Go(func() {
			for ctx.Err() == nil {
				if s.notifyOne(ctx) {
					s.wakeNotifiers()
				} else {
					s.pauseUntil(ctx, s.notifiers)
				}
			}
		})
	}
	wg.Wait()
	return nil
}

// notifyOne does the next thing, writes the one line about it, and reports whether to continue at once.
func (s *service) notifyOne(ctx context.Context) bool {
	w, worked, err := s.notify.WorkDue(ctx)
	if ctx.Err() != nil || !worked && err == nil {
		return false
	}
	attrs := []slog.Attr{
		slog.Int64(telemetry.KeyOrganization, w.Organization), slog.String("did", w.What), slog.Int64("notification", w.Notification),
		slog.String("moment", string(w.Moment)), slog.Int64("message", w.Message), slog.String("state", string(w.State)),
		slog.String("reason", w.Error),
	}
	level := slog.LevelInfo
	if err != nil {
		level, attrs = fault.Describe(fault.ClassOf(err)).Level, append(attrs, slog.Any(telemetry.KeyError, err))
	}
	s.log.LogAttrs(ctx, level, "notification", attrs...)
	return err == nil
}

// unwarned logs that credentials which end soon could not be looked up.
func (s *service) unwarned(ctx context.Context, err error) {
	s.log.LogAttrs(ctx, fault.Describe(fault.ClassOf(err)).Level, "credentials that end soon are not notified; it is tried again",
		slog.Any(telemetry.KeyError, err))
}

// publisherCount is how many make and begin to send statuses of commits at once. Neither waits for a forge.
const publisherCount = 2

// publishAll publishes statuses of commits as long as something is due, and looks again each chorePoll or when it is woken: one statement
// for all organizations.
func (s *service) publishAll(ctx context.Context, ready func()) error {
	ready()
	var wg sync.WaitGroup
	for range publisherCount {
		wg.Go(func() {
			for ctx.Err() == nil {
				if s.publishOne(ctx) {
					s.wakePublishers()
				} else {
					s.pauseUntil(ctx, s.publishers)
				}
			}
		})
	}
	wg.Wait()
	return nil
}

// publishOne does the next thing, writes the one line about it, and reports whether to continue at once.
func (s *service) publishOne(ctx context.Context) bool {
	w, worked, err := s.forges.WorkDue(ctx)
	if ctx.Err() != nil || !worked && err == nil {
		return false
	}
	attrs := []slog.Attr{
		slog.Int64(telemetry.KeyOrganization, w.Organization), slog.String("did", w.What), slog.Int64("application", w.Application),
		slog.Int64("version_set", w.VersionSet), slog.Int64("status", w.Status), slog.Int64("pull_request", w.Pull), slog.String("state", string(w.State)), slog.String("reason", w.Error),
	}
	level := slog.LevelInfo
	if err != nil {
		level, attrs = fault.Describe(fault.ClassOf(err)).Level, append(attrs, slog.Any(telemetry.KeyError, err))
	}
	s.log.LogAttrs(ctx, level, "forge", attrs...)
	return err == nil
}

// lookupWorkers is how many versions are looked up together, each of which waits for a registry.
const lookupWorkers = 2

// lookUpVersions looks up where versions come from, when they are due, until ctx ends.
func (s *service) lookUpVersions(ctx context.Context) error {
	var workers sync.WaitGroup
	for range lookupWorkers {
		workers.Go(func() {
			for ctx.Err() == nil {
				version, worked, err := s.origins.LookUpDue(ctx)
				if err != nil && ctx.Err() == nil {
					s.log.LogAttrs(ctx, fault.Describe(fault.ClassOf(err)).Level, "looking up where a version comes from failed; will retry",
						slog.Int64("version", version), slog.Any(telemetry.KeyError, err))
				}
				if !worked || err != nil {
					_ = clock.Sleep(ctx, clock.System(), lookupPoll) // if it ends early, the loop sees why
				}
			}
		})
	}
	workers.Wait()
	return nil
}

// lookupPoll is how soon a version is found that is due.
const lookupPoll = 2 * time.Second

// chorePoll is how soon something is found that is due.
const chorePoll = time.Second

// answerSources answers the registry service, which pulls the artifact sources, until ctx ends. NATS may go away in the moment
// of subscribing, or not allow it yet: nothing else of this service needs it.
func (s *service) answerSources(ctx context.Context, conn *bus.Conn) error {
	for ctx.Err() == nil {
		err := conn.Answer(ctx, bus.SourcesPull, events.Pulled(s.setup.SourcesAfter, s.forges.HooksAfter, s.credentials.ForRegistries))
		if err == nil {
			<-ctx.Done()
			break
		}
		s.log.WarnContext(ctx, "the registry service cannot pull sources", telemetry.KeyError, err)
		s.pause(ctx, answerAgain)
	}
	return nil
}

// answerAgain is how soon it is tried again to answer.
const answerAgain = 5 * time.Second

// announcePlaces announces what belongs to environments, at once and from time to time, until ctx ends: the workflow service may have lost
// it, as after a restored backup.
func (s *service) announcePlaces(ctx context.Context) error {
	for ctx.Err() == nil {
		next := placesInterval
		if err := s.setup.AnnouncePlaces(ctx); err != nil && ctx.Err() == nil {
			s.log.WarnContext(ctx, "announcing the places of environments failed; will retry", telemetry.KeyError, err)
			next = placesRetry
		}
		s.pause(ctx, next)
	}
	return nil
}

// placesInterval is how often what belongs to environments is announced again although nothing has changed.
const placesInterval = 6 * time.Hour

// placesRetry is how soon that is attempted again after a failure.
const placesRetry = 5 * time.Second

// deleteSettled deletes what no rule of an organization keeps, at once and then from time to time, until ctx ends.
func (s *service) deleteSettled(ctx context.Context) error {
	for ctx.Err() == nil {
		deleted, err := s.retention.DeleteDue(ctx)
		for _, d := range deleted {
			s.log.InfoContext(ctx, "settled rows deleted", slog.Int64(telemetry.KeyOrganization, d.Organization), slog.String("kind", string(d.Kind)),
				slog.Int("rows", d.Rows))
		}
		if err != nil && ctx.Err() == nil {
			s.log.WarnContext(ctx, "deleting settled rows failed; will retry", telemetry.KeyError, err)
		}
		s.pause(ctx, retentionInterval)
	}
	return nil
}

// retentionInterval is how often settled rows are deleted.
const retentionInterval = time.Hour

// lookForDrift has drivers look for drift, so many times a minute at most, until ctx ends.
func (s *service) lookForDrift(ctx context.Context, pace rollout.DriftPace, perMinute int) error {
	if pace.Every == 0 || perMinute == 0 {
		<-ctx.Done()
		return nil
	}
	for ctx.Err() == nil {
		next := driftPoll
		looked, err := s.rollouts.LookForDriftDue(ctx, pace)
		if err != nil && ctx.Err() == nil {
			s.log.WarnContext(ctx, "looking for drift failed; will retry", telemetry.KeyError, err)
		} else if looked {
			next = time.Minute / time.Duration(perMinute)
		}
		s.pause(ctx, next)
	}
	return nil
}

// driftPoll is how soon something is found that is to be looked at for drift.
const driftPoll = 10 * time.Second

// pauseUntil is a pause of chorePoll that a wake-up ends.
func (s *service) pauseUntil(ctx context.Context, wake <-chan struct{}) {
	timer := clock.System().NewTimer(chorePoll)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C():
	case <-wake:
	}
}

func (s *service) pause(ctx context.Context, d time.Duration) {
	timer := clock.System().NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C():
	}
}

// handOver hands over one thing, writes the one line about it, and reports whether to continue at once.
func (s *service) handOver(ctx context.Context, engine handoff.Engine) bool {
	started := clock.System().Now()
	h, worked, err := s.handoffs.HandOver(ctx, engine)
	if ctx.Err() != nil || !worked && err == nil {
		return false
	}
	attrs := []slog.Attr{
		slog.String(telemetry.KeyWorkflow, h.WorkflowID), slog.String(telemetry.KeyMethod, string(h.Kind)),
		slog.Int(telemetry.KeyAttempt, h.Attempts),
		telemetry.Milliseconds(telemetry.KeyDuration, clock.System().Now().Sub(started)),
	}
	level := slog.LevelInfo
	if err != nil {
		class := fault.ClassOf(err)
		level = fault.Describe(class).Level
		attrs = append(attrs, slog.String(telemetry.KeyClass, class.String()), slog.Any(telemetry.KeyError, err))
	}
	s.log.LogAttrs(ctx, level, "workflow handed over", attrs...)
	// After a failure it pauses, or an engine that is away would be asked for every hand-over as fast as it refuses.
	return err == nil
}

// idle waits until something may be due.
func (s *service) idle(ctx context.Context) {
	select {
	case <-ctx.Done():
	case <-s.due:
	}
}

// wakeOne ends the idleness of one dispatcher. A wake-up that waits already covers this one, too: its receiver hands over
// everything that is due.
func (s *service) wakeOne() {
	select {
	case s.due <- struct{}{}:
	default:
	}
}
