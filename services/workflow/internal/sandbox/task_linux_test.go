package sandbox

import (
	"bytes"
	"context"
	"os"
	"runtime"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/pkg/fault"
)

// `<binary> task` is a child of Tasks: it answers what it is asked, and "hang" never.
const taskCommand = "task"

func serveTasks() int {
	err := ServeTask(context.Background(), os.Stdin, os.Stdout, func(body []byte) ([]byte, error) {
		for bytes.Equal(body, []byte(`"hang"`)) {
			_ = syscall.Pause() // it computes nothing, so that no limit ends it
		}
		return body, nil
	})
	if err != nil {
		return 1
	}
	return 0
}

func tasks(t *testing.T, c clock.Clock) *Tasks {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	limits := Limits{Memory: 256 << 20, CPU: time.Second}
	all := NewTasks(TasksConfig{Command: []string{self, taskCommand}, Processes: 2, Limits: limits, Clock: c})
	t.Cleanup(all.Close)
	return all
}

// hasty has timers that are longer than the start of a child fire at once.
type hasty struct{ clock.Clock }

func (h hasty) NewTimer(d time.Duration) clock.Timer {
	if d > startWithin {
		d = 0
	}
	return h.Clock.NewTimer(d)
}

// R4-27, D53: a child that has not answered on a busy machine says nothing of what it was asked: it is asked again later.
func TestWhatStallsIsUnavailable(t *testing.T) {
	t.Parallel()
	_, err := tasks(t, hasty{clock.System()}).Do(t.Context(), 1, []byte(`"hang"`))
	if !fault.Is(err, fault.Unavailable) {
		t.Errorf("found %v, expected it to be tried again", err)
	}
}

// R4-27, D60: previews take one process at the most, and what is deployed does not wait for them. They always make room for others, and
// are not charged to their organization.
func TestPreviewsStandBehindDeploys(t *testing.T) {
	t.Parallel()
	all := tasks(t, clock.System())
	all.cpu = newCPU(2, 1, clock.System())
	ctx, cancel := context.WithCancel(t.Context())
	var group sync.WaitGroup
	defer group.Wait()
	defer cancel()
	preview := func(ctx context.Context) {
		group.Go(func() {
			if _, err := all.Preview(ctx, 1, []byte(`"hang"`)); !fault.Is(err, fault.Unavailable) {
				t.Errorf("found %v, expected the end of the context", err)
			}
		})
	}
	of := func(organization int64) (child *process) {
		all.cpu.mu.Lock()
		defer all.cpu.mu.Unlock()
		for _, one := range all.cpu.running {
			if one.organization == organization {
				child, _ = one.child.(*process)
			}
		}
		return child
	}
	preview(ctx)
	for of(previewing) == nil {
		runtime.Gosched()
	}
	all.cpu.mu.Lock()
	yields := all.cpu.running[0].child.(*process).yields
	all.cpu.mu.Unlock()
	if !yields || of(1) != nil {
		t.Errorf("a preview yields: %v; charged to its organization: %v", yields, of(1) != nil)
	}
	second, leave := context.WithCancel(ctx)
	preview(second)
	for all.slots.Waiting() == 0 {
		runtime.Gosched()
	}
	if out, err := all.Do(t.Context(), 1, []byte(`"now"`)); err != nil || string(out) != `"now"` {
		t.Errorf("found %s, %v beside a preview and behind another", out, err)
	}
	if all.slots.Free() != 1 || all.slots.Waiting() != 1 {
		t.Errorf("found %d free and %d waiting, expected one of each: one preview at a time", all.slots.Free(), all.slots.Waiting())
	}
	leave()
}
