package sandbox

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strconv"
	"syscall"
	"time"

	seccomp "github.com/elastic/go-seccomp-bpf"
	"github.com/elastic/go-seccomp-bpf/arch"
	"github.com/landlock-lsm/go-landlock/landlock"
	landlocksys "github.com/landlock-lsm/go-landlock/landlock/syscall"
	"golang.org/x/sys/unix"
)

const (
	signalStop     = syscall.SIGSTOP
	signalContinue = syscall.SIGCONT
)

// attributes are those of a child when it is started: it ends with its service, also while it is stopped and cannot see the end of its
// input. It leads a group of its own: a signal from a terminal to the service is not for it.
func attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
}

// patientSlice is the time slice that a child asks for that computes for long: the longest that the kernel gives.
const patientSlice = 100 * time.Millisecond

// background makes all threads of a child yield at once to whatever wakes up, or ends that. From Linux 6.12 on, a thread with a shorter
// time slice preempts one with a longer slice, while one that is only nice finishes its own: that costs some milliseconds at each step
// between service and database. The child's part of the processor in the long run is still that of its niceness, so it is never starved.
// Older kernels ignore slices. Any process may undo this; niceness and policies could be undone only with privileges.
func background(pid int, on bool) error {
	attributes := unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_NORMAL, Nice: niceness}
	if on {
		attributes.Runtime = uint64(patientSlice)
	}
	seen := map[string]bool{}
	for more := true; more; { // a thread that was not looked at yet may have made another
		more = false
		tasks, err := os.ReadDir("/proc/" + strconv.Itoa(pid) + "/task")
		if err != nil {
			return fmt.Errorf("list the threads of a child: %w", err)
		}
		for _, task := range tasks {
			if seen[task.Name()] {
				continue
			}
			more, seen[task.Name()] = true, true
			tid, err := strconv.Atoi(task.Name())
			if err != nil {
				return fmt.Errorf("list the threads of a child: %w", err)
			}
			if err := unix.SchedSetAttr(tid, &attributes, 0); err != nil && !errors.Is(err, unix.ESRCH) { // it has ended
				return fmt.Errorf("set the time slice of a child: %w", err)
			}
		}
	}
	return nil
}

// isolate drops, permanently, everything that the process does not need: from here on it has its pipes, its memory and the time. The
// result names what the kernel does not support.
func isolate() Isolation {
	return Isolation{
		Undumpable:      problem(undump()),
		NoNewPrivileges: problem(landlocksys.AllThreadsPrctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)),
		Landlock:        problem(lock()),
		Seccomp:         problem(filter()), // the last one: it refuses what the others need
	}
}

func problem(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// undump closes /proc/self/mem and environ to other processes of the user, and has the kernel write no core.
func undump() error {
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return fmt.Errorf("make the process undumpable: %w", err)
	}
	return nil
}

// landlockNetwork and landlockScope are the versions of Landlock from which on it knows networks and other processes.
const (
	landlockNetwork = 4
	landlockScope   = 6
)

// lock refuses all that Landlock knows: nothing is allowed. The error says if an older kernel knows less.
func lock() error {
	version, err := landlocksys.LandlockGetABIVersion()
	if err != nil {
		return fmt.Errorf("the kernel has no Landlock, or it is not enabled (lsm=landlock,…): %w", err)
	}
	if err := landlock.V8.BestEffort().Restrict(); err != nil {
		return fmt.Errorf("enable Landlock: %w", err)
	}
	if version < landlockScope {
		return fmt.Errorf("the kernel has version %d of Landlock, which refuses files, networks only from %d on, and access to other processes only from %d on",
			version, landlockNetwork, landlockScope)
	}
	return nil
}

