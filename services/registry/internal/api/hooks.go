package api

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"golang.org/x/time/rate"

	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/pkg/fault"
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
	// Parse reads one delivery. Its error is Invalid and names the field.
	Parse func(header http.Header, mediaType string, body []byte) ([]core.Notification, error)
	// Hear takes what a delivery tells.
	Hear func(ctx context.Context, delivery []core.Notification) (core.Receipt, error)
}

// Hooks are the endpoints that the configuration lists.
type Hooks interface {
	// Find is the hook of a format with a key. Where there is none it is a decoy, which takes as long as one to check a
	// proof and never finds it good.
	Find(format, key string) Hook
	// Status is how every hook is doing.
	Status(ctx context.Context) ([]HookStatus, error)
}

// HookStatus is how one hook is doing.
type HookStatus struct {
	Name   string `json:"name"`
	Format string `json:"format"`
	// LastArtifact is what was published last, and LastPublished when.
	LastArtifact  string     `json:"last_artifact,omitempty"`
	LastPublished *time.Time `json:"last_published,omitempty"`
	// Waiting are the notifications that the registry has not confirmed yet, the oldest first, some of them given up.
	Waiting []WaitingStatus `json:"waiting,omitempty"`
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
}

func newGate(h Hooks, c clock.Clock) *gate {
	return &gate{hooks: h, clock: c, strangers: rate.NewLimiter(strangersPerSecond, strangersAtOnce)}
}

// ServeHTTP takes one delivery. Until the sender has proven who it is, every answer is the same for hooks that are there
// and for those that are not.
func (g *gate) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := read(w, r)
	if err != nil {
		refuse(w, r, err)
		return
	}
	now := g.clock.Now()
	format, key, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, HookPath), "/")
	hook := g.hooks.Find(format, key)
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
	// After the proof as well: the error lists what the format takes, and so names it.
	media, err := mediaType(r, hook.MediaTypes)
	if err != nil {
		refuse(w, r, err)
		return
	}
	notifications, err := hook.Parse(r.Header, media, body)
	if err != nil {
		refuse(w, r, err)
		return
	}
	receipt, err := hook.Hear(r.Context(), notifications)
	if err != nil {
		refuse(w, r, err)
		return
	}
	taken(w, r, answer{Events: receipt.Events, Resolving: receipt.Resolving})
}

// stranger answers who proves nothing.
func (g *gate) stranger(w http.ResponseWriter, r *http.Request, now time.Time) {
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

// status tells how the hooks are doing, to who has a token.
func status(h Hooks) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		all, err := h.Status(r.Context())
		if err != nil {
			refuse(w, r, err)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(map[string][]HookStatus{"hooks": all}) // the caller hung up
	})
}
