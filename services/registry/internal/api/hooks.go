package api

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"golang.org/x/time/rate"

	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/telemetry"
	"github.com/lockstep-cd/lockstep/pkg/throttle"
	"github.com/lockstep-cd/lockstep/services/registry/internal/core"
)

// HookPath is what the paths of all hooks begin with: /v1/hooks/<format>/<key>. StatusPath tells how they are doing.
const (
	HookPath   = "/v1/hooks/"
	StatusPath = "/v1/hooks"
)

// Hook is the endpoint of one sender, whose path and proof only that sender knows.
type Hook struct {
	// Name is the hook in the log.
	Name string
	// MediaTypes are the content types that it takes, without parameters.
	MediaTypes []string
	// Proven checks that a delivery is the sender's.
	Proven func(ctx context.Context, header http.Header, body []byte, at time.Time) bool
	// Allow takes one delivery from the hook's allowance, and reports whether there was one left.
	Allow func(at time.Time) bool
	// Parse reads one delivery. Its error is Invalid and names the fields of what cannot be understood.
	Parse func(header http.Header, mediaType string, body []byte) ([]core.Notification, error)
	// Hear takes what a delivery tells, and records what was left out.
	Hear func(ctx context.Context, delivery []core.Notification, left []core.Refusal) (core.Receipt, error)
	// MaxBody is how many bytes a delivery may have; 0 for MaxBody.
	MaxBody int64
}

// Hooks are the endpoints that the configuration lists.
type Hooks interface {
	// Find is the hook of a format with a key. Where there is none it is a decoy, which takes as long as one to check a
	// proof and never finds it good.
	Find(format, key string) Hook
	// Status is how those hooks and tokens are doing that a token may see: those of its organization, and all for a token without one.
	Status(ctx context.Context, t core.Token) (Statuses, error)
}

// Statuses is the answer at StatusPath.
type Statuses struct {
	Hooks  []HookStatus  `json:"hooks"`
	Tokens []TokenStatus `json:"tokens,omitempty"`
}

// TokenStatus is what was left out of the deliveries with one token.
type TokenStatus struct {
	// Name is empty for the tokens that have none.
	Name         string          `json:"name"`
	Organization int64           `json:"organization,omitempty"`
	Repositories []string        `json:"repositories,omitempty"`
	Expires      *time.Time      `json:"expires,omitempty"`
	Refused      []RefusedStatus `json:"refused,omitempty"`
}

// RefusedStatus is a part of a delivery that was left out.
type RefusedStatus struct {
	// What is the artifact, or the field of the delivery.
	What   string `json:"what"`
	Reason string `json:"reason"`
	// Times is how often the same was left out, First and Last when.
	Times int64     `json:"times"`
	First time.Time `json:"first"`
	Last  time.Time `json:"last"`
}

// HookStatus is how one hook is doing.
type HookStatus struct {
	Name   string `json:"name"`
	Format string `json:"format"`
	// Organization is the only one that hears of what the hook reports, and Repositories what it may report.
	Organization int64    `json:"organization,omitempty"`
	Repositories []string `json:"repositories,omitempty"`
	// LastArtifact is what was published last, and LastPublished when.
	LastArtifact  string     `json:"last_artifact,omitempty"`
	LastPublished *time.Time `json:"last_published,omitempty"`
	// Waiting are the notifications that the registry has not confirmed yet, the oldest first, some of them given up.
	Waiting []WaitingStatus `json:"waiting,omitempty"`
	// Refused is what was left out of its deliveries last, the latest first.
	Refused []RefusedStatus `json:"refused,omitempty"`
}

// WaitingStatus is a notification that has not become an event.
type WaitingStatus struct {
	Reference string    `json:"reference"`
	Heard     time.Time `json:"heard"`
	Attempts  int       `json:"attempts"`
	LastError string    `json:"last_error,omitempty"`
	// NextTry is absent for those that have been given up; telling of them again tries again.
	NextTry *time.Time `json:"next_try,omitempty"`
}

// Deliveries without proof that are answered at all, over all hooks and all that look like one. More than that is
// somebody trying secrets. It is one allowance for everybody, because an address is the attacker's to choose or a
// proxy's; real senders do not feel it, as only failed proofs count.
const (
	strangersPerSecond = 20
	strangersAtOnce    = 100
)

