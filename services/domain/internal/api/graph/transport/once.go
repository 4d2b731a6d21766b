package transport

import (
	"bytes"
	"context"
	"crypto/sha256"
	"io"
	"log/slog"
	"net/http"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/telemetry"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/access"
)

// idempotencyKey is the header under which a client may send the same request again, and get the first one's answer.
const idempotencyKey = "Idempotency-Key"

// Requests remembers the answers of requests with a key. *access.UseCases implements it.
type Requests interface {
	BeginRequest(ctx context.Context, actor core.Actor, r access.Request) (answer []byte, first bool, err error)
	EndRequest(ctx context.Context, actor core.Actor, key string, answer []byte) error
}

// Once carries out a request with a key once, and repeats its answer. Streams have no answer to repeat and pass unchanged, and so do
// requests with the value of a credential.
func Once(requests Requests, log *slog.Logger, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		key := r.Header.Get(idempotencyKey)
		if key == "" || r.Method != http.MethodPost || (Stream{}).Supports(r) {
			next.ServeHTTP(w, r)
			return
		}
		actor, _ := core.ActorFrom(r.Context()) // Check refuses a request without one
		body, err := io.ReadAll(r.Body)         // Check has read it: it is in memory, and bounded
		if err != nil {
			refuse(w, http.StatusBadRequest, invalid, "body: found none")
			return
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		if BearsSecret(body) {
			next.ServeHTTP(w, r)
			return
		}
		fingerprint := sha256.Sum256(body)
		answer, first, err := requests.BeginRequest(r.Context(), actor, access.Request{Key: key, Fingerprint: fingerprint[:]})
		if err != nil {
			row := fault.Describe(fault.ClassOf(err))
			refuse(w, row.HTTP, row.GraphQL, fault.Public(err))
			return
		}
		if !first {
			media := mediaOf(r)
			w.Header().Set("Content-Type", media)
			// a request that could not be read, or is not one of the schema
			if media == graphQLResponse && !bytes.Contains(answer, []byte(`"data":`)) {
				w.WriteHeader(http.StatusBadRequest)
			}
			_, _ = w.Write(answer) // the caller hung up; it may ask again
			return
		}
		kept := &keeping{ResponseWriter: w}
		next.ServeHTTP(kept, r)
		// What happened has happened, also when the caller has hung up meanwhile: that is what the key is for.
		if err := requests.EndRequest(context.WithoutCancel(r.Context()), actor, key, kept.answer.Bytes()); err != nil {
			log.ErrorContext(r.Context(), "keeping the answer of a request failed", slog.Any(telemetry.KeyError, err))
		}
	})
}

// BearsSecret reports whether a request may have the value of a credential, or its answer the token of a feed. A digest of it must not be
// kept: a reader could try values. Carried out twice, such a request does no harm.
func BearsSecret(body []byte) bool {
	return bytes.Contains(body, []byte("createCredential")) || bytes.Contains(body, []byte("rotateCredential")) ||
		bytes.Contains(body, []byte("createFeed"))
}

// keeping is a response that is kept as it is written.
type keeping struct {
	http.ResponseWriter
	answer bytes.Buffer
}

// Write implements http.ResponseWriter.
func (k *keeping) Write(b []byte) (int, error) {
	k.answer.Write(b)
	return k.ResponseWriter.Write(b) //nolint:wrapcheck // an http.ResponseWriter's own
}
