package run_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/lockstep-cd/lockstep/pkg/run"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// journal records what happened, in order.
type journal struct {
	mu    sync.Mutex
	lines []string
}

func (j *journal) add(format string, args ...any) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.lines = append(j.lines, fmt.Sprintf(format, args...))
}

// server is a part that becomes ready after a while and stops when asked.
func (j *journal) server(name string, startup time.Duration) run.Part {
	return run.Part{Name: name, Run: func(ctx context.Context, ready func()) error {
		j.add("start %s", name)
		time.Sleep(startup)
		j.add("ready %s", name)
		ready()
		<-ctx.Done()
		j.add("stop %s", name)
		return ctx.Err()
	}}
}

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

func TestPartsStartInOrderAndStopInReverse(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var j journal
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		err := run.Parts(ctx, quiet(), time.Second, j.server("a", 3*time.Second), j.server("b", 2*time.Second), j.server("c", 0))
		if err != nil {
			t.Errorf("error = %v", err)
		}
		want := []string{"start a", "ready a", "start b", "ready b", "start c", "ready c", "stop c", "stop b", "stop a"}
		if diff := cmp.Diff(want, j.lines); diff != "" {
			t.Errorf("order (-want +got):\n%s", diff)
		}
	})
}

func TestAJobThatIsDoneLetsTheNextPartStart(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var j journal
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		job := run.Part{Name: "migrate", Run: func(context.Context, func()) error { j.add("migrate"); return nil }}
		if err := run.Parts(ctx, quiet(), time.Second, job, j.server("a", 0)); err != nil {
			t.Errorf("error = %v", err)
		}
		if diff := cmp.Diff([]string{"migrate", "start a", "ready a", "stop a"}, j.lines); diff != "" {
			t.Errorf("order (-want +got):\n%s", diff)
		}
		if err := run.Parts(t.Context(), quiet(), time.Second, job); err != nil {
			t.Errorf("jobs alone: error = %v", err)
		}
	})
}

func TestTheFirstFailureStopsAll(t *testing.T) {
	t.Parallel()
	boom := errors.New("boom")
	tests := []struct {
		name string
		part run.Part
		want string
	}{
		{"before it is ready", run.Part{Name: "b", Run: func(context.Context, func()) error { return boom }}, "b: boom"},
		{"after it was ready", run.Part{Name: "b", Run: func(_ context.Context, ready func()) error {
			ready()
			time.Sleep(time.Second)
			return boom
		}}, "b: boom"},
		{
			"ended without being asked to",
			run.Part{Name: "b", Run: func(_ context.Context, ready func()) error { ready(); return nil }},
			"b: ended without being asked to",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var j journal
				err := run.Parts(t.Context(), quiet(), time.Second, j.server("a", 0), tt.part)
				if err == nil || err.Error() != tt.want {
					t.Errorf("error = %v, want %q", err, tt.want)
				}
				if diff := cmp.Diff([]string{"start a", "ready a", "stop a"}, j.lines); diff != "" {
					t.Errorf("order (-want +got):\n%s", diff)
				}
			})
		})
	}
}

func TestALaterPartNeverStartsWhenTheFirstIsNotReady(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var j journal
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		never := run.Part{Name: "a", Run: func(ctx context.Context, _ func()) error { <-ctx.Done(); return nil }}
		if err := run.Parts(ctx, quiet(), time.Second, never, j.server("b", 0)); err != nil {
			t.Errorf("error = %v", err)
		}
		if len(j.lines) > 0 {
			t.Errorf("the second part ran: %v", j.lines)
		}
	})
}

func TestFailuresWhileStoppingAreReported(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		flush := errors.New("flush")
		part := run.Part{Name: "a", Run: func(ctx context.Context, ready func()) error { ready(); <-ctx.Done(); return flush }}
		if err := run.Parts(ctx, quiet(), time.Second, part); !errors.Is(err, flush) {
			t.Errorf("error = %v, want %v", err, flush)
		}
	})
}

func TestAPartThatDoesNotStopIsNamed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var j journal
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		release := make(chan struct{})
		stuck := run.Part{Name: "stuck", Run: func(_ context.Context, ready func()) error { ready(); <-release; return nil }}
		err := run.Parts(ctx, quiet(), 10*time.Second, j.server("a", 0), stuck)
		close(release)
		if err == nil || !strings.Contains(err.Error(), "still running after 20s: stuck") {
			t.Errorf("error = %v", err)
		}
		if diff := cmp.Diff([]string{"start a", "ready a", "stop a"}, j.lines); diff != "" {
			t.Errorf("the others were not stopped (-want +got):\n%s", diff)
		}
	})
}