// needed are the system calls of a Go program that computes and speaks over open pipes: memory, threads of its own, time, signals to
// itself.
func needed() []string {
	return []string{
		"read", "write", "close", "pread64", "lseek", "fstat", "poll", "ppoll",
		"epoll_create1", "epoll_ctl", "epoll_wait", "epoll_pwait", "epoll_pwait2", "eventfd2", "pipe2",
		"mmap", "munmap", "mremap", "mprotect", "madvise", "mincore", "brk",
		"futex", "sched_yield", "sched_getaffinity", "set_robust_list", "get_robust_list", "rseq", "set_tid_address", "arch_prctl", "membarrier",
		"rt_sigaction", "rt_sigprocmask", "rt_sigreturn", "rt_sigsuspend", "sigaltstack", "restart_syscall", "gettid", "getpid", "getppid",
		"nanosleep", "clock_nanosleep", "clock_gettime", "clock_getres", "gettimeofday", "time", "getrusage", "getrandom", "getcpu",
		"setitimer", "timer_create", "timer_settime", "timer_delete",
		"getuid", "geteuid", "getgid", "getegid", "uname", "exit", "exit_group",
	}
}

// restricted are the system calls that are needed with some arguments: threads and no processes, signals to this process and no other,
// flags of open files and no owners, who would be sent signals, and names of memory.
func restricted() []seccomp.NameWithConditions {
	when := func(name string, argument uint32, operation seccomp.Operation, value uint64) seccomp.NameWithConditions {
		return seccomp.NameWithConditions{
			Name:       name,
			Conditions: seccomp.ArgumentConditions{{Argument: argument, Operation: operation, Value: value}},
		}
	}
	all := []seccomp.NameWithConditions{
		when("clone", 0, seccomp.BitsSet, unix.CLONE_THREAD),
		when("tgkill", 0, seccomp.Equal, uint64(os.Getpid())),
		when("prctl", 0, seccomp.Equal, unix.PR_SET_VMA),
	}
	for _, command := range []uint64{unix.F_GETFL, unix.F_SETFL, unix.F_GETFD, unix.F_SETFD, unix.F_DUPFD_CLOEXEC} {
		all = append(all, when("fcntl", 1, seccomp.Equal, command))
	}
	return all
}

// filter lets only what is needed through, to all threads. Everything else fails with EPERM. Threads may be made, processes may not; glibc,
// which asks with clone3 first, whose flags no filter sees, takes ENOSYS for an older kernel and asks again.
func filter() error {
	known, err := arch.GetInfo("")
	if err != nil {
		return fmt.Errorf("filter system calls: %w", err)
	}
	names := slices.DeleteFunc(needed(), func(name string) bool {
		_, has := known.SyscallNames[name]
		return !has
	})
	groups := []seccomp.SyscallGroup{{Action: seccomp.ActionAllow, Names: names, NamesWithCondtions: restricted()}}
	if _, has := known.SyscallNames["clone3"]; has {
		groups = append(groups, seccomp.SyscallGroup{Action: seccomp.ActionErrno | seccomp.Action(unix.ENOSYS), Names: []string{"clone3"}})
	}
	// The thread that loads the filter must be the one that has no_new_privs set, which all have.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	err = seccomp.LoadFilter(seccomp.Filter{
		NoNewPrivs: true, Flag: seccomp.FilterFlagTSync,
		Policy: seccomp.Policy{DefaultAction: seccomp.ActionErrno, Syscalls: groups},
	})
	if err != nil {
		return fmt.Errorf("filter system calls: %w", err)
	}
	return nil
}

// residentBytes is the memory of a process that is its own; 0 where it cannot be read.
func residentBytes(pid int) int64 {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/statm")
	if err != nil {
		return 0
	}
	fields := bytes.Fields(text)
	const resident, shared = 1, 2
	if len(fields) <= shared {
		return 0
	}
	all, _ := strconv.ParseInt(string(fields[resident]), 10, 64) // the kernel writes numbers
	others, _ := strconv.ParseInt(string(fields[shared]), 10, 64)
	return (all - others) * int64(os.Getpagesize())
}
