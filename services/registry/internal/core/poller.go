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

// Source is an artifact source of the domain's, as it was configured there last (E62, R7).
type Source struct {
	// ID and Organization are the domain's.
	ID, Organization int64
	// Ref is the kind, versioned, and Config what that kind says about it.
	Ref    string
	Config json.RawMessage
	// Revision changes when Ref or Config does: an answer to an older question is thrown away.
	Revision string
	// Name is what people know it by, and Place the host whose limits it counts against.
	Name, Place string
	// Interval is how often it is asked; 0 for never by itself.
	Interval time.Duration
	// Memory is what the look before noted, in a form that only its Looker reads; nil the first time.
	Memory json.RawMessage
	// Failures counts the looks in a row that failed.
	Failures int
	// Nudges counts how often somebody said that there is something new. A look does not put off the next one if that
	// happened while it was under way.
	Nudges int
}

// Sight is what a look at a source found.
type Sight struct {
	// Found is the newest artifact; nil if there is none, or none that counts.
	Found *Notification
	// Memory is for the next look.
	Memory json.RawMessage
}

// Looker looks at sources of one kind.
type Looker interface {
	// Look is what is newest. Its error is Invalid if no later look could go better, and a Later if whoever was asked says
	// when to come again.
	Look(ctx context.Context, s Source) (Sight, error)
}

// Later is an error of somebody who is asked too often, and says when to come again.
type Later struct {
	At  time.Time
	Err error
}

// Error is what was answered.
func (l Later) Error() string { return l.Err.Error() }

// Unwrap is the answer.
func (l Later) Unwrap() error { return l.Err }

// Outcome is what became of a look.
type Outcome struct {
	At time.Time
	// Artifact is what was found, whether or not it has been told before.
	Artifact *Artifact
	Memory   json.RawMessage
	// Problem is what went wrong, "" for nothing.
	Problem  string
	Failures int
	// Next is when it is looked at again; nil: when somebody asks for it.
	Next *time.Time
}

// SourceState is how a source is doing.
type SourceState struct {
	ID int64
	// Polled is whether it is looked at by itself.
	Polled bool
	// Next and Looked are when it is looked at next, and when it was last.
	Next, Looked *time.Time
	// Failures counts the looks in a row that failed, and LastError is the last one's reason, "" for none.
	Failures  int
	LastError string
	// LastArtifact is what a look found last, and LastArtifactAt when that was new.
	LastArtifact   string
	LastArtifactAt *time.Time
}

// SourceQueue hands sources out to whom looks at them.
type SourceQueue interface {
	// ClaimSources takes sources that are due, and leaves them to the caller until the instant given.
	ClaimSources(ctx context.Context, now, until time.Time, most int) ([]Source, error)
	// TakeSource takes one source of an organization, due or not. It is NotFound if there is none.
	TakeSource(ctx context.Context, organization, id int64, until time.Time) (Source, error)
	// Postpone puts a source back that has not been looked at.
	Postpone(ctx context.Context, s Source, until time.Time) error
	// Looked stores an outcome and, in the same transaction, tells of the artifact, unless that has been told before.
	Looked(ctx context.Context, s Source, o Outcome) error
}

// PollerDeps is what a poller needs.
type PollerDeps struct {
	Queue SourceQueue
	// Lookers are those of the kinds, by source_ref.
	Lookers map[string]Looker
	// Pace takes one look at a place from its allowance, and answers how long to wait for it: 0 to look at once.
	Pace func(place string, now time.Time) time.Duration
	// AskedOf and AskedAt take one look that somebody asks for from allowances of their own: of one source, and of an
	// organization at a place. They answer how long to wait for the next: 0 if it may be made.
	AskedOf func(organization, source int64, now time.Time) time.Duration
	AskedAt func(organization int64, place string, now time.Time) time.Duration
	Clock   clock.Clock
	Log     *slog.Logger
}

// Poller looks at sources, each in its own time, so that what nobody tells of is found (E62).
type Poller struct {
	rounds
	d PollerDeps

	// mu guards turns, when the sources that wait for their place have their turn.
	mu    sync.Mutex
	turns map[int64]time.Time
	// swept is when those were last dropped that nobody has come for.
	swept time.Time
}

// How a poller works. Fewer at once than a registry would mind from one client; with a pause of a quarter of a second, and
// a second for each, they make some 100 looks a second. A failing source is looked at less and less often, up to
// mostPatience.
const (
	lookers      = 16
	looksAtOnce  = 64
	lookLease    = 3 * time.Minute
	lookWithin   = time.Minute
	pollIdle     = time.Second
	mostPatience = time.Hour
)

// NewPoller is a poller that Run starts.
func NewPoller(d PollerDeps) *Poller {
	return &Poller{rounds: newRounds(d.Clock, pollIdle, looksAtOnce), d: d, turns: map[int64]time.Time{}}
}

// Run looks until ctx ends.
func (p *Poller) Run(ctx context.Context) error {
	p.run(ctx, p.round, func(err error) { p.d.Log.WarnContext(ctx, "sources wait for the database", "error", err.Error()) })
	return nil
}

