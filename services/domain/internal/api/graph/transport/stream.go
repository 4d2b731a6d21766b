package transport

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/99designs/gqlgen/graphql"
	"github.com/vektah/gqlparser/v2/ast"
	"github.com/vektah/gqlparser/v2/gqlerror"

	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
)

// Stream is GraphQL over SSE in "distinct connections" mode: one operation, one response, events next and complete. It is
// ours and not the library's because an event here has an id, from which a client resumes (Last-Event-ID), and because a
// stream ends after a while, so that a member who lost the permission stops following.
type Stream struct {
	clock clock.Clock
	// heartbeat is the longest silence before a comment is sent, so that neither proxies nor the client give up.
	heartbeat time.Duration
	// longest is how long a stream lasts.
	longest time.Duration
	// open counts them.
	open *Streams
	// reads is where the position of an event comes from; nil for none.
	reads Reads
}

const (
	eventStream      = "text/event-stream"
	streamHeartbeat  = 15 * time.Second
	streamLongest    = 10 * time.Minute
	lastEventID      = "Last-Event-ID"
	streamWriteLimit = 30 * time.Second
)

// NewStream is the transport for subscriptions, of which open bounds the number. Events have their position, if reads is not nil and the
// client asks for it.
func NewStream(c clock.Clock, open *Streams, reads Reads) Stream {
	return Stream{clock: c, heartbeat: streamHeartbeat, longest: streamLongest, open: open, reads: reads}
}

var _ graphql.Transport = Stream{}

// Supports reports whether the client wants a stream; Check has seen the rest.
func (Stream) Supports(r *http.Request) bool {
	return strings.Contains(r.Header.Get("Accept"), eventStream)
}

// Do answers one operation with a stream of its results.
func (s Stream) Do(w http.ResponseWriter, r *http.Request, executor graphql.GraphExecutor) {
	ctx, cancel := context.WithTimeout(r.Context(), s.longest)
	defer cancel()
	params, err := rawParams(r)
	if err != nil {
		refuse(w, http.StatusBadRequest, invalid, err.Error())
		return
	}
	w.Header().Set("Content-Type", eventStream)
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Accel-Buffering", "no")
	out := &eventWriter{w: w, controller: http.NewResponseController(w), clock: s.clock}
	operation, opErr := executor.CreateOperationContext(ctx, params)
	ctx = graphql.WithOperationContext(ctx, operation)
	if opErr != nil {
		out.next(executor.DispatchError(ctx, requestErrors(operation, opErr)))
		out.complete()
		return
	}
	// A GET changes nothing, whatever it is answered with.
	if r.Method != http.MethodPost && operation.Operation.Operation == ast.Mutation {
		refuseGET(w)
		return
	}
	if operation.Operation.Operation == ast.Subscription {
		actor, _ := core.ActorFrom(ctx) // Check refuses a request without one
		done, ok := s.open.begin(actor)
		if !ok {
			w.Header().Set("Retry-After", "60")
			refuse(w, http.StatusTooManyRequests, fault.Describe(fault.Refused).GraphQL, fmt.Sprintf(
				"found %d open subscriptions of this member; expected fewer: end one, or follow several rollouts with one", s.open.most))
			return
		}
		defer done()
	}
	next, ctx := executor.DispatchOperation(ctx, operation)
	s.pump(ctx, out, func(ctx context.Context) *graphql.Response {
		response := next(ctx)
		if response != nil {
			extend(response, positioned(ctx, s.reads, r))
		}
		return response
	})
}

// pump writes results as they come, and heartbeats while none do.
func (s Stream) pump(ctx context.Context, out *eventWriter, next graphql.ResponseHandler) {
	responses := make(chan *graphql.Response)
	done := make(chan struct{})
	go func() {
		defer close(responses)
		for {
			response := next(ctx)
			if response == nil {
				return
			}
			// The library writes the next result over this one, which is still to be sent.
			response.Data = bytes.Clone(response.Data)
			select {
			case responses <- response:
			case <-done:
				return
			}
		}
	}()
	defer func() {
		close(done)
		for range responses { // until the goroutine above has ended
		}
	}()
	out.line(":\n\n") // the headers reach the client before the first result does
	for !out.broken {
		beat := s.clock.NewTimer(s.heartbeat)
		select {
		case response, more := <-responses:
			beat.Stop()
			if !more {
				out.complete()
				return
			}
			out.next(response)
		case <-beat.C():
			out.line(":\n\n")
		case <-ctx.Done():
			beat.Stop()
			out.complete()
			return
		}
	}
}

// rawParams reads the operation from the body, or from the URL as EventSource sends it.
func rawParams(r *http.Request) (*graphql.RawParams, error) {
	params := &graphql.RawParams{Headers: r.Header, ReadTime: graphql.TraceTiming{Start: graphql.Now(), End: graphql.Now()}}
	if r.Method == http.MethodPost {
		if err := decode(r.Body, params); err != nil {
			return nil, fmt.Errorf("body: %w", err)
		}
		return params, nil
	}
	q := r.URL.Query()
	params.Query, params.OperationName = q.Get("query"), q.Get("operationName")
	if text := q.Get("variables"); text != "" {
		if err := decode(strings.NewReader(text), &params.Variables); err != nil {
			return nil, fmt.Errorf("variables: %w", err)
		}
	}
	return params, nil
}

// decode keeps numbers as they are written.
func decode(from io.Reader, into any) error {
	d := json.NewDecoder(from)
	d.UseNumber()
	return d.Decode(into) //nolint:wrapcheck // the caller says of what
}

// eventWriter writes events, until one cannot be.
type eventWriter struct {
	w          io.Writer
	controller *http.ResponseController
	clock      clock.Clock
	broken     bool
}

// next is one result. Its id is the cursor of the only field, if that was selected under its own name.
func (e *eventWriter) next(response *graphql.Response) {
	text, err := json.Marshal(response)
	if err != nil {
		text, _ = json.Marshal(graphql.Response{Errors: gqlerror.List{gqlerror.Errorf("the result cannot be written")}}) // of strings alone
	}
	var data map[string]struct {
		Cursor string `json:"cursor"`
	}
	id := ""
	if json.Unmarshal(response.Data, &data) == nil {
		for _, field := range data {
			if field.Cursor != "" {
				id = "id: " + field.Cursor + "\n"
			}
		}
	}
	e.line(id + "event: next\ndata: " + string(text) + "\n\n")
}

// line writes and flushes. A client that takes nothing for a while is given up, so that it holds no memory here.
func (e *eventWriter) line(text string) {
	if e.broken {
		return
	}
	// A recorder in a test has no deadlines; there nothing blocks either.
	_ = e.controller.SetWriteDeadline(e.clock.Now().Add(streamWriteLimit))
	if _, err := io.WriteString(e.w, text); err != nil {
		e.broken = true
		return
	}
	e.broken = e.controller.Flush() != nil
}

// complete ends the stream as the protocol says.
func (e *eventWriter) complete() { e.line("event: complete\ndata:\n\n") }

type resumeKey struct{}

// withResume keeps the cursor that a client reports to have seen last.
func withResume(ctx context.Context, r *http.Request) context.Context {
	return context.WithValue(ctx, resumeKey{}, r.Header.Get(lastEventID))
}

// ResumeFrom is the cursor from which a stream resumes: the last one that the client reports to have seen, or else the one asked for,
// because an EventSource repeats its first request.
func ResumeFrom(ctx context.Context, asked *string) string {
	if seen, ok := ctx.Value(resumeKey{}).(string); ok && seen != "" {
		return seen
	}
	if asked == nil {
		return ""
	}
	return *asked
}
