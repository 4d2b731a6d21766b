package access

import (
	"bytes"
	"context"
	"fmt"
	"regexp"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
)

// A client that gets no answer does not know whether what it asked for has happened. Under a key of its own it may ask
// again: the first request is carried out, and every later one gets the first one's answer.

// Request is one that came under a key.
type Request struct {
	// Key is the client's, unique among its own.
	Key string
	// Fingerprint is a digest of what was asked.
	Fingerprint []byte
}

// PriorRequest is what is kept of one that came before.
type PriorRequest struct {
	Fingerprint []byte
	// Answered reports whether it has come to its end; Answer is empty where it is not kept.
	Answered bool
	Answer   []byte
}

const (
	maxRequestKey = 200
	// maxAnswer is the longest answer that is kept, in bytes.
	maxAnswer = 64 << 10
)

// BeginRequest takes a key for a request; first reports whether it is to be carried out. Otherwise answer is what was answered
// before. A key that stands for something else, or whose request has not come to its end, is a Conflict.
func (u *UseCases) BeginRequest(ctx context.Context, a core.Actor, r Request) (answer []byte, first bool, err error) {
	if r.Key == "" || len(r.Key) > maxRequestKey {
		return nil, false, fault.InvalidFields(
			fault.Field{Name: "Idempotency-Key", Problem: fmt.Sprintf("found %d bytes; expected 1 to %d", len(r.Key), maxRequestKey)},
		)
	}
	var prior PriorRequest
	err = u.store.In(ctx, a.Organization, func(ctx context.Context, tx Tx) error {
		var err error
		if first, err = tx.AddRequest(ctx, a.Principal(), r); err != nil || first {
			return err
		}
		prior, err = tx.PriorRequest(ctx, a.Principal(), r.Key)
		return err
	})
	switch {
	case err != nil || first:
		return nil, first, err
	case !bytes.Equal(prior.Fingerprint, r.Fingerprint):
		return nil, false, fault.New(
			fault.Conflict, "the idempotency key %q was used for another request; expected a new key for a new one", r.Key,
		)
	case !prior.Answered:
		return nil, false, fault.New(
			fault.Conflict, "the request with the idempotency key %q is being carried out, or was cut short: look what came of it", r.Key,
		)
	case len(prior.Answer) == 0:
		return nil, false, fault.New(fault.Conflict, "the request with the idempotency key %q was carried out; its answer is not kept", r.Key)
	}
	return prior.Answer, false, nil
}

// seed is how the secret half of an agent's key looks.
var seed = regexp.MustCompile(`SU[A-Z2-7]{56}`)

// EndRequest keeps the answer to a request. Responses that contain a credential or are too long are not stored, only
// the fact that it ended.
func (u *UseCases) EndRequest(ctx context.Context, a core.Actor, key string, answer []byte) error {
	if len(answer) > maxAnswer || bytes.Contains(answer, []byte(tokenPrefix)) || seed.Match(answer) {
		answer = []byte{}
	}
	return u.store.In(ctx, a.Organization, func(ctx context.Context, tx Tx) error {
		return tx.AnswerRequest(ctx, a.Principal(), key, answer)
	})
}
