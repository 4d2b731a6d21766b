package rpc

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/pkg/telemetry"
)

const (
	headerWithin = 10 * time.Second
	bodyWithin   = 30 * time.Second
	idleWithin   = 2 * time.Minute
	maxHeader    = 64 << 10
)

// ServeHTTP serves handler on lis until ctx ends. Then requests in progress may end within five seconds; the contexts of
// event streams, which have no end of their own, end at once. Headers and bodies must come in time, answers may take as long as they like. It writes one line per
// request, and a panic is answered 500.
func ServeHTTP(ctx context.Context, log *slog.Logger, lis net.Listener, handler http.Handler) error {
	s := &http.Server{
		Handler:           &observed{handler: handler, log: log, clock: clock.System(), stopping: ctx.Done()},
		ReadHeaderTimeout: headerWithin, IdleTimeout: idleWithin, MaxHeaderBytes: maxHeader,
		ErrorLog:    slog.NewLogLogger(log.Handler(), slog.LevelDebug),
		BaseContext: func(net.Listener) context.Context { return context.WithoutCancel(ctx) }, // requests end gracefully
	}
	stopped := make(chan error, 1)
	unhook := context.AfterFunc(ctx, func() {
		grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopWithin)
		defer cancel()
		err := s.Shutdown(grace)
		if errors.Is(err, context.DeadlineExceeded) {
			err = s.Close()
		}
		stopped <- err
	})
	err := s.Serve(lis)
	if !unhook() { // the stop has begun: it ends before we do
		err = <-stopped
	}
	if err != nil && !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve http on %s: %w", lis.Addr(), err)
	}
	return nil
}

// observed is a handler with what every request has in common.
type observed struct {
	handler http.Handler
	log     *slog.Logger
	clock   clock.Clock
	// stopping is closed when the server stops.
	stopping <-chan struct{}
}

// ServeHTTP is the handler's, between the trace that comes in and the line that goes out.
func (o *observed) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	started := o.clock.Now()
	ctx, endSpan := telemetry.WithTraceParent(r.Context(), r.Header.Get(traceHeader)), func(string) {}
	if !isProbe(r.URL.Path) {
		// Named by the method alone: a path may hold a secret, and has as many values as callers like.
		ctx, endSpan = telemetry.StartSpan(ctx, "HTTP "+method(r.Method), telemetry.Server,
			telemetry.Text(telemetry.HTTPMethod, method(r.Method)), telemetry.Text(telemetry.URLScheme, scheme(r)))
	}
	ctx = telemetry.EnsureTrace(ctx)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	answer := &answerWriter{ResponseWriter: w, path: r.URL.Path, onEventStream: func() { go o.cutWhenStopping(ctx, cancel) }}
	r = r.WithContext(ctx)
	o.limitBody(w, r)
	ended := telemetry.RequestStarted(telemetry.ProtocolHTTP)
	broken := o.guarded(ctx, answer, r)
	ended()
	if answer.status == 0 {
		answer.status = http.StatusOK
	}
	telemetry.Annotate(ctx, telemetry.Count(telemetry.HTTPStatus, answer.status))
	if answer.status >= http.StatusInternalServerError {
		endSpan(http.StatusText(answer.status))
	} else {
		endSpan("")
	}
	took := o.clock.Now().Sub(started)
	if !isProbe(r.URL.Path) {
		telemetry.ObserveRequest(answer.protocol(), method(r.Method), strconv.Itoa(answer.status), took)
	}
	level := slog.LevelInfo
	if broken {
		level = slog.LevelError
	} else if isProbe(r.URL.Path) {
		level = slog.LevelDebug
	}
	o.log.LogAttrs(ctx, level, "request handled",
		slog.String(telemetry.KeyMethod, r.Method), slog.String(telemetry.KeyPath, answer.path), slog.Int(telemetry.KeyStatus, answer.status),
		telemetry.Milliseconds(telemetry.KeyDuration, took))
	if broken {
		panic(http.ErrAbortHandler) // cuts the connection, so that half an answer is not taken for a whole one
	}
}

// scheme is the one that the request came by, as far as this process sees.
func scheme(r *http.Request) string {
	if r.TLS != nil {
		return "https"
	}
	return "http"
}