// gate lets those deliveries through to hooks whose sender proves to be the hook's.
type gate struct {
	hooks     Hooks
	clock     clock.Clock
	strangers *rate.Limiter
	guard     *throttle.Guard
	large     chan struct{}
}

func newGate(h Hooks, c clock.Clock, guard *throttle.Guard) *gate {
	return &gate{guard: guard, hooks: h, clock: c, strangers: rate.NewLimiter(strangersPerSecond, strangersAtOnce), large: make(chan struct{}, largeBodies)}
}

// ServeHTTP takes one delivery. Until the sender has proven who it is, every answer is the same for hooks that are there
// and for those that are not.
func (g *gate) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	now := g.clock.Now()
	format, key, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, HookPath), "/")
	hook := g.hooks.Find(format, key)
	body, err := read(w, r, most(hook.MaxBody), g.large)
	if err != nil {
		g.unread(w, r, hook, now, err)
		return
	}
	// The proof first, whatever the method: an answer 405, or a quicker one, would tell that there is a hook.
	if !hook.Proven(r.Context(), r.Header, body, now) || r.Method != http.MethodPost {
		g.stranger(w, r, now)
		return
	}
	note(r, slog.String("hook", hook.Name))
	// After the proof, or a stranger could use up the allowance of the sender.
	if !hook.Allow(now) {
		tooMany(w, r)
		return
	}
	if validated(w, r, body) {
		return
	}
	// After the proof as well: the error lists what the format takes, and so names it. A wrong type is the configuration's fault, and the same for all
	// deliveries: it is answered with an error, which vendors show.
	media, err := mediaType(r, hook.MediaTypes)
	if err != nil {
		if _, failed := hook.Hear(r.Context(), nil, []core.Refusal{header(err)}); failed != nil {
			err = failed
		}
		refuse(w, r, err)
		return
	}
	notifications, err := hook.Parse(r.Header, media, body)
	g.hear(w, r, hook, notifications, core.Unreadable(err))
}

func (g *gate) hear(w http.ResponseWriter, r *http.Request, hook Hook, notifications []core.Notification, left []core.Refusal) {
	receipt, err := hook.Hear(r.Context(), notifications, left)
	if err != nil {
		refuse(w, r, err)
		return
	}
	taken(w, r, receipt)
}

// unread answers a delivery that could not be read whole. One that is too large would be sent again, and hold up what comes behind it: where the proof
// does not need the body, it is recorded as left out.
func (g *gate) unread(w http.ResponseWriter, r *http.Request, hook Hook, now time.Time, err error) {
	own, _ := errors.AsType[refusal](err)
	if own.status != http.StatusRequestEntityTooLarge || r.Method != http.MethodPost || !hook.Proven(r.Context(), r.Header, nil, now) {
		refuse(w, r, err)
		return
	}
	note(r, slog.String("hook", hook.Name))
	if !hook.Allow(now) {
		tooMany(w, r)
		return
	}
	g.hear(w, r, hook, nil, []core.Refusal{header(err)})
}

// header is a refusal because of what is no part of the body's contents.
func header(err error) core.Refusal {
	own, _ := errors.AsType[refusal](err)
	return core.Refusal{What: own.field, Reason: own.Error()}
}

// stranger answers who proves nothing.
func (g *gate) stranger(w http.ResponseWriter, r *http.Request, now time.Time) {
	// Looked at only now: a real sender, whatever its neighbours do, proves itself before. The path is what is guessed.
	address := g.guard.AddressOf(r)
	if wait := g.guard.Wait(now, address, r.URL.Path); wait > 0 {
		throttled(w, r, wait)
		return
	}
	g.guard.Failed(now, address, r.URL.Path)
	telemetry.AuthenticationFailed(telemetry.ProtocolHTTP, telemetry.OutcomeRefused)
	if !g.strangers.AllowN(now, 1) {
		tooMany(w, r)
		return
	}
	refuse(w, r, fault.New(fault.NotFound, "there is no such hook, or the delivery does not prove that it is from the hook's sender"))
}

func tooMany(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Retry-After", "1")
	refuse(w, r, refusal{status: http.StatusTooManyRequests, field: "rate", found: "too many deliveries", expected: "fewer in a second"})
}

// status tells how the hooks are doing, to a caller with a token.
func status(h Hooks) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		all, err := h.Status(r.Context(), tokenOf(r))
		if err != nil {
			refuse(w, r, err)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(all) // the caller hung up
	})
}
