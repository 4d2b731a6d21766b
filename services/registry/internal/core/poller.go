package core

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"strconv"
	"sync"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/pkg/fault"
)

// Source is an artifact source of the domain, as last configured (E62, R7).
type Source struct {
	// ID and Organization are those of the domain.
	ID, Organization int64
	// Ref is the versioned kind, and Config its configuration.
	Ref    string
	Config json.RawMessage
	// Revision changes with Ref or Config: a result for an older revision is discarded.
	Revision string
	// Name is its name for people, and Place the host whose rate limits count.
	Name, Place string
	// Interval is how often it is polled; 0 means only on demand.
	Interval time.Duration
	// Memory is what the previous poll stored, in a form private to its Finder; nil the first time.
	Memory json.RawMessage
	// Failures counts the consecutive failed polls.
	Failures int
	// Nudges counts the notifications that there is something new. A poll does not postpone the next one if such a notification arrived
	// while it ran.
	Nudges int
	// LastArtifact is what was found last; empty if nothing was since the source was stored.
	LastArtifact string
}

// Finding is the result of polling a source.
type Finding struct {
	// Found is the newest artifact; nil if there is none, or none that counts.
	Found *Notification
	// Gone is the artifact found last, if it is certainly no longer there; nil otherwise.
	Gone *Notification
	// Memory is for the next poll.
	Memory json.RawMessage
}

// Finder polls sources of one kind.
type Finder interface {
	// Find returns the newest artifact. The error is Invalid if no later poll can succeed, and a Later if the server says when to retry.
	Find(ctx context.Context, s Source) (Finding, error)
}

// Later is the error of a rate-limited request, with the time to retry.
type Later struct {
	At  time.Time
	Err error
}

// Error returns the text of the response.
func (l Later) Error() string { return l.Err.Error() }

// Unwrap returns the underlying error.
func (l Later) Unwrap() error { return l.Err }

// Outcome is the outcome of a poll.
type Outcome struct {
	At time.Time
	// Artifact is what was found, whether or not it has been reported before.
	Artifact *Artifact
	// Gone is the deletion of what was found before; nil for none.
	Gone   *Artifact
	Memory json.RawMessage
	// Problem is what went wrong; "" if nothing did.
	Problem  string
	Failures int
	// Next is when to poll again; nil means only on demand.
	Next *time.Time
}

// SourceState is the status of a source.
type SourceState struct {
	ID int64
	// Polled reports whether it is polled periodically.
	Polled bool
	// Next and Looked are the times of the next and the last poll.
	Next, Looked *time.Time
	// Failures counts the consecutive failed polls, and LastError is the reason of the last one; "" for none.
	Failures  int
	LastError string
	// LastArtifact is what was found last, and LastArtifactAt when that was new.
	LastArtifact   string
	LastArtifactAt *time.Time
}

// SourceQueue schedules sources for polling.
type SourceQueue interface {
	// ClaimSources claims due sources for the caller until the given time.
	ClaimSources(ctx context.Context, now, until time.Time, most int) ([]Source, error)
	// TakeSource claims one source of an organization, due or not. The error is NotFound if it does not exist.
	TakeSource(ctx context.Context, organization, id int64, until time.Time) (Source, error)
	// Postpone returns a source that has not been polled.
	Postpone(ctx context.Context, s Source, until time.Time) error
	// SaveOutcome stores an outcome and, in the same transaction, publishes the artifact, unless it has been published before.
	SaveOutcome(ctx context.Context, s Source, o Outcome) error
}

// PollerDeps are a poller's dependencies.
type PollerDeps struct {
	Queue SourceQueue
	// Finders are the finders of the kinds, by source_ref.
	Finders map[string]Finder
	// Pace takes one poll of a host from its allowance, and returns how long to wait before it; 0 for not at all.
	Pace func(place string, now time.Time) time.Duration
	// AskedOf and AskedAt take one poll on demand from allowances of their own: of one source, and of an organization at a host. They
	// return how long to wait before the next; 0 if it may run now.
	AskedOf func(organization, source int64, now time.Time) time.Duration
	AskedAt func(organization int64, place string, now time.Time) time.Duration
	Clock   clock.Clock
	Log     *slog.Logger
}

// Poller polls sources, each at its interval, to find artifacts for which there are no notifications (E62).
type Poller struct {
	rounds
	d PollerDeps

	// mu guards what follows. turns has the times of sources that wait for their host.
	mu    sync.Mutex
	turns map[int64]time.Time
	// swept is when stale turns were last removed.
	swept time.Time
	// running are the polls that are running, by the number of the poll.
	running map[int64]runningPoll
	begun   int64
	polls   sync.WaitGroup
}

// runningPoll is a poll that is running.
type runningPoll struct {
	place        string
	organization int64
	since        time.Time
}

