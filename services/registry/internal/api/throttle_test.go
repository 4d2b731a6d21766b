package api

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/clock/clocktest"
	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/throttle"
	"github.com/lockstep-cd/lockstep/services/registry/internal/core"
)

type oneToken struct{}

func (oneToken) Find(_ context.Context, presented string) (core.Token, error) {
	if presented == "good" {
		return core.Token{Name: "ci"}, nil
	}
	return core.Token{}, fault.New(fault.Unauthenticated, "the token is not known")
}

// noHooks has only paths that accept no proof.
type noHooks struct{ Hooks }

func (noHooks) Find(string, string) Hook {
	return Hook{Proven: func(context.Context, http.Header, []byte, time.Time) bool { return false }}
}

// TestGuessingIsSlow tries three hundred tokens, and as many hooks.
func TestGuessingIsSlow(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		refusal int
		request func(n int) (path, token string)
	}{
		"tokens": {http.StatusUnauthorized, func(n int) (string, string) { return "/v1/events", fmt.Sprintf("guess-%d", n) }},
		"hooks":  {http.StatusNotFound, func(n int) (string, string) { return fmt.Sprintf("/v1/hooks/github/guess-%d", n), "" }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := NewHandler(Deps{
				Tokens: oneToken{}, Hooks: noHooks{}, Guard: throttle.New(nil), Clock: clocktest.New(time.Unix(1_800_000_000, 0)),
				Log: slog.New(slog.DiscardHandler),
			})
			send := func(path, token string) *httptest.ResponseRecorder {
				r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, path, strings.NewReader("{}"))
				r.Header.Set("Content-Type", "application/json")
				r.Header.Set("Authorization", "Bearer "+token)
				w := httptest.NewRecorder()
				h.ServeHTTP(w, r)
				return w
			}
			if w := send("/nowhere", "good"); w.Code != http.StatusNotFound {
				t.Fatalf("found %d %s", w.Code, w.Body)
			}
			refused := 0
			for n := range 300 {
				switch w := send(c.request(n)); w.Code {
				case c.refusal:
					refused++
				case http.StatusTooManyRequests:
					if w.Header().Get("Retry-After") == "" {
						t.Fatal("found no Retry-After")
					}
				default:
					t.Fatalf("found %d %s", w.Code, w.Body)
				}
			}
			if refused != 20 {
				t.Errorf("found %d refusals; want 20, and 429 from then on", refused)
			}
			if w := send("/nowhere", "good"); w.Code != http.StatusNotFound {
				t.Errorf("a good token behind the same address: found %d", w.Code)
			}
		})
	}
}
