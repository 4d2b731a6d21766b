package core

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/pkg/fault"
)

// Registries tell which manifest a reference names.
type Registries interface {
	Access
	// Digest is what the registry has under the image's tag or, where there is none, under the digest, asked with the accounts of an organization, or with
	// all for 0. It is NotFound if there is nothing, an OtherKind if it is no image, Invalid if there could never be one, and anything else if the
	// registry does not say.
	Digest(ctx context.Context, organization int64, image, tag, digest string) (string, error)
}

// HintQueue hands hints out to whom asks the registry about them.
type HintQueue interface {
	// Claim takes hints that are due, and leaves them to the caller until the instant given.
	Claim(ctx context.Context, now, until time.Time, most int) ([]Hint, error)
	// Settle replaces a hint by the artifact that it has become.
	Settle(ctx context.Context, h Hint, a Artifact) error
	// Drop removes a hint that becomes nothing, and records why.
	Drop(ctx context.Context, h Hint, why Refusal) error
	// Publish publishes an artifact before its registry has confirmed it. Done twice, it changes nothing more.
	Publish(ctx context.Context, h Hint, a Artifact) error
	// Later puts a hint back with the reason, to be tried again then; nil: never, unless it is told again.
	Later(ctx context.Context, h Hint, reason string, at *time.Time) error
	// Forget drops what is older than the instants given: what was told, and hints that have been given up.
	Forget(ctx context.Context, told, hints time.Time) error
}

// ResolverDeps is what a resolver needs.
type ResolverDeps struct {
	Queue      HintQueue
	Registries Registries
	Clock      clock.Clock
	Log        *slog.Logger
	// Attempts is how often a registry is asked before a hint is given up; 0 for the default.
	Attempts int
}

// Resolver asks registries about hints until each has become an artifact or has been given up.
type Resolver struct {
	rounds
	d ResolverDeps
}

// How a resolver works. With these pauses, and DefaultAttempts, a registry may be away for two days. workers is for
// each process. A hint is claimed for the lease, so that another process takes over when this one dies; where asking
// takes longer, two ask, which does no harm: the same answer is the same event. Every idle it looks for what other
// processes took and for pauses that are over.
const (
	workers         = 8
	perRound        = 32
	lease           = 2 * time.Minute
	idle            = time.Second
	firstPause      = time.Second
	longestPause    = 15 * time.Minute
	DefaultAttempts = 200
	// keepTold is longer than any sender tells again: Pub/Sub does so for seven days. keepGivenUp is how long people can
	// see at GET /v1/hooks what never came to anything.
	keepTold     = 8 * 24 * time.Hour
	keepGivenUp  = 30 * 24 * time.Hour
	forgetsEvery = time.Hour
)

// NewResolver is a resolver that Run starts.
func NewResolver(d ResolverDeps) *Resolver {
	if d.Attempts == 0 {
		d.Attempts = DefaultAttempts
	}
	return &Resolver{rounds: newRounds(d.Clock, idle, perRound), d: d}
}

// Run asks until ctx ends.
func (r *Resolver) Run(ctx context.Context) error {
	forget := r.d.Clock.Now()
	r.run(ctx, func(ctx context.Context, now time.Time) (int, error) {
		var forgotten error
		if !now.Before(forget) {
			forget = now.Add(forgetsEvery)
			forgotten = r.d.Queue.Forget(ctx, now.Add(-keepTold), now.Add(-keepGivenUp))
		}
		n, err := r.round(ctx, now)
		return n, errors.Join(forgotten, err)
	}, func(err error) { r.d.Log.WarnContext(ctx, "hints wait for the database", "error", err.Error()) })
	return nil
}

// round asks about those that are due, several registries at a time.
func (r *Resolver) round(ctx context.Context, now time.Time) (int, error) {
	hints, err := r.d.Queue.Claim(ctx, now, now.Add(lease), perRound)
	if err != nil {
		return 0, fmt.Errorf("claim hints: %w", err)
	}
	return len(hints), each(hints, workers, func(h Hint) error { return r.ask(ctx, h) })
}

