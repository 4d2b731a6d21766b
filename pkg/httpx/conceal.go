package httpx

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"syscall"

	"github.com/lockstep-cd/lockstep/pkg/fault"
)

// refused is an address that the policy does not let through. Only operators may read it: to anybody else it would say where a name inside points.
type refused struct{ address string }

// Error implements error. It is the cause of an error that says less.
func (r refused) Error() string { return "the address " + r.address + " is not public" }

// unreached is why no connection was to be had, or why it broke, without addresses and names of servers: neither where a name points to, nor which
// resolver was asked, nor where this process is, is the business of whoever wrote the URL. The cause is there for errors.Is.
type unreached struct {
	host, reason string
	cause        error
}

// Error implements error.
func (u *unreached) Error() string { return u.host + ": " + u.reason }

// Unwrap is the error with the addresses.
func (u *unreached) Unwrap() error { return u.cause }

// Timeout reports whether time was up, which clients ask.
func (u *unreached) Timeout() bool {
	t, ok := errors.AsType[net.Error](u.cause)
	return ok && t.Timeout() || errors.Is(u.cause, context.DeadlineExceeded)
}

// Temporary completes net.Error.
func (u *unreached) Temporary() bool { return u.Timeout() }

// conceal takes addresses out of an error of the network, and logs them for operators. Other errors stay as they are.
func (t *Transport) conceal(ctx context.Context, host string, err error) error {
	if err == nil {
		return nil
	}
	if _, ok := errors.AsType[*unreached](err); ok { // a redirect's, or by way of another transport of this package
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
	t.log.InfoContext(ctx, "a server was not reached", attributes...)
	if own, ok := errors.AsType[*fault.Error](err); ok { // the policy's, which says no more than everybody may read
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