// guarded calls the handler. A panic is answered 500; if the answer has begun already, it is broken.
func (o *observed) guarded(ctx context.Context, w *answerWriter, r *http.Request) (broken bool) {
	defer func() {
		p := recover()
		if p == nil {
			return
		}
		if p != http.ErrAbortHandler { //nolint:errorlint // panics with this very value
			o.log.ErrorContext(ctx, "request panicked", telemetry.KeyPath, w.path, telemetry.KeyError, fmt.Sprint(p), telemetry.KeyStack, string(debug.Stack()))
			if w.status == 0 {
				http.Error(w, "internal error", http.StatusInternalServerError)
				return
			}
		}
		broken = true
	}()
	o.handler.ServeHTTP(w, r)
	return false
}

// cutWhenStopping ends a request together with the server.
func (o *observed) cutWhenStopping(ctx context.Context, cancel func()) {
	select {
	case <-o.stopping:
		cancel()
	case <-ctx.Done():
	}
}

func isProbe(path string) bool {
	return path == "/healthz" || path == "/readyz" || path == "/metrics" || path == "/version"
}

// limitBody has the body come in time. The server's own ReadTimeout would go on after the body and cut answers that
// stream.
func (o *observed) limitBody(w http.ResponseWriter, r *http.Request) {
	if r.Body == nil || r.Body == http.NoBody {
		return
	}
	control := http.NewResponseController(w)
	if err := control.SetReadDeadline(o.clock.Now().Add(bodyWithin)); err != nil {
		return // a connection without deadlines, as in tests of handlers
	}
	r.Body = &timedBody{ReadCloser: r.Body, done: func() { _ = control.SetReadDeadline(time.Time{}) }}
}

// timedBody lifts the deadline once the body is read.
type timedBody struct {
	io.ReadCloser
	done func()
}

// Read lifts the deadline at the end of the body: from there on the server only listens for the client to hang up.
func (b *timedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if errors.Is(err, io.EOF) {
		b.done()
	}
	return n, err
}

// Close lifts the deadline for a handler that does not read to the end.
func (b *timedBody) Close() error {
	b.done()
	return b.ReadCloser.Close()
}

// answerWriter remembers the status. It flushes, for handlers that look for http.Flusher, and unwraps for the rest.
type answerWriter struct {
	http.ResponseWriter
	status        int
	onEventStream func()
	// path is what the log shows.
	path string
}

// ShowPath replaces the path of a request in ServeHTTP's lines about it, for paths that hold a secret. Handlers call it
// with the writer that they were given, before anything can go wrong. A writer of another server is left alone.
func ShowPath(w http.ResponseWriter, path string) {
	if a, ok := w.(*answerWriter); ok {
		a.path = path
	}
}

// protocol tells streams of events from answers that have an end.
func (w *answerWriter) protocol() string {
	if strings.HasPrefix(w.Header().Get("Content-Type"), "text/event-stream") {
		return telemetry.ProtocolStream
	}
	return telemetry.ProtocolHTTP
}

// method is one of those that there are: a label must not have as many values as a caller likes.
func method(m string) string {
	switch m {
	case http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodOptions:
		return m
	default:
		return "other"
	}
}

// begin takes note of the status that the answer begins with; an informational one is not it.
func (w *answerWriter) begin(status int) {
	if w.status >= http.StatusOK {
		return
	}
	w.status = status
	if status >= http.StatusOK && strings.HasPrefix(w.Header().Get("Content-Type"), "text/event-stream") {
		w.onEventStream()
	}
}

// WriteHeader is the writer's.
func (w *answerWriter) WriteHeader(status int) {
	w.begin(status)
	w.ResponseWriter.WriteHeader(status)
}

// Write is the writer's. The first one implies the status 200.
func (w *answerWriter) Write(p []byte) (int, error) {
	w.begin(http.StatusOK)
	return w.ResponseWriter.Write(p)
}

// Flush sends what was written.
func (w *answerWriter) Flush() {
	_ = http.NewResponseController(w.ResponseWriter).Flush() // the interface has no error
}

// Unwrap gives http.ResponseController the writer underneath.
func (w *answerWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }
