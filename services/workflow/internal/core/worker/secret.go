package worker

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/activity"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/history"
)

// Secrets finds what a worker may be sent. A worker's token gives it no credential: the credential itself names the Functions that it may
// be sent to (worker://shop.charge among its URLs), so those who may change credentials decide. The program decides which names a call has.
type Secrets interface {
	// SecretFor is the value of a credential of an organization for a Function, or of one of the run's secrets by its name. The errors are
	// Denied where the credential does not name the Function, Unauthenticated where it cannot be read or was revoked, and Unavailable where it
	// cannot be read now.
	SecretFor(ctx context.Context, organization int64, function, name string, secrets map[string]string) (string, error)
}

// secretCodes are what programs see of errors that do not pass.
func secretCode(err error) string {
	if fault.Is(err, fault.Denied) {
		return history.CodeForbidden
	}
	return "unauthorized"
}

// resolve adds the values of secret arguments to a call, as they are now. A refusal is the answer to the call; an error means that nothing
// could be found out now.
func (s *Session) resolve(ctx context.Context, c *Call) (refusal *history.FunctionError, err error) {
	f, found, err := s.hub.Catalogue.Function(ctx, c.Organization, c.Function)
	if err != nil || !found || len(f.SecretArguments()) == 0 {
		return nil, err // a Function that is not found was refused by admit
	}
	args, err := history.Arguments(c.Args)
	if err != nil {
		return history.AsFunctionError(err), nil
	}
	concealed := s.concealedOf(c.ID)
	ctx = concealed.Within(ctx)
	var references map[string]string
	for _, argument := range f.SecretArguments() {
		name, given := args[argument].(string)
		if !given {
			continue // an optional one; Check refuses what is no name
		}
		if references == nil {
			if references, err = s.hub.Store.SecretsOf(ctx, c.Execution); err != nil {
				return nil, err
			}
		}
		if s.hub.Secrets == nil {
			return &history.FunctionError{Code: history.CodeForbidden, Message: "this service sends no credentials to workers"}, nil
		}
		value, err := s.hub.Secrets.SecretFor(ctx, c.Organization, c.Function, name, references)
		switch {
		case fault.Is(err, fault.Denied), fault.Is(err, fault.Unauthenticated), fault.Is(err, fault.NotFound), fault.Is(err, fault.Refused):
			message := fmt.Sprintf("%s: %s: %s", c.Function, argument, concealed.Redact(fault.Public(err)))
			return &history.FunctionError{Code: secretCode(err), Message: message}, nil
		case err != nil:
			return nil, err
		}
		activity.Conceal(ctx, value)
		if c.Secrets == nil {
			c.Secrets = map[string]string{}
		}
		c.Secrets[argument] = value
	}
	return nil, nil
}

// lostMost is of how many calls that the worker no longer has the secrets are remembered.
const lostMost = 1000

// concealedOf are the secrets that the worker was sent with a call, to which others are added.
func (s *Session) concealedOf(call string) *activity.Concealed {
	s.mu.Lock()
	defer s.mu.Unlock()
	if known := s.concealed[call]; known != nil {
		return known
	}
	if s.concealed == nil {
		s.concealed = map[string]*activity.Concealed{}
	}
	if len(s.concealed) >= len(s.held)+lostMost {
		maps.DeleteFunc(s.concealed, func(call string, _ *activity.Concealed) bool {
			_, held := s.held[call]
			return !held
		})
	}
	made := &activity.Concealed{}
	s.concealed[call] = made
	return made
}

// clean is an answer without the secrets that the worker was sent with the call: neither histories nor programs may have them.
func clean(
	concealed *activity.Concealed, value json.RawMessage, failure *history.FunctionError,
) (json.RawMessage, *history.FunctionError) {
	if concealed.Empty() {
		return value, failure
	}
	if failure != nil {
		cleaned := *failure
		cleaned.Code, cleaned.Message = concealed.Redact(failure.Code), concealed.Redact(failure.Message)
		failure = &cleaned
	}
	if len(value) == 0 {
		return value, failure
	}
	decoder := json.NewDecoder(bytes.NewReader(value))
	decoder.UseNumber()
	var decoded any
	if err := decoder.Decode(&decoded); err != nil || decoder.More() {
		return json.RawMessage("invalid"), failure // which is refused as what it is, without being shown
	}
	encoded, err := json.Marshal(concealed.CleanValue(decoded))
	if err != nil {
		return json.RawMessage("invalid"), failure
	}
	return encoded, failure
}
