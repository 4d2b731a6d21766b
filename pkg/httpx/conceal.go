package httpx

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"syscall"

	"github.com/lockstep-cd/lockstep/pkg/fault"
)

// refused is an address that the policy forbids. Only operators may read it: it would show others where an internal name points.
type refused struct{ address string }

// Error implements error. It is only the cause of an error with a public message.
func (r refused) Error() string { return "the address " + r.address + " is not public" }

// unreached is a failed or broken connection, without addresses and names of servers: where a name points, which resolver was used and
// where this process runs is none of the business of the URL's author. The cause is kept for errors.Is.
type unreached struct {
	host, reason string
	cause        error
}

// Error implements error.
func (u *unreached) Error() string { return u.host + ": " + u.reason }

// Unwrap returns the error with the addresses.
func (u *unreached) Unwrap() error { return u.cause }

// Timeout reports whether the time limit was exceeded; HTTP clients check it.
func (u *unreached) Timeout() bool {
	t, ok := errors.AsType[net.Error](u.cause)
	return ok && t.Timeout() || errors.Is(u.cause, context.DeadlineExceeded)
}

// Temporary completes net.Error.
func (u *unreached) Temporary() bool { return u.Timeout() }

// conceal removes addresses from a network error, and logs them for operators. Other errors are unchanged.
func (t *Transport) conceal(ctx context.Context, host string, err error) error {
	if err == nil {
		return nil
	}
	if _, ok := errors.AsType[*unreached](err); ok { // from a redirect, or from another transport of this package
		return err
	}
	own, isOwn := errors.AsType[*net.OpError](err)
	dns, isDNS := errors.AsType[*net.DNSError](err)
	if !isOwn && !isDNS {
		return err
	}
	attributes := []any{slog.String("host", host), slog.String("error", err.Error())}
	if address, ok := errors.AsType[refused](err); ok {
		attributes = append(attributes, slog.String("address", address.address))
	}
	t.log.InfoContext(ctx, "connecting to a server failed", attributes...)
	if own, ok := errors.AsType[*fault.Error](err); ok { // the policy's own, with a public message
		return own
	}
	u := &unreached{host: host, cause: err}
	switch errno, isErrno := errors.AsType[syscall.Errno](err); {
	case isDNS && dns.IsNotFound:
		u.reason = "there is no such host"
	case isDNS:
		u.reason = "the name could not be resolved"
	case u.Timeout():
		u.reason = "no answer in time"
	case isErrno:
		u.reason = own.Op + ": " + errno.Error()
	default:
		u.reason = own.Op + " failed"
	}
	return u
}
