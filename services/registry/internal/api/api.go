// Package api takes deliveries over HTTP: who may post, how much, in what form, and what is answered.
//
// It reads no format itself; package source does. Every refusal is an application/problem+json document (RFC 9457) that
// names the fields at fault, and leaves nothing stored.
package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"mime"
	"net/http"
	"slices"
	"strings"

	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/telemetry"
	"github.com/lockstep-cd/lockstep/services/registry/internal/core"
)

// MaxBody is how many bytes a delivery may have. A signature covers the whole body, so this much of it is read from
// strangers too before anything is known of them.
const MaxBody = 1 << 20

// Intake takes what a delivery says.
type Intake interface {
	Accept(ctx context.Context, delivery []core.Notification) (events []string, err error)
}

// Format is one way in which notifications arrive.
type Format struct {
	// Name is the format in messages.
	Name string
	// Path is where its deliveries are posted.
	Path string
	// MediaTypes are the content types that it takes, without parameters.
	MediaTypes []string
	// Parse reads one delivery, of one of the media types. Its error is Invalid and names the field.
	Parse func(header http.Header, mediaType string, body []byte) ([]core.Notification, error)
}

// Deps is what the handler needs.
type Deps struct {
	Intake  Intake
	Formats []Format
	// Tokens are the bearer tokens of senders, any of which is good: a new one is added before the old one goes. With
	// none, nobody may post.
	Tokens []string
	// Hooks are the endpoints of senders that have no such token; nil for none.
	Hooks Hooks
	Clock clock.Clock
	Log   *slog.Logger
}

// NewHandler serves one path for each format.
func NewHandler(d Deps) http.Handler {
	mux := http.NewServeMux()
	for _, f := range d.Formats {
		mux.Handle(f.Path, &endpoint{format: f, intake: d.Intake})
	}
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		paths := make([]string, len(d.Formats))
		for i, f := range d.Formats {
			paths[i] = f.Path
		}
		refuse(w, r, refusal{status: http.StatusNotFound, field: "path", found: r.URL.Path, expected: strings.Join(paths, " or ")})
	})
	outer := http.NewServeMux()
	// Behind the check even for paths that do not exist: whoever has no token does not learn which ones do.
	outer.Handle("/", authenticated(d.Tokens, mux))
	if d.Hooks != nil {
		mux.Handle("GET "+StatusPath, status(d.Hooks))
		outer.Handle(StatusPath, authenticated(d.Tokens, mux)) // or else the mux would redirect it to the next line's path
		outer.Handle(HookPath, newGate(d.Hooks, d.Clock))
	}
	return observed(d.Log, d.Clock, outer)
}

// endpoint takes the deliveries of one format.
type endpoint struct {
	format Format
	intake Intake
}

// answer is the body for a delivery that was taken.
type answer struct {
	// Events are the ids of the registry's own events, one for each artifact. The same artifact told again has the same.
	Events []string `json:"events"`
	// Resolving is how many more may follow, once their registry has told the digest.
	Resolving int `json:"resolving,omitempty"`
}

// ServeHTTP takes one delivery.
func (e *endpoint) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost {
		w.Header().Set("Allow", http.MethodPost)
		refuse(w, r, refusal{status: http.StatusMethodNotAllowed, field: "method", found: r.Method, expected: http.MethodPost})
		return
	}
	media, err := mediaType(r, e.format.MediaTypes)
	if err != nil {
		refuse(w, r, err)
		return
	}
	body, err := read(w, r)
	if err != nil {
		refuse(w, r, err)
		return
	}
	notifications, err := e.format.Parse(r.Header, media, body)
	if err != nil {
		refuse(w, r, err)
		return
	}
	events, err := e.intake.Accept(r.Context(), notifications)
	if err != nil {
		refuse(w, r, err)
		return
	}
	taken(w, r, answer{Events: events})
}

// taken answers that a delivery has been stored.
func taken(w http.ResponseWriter, r *http.Request, a answer) {
	// 202 and not 201: it is committed, and the event goes out when the bus is there.
	status := http.StatusAccepted
	if len(a.Events)+a.Resolving == 0 { // pulls, deletions, blobs: nothing will follow
		status = http.StatusOK
	}
	note(r, slog.Int(telemetry.KeyCount, len(a.Events)+a.Resolving))
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(a) // the sender hung up; what it sent is stored
}

// read takes the body of a delivery.
func read(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	// What announces its length is refused unread. What does not (chunked) is cut off by the reader below.
	if r.ContentLength > MaxBody {
		return nil, tooLarge(fmt.Sprintf("%d bytes", r.ContentLength))
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, MaxBody))
	if _, over := errors.AsType[*http.MaxBytesError](err); over {
		return nil, tooLarge("more")
	}
	if err != nil {
		return nil, refusal{
			status: http.StatusBadRequest, field: "body", cause: err,
			found: fmt.Sprintf("an end after %d bytes", len(body)), expected: "as many as the header announces",
		}
	}
	return body, nil
}

// mediaType is the content type without parameters, if it is one of those that a format takes.
func mediaType(r *http.Request, taken []string) (string, error) {
	wrong := func(field, found, expected string) error {
		return refusal{status: http.StatusUnsupportedMediaType, field: field, found: found, expected: expected}
	}
	values := r.Header.Values("Content-Type")
	found := strings.Join(values, ", ")
	media, parameters, err := mime.ParseMediaType(found)
	// Two headers are refused: what stands between sender and us may have judged by the other one.
	if err != nil || len(values) != 1 || !slices.Contains(taken, media) {
		return "", wrong("content-type", found, strings.Join(taken, " or "))
	}
	if charset := parameters["charset"]; charset != "" && !strings.EqualFold(charset, "utf-8") {
		return "", wrong("content-type", found, "charset utf-8")
	}
	// Nothing is decompressed: a megabyte may become a gigabyte, and signatures are over the bytes that came.
	if coding := r.Header.Get("Content-Encoding"); coding != "" && !strings.EqualFold(coding, "identity") {
		return "", wrong("content-encoding", coding, "none: the body as it is")
	}
	return media, nil
}

func tooLarge(found string) error {
	return refusal{status: http.StatusRequestEntityTooLarge, field: "body", found: found, expected: fmt.Sprintf("%d bytes at most", MaxBody)}
}

var _ Intake = (*core.Intake)(nil)

// statusOf is the HTTP status of an error.
func statusOf(err error) int {
	if r, ok := errors.AsType[refusal](err); ok {
		return r.status
	}
	return fault.Describe(fault.ClassOf(err)).HTTP
}
