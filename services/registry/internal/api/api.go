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
	"os"
	"slices"
	"strings"

	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/telemetry"
	"github.com/lockstep-cd/lockstep/pkg/throttle"
	"github.com/lockstep-cd/lockstep/services/registry/internal/core"
)

// MaxBody is how many bytes a delivery may have, unless its format says otherwise. A signature covers the whole body, so this much of it is read from
// strangers too before anything is known of them.
const MaxBody = 1 << 20

// largeBodies is how many deliveries above MaxBody are read at a time; others wait.
const largeBodies = 2

// Intake takes what a delivery says.
type Intake interface {
	Accept(ctx context.Context, t core.Token, delivery []core.Notification, left []core.Refusal) (core.Receipt, error)
}

// Tokens are the senders that have a token of ours.
type Tokens interface {
	// Find is the sender of a token. Its error is Unauthenticated and does not say which tokens there are.
	Find(ctx context.Context, presented string) (core.Token, error)
}

// Format is one way in which notifications arrive.
type Format struct {
	// Name is the format in messages.
	Name string
	// Path is where its deliveries are posted.
	Path string
	// MediaTypes are the content types that it takes, without parameters.
	MediaTypes []string
	// Parse reads one delivery, of one of the media types. Its error is Invalid and names the fields of what cannot be understood.
	Parse func(header http.Header, mediaType string, body []byte) ([]core.Notification, error)
	// AllKinds means that the sender reports every manifest that is pushed.
	AllKinds bool
	// Strict means that a delivery of which nothing could be taken is answered with an error.
	Strict bool
	// MaxBody is how many bytes a delivery may have; 0 for MaxBody.
	MaxBody int64
}

// Deps is what the handler needs.
type Deps struct {
	Intake  Intake
	Formats []Format
	// Tokens are the bearer tokens of senders.
	Tokens Tokens
	// Hooks are the endpoints of senders that have no such token; nil for none.
	Hooks Hooks
	Clock clock.Clock
	// Guard slows down senders who prove nothing; nil lets them try as often as they like.
	Guard *throttle.Guard
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
	outer.Handle("/", authenticated(d, mux))
	if d.Hooks != nil {
		mux.Handle("GET "+StatusPath, status(d.Hooks))
		outer.Handle(StatusPath, authenticated(d, mux)) // or else the mux would redirect it to the next line's path
		outer.Handle(HookPath, newGate(d.Hooks, d.Clock, d.Guard))
	}
	return observed(d.Log, d.Clock, handshake(d.Formats, d.Clock, outer))
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
	// Refused is what was left out.
	Refused []refusedPart `json:"refused,omitempty"`
}

// refusedPart is a part of a delivery that was left out, and why.
type refusedPart struct {
	What   string `json:"what"`
	Reason string `json:"reason"`
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
	var (
		notifications []core.Notification
		left          []core.Refusal
	)
	body, err := read(w, r, most(e.format.MaxBody), nil)
	switch {
	case err == nil:
		notifications, err = e.format.Parse(r.Header, media, body)
		left = core.Unreadable(err)
	// A registry would send it again, and hold up what comes behind it.
	case !e.format.Strict && statusOf(err) == http.StatusRequestEntityTooLarge:
		left = []core.Refusal{header(err)}
	default:
		refuse(w, r, err)
		return
	}
	token := tokenOf(r)
	token.AllKinds = e.format.AllKinds
	receipt, err := e.intake.Accept(r.Context(), token, notifications, left)
	if err != nil {
		refuse(w, r, err)
		return
	}
	if e.format.Strict && len(receipt.Events) == 0 {
		if err := wholly(receipt.Refused); err != nil {
			refuse(w, r, err)
			return
		}
	}
	taken(w, r, receipt)
}

// wholly is the error of a delivery of which nothing was taken; nil if what it holds is merely about something else.
func wholly(refused []core.Refusal) error {
	var fields []fault.Field
	class := fault.Invalid
	for _, r := range refused {
		if r.Foreign {
			continue
		}
		if r.Denied {
			class = fault.Denied
		}
		fields = append(fields, r.Fields...)
	}
	if len(fields) == 0 {
		return nil
	}
	return fault.WithFields(class, fault.InvalidFields(fields...).Error(), fields...)
}

// taken answers that a delivery has been stored, and what of it was left out.
func taken(w http.ResponseWriter, r *http.Request, receipt core.Receipt) {
	a := answer{Events: receipt.Events, Resolving: receipt.Resolving}
	if a.Events == nil {
		a.Events = []string{}
	}
	for _, one := range receipt.Refused {
		a.Refused = append(a.Refused, refusedPart{What: one.What, Reason: one.Reason})
	}
	// 202 and not 201: it is committed, and the event goes out when the bus is there.
	status := http.StatusAccepted
	if len(a.Events)+a.Resolving == 0 { // pulls, deletions, blobs, or nothing that could be understood: nothing will follow
		status = http.StatusOK
	}
	note(r, slog.Int(telemetry.KeyCount, len(a.Events)+a.Resolving))
	if len(a.Refused) > 0 {
		note(r, slog.Int("refused", len(a.Refused)), slog.String("first_refusal", a.Refused[0].What+": "+a.Refused[0].Reason))
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(a) // the sender hung up; what it sent is stored
}

// most is a limit, or the usual one.
func most(limit int64) int64 {
	if limit == 0 {
		return MaxBody
	}
	return limit
}

// read takes the body of a delivery of at most so many bytes. What is larger than MaxBody is read when one of the few places for that in large is free; nil: no
// delivery is.
func read(w http.ResponseWriter, r *http.Request, most int64, large chan struct{}) ([]byte, error) {
	// What announces its length is refused unread. What does not (chunked) is cut off by the reader below.
	if r.ContentLength > most {
		return nil, tooLarge(fmt.Sprintf("%d bytes", r.ContentLength), most)
	}
	source := http.MaxBytesReader(w, r.Body, most)
	body, err := io.ReadAll(io.LimitReader(source, MaxBody+1))
	if err == nil && len(body) > MaxBody && large != nil {
		select {
		case large <- struct{}{}:
			defer func() { <-large }()
		case <-r.Context().Done():
			return nil, fmt.Errorf("wait to read a large delivery: %w", r.Context().Err())
		}
		var rest []byte
		rest, err = io.ReadAll(source)
		body = append(body, rest...)
	}
	if _, over := errors.AsType[*http.MaxBytesError](err); over {
		return nil, tooLarge("more", most)
	}
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return nil, refusal{
			status: http.StatusRequestTimeout, field: "body", cause: err,
			found: fmt.Sprintf("%d bytes in the time that there is", len(body)), expected: "the whole of it, sooner",
		}
	case err != nil:
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
	// In binary mode, the type is that of a CloudEvent's data, which may be any JSON.
	if err == nil && strings.HasSuffix(media, "+json") && !strings.HasPrefix(media, "application/cloudevents") && r.Header.Get("Ce-Specversion") != "" {
		media = "application/json"
	}
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

func tooLarge(found string, most int64) error {
	return refusal{status: http.StatusRequestEntityTooLarge, field: "body", found: found, expected: fmt.Sprintf("%d bytes at most", most)}
}

var _ Intake = (*core.Intake)(nil)

// statusOf is the HTTP status of an error.
func statusOf(err error) int {
	if r, ok := errors.AsType[refusal](err); ok {
		return r.status
	}
	return fault.Describe(fault.ClassOf(err)).HTTP
}