// Concurrency and timing of a poller. With a second per poll, concurrentPolls allow as many polls a second. Only pollsOfPlace of them are
// of one host, and none begins of an organization with slowPolls that have been running for slowAfter: servers that do not answer leave
// places to others. A failing source is polled less and less often, down to once per mostPatience.
const (
	concurrentPolls = 64
	pollsOfPlace    = 16
	slowPolls       = 16
	slowAfter       = 5 * time.Second
	pollBatch       = 64
	pollLease       = 3 * time.Minute
	pollTimeout     = time.Minute
	pollIdle        = time.Second
	mostPatience    = time.Hour
)

// NewPoller returns a poller; Run starts it.
func NewPoller(d PollerDeps) *Poller {
	return &Poller{rounds: newRounds(d.Clock, pollIdle, pollBatch), d: d, turns: map[int64]time.Time{}, running: map[int64]runningPoll{}}
}

// Run polls until ctx ends.
func (p *Poller) Run(ctx context.Context) error {
	p.run(ctx, p.round, func(err error) {
		p.d.Log.WarnContext(ctx, "claiming due sources failed; will retry", "error", err.Error())
	})
	p.polls.Wait()
	return nil
}

// round begins to poll the sources that are due, as many as have a place, and waits for none of them: a slow one delays no other.
func (p *Poller) round(ctx context.Context, now time.Time) (int, error) {
	p.sweep(now)
	free := p.free()
	if free == 0 {
		return 0, nil // the end of a poll begins another round
	}
	sources, err := p.d.Queue.ClaimSources(ctx, now, now.Add(pollLease), free)
	if err != nil {
		return 0, fmt.Errorf("claim sources: %w", err)
	}
	for _, s := range sources {
		now := p.d.Clock.Now()
		wait := p.turn(s, now)
		var poll int64
		if wait == 0 {
			if poll = p.enter(s, now); poll == 0 {
				wait = p.anotherTurn(s, now)
			}
		}
		if wait > 0 {
			err = errors.Join(err, p.d.Queue.Postpone(ctx, s, now.Add(wait)))
			continue
		}
		p.polls.Go(func() {
			defer p.Wake()
			defer p.leave(poll)
			if _, err := p.poll(ctx, s); err != nil && ctx.Err() == nil {
				p.d.Log.WarnContext(ctx, "polling a source failed; will retry", "source", s.ID, "organization", s.Organization, "error", err.Error())
			}
		})
	}
	if len(sources) == free {
		return pollBatch, err // there may be more, and places for them
	}
	return len(sources), err
}

// free is how many polls may begin.
func (p *Poller) free() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return concurrentPolls - len(p.running)
}

// enter takes a place for a poll, and returns the number of the poll; 0 if its host has as many as it may, or its organization too many
// that last.
func (p *Poller) enter(s Source, now time.Time) int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	ofPlace, slow := 0, 0
	for _, other := range p.running {
		if other.place == s.Place {
			ofPlace++
		}
		if other.organization == s.Organization && now.Sub(other.since) >= slowAfter {
			slow++
		}
	}
	if ofPlace >= pollsOfPlace || slow >= slowPolls {
		return 0
	}
	p.begun++
	p.running[p.begun] = runningPoll{s.Place, s.Organization, now}
	return p.begun
}

// leave gives a place back.
func (p *Poller) leave(poll int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.running, poll)
}

// turn returns how long a source has to wait for its host. A waiting source keeps its place and does not ask again: otherwise a thousand
// sources of one registry would all return for the next slot, and all but one would wait again.
func (p *Poller) turn(s Source, now time.Time) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	if at, ok := p.turns[s.ID]; ok {
		if wait := at.Sub(now); wait > 0 {
			return wait
		}
		delete(p.turns, s.ID)
		return 0
	}
	wait := p.d.Pace(s.Place, now)
	if wait > 0 {
		p.turns[s.ID] = now.Add(wait)
	}
	return wait
}

// anotherTurn returns how long a source has to wait that finds no place in its turn. It takes a turn anew, or those that wait for a place
// would all poll when there are some.
func (p *Poller) anotherTurn(s Source, now time.Time) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	wait := max(pollIdle, p.d.Pace(s.Place, now))
	p.turns[s.ID] = now.Add(wait)
	return wait
}

// sweep removes the turns of sources that no longer exist, or that another process has polled: a source with a turn is due at its time, and
// is claimed within a lease of it.
func (p *Poller) sweep(now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if now.Sub(p.swept) < pollLease {
		return
	}
	p.swept = now
	maps.DeleteFunc(p.turns, func(_ int64, at time.Time) bool { return now.Sub(at) > pollLease })
}