// round looks at those that are due, several at a time.
func (p *Poller) round(ctx context.Context, now time.Time) (int, error) {
	p.sweep(now)
	sources, err := p.d.Queue.ClaimSources(ctx, now, now.Add(lookLease), looksAtOnce)
	if err != nil {
		return 0, fmt.Errorf("claim sources: %w", err)
	}
	return len(sources), each(sources, lookers, func(s Source) error {
		now := p.d.Clock.Now()
		if wait := p.turn(s, now); wait > 0 {
			return p.d.Queue.Postpone(ctx, s, now.Add(wait))
		}
		_, err := p.look(ctx, s)
		return err
	})
}

// turn is how long a source has to wait for its turn at its place. Who waits has a turn of its own and does not ask again:
// otherwise a thousand sources of one registry would all come back for the next turn, and all but one in vain.
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

// sweep drops the turns of sources that are no longer there, or that another process has looked at: who has a turn is due
// when it comes, and is claimed before a lease is over.
func (p *Poller) sweep(now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if now.Sub(p.swept) < lookLease {
		return
	}
	p.swept = now
	maps.DeleteFunc(p.turns, func(_ int64, at time.Time) bool { return now.Sub(at) > lookLease })
}

// LookNow looks at one source of an organization at once, whatever its pace, and answers what came of it. It is Refused for
// who asks too often.
func (p *Poller) LookNow(ctx context.Context, organization, id int64) (Outcome, error) {
	now := p.d.Clock.Now()
	if wait := p.d.AskedOf(organization, id, now); wait > 0 {
		return Outcome{}, tooOften("source "+strconv.FormatInt(id, 10), wait)
	}
	s, err := p.d.Queue.TakeSource(ctx, organization, id, now.Add(lookLease))
	if err != nil {
		return Outcome{}, err
	}
	if wait := p.d.AskedAt(organization, s.Place, now); wait > 0 {
		// It has been taken off the list, and goes back to be looked at by time, in its turn.
		return Outcome{}, errors.Join(tooOften(s.Place, wait), p.d.Queue.Postpone(ctx, s, now.Add(wait)))
	}
	return p.look(ctx, s)
}

// Try looks at a source that may not exist yet, and stores nothing: what came of it is what a look would come to. It is
// Refused for who asks too often.
func (p *Poller) Try(ctx context.Context, s Source) (Outcome, error) {
	if wait := p.d.AskedAt(s.Organization, s.Place, p.d.Clock.Now()); wait > 0 {
		return Outcome{}, tooOften(s.Place, wait)
	}
	return p.see(ctx, s)
}

// tooOften is the answer to who asks for more looks than there are.
func tooOften(of string, wait time.Duration) error {
	return fault.New(fault.Refused, "found too many looks at %s in a short time; expected the next one in %s", of, wait.Truncate(time.Second)+time.Second)
}

// look looks at one source and stores what came of it.
func (p *Poller) look(ctx context.Context, s Source) (Outcome, error) {
	o, err := p.see(ctx, s)
	if err != nil {
		return Outcome{}, err
	}
	if o.Problem != "" {
		p.d.Log.InfoContext(ctx, "looked at a source in vain", "source", s.ID, "organization", s.Organization, "name", s.Name,
			"failures", o.Failures, "error", o.Problem)
	}
	if err := p.d.Queue.Looked(ctx, s, o); err != nil {
		return Outcome{}, fmt.Errorf("note the look at source %d: %w", s.ID, err)
	}
	return o, nil
}

// see looks. What the source is at fault for is an outcome; an error means that nobody has looked.
func (p *Poller) see(ctx context.Context, s Source) (Outcome, error) {
	looker, ok := p.d.Lookers[s.Ref]
	if !ok {
		looker = unknown{}
	}
	within, cancel := context.WithTimeout(ctx, lookWithin)
	defer cancel()
	sight, err := looker.Look(within, s)
	if err != nil && ctx.Err() != nil {
		return Outcome{}, fmt.Errorf("look at source %d: %w", s.ID, err) // we are stopping; the lease ends by itself
	}
	now := p.d.Clock.Now()
	o := Outcome{At: now, Memory: sight.Memory}
	if err == nil && sight.Found != nil {
		artifact, problems := found(s, *sight.Found)
		if len(problems) > 0 {
			err = fault.InvalidFields(problems...)
		} else {
			o.Artifact = &artifact
		}
	}
	if err != nil {
		o.Problem, o.Failures, o.Memory = err.Error(), s.Failures+1, s.Memory
	}
	o.Next = p.next(s, o, err)
	return o, nil
}

// next is when to look again. Intervals are a little apart for every source and every time, so that sources that were
// configured together do not stay together.
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

// found is what a look found as an artifact. It is told to the source's organization only: another one's source of the
// same image may not be allowed what this one's credentials are.
func found(s Source, n Notification) (Artifact, []fault.Field) {
	n.Organization = s.Organization
	n.Source = "/sources/" + strconv.FormatInt(s.Organization, 10)
	n = identified(n)
	n.Names = Names{Source: "source", ID: "id", Image: "image", Digest: "digest", Tag: "tag", PublishedAt: "published_at"}
	a, problems := Check(n)
	a.Seen = SeenYes // whoever has it was asked
	return a, problems
}

// unknown looks at sources of kinds that the domain knows and this release does not: they show that, and wait for a
// newer one.
type unknown struct{}

// Look implements Looker.
func (unknown) Look(_ context.Context, s Source) (Sight, error) {
	return Sight{}, fault.New(fault.Invalid, "found a source of kind %q; expected one that this release of the registry service knows", s.Ref)
}
