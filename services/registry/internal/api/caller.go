package api

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/rpc"
	"github.com/lockstep-cd/lockstep/pkg/telemetry"
	"github.com/lockstep-cd/lockstep/services/registry/internal/core"
)

// authenticated lets requests with a valid token through.
func authenticated(d Deps, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		scheme, presented, _ := strings.Cut(r.Header.Get("Authorization"), " ")
		err := error(fault.New(fault.Unauthenticated, "authorization: expected \"Bearer\" and one of the tokens in this service's configuration"))
		if strings.EqualFold(scheme, "bearer") && presented != "" {
			now, address := d.Clock.Now(), d.Guard.AddressOf(r)
			if wait := d.Guard.Wait(now, address, presented); wait > 0 {
				throttled(w, r, wait)
				return
			}
			var token core.Token
			if token, err = d.Tokens.Find(r.Context(), presented); fault.Is(err, fault.Unauthenticated) {
				d.Guard.Failed(now, address, presented)
				telemetry.AuthenticationFailed(telemetry.ProtocolHTTP, telemetry.OutcomeRefused)
			}
			if err == nil {
				d.Guard.Passed(now, presented)
				if token.Name != "" {
					note(r, slog.String("token", token.Name))
				}
				next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), tokenKey{}, token)))
				return
			}
		}
		w.Header().Set("WWW-Authenticate", `Bearer realm="lockstep registry"`)
		refuse(w, r, err)
	})
}

// throttled answers a sender whose address, or credential, has failed too often.
func throttled(w http.ResponseWriter, r *http.Request, wait time.Duration) {
	telemetry.AuthenticationFailed(telemetry.ProtocolHTTP, telemetry.OutcomeThrottled)
	seconds := int(math.Ceil(wait.Seconds()))
	w.Header().Set("Retry-After", strconv.Itoa(seconds))
	refuse(w, r, refusal{
		status: http.StatusTooManyRequests, field: "authorization", found: "too many failed attempts",
		expected: fmt.Sprintf("another one in %d s", seconds),
	})
}

type tokenKey struct{}

// tokenOf returns the sender of a request that authenticated let through.
func tokenOf(r *http.Request) core.Token {
	t, _ := r.Context().Value(tokenKey{}).(core.Token)
	return t
}

// line is the log line of one request, filled in while it is handled. It has no lock: one goroutine serves a request.
type line struct {
	err   error
	attrs []slog.Attr
}

type lineKey struct{}

// note adds attributes to the request's log line.
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

// observed logs one line per request: never its body, never its token.
func observed(log *slog.Logger, c clock.Clock, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		began := c.Now()
		rpc.ShowPath(w, shown(r.URL.Path)) // the server logs a line of its own
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
			// A refusal is the sender's mistake. As a warning it would let anyone fill the log that operators watch.
			if recorder.status >= http.StatusInternalServerError {
				level = fault.Describe(fault.ClassOf(l.err)).Level
			}
		}
		log.LogAttrs(ctx, level, "delivery", attrs...)
	})
}

// shown returns a path for the log: that of a hook ends in a secret.
func shown(path string) string {
	if strings.HasPrefix(path, HookPath) {
		return HookPath + "***"
	}
	return path
}

// statusRecorder records the status of the response.
type statusRecorder struct {
	http.ResponseWriter
	status int
}

// WriteHeader records the status and writes it.
func (s *statusRecorder) WriteHeader(status int) {
	s.status = status
	s.ResponseWriter.WriteHeader(status)
}

// Unwrap is for http.ResponseController, which MaxBytesReader's connection handling relies on.
func (s *statusRecorder) Unwrap() http.ResponseWriter { return s.ResponseWriter }
