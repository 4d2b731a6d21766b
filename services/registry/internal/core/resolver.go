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

// Registries looks up manifests in registries.
type Registries interface {
	Access
	// Digest returns the digest that the registry has for the image's tag or, without a tag, confirms the digest. It uses the accounts of
	// an organization, or all for 0. The error is NotFound if there is none, an OtherKind if it is not an image, Invalid if there can never
	// be one, and any other class if the registry did not answer.
	Digest(ctx context.Context, organization int64, image, tag, digest string) (string, error)
}

// HintQueue schedules hints for lookups in their registry.
type HintQueue interface {
	// Claim claims due hints for the caller until the given time.
	Claim(ctx context.Context, now, until time.Time, most int) ([]Hint, error)
	// Settle replaces a hint by its artifact.
	Settle(ctx context.Context, h Hint, a Artifact) error
	// Drop removes a hint that becomes no artifact, and records why.
	Drop(ctx context.Context, h Hint, why Refusal) error
	// Publish publishes an artifact before its registry has confirmed it. It is idempotent.
	Publish(ctx context.Context, h Hint, a Artifact) error
	// Later returns a hint with the reason, to be tried again at that time; nil means never, unless it is reported again.
	Later(ctx context.Context, h Hint, reason string, at *time.Time) error
	// Forget deletes what is older than the given times: recorded events, and hints that have been given up.
	Forget(ctx context.Context, reported, hints time.Time) error
}

// ResolverDeps are a resolver's dependencies.
type ResolverDeps struct {
	Queue      HintQueue
	Registries Registries
	Clock      clock.Clock
	Log        *slog.Logger
	// Attempts is how often a registry is queried before a hint is given up; 0 for the default.
	Attempts int
}

// Resolver queries registries about hints until each has become an artifact or has been given up.
type Resolver struct {
	rounds
	d ResolverDeps
}

// Concurrency and timing of a resolver. With these pauses, and DefaultAttempts, a registry may be unreachable for two days. workers is per
// process. A hint is claimed for the lease, so that another process takes over when this one dies; if a query takes longer, two processes
// query, which is harmless: the same result is the same event. Every idle interval it checks for hints of dead processes and for pauses
// that are over.
const (
	workers         = 8
	perRound        = 32
	lease           = 2 * time.Minute
	idle            = time.Second
	firstPause      = time.Second
	longestPause    = 15 * time.Minute
	DefaultAttempts = 200
	// keepReported is longer than any sender repeats a report: Pub/Sub does so for seven days. keepGivenUp is how long GET /v1/hooks shows
	// hints that have been given up.
	keepReported = 8 * 24 * time.Hour
	keepGivenUp  = 30 * 24 * time.Hour
	forgetsEvery = time.Hour
)

// NewResolver returns a resolver; Run starts it.
func NewResolver(d ResolverDeps) *Resolver {
	if d.Attempts == 0 {
		d.Attempts = DefaultAttempts
	}
	return &Resolver{rounds: newRounds(d.Clock, idle, perRound), d: d}
}

// Run queries until ctx ends.
func (r *Resolver) Run(ctx context.Context) error {
	forget := r.d.Clock.Now()
	r.run(ctx, func(ctx context.Context, now time.Time) (int, error) {
		var forgotten error
		if !now.Before(forget) {
			forget = now.Add(forgetsEvery)
			forgotten = r.d.Queue.Forget(ctx, now.Add(-keepReported), now.Add(-keepGivenUp))
		}
		n, err := r.round(ctx, now)
		return n, errors.Join(forgotten, err)
	}, func(err error) {
		r.d.Log.WarnContext(ctx, "claiming due hints failed; will retry", "error", err.Error())
	})
	return nil
}

// round queries the registries of due hints, several concurrently.
func (r *Resolver) round(ctx context.Context, now time.Time) (int, error) {
	hints, err := r.d.Queue.Claim(ctx, now, now.Add(lease), perRound)
	if err != nil {
		return 0, fmt.Errorf("claim hints: %w", err)
	}
	return len(hints), each(hints, workers, func(h Hint) error { return r.ask(ctx, h) })
}

