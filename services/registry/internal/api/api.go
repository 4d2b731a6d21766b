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
	"github.com/lockstep-cd/lockstep/services/registry/internal/source"
)

// MaxBody is how many bytes a delivery may have.
const MaxBody = 1 << 20

// Intake takes what a delivery says.
type Intake interface {
	Accept(ctx context.Context, delivery []core.Notification) (core.Receipt, error)
}

// Deps is what the handler needs.
type Deps struct {
	Intake  Intake
	Formats []source.Format
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
	format source.Format
	intake Intake
}

// answer is the body of a delivery that was taken.
type answer struct {
	// Accepted is how many artifacts the delivery told of; repetitions of one count once.
	Accepted int `json:"accepted"`
	// Duplicates is how many of them are known from an earlier delivery that is still on its way.
	Duplicates int `json:"duplicates"`
	// Events are the ids of the registry's own events.
	Events []string `json:"events"`
}

func (e *endpoint) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	delivery, err := e.read(w, r)
	if err != nil {
		refuse(w, r, err)
		return
	}
	notifications, err := e.format.Parse(delivery)
	if err != nil {
		refuse(w, r, err)
		return
	}
	receipt, err := e.intake.Accept(r.Context(), notifications)
	if err != nil {
		refuse(w, r, err)
		return
	}
	status := http.StatusAccepted
	if receipt.Stored == 0 {
		status = http.StatusOK
	}
	note(r, slog.Int(telemetry.KeyCount, receipt.Stored))
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(answer{ // the sender hung up; what it sent is stored
		Accepted: len(receipt.Events), Duplicates: len(receipt.Events) - receipt.Stored, Events: receipt.Events,
	})
}

// read checks what HTTP says about a delivery, and takes its body.
func (e *endpoint) read(w http.ResponseWriter, r *http.Request) (source.Delivery, error) {
	if r.Method != http.MethodPost {
		w.Header().Set("Allow", http.MethodPost)
		return source.Delivery{}, refusal{status: http.StatusMethodNotAllowed, field: "method", found: r.Method, expected: http.MethodPost}
	}
	media, err := e.mediaType(r)
	if err != nil {
		return source.Delivery{}, err
	}
	if r.ContentLength > MaxBody {
		return source.Delivery{}, tooLarge(fmt.Sprintf("%d bytes", r.ContentLength))
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, MaxBody))
	if _, over := errors.AsType[*http.MaxBytesError](err); over {
		return source.Delivery{}, tooLarge("more")
	}
	if err != nil {
		return source.Delivery{}, refusal{
			status: http.StatusBadRequest, field: "body", cause: err,
			found: fmt.Sprintf("an end after %d bytes", len(body)), expected: "as many as the header announces",
		}
	}
	return source.Delivery{Header: r.Header, MediaType: media, Body: body}, nil
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