// PollNow polls one source of an organization at once, regardless of its interval, and returns the outcome. The error is Refused for
// callers above the limit.
func (p *Poller) PollNow(ctx context.Context, organization, id int64) (Outcome, error) {
	now := p.d.Clock.Now()
	if wait := p.d.AskedOf(organization, id, now); wait > 0 {
		return Outcome{}, tooOften("source "+strconv.FormatInt(id, 10), wait)
	}
	s, err := p.d.Queue.TakeSource(ctx, organization, id, now.Add(pollLease))
	if err != nil {
		return Outcome{}, err
	}
	if wait := p.d.AskedAt(organization, s.Place, now); wait > 0 {
		// It was claimed, and is returned to be polled in its turn.
		return Outcome{}, errors.Join(tooOften(s.Place, wait), p.d.Queue.Postpone(ctx, s, now.Add(wait)))
	}
	return p.poll(ctx, s)
}

// Try polls a source that may not exist yet, and stores nothing. The error is Refused for callers above the limit.
func (p *Poller) Try(ctx context.Context, s Source) (Outcome, error) {
	if wait := p.d.AskedAt(s.Organization, s.Place, p.d.Clock.Now()); wait > 0 {
		return Outcome{}, tooOften(s.Place, wait)
	}
	return p.find(ctx, s)
}

// tooOften is the error for callers above the limit of polls on demand.
func tooOften(of string, wait time.Duration) error {
	return fault.New(fault.Refused, "found too many polls of %s in a short time; expected the next one in %s", of,
		wait.Truncate(time.Second)+time.Second)
}

// poll polls one source and stores the outcome.
func (p *Poller) poll(ctx context.Context, s Source) (Outcome, error) {
	o, err := p.find(ctx, s)
	if err != nil {
		return Outcome{}, err
	}
	if o.Problem != "" {
		p.d.Log.InfoContext(ctx, "polling source failed", "source", s.ID, "organization", s.Organization, "name", s.Name,
			"failures", o.Failures, "error", o.Problem)
	}
	if err := p.d.Queue.SaveOutcome(ctx, s, o); err != nil {
		return Outcome{}, fmt.Errorf("store the outcome of polling source %d: %w", s.ID, err)
	}
	return o, nil
}

// find polls a source. A failure of the source is an outcome; an error means that it was not polled.
func (p *Poller) find(ctx context.Context, s Source) (Outcome, error) {
	finder, ok := p.d.Finders[s.Ref]
	if !ok {
		finder = unknown{}
	}
	within, cancel := context.WithTimeout(ctx, pollTimeout)
	defer cancel()
	finding, err := finder.Find(within, s)
	if err != nil && ctx.Err() != nil {
		return Outcome{}, fmt.Errorf("poll source %d: %w", s.ID, err) // the process is stopping; the lease expires
	}
	now := p.d.Clock.Now()
	o := Outcome{At: now, Memory: finding.Memory}
	if err == nil && finding.Found != nil {
		artifact, problems := found(s, *finding.Found)
		if len(problems) > 0 {
			err = fault.InvalidFields(problems...)
		} else {
			o.Artifact = &artifact
		}
	}
	if err == nil && finding.Gone != nil {
		if artifact, problems := found(s, *finding.Gone); len(problems) == 0 {
			o.Gone = &artifact
		}
	}
	if err != nil {
		o.Problem, o.Failures, o.Memory = err.Error(), s.Failures+1, s.Memory
	}
	o.Next = p.next(s, o, err)
	return o, nil
}

// next returns when to poll again. Intervals vary a little for every source and every poll, so that sources that were configured together
// drift apart.
func (p *Poller) next(s Source, o Outcome, err error) *time.Time {
	if s.Interval == 0 {
		return nil
	}
	wait := s.Interval
	for range min(o.Failures, 16) {
		wait = min(2*wait, max(mostPatience, s.Interval))
	}
	at := o.At.Add(spread(strconv.FormatInt(s.ID, 10)+o.At.String(), wait))
	if later, ok := errors.AsType[Later](err); ok && later.At.After(at) {
		at = later.At
	}
	return &at
}

// found converts what a poll has found to an artifact. It is published for the source's organization only: this organization's credentials
// may read images that others must not see.
func found(s Source, n Notification) (Artifact, []fault.Field) {
	n.Organization = s.Organization
	n.Source = "/sources/" + strconv.FormatInt(s.Organization, 10)
	n = identified(n)
	n.Names = Names{Source: "source", ID: "id", Image: "image", Digest: "digest", Tag: "tag", PublishedAt: "published_at"}
	a, problems := Check(n)
	if !n.Deleted {
		a.Seen = SeenYes // it comes from the registry itself
	}
	return a, problems
}

// unknown polls sources of kinds that the domain knows and this release does not: the error shows it, and they wait for a newer release.
type unknown struct{}

// Find implements Finder.
func (unknown) Find(_ context.Context, s Source) (Finding, error) {
	return Finding{}, fault.New(fault.Invalid, "found a source of kind %q; expected one that this release of the registry service knows",
		s.Ref)
}
