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

// MaxBody is how many bytes a delivery may have.
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
	Clock  clock.Clock
	Log    *slog.Logger
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
	return observed(d.Log, d.Clock, authenticated(d.Tokens, mux))
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
}

// ServeHTTP takes one delivery.
func (e *endpoint) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	media, body, err := e.read(w, r)
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
	status := http.StatusAccepted
	if len(events) == 0 { // pulls, deletions, blobs: nothing will follow
		status = http.StatusOK
	}
	note(r, slog.Int(telemetry.KeyCount, len(events)))
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(answer{Events: events}) // the sender hung up; what it sent is stored
}

// read checks what HTTP says about a delivery, and takes its body.
func (e *endpoint) read(w http.ResponseWriter, r *http.Request) (media string, body []byte, err error) {
	if r.Method != http.MethodPost {
		w.Header().Set("Allow", http.MethodPost)
		return "", nil, refusal{status: http.StatusMethodNotAllowed, field: "method", found: r.Method, expected: http.MethodPost}
	}
	if media, err = e.mediaType(r); err != nil {
		return "", nil, err
	}
	if r.ContentLength > MaxBody {
		return "", nil, tooLarge(fmt.Sprintf("%d bytes", r.ContentLength))
	}
	body, err = io.ReadAll(http.MaxBytesReader(w, r.Body, MaxBody))
	if _, over := errors.AsType[*http.MaxBytesError](err); over {
		return "", nil, tooLarge("more")
	}
	if err != nil {
		return "", nil, refusal{
			status: http.StatusBadRequest, field: "body", cause: err,
			found: fmt.Sprintf("an end after %d bytes", len(body)), expected: "as many as the header announces",
		}
	}
	return media, body, nil
}

// mediaType is the content type without parameters, if it is one that the format takes.
func (e *endpoint) mediaType(r *http.Request) (string, error) {
	wrong := func(field, found, expected string) error {
		return refusal{status: http.StatusUnsupportedMediaType, field: field, found: found, expected: expected}
	}
	values := r.Header.Values("Content-Type")
	found := strings.Join(values, ", ")
	media, parameters, err := mime.ParseMediaType(found)
	if err != nil || len(values) != 1 || !slices.Contains(e.format.MediaTypes, media) {
		return "", wrong("content-type", found, strings.Join(e.format.MediaTypes, " or "))
	}
	if charset := parameters["charset"]; charset != "" && !strings.EqualFold(charset, "utf-8") {
		return "", wrong("content-type", found, "charset utf-8")
	}
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