// ask asks one registry about one hint.
func (r *Resolver) ask(ctx context.Context, h Hint) error {
	n := h.Notification
	// Claim counts an attempt before it is made. One beyond the last is there only because asking ended with the process that
	// asked, and would end this one too.
	if h.Attempts > r.d.Attempts {
		return r.unconfirmed(ctx, h, fault.New(fault.Internal, "asked %d times, and no process has come back with an answer", r.d.Attempts), nil)
	}
	tag, digest := h.asked()
	digest, err := r.d.Registries.Digest(ctx, n.Organization, n.Image, tag, digest)
	if err != nil && ctx.Err() != nil {
		return fmt.Errorf("ask about %s: %w", n.Image, err) // we are stopping; the lease ends by itself
	}
	if err == nil {
		artifact, problems := h.Resolve(digest)
		if len(problems) == 0 {
			return r.d.Queue.Settle(ctx, h, artifact)
		}
		err = fault.InvalidFields(problems...)
	}
	if other, ok := errors.AsType[OtherKind](err); ok {
		r.d.Log.InfoContext(ctx, "what was reported is no image", "hook", h.Hook, "image", n.Image, "tag", n.Tag, "digest", n.Digest, "found", other.What)
		return r.d.Queue.Drop(ctx, h, Refusal{What: label(n), Reason: other.Error()}.clean())
	}
	// Invalid cannot get better by waiting. A missing tag can, as some registries notify before a push is readable; so can
	// a refused login, once somebody sets the password right. Claim has counted this attempt already.
	var at *time.Time
	if h.Attempts < r.d.Attempts && !fault.Is(err, fault.Invalid) {
		next := r.d.Clock.Now().Add(Pause(h.ID, h.Attempts))
		at = &next
	}
	return r.unconfirmed(ctx, h, err, at)
}

// unconfirmed is what becomes of a hint for now: what its sender may report is published, as something that the registry has not confirmed. Where there is
// no account for the registry, nothing more is to be had by asking again.
func (r *Resolver) unconfirmed(ctx context.Context, h Hint, err error, at *time.Time) error {
	if !h.Notification.Believed {
		return r.later(ctx, h, err, at)
	}
	artifact, problems := h.Resolve(h.Notification.Digest)
	if len(problems) > 0 {
		return r.later(ctx, h, errors.Join(err, fault.InvalidFields(problems...)), nil)
	}
	if !r.d.Registries.Access(h.Notification.Organization, h.Notification.Image) {
		artifact.Seen = SeenUnknown
		return r.d.Queue.Settle(ctx, h, artifact)
	}
	if err := r.d.Queue.Publish(ctx, h, artifact.Unconfirmed()); err != nil {
		return err
	}
	return r.later(ctx, h, err, at)
}

// later puts a hint back, to be asked about again at an instant, or never.
func (r *Resolver) later(ctx context.Context, h Hint, err error, at *time.Time) error {
	n, level := h.Notification, slog.LevelInfo
	if at == nil {
		level = slog.LevelWarn
	}
	r.d.Log.Log(ctx, level, "the registry has not confirmed a notification", "hook", h.Hook,
		"image", n.Image, "tag", n.Tag, "attempt", h.Attempts, "given_up", at == nil, "error", err.Error())
	return r.d.Queue.Later(ctx, h, err.Error(), at)
}

// Pause is how long to wait after so many attempts: twice as long each time up to a limit, and up to a quarter less, by
// the hint's identifier, so that hints of one moment do not come back at one moment.
func Pause(id string, attempts int) time.Duration {
	pause := longestPause
	// Shifted any further the pause would overflow after some 30 attempts, and come out negative.
	if n := max(attempts, 1) - 1; n < 20 {
		pause = min(firstPause<<n, longestPause)
	}
	return spread(id, pause)
}

// spread is a pause made up to a quarter shorter, always by as much for one key.
func spread(key string, pause time.Duration) time.Duration {
	jitter := uint32(0)
	for _, c := range []byte(key) {
		jitter = jitter*31 + uint32(c)
	}
	return pause - pause*time.Duration(jitter%256)/1024
}
