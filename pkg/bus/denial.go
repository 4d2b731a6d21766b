package bus

import (
	"context"
	"errors"
	"regexp"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/lockstep-cd/lockstep/pkg/fault"
)

// denials hands each permission error, which the server reports out of band, to the calls that it belongs to.
type denials struct {
	mu      sync.Mutex
	waiting map[*denialWatch]struct{}
	latest  error
}

type denialWatch struct {
	concerns func(subject string) bool
	cancel   context.CancelCauseFunc
}

// violation is how the server words a denial.
var violation = regexp.MustCompile(`for (Publish|Subscription) to "([^"]+)"`)

// report turns err into a Denied error if it is a permission error, ends the calls that it concerns, and returns it.
func (d *denials) report(user string, err error) error {
	if !errors.Is(err, nats.ErrPermissionViolation) {
		return nil
	}
	denial := fault.Because(err, fault.Denied, "nats user %q: %v", user, err)
	subject := ""
	if m := violation.FindStringSubmatch(err.Error()); m != nil {
		verb := "publish to"
		if m[1] == "Subscription" {
			verb = "subscribe to"
		}
		subject = m[2]
		denial = fault.Because(err, fault.Denied, "nats user %q may not %s %q", user, verb, subject)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.latest = denial
	for w := range d.waiting {
		if w.concerns(subject) {
			w.cancel(denial)
		}
	}
	return denial
}

func (d *denials) last() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.latest
}

func (d *denials) forget() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.latest = nil
}

// watch runs fn with a context that ends after within, or as soon as a denial that concerns it is reported; that is then
// the error.
func (d *denials) watch(
	ctx context.Context, within time.Duration, concerns func(subject string) bool, fn func(context.Context) error,
) error {
	ctx, deny := context.WithCancelCause(ctx)
	defer deny(nil)
	w := &denialWatch{concerns: concerns, cancel: deny}
	d.mu.Lock()
	if d.waiting == nil {
		d.waiting = map[*denialWatch]struct{}{}
	}
	d.waiting[w] = struct{}{}
	d.mu.Unlock()
	defer func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		delete(d.waiting, w)
	}()
	bounded, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	err := fn(bounded)
	if cause := context.Cause(ctx); err != nil && fault.Is(cause, fault.Denied) {
		return cause
	}
	return err
}
