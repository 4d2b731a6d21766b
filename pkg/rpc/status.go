package rpc

import (
	"context"
	"errors"
	"fmt"
	"path"
	"regexp"
	"strings"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/protoadapt"

	"github.com/lockstep-cd/lockstep/pkg/fault"
)

// Domain says in an ErrorInfo that its reason is one of ours.
const Domain = "lockstep.dev"

// toStatus is err as the caller may see it. A status that a handler or the library made on purpose stays as it is; one
// that is wrapped came from a call that the handler made, and is nobody else's business.
func toStatus(err error) error {
	if err == nil {
		return nil
	}
	class := fault.ClassOf(err)
	if class == fault.Internal {
		if _, made := err.(interface{ GRPCStatus() *status.Status }); made {
			return err
		}
		if s := status.FromContextError(err); s.Code() != codes.Unknown {
			return withDetails(s, &errdetails.ErrorInfo{Reason: contextReason(s.Code()), Domain: Domain})
		}
	}
	row := fault.Describe(class)
	s := status.New(codes.Code(row.GRPC), fault.Public(err))
	details := []protoadapt.MessageV1{&errdetails.ErrorInfo{Reason: row.GraphQL, Domain: Domain}}
	if fields := fault.FieldsOf(err); len(fields) > 0 {
		bad := &errdetails.BadRequest{}
		for _, f := range fields {
			bad.FieldViolations = append(bad.FieldViolations, &errdetails.BadRequest_FieldViolation{Field: f.Name, Description: f.Problem})
		}
		details = append(details, bad)
	}
	return withDetails(s, details...)
}

// withDetails is the error of s with details.
func withDetails(s *status.Status, details ...protoadapt.MessageV1) error {
	if detailed, err := s.WithDetails(details...); err == nil {
		s = detailed
	}
	return s.Err()
}

// contextReason is the reason of a call whose time was up, or whose caller has left.
func contextReason(code codes.Code) string {
	if code == codes.DeadlineExceeded {
		return "DEADLINE_EXCEEDED"
	}
	return "CANCELLED"
}

// fromStatus is the error of a call as its caller's own: with the class that the server gave it, and its message where
// it is meant for others.
func fromStatus(ctx context.Context, method string, err error) error {
	if err == nil {
		return nil
	}
	s, ok := status.FromError(err)
	if !ok {
		return fmt.Errorf("call %s: %w", method, err)
	}
	// The server measures the same deadline, or the transport does, and may be ahead of the caller's own context by a moment.
	late := s.Code() == codes.DeadlineExceeded
	switch {
	case late:
		err = errors.Join(context.DeadlineExceeded, err)
	case ctx.Err() != nil:
		err = errors.Join(ctx.Err(), err)
	}
	class, ours, fields := details(s)
	switch {
	case class == fault.Internal:
		return fmt.Errorf("call %s: %w", method, err)
	case len(fields) > 0:
		return &fieldError{message: serverMessage(s), fields: fault.WithFields(class, serverMessage(s), fields...), cause: err}
	case s.Code() == codes.ResourceExhausted && !ours && strings.Contains(s.Message(), "larger than max"):
		// The library refuses it, on either side: the same message never fits.
		return fault.Because(err, fault.Invalid, "the message is too large: %s", strings.TrimPrefix(serverMessage(s), "grpc: "))
	case late && !ours:
		return fault.Because(err, class, "%s has not answered in time", path.Dir(method)[1:])
	case class == fault.Unavailable && !ours:
		return fault.Because(err, class, "%s is not available", path.Dir(method)[1:])
	default:
		return fault.Because(err, class, "%s", serverMessage(s))
	}
}

// retryPrefix is what the library puts in front of the message of the last attempt.
var retryPrefix = regexp.MustCompile(`^max retries exhausted: failed after \d+ attempts: (rpc error: code = \w+ desc = )?`)

// serverMessage is the message as the server wrote it.
func serverMessage(s *status.Status) string { return retryPrefix.ReplaceAllString(s.Message(), "") }

// details is the class of a status, whether one of our servers gave it, and the fields at fault.
func details(s *status.Status) (class fault.Class, ours bool, fields []fault.Field) {
	class = fault.FromGRPC(uint32(s.Code()))
	for _, d := range s.Details() {
		switch d := d.(type) {
		case *errdetails.ErrorInfo:
			for _, c := range fault.Classes() {
				if d.GetDomain() == Domain && d.GetReason() == fault.Describe(c).GraphQL {
					class, ours = c, true
				}
			}
		case *errdetails.BadRequest:
			for _, v := range d.GetFieldViolations() {
				fields = append(fields, fault.Field{Name: v.GetField(), Problem: v.GetDescription()})
			}
		}
	}
	return class, ours, fields
}

// fieldError says what the server said, and unwraps to the classed fields and to the status.
type fieldError struct {
	message string
	fields  *fault.Error
	cause   error
}

// Error is the server's message, which may say more than the fields do.
func (e *fieldError) Error() string { return e.message }

// Unwrap leads to the class with its fields, and to the status.
func (e *fieldError) Unwrap() []error { return []error{e.fields, e.cause} }
