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

// HookPath is the prefix of the paths of all hooks: /v1/hooks/<format>/<key>. StatusPath returns their status.
const (
	HookPath   = "/v1/hooks/"
	StatusPath = "/v1/hooks"
)

// Hook is the endpoint of one sender; only that sender knows its path and proof.
type Hook struct {
	// Name is the hook's name in the log.
	Name string
	// MediaTypes are the accepted content types, without parameters.
	MediaTypes []string
	// Proven reports whether a delivery proves that it is from the hook's sender.
	Proven func(ctx context.Context, header http.Header, body []byte, at time.Time) bool
	// Allow takes one delivery from the hook's allowance, and reports whether there was one left.
	Allow func(at time.Time) bool
	// Take parses one delivery and stores it, and records the parts that were left out.
	Take func(ctx context.Context, header http.Header, mediaType string, body []byte) (core.Receipt, error)
	// Leave records a delivery that cannot be read at all.
	Leave func(ctx context.Context, left core.Refusal) (core.Receipt, error)
	// MaxBody is the maximum size of a delivery in bytes; 0 means the constant MaxBody.
	MaxBody int64
}

// ForgeHookPath is the prefix of the paths of the hooks for statuses of commits: /v1/forge/<format>/<key>.
const ForgeHookPath = "/v1/forge/"

// Finder finds endpoints.
type Finder interface {
	// Find returns the hook of a format with a key. If there is none it returns a decoy, which takes as long to check a proof and never
	// accepts it.
	Find(format, key string) Hook
}

// Hooks are the configured endpoints.
type Hooks interface {
	Finder
	// Status returns the hooks and tokens that a token may see: those of its organization, or all for a token without one.
	Status(ctx context.Context, t core.Token) (Statuses, error)
}

// Statuses is the response at StatusPath.
type Statuses struct {
	Hooks  []HookStatus  `json:"hooks"`
	Tokens []TokenStatus `json:"tokens,omitempty"`
}

// TokenStatus shows what was refused of the deliveries with one token.
type TokenStatus struct {
	// Name is empty for the unnamed tokens.
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
	// Times is how often the same part was left out, First and Last when.
	Times int64     `json:"times"`
	First time.Time `json:"first"`
	Last  time.Time `json:"last"`
}

// HookStatus is the status of one hook.
type HookStatus struct {
	Name   string `json:"name"`
	Format string `json:"format"`
	// Organization is the only one that receives the hook's reports, and Repositories what it may report.
	Organization int64    `json:"organization,omitempty"`
	Repositories []string `json:"repositories,omitempty"`
	// LastArtifact was published last, at LastPublished.
	LastArtifact  string     `json:"last_artifact,omitempty"`
	LastPublished *time.Time `json:"last_published,omitempty"`
	// Waiting lists the notifications that the registry has not confirmed yet, the oldest first, including those that have been given up.
	Waiting []WaitingStatus `json:"waiting,omitempty"`
	// Refused lists the parts of its deliveries that were left out, the latest first.
	Refused []RefusedStatus `json:"refused,omitempty"`
}

// WaitingStatus is a notification that has not become an event.
type WaitingStatus struct {
	Reference string    `json:"reference"`
	Heard     time.Time `json:"heard"`
	Attempts  int       `json:"attempts"`
	LastError string    `json:"last_error,omitempty"`
	// NextTry is absent for those that have been given up; another report starts over.
	NextTry *time.Time `json:"next_try,omitempty"`
}

// The number of deliveries without proof that are answered at all, over all hooks and all paths that look like one. More than that is an
// attack. It is one allowance for everyone, because an attacker chooses the address, or it is a proxy's; real senders are not affected, as
// only failed proofs count.
const (
	strangersPerSecond = 20
	strangersAtOnce    = 100
)

// gate lets only those deliveries to hooks through that prove their sender.
type gate struct {
	// prefix is that of the paths of the hooks.
	prefix    string
	hooks     Finder
	clock     clock.Clock
	strangers *rate.Limiter
	guard     *throttle.Guard
	large     chan struct{}
}

func newGate(prefix string, h Finder, c clock.Clock, guard *throttle.Guard) *gate {
	return &gate{
		prefix: prefix, guard: guard, hooks: h, clock: c, strangers: rate.NewLimiter(strangersPerSecond, strangersAtOnce),
		large: make(chan struct{}, largeBodies),
	}
}

// ServeHTTP accepts one delivery. Until the sender has proved its identity, every response is the same for existing and missing hooks.
func (g *gate) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	now := g.clock.Now()
	format, key, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, g.prefix), "/")
	hook := g.hooks.Find(format, key)
	body, err := read(w, r, most(hook.MaxBody), g.large)
	if err != nil {
		g.unread(w, r, hook, now, err)
		return
	}
	// The proof comes first, whatever the method: a 405, or a faster response, would reveal that the hook exists.
	if !hook.Proven(r.Context(), r.Header, body, now) || r.Method != http.MethodPost {
		g.stranger(w, r, now)
		return
	}
	note(r, slog.String("hook", hook.Name))
	// After the proof, or others could use up the sender's allowance.
	if !hook.Allow(now) {
		tooMany(w, r)
		return
	}
	if validated(w, r, body) {
		return
	}
	// After the proof as well: the error lists the accepted types, which reveals the format. A wrong type is a mistake in the
	// configuration, and the same for all deliveries: it is answered with an error, which vendors show.
	media, err := mediaType(r, hook.MediaTypes)
	if err != nil {
		if _, failed := hook.Leave(r.Context(), header(err)); failed != nil {
			err = failed
		}
		refuse(w, r, err)
		return
	}
	receipt, err := hook.Take(r.Context(), r.Header, media, body)
	answered(w, r, receipt, err)
}

func answered(w http.ResponseWriter, r *http.Request, receipt core.Receipt, err error) {
	if err != nil {
		refuse(w, r, err)
		return
	}
	taken(w, r, receipt)
}

// unread answers a delivery whose body could not be read completely. One that is too large would be sent again, and hold up those behind
// it: if the proof does not need the body, it is recorded as left out.
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
	receipt, err := hook.Leave(r.Context(), header(err))
	answered(w, r, receipt, err)
}

// header returns the refusal for a problem outside of the body's content.
func header(err error) core.Refusal {
	own, _ := errors.AsType[refusal](err)
	return core.Refusal{What: own.field, Reason: own.Error()}
}

// stranger answers a sender without a valid proof.
func (g *gate) stranger(w http.ResponseWriter, r *http.Request, now time.Time) {
	// Only checked now: a real sender, whatever its neighbours do, has proved itself before. Attackers guess the path.
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

// status returns the status of the hooks, to a caller with a token.
func status(h Hooks) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		all, err := h.Status(r.Context(), tokenOf(r))
		if err != nil {
			refuse(w, r, err)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(all) // fails only if the caller hung up
	})
}
