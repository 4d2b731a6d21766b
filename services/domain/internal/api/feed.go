package api

import (
	"context"
	"log/slog"
	"net/http"
	"strings"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/telemetry"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/feed"
)

// Feeds serves what is read without signing in.
type Feeds interface {
	Read(ctx context.Context, organization int64, kind feed.Kind, token string) (feed.Document, error)
	Badge(ctx context.Context, organization int64, application, environment string) (feed.Document, error)
	Unchanged()
}

// feedHandler serves feeds and badges: GET and HEAD.
type feedHandler struct {
	feeds Feeds
	log   *slog.Logger
}

// read serves a feed: the address has the organization, the token and the name of the file.
func (h feedHandler) read(w http.ResponseWriter, r *http.Request) error {
	organization, err := organizationOf(r.PathValue("organization"))
	kind, exists := feed.KindOf(r.PathValue("file"))
	var d feed.Document
	if err != nil || organization == 0 || !exists {
		err = fault.New(fault.NotFound, "no such feed")
	} else {
		d, err = h.feeds.Read(r.Context(), organization, kind, r.PathValue("token"))
	}
	// The address is a secret: no cache that several people share keeps the document.
	return h.answer(w, r, d, err, "private, max-age=60")
}

// badge serves the picture of an application's state: the address has the organization, the application and the environment.
func (h feedHandler) badge(w http.ResponseWriter, r *http.Request) error {
	organization, err := organizationOf(r.PathValue("organization"))
	environment, picture := strings.CutSuffix(r.PathValue("file"), ".svg")
	var d feed.Document
	if err != nil || organization == 0 || !picture {
		err = fault.New(fault.NotFound, "no such badge")
	} else {
		d, err = h.feeds.Badge(r.Context(), organization, r.PathValue("application"), environment)
	}
	w.Header().Set("Cross-Origin-Resource-Policy", "cross-origin") // other pages show it
	return h.answer(w, r, d, err, "public, max-age=60")
}

// answer sends a document, or that its reader has it already.
func (h feedHandler) answer(w http.ResponseWriter, r *http.Request, d feed.Document, err error, cache string) error {
	switch {
	case err == nil:
	case fault.Is(err, fault.NotFound): // whatever is missing, the answer is the same
		http.Error(w, "not found", http.StatusNotFound)
		return err
	case fault.Is(err, fault.Limited):
		w.Header().Set("Retry-After", "60")
		http.Error(w, fault.Public(err), http.StatusTooManyRequests)
		return err
	default:
		h.log.LogAttrs(r.Context(), fault.Describe(fault.ClassOf(err)).Level, "serving a feed failed", slog.Any(telemetry.KeyError, err))
		http.Error(w, "not available now", fault.Describe(fault.ClassOf(err)).HTTP)
		return err
	}
	head := w.Header()
	head.Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'; sandbox")
	head.Set("Cache-Control", cache)
	head.Set("ETag", d.ETag)
	if has(r.Header.Get("If-None-Match"), d.ETag) {
		h.feeds.Unchanged()
		w.WriteHeader(http.StatusNotModified)
		return nil
	}
	head.Set("Content-Type", d.Type)
	if r.Method != http.MethodHead {
		_, _ = w.Write(d.Body) // a client that is gone needs no answer
	}
	return nil
}

// has is whether a list of tags has one, weak or not.
func has(list, tag string) bool {
	for one := range strings.SplitSeq(list, ",") {
		if one = strings.TrimPrefix(strings.TrimSpace(one), "W/"); one == tag || one == "*" {
			return true
		}
	}
	return false
}

// guessed slows down callers who ask for what is not there. One who has been served something is not slowed down by others from there.
func (k keyring) guessed(serve func(http.ResponseWriter, *http.Request) error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		credential := r.URL.Path + "\n" + k.guard.AddressOf(r)
		if !k.mayTry(w, r, "feed", credential) {
			return
		}
		switch err := serve(w, r); {
		case err == nil:
			k.guard.Passed(k.clock.Now(), credential)
		case fault.Is(err, fault.NotFound), fault.Is(err, fault.Invalid):
			k.guard.FailedAt(k.clock.Now(), k.guard.AddressOf(r))
			telemetry.AuthenticationFailed(telemetry.ProtocolHTTP, telemetry.OutcomeRefused)
		}
	}
}
