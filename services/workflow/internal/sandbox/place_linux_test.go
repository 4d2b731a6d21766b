package sandbox

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strconv"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/pkg/testkit/wait"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/history"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/program"
)

// serveCommand makes the test's binary a child with fakeScripts.
const serveCommand = "serve"

// fakeScripts has runs that hold as many MiB as their program says, and record the process that they are in.
type fakeScripts struct{}

func (fakeScripts) Check(program.Program, []byte) error { return nil }

func (fakeScripts) Inspect(program.Program) (program.Outline, error) { return program.Outline{}, nil }

func (fakeScripts) Open(p program.Program, _ []byte, _ program.Environment) (program.Machine, error) {
	size, err := strconv.Atoi(string(p.Source))
	return &fakeMachine{size: size}, err
}

type fakeMachine struct {
	size  int
	held  []byte
	taken bool
	ended bool
}

func (m *fakeMachine) Replay([]history.Entry) error {
	m.held = make([]byte, m.size<<20)
	for i := 0; i < len(m.held); i += 4096 {
		m.held[i] = 1
	}
	return nil
}

func (m *fakeMachine) Pending() []history.Op {
	if m.ended {
		return nil
	}
	return []history.Op{{Ref: history.OpRef{Index: 1}}}
}

func (m *fakeMachine) Complete(history.Completion) bool { m.ended = true; return true }

func (m *fakeMachine) Stop(program.Stopped) bool { m.ended = true; return true }

func (*fakeMachine) Ending() bool { return false }

func (*fakeMachine) Result() json.RawMessage { return nil }

func (m *fakeMachine) Take() ([]history.Entry, []history.Emit) {
	if m.taken {
		return nil, nil
	}
	m.taken = true
	return []history.Entry{{Value: json.RawMessage(strconv.Itoa(os.Getpid()))}}, nil
}

func (m *fakeMachine) Outcome() (bool, error) { return m.ended, nil }

func (m *fakeMachine) Close() { m.held = nil }

func fakeChildren(t *testing.T, c Config) *Scripts {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	c.Command, c.Here, c.Clock, c.Log = []string{self, serveCommand}, fakeScripts{}, clock.System(), slog.New(slog.DiscardHandler)
	c.Trusted = func(program.Program) bool { return false }
	s := New(c)
	t.Cleanup(s.Close)
	return s
}

// begin opens a run and has it park, and answers the process that it is in.
func begin(s *Scripts, organization int64, run, size int) (m program.Machine, pid string, err error) {
	m, err = s.Open(program.Program{Source: []byte(strconv.Itoa(size))},
		nil, program.Environment{Ref: fmt.Sprint(organization, "-", run), Organization: organization})
	if err != nil {
		return nil, "", err
	}
	if err := m.Replay(nil); err != nil {
		return m, "", err
	}
	entries, _ := m.Take()
	if len(entries) != 1 {
		return m, "", fmt.Errorf("found %d entries", len(entries))
	}
	return m, string(entries[0].Value), nil
}

// TestAChildIsOfOneOrganization has more organizations than there may be children, all of them at once and again and again. No child ever
// runs programs of two, everybody's turn comes, and a run whose child was ended for others gets an error that says so.
func TestAChildIsOfOneOrganization(t *testing.T) {
	t.Parallel()
	const organizations, children, rounds = 6, 3, 5
	s := fakeChildren(t, Config{Processes: 2, Children: children})
	var mu sync.Mutex
	whose := map[string]int64{}
	moved := 0
	var group sync.WaitGroup
	for organization := int64(1); organization <= organizations; organization++ {
		group.Go(func() {
			for i := 0; i < rounds; {
				m, pid, err := begin(s, organization, i, 0)
				interrupted, is := errors.AsType[*program.Interrupted](err)
				if m != nil {
					m.Complete(history.Completion{Op: history.OpRef{Index: 1}})
					if _, failure := m.Outcome(); failure != nil {
						interrupted, is = errors.AsType[*program.Interrupted](failure)
						err = failure
					}
					m.Close()
				}
				mu.Lock()
				if known := whose[pid]; pid != "" && known != 0 && known != organization {
					t.Errorf("process %s has had programs of organizations %d and %d", pid, known, organization)
				}
				whose[pid] = organization
				switch {
				case err == nil:
					i++
				case is && interrupted.Moved:
					moved++ // it is replayed
				default:
					t.Errorf("organization %d, run %d: %v", organization, i, err)
					i++
				}
				mu.Unlock()
				if n := len(s.places.all()); n > children {
					t.Errorf("found %d children, expected at most %d", n, children)
				}
			}
		})
	}
	group.Wait()
	if s.Moved() == 0 {
		t.Error("no child was ever ended for another organization")
	}
	t.Logf("%d processes, %d runs moved", len(whose), moved)
}

// TestWhatAllChildrenHoldIsBounded has runs that hold more together than all may. They end nevertheless, and those that are parked make
// room.
func TestWhatAllChildrenHoldIsBounded(t *testing.T) {
	t.Parallel()
	const budget, each, organizations = 200 << 20, 64, 6
	s := fakeChildren(t, Config{Processes: 2, Children: 16, Memory: budget})
	for organization := int64(1); organization <= organizations; organization++ {
		m, _, err := begin(s, organization, 1, each)
		if err != nil {
			t.Fatalf("organization %d: %v", organization, err)
		}
		defer m.Close()
		wait.For(t, "the children make room", func() bool {
			total := int64(0)
			for _, c := range s.places.all() {
				total += residentBytes(c.pid())
			}
			return total <= budget
		})
	}
	if s.Moved() == 0 {
		t.Error("nothing made room")
	}
}

// TestAllThreadsOfAChildMakeRoom has a child yield and go back, which needs no privilege: all its threads have the long time slice in
// between, and the same niceness throughout, so that it is never starved.
func TestAllThreadsOfAChildMakeRoom(t *testing.T) {
	t.Parallel()
	s := fakeChildren(t, Config{})
	m, pid, err := begin(s, 1, 1, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	child, err := strconv.Atoi(pid)
	if err != nil {
		t.Fatal(err)
	}
	for _, on := range []bool{true, false} {
		if err := background(child, on); err != nil {
			t.Fatal(err)
		}
		threads, err := os.ReadDir("/proc/" + pid + "/task")
		if err != nil || len(threads) < 2 {
			t.Fatalf("found %d threads, expected several: %v", len(threads), err)
		}
		for _, thread := range threads {
			tid, err := strconv.Atoi(thread.Name())
			if err != nil {
				t.Fatal(err)
			}
			has, err := unix.SchedGetAttr(tid, 0)
			if err != nil {
				t.Fatal(err)
			}
			if has.Runtime == 0 {
				t.Skip("this kernel has no time slices of threads")
			}
			if long := has.Runtime == uint64(patientSlice); long != on || has.Nice != niceness || has.Policy != unix.SCHED_NORMAL {
				t.Errorf("yields %t, thread %d: found slice %d, niceness %d and policy %d", on, tid, has.Runtime, has.Nice, has.Policy)
			}
		}
	}
}