// ask queries the registry of one hint.
func (r *Resolver) ask(ctx context.Context, h Hint) error {
	n := h.Notification
	// Claim counts an attempt before it is made. One beyond the limit means that the process died during the last query, which could end
	// this one too.
	if h.Attempts > r.d.Attempts {
		return r.unconfirmed(ctx, h, fault.New(fault.Internal, "queried %d times, and no process has returned with an answer", r.d.Attempts), nil)
	}
	tag, digest := h.asked()
	digest, err := r.d.Registries.Digest(ctx, n.Organization, n.Image, tag, digest)
	if err != nil && ctx.Err() != nil {
		return fmt.Errorf("query %s: %w", n.Image, err) // the process is stopping; the lease expires
	}
	if n.Deleted {
		return r.gone(ctx, h, digest, err)
	}
	if err == nil {
		artifact, problems := h.Resolve(digest)
		if len(problems) == 0 {
			return r.d.Queue.Settle(ctx, h, artifact)
		}
		err = fault.InvalidFields(problems...)
	}
	if other, ok := errors.AsType[OtherKind](err); ok {
		r.d.Log.InfoContext(ctx, "reported artifact is not an image", "hook", h.Hook, "image", n.Image, "tag", n.Tag, "digest", n.Digest,
			"found", other.What)
		return r.d.Queue.Drop(ctx, h, Refusal{What: label(n), Reason: other.Error()}.clean())
	}
	// Waiting does not help if the error is Invalid. It may for a missing tag, as some registries notify before a push is readable; and for
	// a refused login, once the password is corrected. Claim has counted this attempt already.
	var at *time.Time
	if h.Attempts < r.d.Attempts && !fault.Is(err, fault.Invalid) {
		next := r.d.Clock.Now().Add(Pause(h.ID, h.Attempts))
		at = &next
	}
	return r.unconfirmed(ctx, h, err, at)
}

// deletionQueries is how often a registry is queried that still has what was reported as deleted: some report a deletion before it is done.
const deletionQueries = 8

// gone handles the report of a deletion. The registry confirms it by not having the tag, or not with that digest, and refutes it by still
// having it. Any other answer, such as a failed login, does neither.
func (r *Resolver) gone(ctx context.Context, h Hint, digest string, err error) error {
	_, other := errors.AsType[OtherKind](err)
	still := err == nil && (h.Notification.Digest == "" || digest == h.Notification.Digest) || other
	if fault.Is(err, fault.NotFound) || err == nil && !still {
		artifact, problems := h.Resolve(h.Notification.Digest)
		if len(problems) == 0 {
			return r.d.Queue.Settle(ctx, h, artifact)
		}
		err = fault.InvalidFields(problems...)
	}
	attempts := r.d.Attempts
	if still {
		err = fault.New(fault.Conflict, "found it at the registry; expected that it was deleted")
		attempts = min(attempts, deletionQueries)
	}
	if h.Attempts >= attempts && still {
		return r.d.Queue.Drop(ctx, h, Refusal{What: label(h.Notification), Reason: err.Error()}.clean())
	}
	var at *time.Time
	if h.Attempts < attempts && !fault.Is(err, fault.Invalid) {
		next := r.d.Clock.Now().Add(Pause(h.ID, h.Attempts))
		at = &next
	}
	return r.later(ctx, h, err, at)
}

// unconfirmed handles a hint that the registry has not confirmed: if its sender may report digests, it is published as unconfirmed. Without
// an account for the registry, it is not tried again.
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

// later returns a hint, to be tried again at that time, or never.
func (r *Resolver) later(ctx context.Context, h Hint, err error, at *time.Time) error {
	n, level := h.Notification, slog.LevelInfo
	if at == nil {
		level = slog.LevelWarn
	}
	r.d.Log.Log(ctx, level, "confirming a notification at its registry failed", "hook", h.Hook,
		"image", n.Image, "tag", n.Tag, "attempt", h.Attempts, "given_up", at == nil, "error", err.Error())
	return r.d.Queue.Later(ctx, h, err.Error(), at)
}

// Pause returns how long to wait after so many attempts: the time doubles up to a limit, minus up to a quarter that depends on the hint's
// identifier, so that hints of the same moment spread out.
func Pause(id string, attempts int) time.Duration {
	pause := longestPause
	// A larger shift would overflow after some 30 attempts, and yield a negative pause.
	if n := max(attempts, 1) - 1; n < 20 {
		pause = min(firstPause<<n, longestPause)
	}
	return spread(id, pause)
}

// spread returns a pause shortened by up to a quarter, always by the same share for one key.
func spread(key string, pause time.Duration) time.Duration {
	jitter := uint32(0)
	for _, c := range []byte(key) {
		jitter = jitter*31 + uint32(c)
	}
	return pause - pause*time.Duration(jitter%256)/1024
}
