package cluster

import (
	"context"
	"errors"
	"net"
	"net/url"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/services/relay/internal/core"
)

// classify gives the error of a request its class. The address of the API server stays in the log. Runner.drive retries after Conflict and
// Unavailable, and ends the call with most others.
func classify(err error, op string, ref core.Ref) error {
	switch {
	case err == nil:
		return nil
	// Before NotFound, which it is as well: a missing controller must not look like a missing object.
	case isUnknownPath(err):
		return unknownKind(ref.Kind, "the cluster does not serve it (is its controller installed?)")
	case apierrors.IsNotFound(err):
		return fault.Because(err, fault.NotFound, "%s does not exist", ref)
	case apierrors.IsAlreadyExists(err), apierrors.IsConflict(err):
		return fault.Because(err, fault.Conflict, "%s has changed meanwhile", ref)
	case apierrors.IsUnauthorized(err):
		return fault.Because(err, fault.Denied, "the cluster does not accept the credentials of the relay, to %s %s: %s", op, ref, reason(err))
	case apierrors.IsForbidden(err): // kubernetes@1 goes by the words, so they stay (pkg/driver/bundles/kubernetes/v1/compare.star, UNLISTED)
		return fault.Because(err, fault.Denied, "the cluster does not let the relay %s %s: %s", op, ref, reason(err))
	case apierrors.IsInvalid(err), apierrors.IsBadRequest(err), apierrors.IsMethodNotSupported(err),
		apierrors.IsUnsupportedMediaType(err), apierrors.IsRequestEntityTooLargeError(err):
		return fault.Because(err, fault.Invalid, "the cluster refuses to %s %s: %s", op, ref, reason(err))
	case isAway(err):
		return fault.Because(err, fault.Unavailable, "%s %s: the cluster does not answer", op, ref)
	default:
		return err
	}
}

// isUnknownPath distinguishes a missing resource from a missing object: both are 404, but only for a missing resource the response is plain
// text.
func isUnknownPath(err error) bool {
	return apierrors.IsNotFound(err) && apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse)
}

// isAway reports whether the same request may succeed later: no connection, timeout, overload, or a starting server. An ended ctx counts:
// the Runner's loop determines whether it was the request's or the call's.
func isAway(err error) bool {
	var status apierrors.APIStatus
	if errors.As(err, &status) {
		return status.Status().Code >= 500 || apierrors.IsTooManyRequests(err) || apierrors.IsTimeout(err)
	}
	var netErr net.Error
	var urlErr *url.Error
	return errors.As(err, &netErr) || errors.As(err, &urlErr) ||
		errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) ||
		// Between two attempts the client waits for its rate limiter, which gives up before the deadline and hides the first attempt's
		// error. Neither client-go nor x/time/rate has a type for that.
		strings.Contains(err.Error(), "client rate limiter")
}

// reason returns the API server's own explanation.
func reason(err error) string {
	var status apierrors.APIStatus
	if errors.As(err, &status) {
		return status.Status().Message
	}
	return "no reason given"
}
