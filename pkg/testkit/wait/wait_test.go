package wait_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/testkit/wait"
)

// recorder is a test that records how it failed. Its context is its own.
type recorder struct {
	testing.TB
	ctx     context.Context //nolint:containedctx // what Context returns
	failure string
}

func (*recorder) Helper() {}

func (r *recorder) Context() context.Context { return r.ctx }

func (r *recorder) Fatalf(format string, args ...any) {
	r.failure = fmt.Sprintf(format, args...)
	panic(r) // as a test that has failed does not continue
}

// run calls fn and recovers from the failure.
func (r *recorder) run(fn func()) {
	defer func() {
		if p := recover(); p != nil && p != any(r) {
			panic(p)
		}
	}()
	fn()
}

func TestFor(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		wait.For(t, "half a minute has passed", func() bool { return time.Since(began) >= 30*time.Second })
		if late := time.Since(began) - 30*time.Second; late > time.Second {
			t.Errorf("returned %s after the condition was met", late)
		}
	})
}

func TestForFails(t *testing.T) {
	t.Parallel()
	never := func() bool { return false }
	synctest.Test(t, func(t *testing.T) {
		r, began := &recorder{ctx: t.Context()}, time.Now()
		r.run(func() { wait.For(r, "never met", never) })
		if took := time.Since(began); took != time.Minute || !strings.Contains(r.failure, "1m0s: never met") {
			t.Errorf("failed with %q after %s; expected the timeout and what was waited for", r.failure, took)
		}
		r, began = &recorder{ctx: t.Context()}, time.Now()
		r.run(func() { wait.Within(r, time.Second, "never met", never) })
		if took := time.Since(began); took != time.Second || r.failure == "" {
			t.Errorf("failed with %q after %s, expected one second", r.failure, took)
		}
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		r, began = &recorder{ctx: ended}, time.Now()
		r.run(func() { wait.For(r, "never met", never) })
		if took := time.Since(began); took != 0 || r.failure == "" {
			t.Errorf("failed with %q after %s, expected that it does not wait when the test has ended", r.failure, took)
		}
	})
}
