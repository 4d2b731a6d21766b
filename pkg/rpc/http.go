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

// ServeHTTP serves handler on lis until ctx ends. Then requests in progress have five seconds to end; event streams, which never end on
// their own, end at once. Headers and bodies must arrive within a time limit; answers may take as long as they like. It logs one line per
// request; a panic is answered with 500.
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
	if !unhook() { // the stop has begun: wait for it
		err = <-stopped
	}
	if err != nil && !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve http on %s: %w", lis.Addr(), err)
	}
	return nil
}

// observed wraps a handler with what every request needs: trace, log line, recovery, limits.
type observed struct {
	handler http.Handler
	log     *slog.Logger
	clock   clock.Clock
	// stopping is closed when the server stops.
	stopping <-chan struct{}
}

// ServeHTTP calls the handler, within a span, and logs the request.
func (o *observed) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	started := o.clock.Now()
	ctx, endSpan := telemetry.WithTraceParent(r.Context(), r.Header.Get(traceHeader)), func(string) {}
	if !isProbe(r.URL.Path) {
		// Named by the method only: a path may contain a secret, and has unlimited values.
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
		panic(http.ErrAbortHandler) // cuts the connection, so that a partial answer is not mistaken for a complete one
	}
}

// scheme returns the scheme of the request, as far as this process can see.
func scheme(r *http.Request) string {
	if r.TLS != nil {
		return "https"
	}
	return "http"
}

// guarded calls the handler. A panic is answered with 500; if the answer has begun, it reports broken.
func (o *observed) guarded(ctx context.Context, w *answerWriter, r *http.Request) (broken bool) {
	defer func() {
		p := recover()
		if p == nil {
			return
		}
		if p != http.ErrAbortHandler { //nolint:errorlint // panics with this very value
			o.log.ErrorContext(ctx, "request panicked", telemetry.KeyPath, w.path, telemetry.KeyError, fmt.Sprint(p), telemetry.KeyStack,
				string(debug.Stack()))
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

// cutWhenStopping cancels a request when the server stops.
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

// limitBody sets a deadline for reading the body. The server's own ReadTimeout would continue after the body and cut streaming answers.
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

// timedBody lifts the deadline once the body has been read.
type timedBody struct {
	io.ReadCloser
	done func()
}

// Read lifts the deadline at the end of the body: after that the server only waits for the client to hang up.
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

// answerWriter records the status. It flushes, for handlers that use http.Flusher, and unwraps for http.ResponseController.
type answerWriter struct {
	http.ResponseWriter
	status        int
	onEventStream func()
	// path is the path that is logged.
	path string
}

// ShowPath replaces the logged path of a request, for paths that contain a secret. Handlers call it first thing, with the writer that they
// were given. For other writers it is a no-op.
func ShowPath(w http.ResponseWriter, path string) {
	if a, ok := w.(*answerWriter); ok {
		a.path = path
	}
}

// protocol distinguishes event streams from finite answers.
func (w *answerWriter) protocol() string {
	if strings.HasPrefix(w.Header().Get("Content-Type"), "text/event-stream") {
		return telemetry.ProtocolStream
	}
	return telemetry.ProtocolHTTP
}

// method returns one of the known methods: a label must not take arbitrary values.
func method(m string) string {
	switch m {
	case http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodOptions:
		return m
	default:
		return "other"
	}
}

// begin records the status of the answer; informational ones do not count.
func (w *answerWriter) begin(status int) {
	if w.status >= http.StatusOK {
		return
	}
	w.status = status
	if status >= http.StatusOK && strings.HasPrefix(w.Header().Get("Content-Type"), "text/event-stream") {
		w.onEventStream()
	}
}

// WriteHeader records the status.
func (w *answerWriter) WriteHeader(status int) {
	w.begin(status)
	w.ResponseWriter.WriteHeader(status)
}

// Write writes to the underlying writer. The first call implies the status 200.
func (w *answerWriter) Write(p []byte) (int, error) {
	w.begin(http.StatusOK)
	return w.ResponseWriter.Write(p)
}

// Flush flushes the underlying writer.
func (w *answerWriter) Flush() {
	_ = http.NewResponseController(w.ResponseWriter).Flush() // the interface has no error
}

// Unwrap returns the underlying writer for http.ResponseController.
func (w *answerWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }
