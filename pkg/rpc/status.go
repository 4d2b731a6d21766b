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

// Domain marks the reason in an ErrorInfo as ours.
const Domain = "lockstep.dev"

// toStatus converts err to what the caller may see. A status that a handler or the library returned directly is kept; a wrapped one comes
// from a call that the handler made, and is hidden.
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

// withDetails returns the error of s with details.
func withDetails(s *status.Status, details ...protoadapt.MessageV1) error {
	if detailed, err := s.WithDetails(details...); err == nil {
		s = detailed
	}
	return s.Err()
}

// contextReason returns the reason for a call whose deadline has passed, or whose caller has left.
func contextReason(code codes.Code) string {
	if code == codes.DeadlineExceeded {
		return "DEADLINE_EXCEEDED"
	}
	return "CANCELLED"
}

// fromStatus converts the error of a call for the caller's own use: with the class that the server gave it, and its message if it is
// public.
func fromStatus(ctx context.Context, method string, err error) error {
	if err == nil {
		return nil
	}
	s, ok := status.FromError(err)
	if !ok {
		return fmt.Errorf("call %s: %w", method, err)
	}
	// The server or the transport, which measure the same deadline, may be slightly ahead of the caller's own context.
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
		// Either side's library refuses it: the same message never fits.
		return fault.Because(err, fault.Invalid, "the message is too large: %s", strings.TrimPrefix(serverMessage(s), "grpc: "))
	case late && !ours:
		return fault.Because(err, class, "%s has not answered in time", path.Dir(method)[1:])
	case class == fault.Unavailable && !ours:
		return fault.Because(err, class, "%s is not available", path.Dir(method)[1:])
	default:
		return fault.Because(err, class, "%s", serverMessage(s))
	}
}

// retryPrefix matches the library's prefix of the last attempt's message.
var retryPrefix = regexp.MustCompile(`^max retries exhausted: failed after \d+ attempts: (rpc error: code = \w+ desc = )?`)

// serverMessage returns the message as the server wrote it.
func serverMessage(s *status.Status) string { return retryPrefix.ReplaceAllString(s.Message(), "") }

// details returns the class of a status, whether it comes from one of our servers, and the fields at fault.
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

// fieldError has the server's message, and unwraps to the classified fields and to the status.
type fieldError struct {
	message string
	fields  *fault.Error
	cause   error
}

// Error returns the server's message, which may contain more than the fields do.
func (e *fieldError) Error() string { return e.message }

// Unwrap returns the class with its fields, and the status.
func (e *fieldError) Unwrap() []error { return []error{e.fields, e.cause} }
