package api

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"log/slog"
	"net/http"
	"strings"

	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/rpc"
	"github.com/lockstep-cd/lockstep/pkg/telemetry"
)

// authenticated lets those through who know a token. Digests are compared, all of them and in constant time, so that
// neither the length of a token nor how much of it was right shows in how long the answer takes.
func authenticated(tokens []string, next http.Handler) http.Handler {
	digests := make([][sha256.Size]byte, 0, len(tokens))
	for _, token := range tokens {
		// An empty one would equal what "Bearer" with nothing behind it presents, and let everybody in.
		if token != "" {
			digests = append(digests, sha256.Sum256([]byte(token)))
		}
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
		presented := sha256.Sum256([]byte(token))
		known := 0
		for _, digest := range digests {
			known |= subtle.ConstantTimeCompare(digest[:], presented[:])
		}
		if known == 0 || !strings.EqualFold(scheme, "bearer") {
			w.Header().Set("WWW-Authenticate", `Bearer realm="lockstep registry"`)
			refuse(w, r, fault.New(fault.Unauthenticated, "authorization: expected \"Bearer\" and one of the tokens in this service's configuration"))
			return
		}
		next.ServeHTTP(w, r)
	})
}

// line is what is logged of one request, filled in along its way. It has no lock: one goroutine serves a request.
type line struct {
	err   error
	attrs []slog.Attr
}

type lineKey struct{}

// note adds to the request's line.
func note(r *http.Request, attrs ...slog.Attr) {
	if l, ok := r.Context().Value(lineKey{}).(*line); ok {
		l.attrs = append(l.attrs, attrs...)
	}
}

func noteError(r *http.Request, err error) {
	if l, ok := r.Context().Value(lineKey{}).(*line); ok {
		l.err = err
	}
}

// observed writes one line for each request: never its body, never its token.
func observed(log *slog.Logger, c clock.Clock, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		began := c.Now()
		rpc.ShowPath(w, shown(r.URL.Path)) // the server writes a line of its own
		ctx := telemetry.WithTraceParent(r.Context(), r.Header.Get("Traceparent"))
		l := &line{}
		recorder := &statusRecorder{ResponseWriter: w, status: http.StatusOK}
		next.ServeHTTP(recorder, r.WithContext(context.WithValue(ctx, lineKey{}, l)))

		level := slog.LevelInfo
		attrs := append([]slog.Attr{
			slog.String(telemetry.KeyMethod, r.Method), slog.String(telemetry.KeyPath, shown(r.URL.Path)),
			slog.Int(telemetry.KeyStatus, recorder.status),
			telemetry.Milliseconds(telemetry.KeyDuration, c.Now().Sub(began)),
		}, l.attrs...)
		if l.err != nil {
			attrs = append(attrs, slog.String(telemetry.KeyError, l.err.Error()))
			// A refusal is the sender's mistake. As a warning it would let strangers fill the log that people watch.
			if recorder.status >= http.StatusInternalServerError {
				level = fault.Describe(fault.ClassOf(l.err)).Level
			}
		}
		log.LogAttrs(ctx, level, "delivery", attrs...)
	})
}

// shown is a path as the log may have it: that of a hook ends in a secret.
func shown(path string) string {
	if strings.HasPrefix(path, HookPath) {
		return HookPath + "***"
	}
	return path
}

// statusRecorder remembers the status that was written.
type statusRecorder struct {
	http.ResponseWriter
	status int
}

// WriteHeader remembers the status and writes it.
func (s *statusRecorder) WriteHeader(status int) {
	s.status = status
	s.ResponseWriter.WriteHeader(status)
}

// Unwrap is for http.ResponseController, which MaxBytesReader's connection handling relies on.
func (s *statusRecorder) Unwrap() http.ResponseWriter { return s.ResponseWriter }
