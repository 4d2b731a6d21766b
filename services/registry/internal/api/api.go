// Package api accepts deliveries over HTTP: who may post, how much, in what form, and how they are answered.
//
// It parses no format itself; package source does. Every refusal is an application/problem+json document (RFC 9457) that names the fields
// at fault, and nothing is stored.
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

// MaxBody is the maximum size of a delivery in bytes, unless its format sets another. A signature covers the whole body, so this much is
// read from unauthenticated senders too.
const MaxBody = 1 << 20

// largeBodies is how many deliveries above MaxBody are read concurrently; others wait.
const largeBodies = 2

// Intake stores a delivery.
type Intake interface {
	Accept(ctx context.Context, t core.Token, delivery []core.Notification, left []core.Refusal) (core.Receipt, error)
}

// Tokens finds the senders that have a token of ours.
type Tokens interface {
	// Find returns the sender of a token. The error is Unauthenticated and reveals no tokens.
	Find(ctx context.Context, presented string) (core.Token, error)
}

// Format is one format of notifications.
type Format struct {
	// Name is the format in messages.
	Name string
	// Path is where its deliveries are posted.
	Path string
	// MediaTypes are the accepted content types, without parameters.
	MediaTypes []string
	// Parse parses one delivery of one of the media types. The error is Invalid and names the fields that cannot be parsed.
	Parse func(header http.Header, mediaType string, body []byte) ([]core.Notification, error)
	// AllKinds means that the sender reports every pushed manifest, not only images.
	AllKinds bool
	// Strict means that a delivery without any usable part is answered with an error.
	Strict bool
	// MaxBody is the maximum size of a delivery in bytes; 0 means the constant MaxBody.
	MaxBody int64
}

// Deps are the handler's dependencies.
type Deps struct {
	Intake  Intake
	Formats []Format
	// Tokens are the bearer tokens of senders.
	Tokens Tokens
	// Hooks are the endpoints of senders without such a token; nil for none.
	Hooks Hooks
	// ForgeHooks are the endpoints for statuses of commits; nil for none.
	ForgeHooks Finder
	Clock      clock.Clock
	// Guard slows down senders with invalid credentials; nil means no limit.
	Guard *throttle.Guard
	Log   *slog.Logger
}

// NewHandler returns a handler with one path per format.
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
	// Unknown paths require a token too: without one, a caller does not learn which paths exist.
	outer.Handle("/", authenticated(d, mux))
	if d.Hooks != nil {
		mux.Handle("GET "+StatusPath, status(d.Hooks))
		outer.Handle(StatusPath, authenticated(d, mux)) // otherwise the mux would redirect it to the path below
		outer.Handle(HookPath, newGate(HookPath, d.Hooks, d.Clock, d.Guard))
	}
	if d.ForgeHooks != nil {
		outer.Handle(ForgeHookPath, newGate(ForgeHookPath, d.ForgeHooks, d.Clock, d.Guard))
	}
	return observed(d.Log, d.Clock, handshake(d.Formats, d.Clock, outer))
}

// endpoint accepts the deliveries of one format.
type endpoint struct {
	format Format
	intake Intake
}

// answer is the body for an accepted delivery.
type answer struct {
	// Events are the ids of the registry service's own events, one for each artifact. A repeated report of an artifact has the same id.
	Events []string `json:"events"`
	// Resolving is how many more may follow, once their registry has returned the digest.
	Resolving int `json:"resolving,omitempty"`
	// Refused lists the parts that were left out.
	Refused []refusedPart `json:"refused,omitempty"`
}

// refusedPart is a part of a delivery that was left out, with the reason.
type refusedPart struct {
	What   string `json:"what"`
	Reason string `json:"reason"`
}

// ServeHTTP accepts one delivery.
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
	// A registry would send it again, and hold up the deliveries behind it.
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

// wholly returns the error of a delivery without any usable part; nil if its parts are merely about something other than artifacts.
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

// taken answers a delivery that has been stored, with the parts that were left out.
func taken(w http.ResponseWriter, r *http.Request, receipt core.Receipt) {
	a := answer{Events: receipt.Events, Resolving: receipt.Resolving}
	if a.Events == nil {
		a.Events = []string{}
	}
	for _, one := range receipt.Refused {
		a.Refused = append(a.Refused, refusedPart{What: one.What, Reason: one.Reason})
	}
	// 202 and not 201: it is committed, but the event is published only when the bus is reachable.
	status := http.StatusAccepted
	if len(a.Events)+a.Resolving == 0 { // pulls, deletions, blobs, or nothing usable: no event will follow
		status = http.StatusOK
	}
	note(r, slog.Int(telemetry.KeyCount, len(a.Events)+a.Resolving))
	if len(a.Refused) > 0 {
		note(r, slog.Int("refused", len(a.Refused)), slog.String("first_refusal", a.Refused[0].What+": "+a.Refused[0].Reason))
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(a) // fails only if the sender hung up; the delivery is stored
}

// most returns a limit, or the default.
func most(limit int64) int64 {
	if limit == 0 {
		return MaxBody
	}
	return limit
}

// read reads the body of a delivery, up to a limit. A body larger than MaxBody waits for one of the few slots in large; nil means that none
// is allowed.
func read(w http.ResponseWriter, r *http.Request, most int64, large chan struct{}) ([]byte, error) {
	// A body that announces its length is refused unread. A chunked one is cut off by the reader below.
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

// mediaType returns the content type without parameters, if a format accepts it.
func mediaType(r *http.Request, taken []string) (string, error) {
	wrong := func(field, found, expected string) error {
		return refusal{status: http.StatusUnsupportedMediaType, field: field, found: found, expected: expected}
	}
	values := r.Header.Values("Content-Type")
	found := strings.Join(values, ", ")
	media, parameters, err := mime.ParseMediaType(found)
	// Duplicate headers are refused: a proxy in between may have checked the other one. In binary mode, the type is that of a CloudEvent's
	// data, which may be any JSON.
	if err == nil && strings.HasSuffix(media, "+json") && !strings.HasPrefix(media, "application/cloudevents") &&
		r.Header.Get("Ce-Specversion") != "" {
		media = "application/json"
	}
	if err != nil || len(values) != 1 || !slices.Contains(taken, media) {
		return "", wrong("content-type", found, strings.Join(taken, " or "))
	}
	if charset := parameters["charset"]; charset != "" && !strings.EqualFold(charset, "utf-8") {
		return "", wrong("content-type", found, "charset utf-8")
	}
	// Nothing is decompressed: a megabyte may become a gigabyte, and signatures cover the bytes as sent.
	if coding := r.Header.Get("Content-Encoding"); coding != "" && !strings.EqualFold(coding, "identity") {
		return "", wrong("content-encoding", coding, "none: the body as it is")
	}
	return media, nil
}

func tooLarge(found string, most int64) error {
	return refusal{status: http.StatusRequestEntityTooLarge, field: "body", found: found, expected: fmt.Sprintf("%d bytes at most", most)}
}

var _ Intake = (*core.Intake)(nil)

// statusOf returns the HTTP status for an error.
func statusOf(err error) int {
	if r, ok := errors.AsType[refusal](err); ok {
		return r.status
	}
	return fault.Describe(fault.ClassOf(err)).HTTP
}
