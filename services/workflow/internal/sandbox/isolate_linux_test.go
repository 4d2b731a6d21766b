package sandbox

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"testing"

	landlocksys "github.com/landlock-lsm/go-landlock/landlock/syscall"
	"golang.org/x/sys/unix"
)

// The test's binary is also a process that tries to get out: `<binary> probe <layer> <pid> <address> <file>`. It takes the layer on, tries
// everything in attempts on the process pid, and writes what it could do.
// `<binary> hold <layer>` takes the layer on, and stays until its input ends.
const (
	probeCommand = "probe"
	holdCommand  = "hold"
)

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == probeCommand {
		probe(os.Args[2:])
		os.Exit(0)
	}
	if len(os.Args) > 1 && os.Args[1] == holdCommand {
		if err := layers()[os.Args[2]](); err != nil {
			os.Exit(1)
		}
		_, _ = os.Stdout.WriteString("!")
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}
	if len(os.Args) > 1 && os.Args[1] == serveCommand {
		if err := Serve(context.Background(), os.Stdin, os.Stdout, fakeScripts{}); err != nil {
			os.Exit(1)
		}
		os.Exit(0)
	}
	if len(os.Args) > 1 && os.Args[1] == taskCommand {
		os.Exit(serveTasks())
	}
	os.Exit(m.Run())
}

// layers are the parts of isolate by themselves, all of them, and none.
func layers() map[string]func() error {
	return map[string]func() error{
		"none":       func() error { return nil },
		"undumpable": undump,
		"landlock":   lock,
		"seccomp":    filter,
		"all": func() error {
			for _, layer := range isolate().Layers() {
				if layer.Missing != "" {
					return fmt.Errorf("%s: %s", layer.Name, layer.Missing)
				}
			}
			return nil
		},
	}
}

// attempts are what a program must not be able to do, whatever it finds in the interpreter.
func attempts(pid int, address, file string) map[string]func() error {
	socket := func(family, kind int) error {
		fd, err := unix.Socket(family, kind, 0)
		if err == nil {
			_ = unix.Close(fd)
		}
		return err
	}
	proc := "/proc/" + strconv.Itoa(pid) + "/"
	return map[string]func() error{
		"read a file":                 func() error { _, err := os.ReadFile(file); return err },
		"write a file":                func() error { return os.WriteFile(file+".new", nil, 0o600) },
		"list a folder":               func() error { _, err := os.ReadDir(filepath.Dir(file)); return err },
		"read the parent's variables": func() error { _, err := os.ReadFile(proc + "environ"); return err },
		"open the parent's memory": func() error {
			f, err := os.OpenFile(proc+"mem", os.O_RDWR, 0)
			if err == nil {
				_ = f.Close()
			}
			return err
		},
		"trace the parent": func() error { return unix.PtraceSeize(pid) },
		"read the parent's memory": func() error {
			_, err := unix.ProcessVMReadv(pid, []unix.Iovec{}, []unix.RemoteIovec{}, 0)
			return err
		},
		"signal the parent":             func() error { return unix.Kill(pid, 0) },
		"signal a thread of the parent": func() error { return unix.Tgkill(pid, pid, 0) },
		"connect":                       func() error { return dial("tcp", address) },
		"listen": func() error {
			l, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", "127.0.0.1:0")
			if err == nil {
				_ = l.Close()
			}
			return err
		},
		"have a datagram socket": func() error { return socket(unix.AF_INET, unix.SOCK_DGRAM) },
		"have a local socket":    func() error { return socket(unix.AF_UNIX, unix.SOCK_STREAM) },
		"start a program":        func() error { return exec.CommandContext(context.Background(), "/bin/true").Run() },
		"have a user namespace":  func() error { return unix.Unshare(unix.CLONE_NEWNS) },
		"be dumpable again":      func() error { return unix.Prctl(unix.PR_SET_DUMPABLE, 1, 0, 0, 0) },
		"have others sent signals": func() error {
			_, err := unix.FcntlInt(0, unix.F_SETOWN, pid)
			return err
		},
	}
}

func dial(network, address string) error {
	c, err := (&net.Dialer{}).DialContext(context.Background(), network, address)
	if err == nil {
		_ = c.Close()
	}
	return err
}

// probed is what a probe could do.
type probed struct {
	// Layer is why the layer could not be taken on.
	Layer string
	// Could are the attempts that succeeded, Otherwise those that failed with something else than a denial.
	Could     []string
	Otherwise map[string]string
	// Works is set if what a child has to do still works.
	Works bool
}

func probe(args []string) {
	pid, _ := strconv.Atoi(args[1])
	result := probed{Otherwise: map[string]string{}}
	all := attempts(pid, args[2], args[3])
	if err := layers()[args[0]](); err != nil {
		result.Layer = err.Error()
	}
	for name, try := range all {
		switch err := try(); {
		case err == nil:
			result.Could = append(result.Could, name)
		case !errors.Is(err, unix.EPERM) && !errors.Is(err, unix.EACCES):
			result.Otherwise[name] = err.Error()
		}
	}
	slices.Sort(result.Could)
	// Threads, memory and time.
	sum := make(chan int)
	for range 64 {
		go func() { sum <- len(make([]byte, 1<<20)) }()
	}
	total := 0
	for range 64 {
		total += <-sum
	}
	result.Works = total == 64<<20
	_ = json.NewEncoder(os.Stdout).Encode(result)
}

// runProbe runs a probe on this process.
func runProbe(t *testing.T, layer string) (result probed) {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			c, err := listener.Accept()
			if err != nil {
				return
			}
			_ = c.Close()
		}
	}()
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	out, err := exec.CommandContext(t.Context(), self, probeCommand, layer, strconv.Itoa(os.Getpid()), listener.Addr().String(), file).Output()
	if err != nil {
		t.Fatalf("%s: %v", layer, err)
	}
	if err := json.Unmarshal(out, &result); err != nil {
		t.Fatalf("%s: %v: %s", layer, err, out)
	}
	return result
}

// TestAChildReachesNothing tries everything from inside a process that has confined itself as a child does. Every layer is tried by itself
// as well: where a kernel has not all of them, the others hold what they can. Without any of them the attempts succeed, or the test would
// prove nothing.
func TestAChildReachesNothing(t *testing.T) {
	t.Parallel()
	free := runProbe(t, "none")
	for _, name := range []string{
		"read a file", "write a file", "list a folder", "connect", "listen", "start a program", "signal the parent",
		"read the parent's variables",
	} {
		if !slices.Contains(free.Could, name) {
			t.Errorf("a process that is not confined could not %s: %s", name, free.Otherwise[name])
		}
	}
	for layer, denied := range map[string][]string{
		"all":     nil, // everything
		"seccomp": nil,
		"landlock": {
			"read a file", "write a file", "list a folder", "connect", "start a program", "signal the parent", "signal a thread of the parent",
			"read the parent's variables", "open the parent's memory", "trace the parent",
		},
	} {
		t.Run(layer, func(t *testing.T) {
			t.Parallel()
			result := runProbe(t, layer)
			if missing := missing(layer); missing != "" {
				if result.Layer == "" {
					t.Errorf("the kernel has no %s, and a child does not say so", missing)
				}
				t.Skipf("this kernel cannot: %s", result.Layer)
			}
			if result.Layer != "" {
				t.Fatal(result.Layer)
			}
			if !result.Works {
				t.Error("what a child has to do no longer works")
			}
			for name := range attempts(0, "", "") {
				could, otherwise := slices.Contains(result.Could, name), result.Otherwise[name]
				if (denied == nil || slices.Contains(denied, name)) && (could || otherwise != "") {
					t.Errorf("%s: succeeded: %t, failed otherwise: %q, expected a denial", name, could, otherwise)
				}
			}
		})
	}
}

// missing is what this kernel lacks of a layer.
func missing(layer string) string {
	if _, err := os.Stat("/proc/sys/kernel/seccomp"); err != nil && layer != "landlock" {
		return "seccomp"
	}
	if version, err := landlocksys.LandlockGetABIVersion(); layer != "seccomp" && (err != nil || version < landlockScope) {
		return "landlock"
	}
	return ""
}

// TestAnUndumpableProcessHidesItsVariables looks at a process as another one of the same user without privileges: what a child would find
// of its service where the kernel has neither Landlock nor filters.
func TestAnUndumpableProcessHidesItsVariables(t *testing.T) {
	t.Parallel()
	self, user := reachable(t)
	for layer, want := range map[string]bool{"none": true, "undumpable": false} {
		watched := exec.CommandContext(t.Context(), self, holdCommand, layer)
		watched.SysProcAttr = user
		in, err := watched.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		out, err := watched.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := watched.Start(); err != nil {
			t.Fatal(err)
		}
		if _, err := out.Read(make([]byte, 1)); err != nil { // it is ready
			t.Fatal(err)
		}
		looking := exec.CommandContext(t.Context(), self, probeCommand, "none", strconv.Itoa(watched.Process.Pid), "127.0.0.1:1", "/nothing")
		looking.SysProcAttr = user
		text, err := looking.Output()
		if err != nil {
			t.Fatal(err)
		}
		var result probed
		if err := json.Unmarshal(text, &result); err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"read the parent's variables", "open the parent's memory"} {
			if could := slices.Contains(result.Could, name); could != want {
				t.Errorf("%s: %s: found %t, expected %t (%s)", layer, name, could, want, result.Otherwise[name])
			}
		}
		_ = in.Close()
		_ = watched.Wait()
	}
}

// reachable is this test's binary where a user without privileges can run it, and what makes a process one of that user's.
func reachable(t *testing.T) (path string, user *syscall.SysProcAttr) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if os.Geteuid() != 0 {
		return self, nil
	}
	dir, err := os.MkdirTemp("", "sandbox") //nolint:usetesting // that of a test is closed to others
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	binary, err := os.ReadFile(self)
	if err == nil {
		err = os.Chmod(dir, 0o755) // for the other user
	}
	path = filepath.Join(dir, "probe")
	if err == nil {
		// A process that another test starts now would have the file open for writing until it runs its program, and the file could not be run.
		syscall.ForkLock.RLock()
		err = os.WriteFile(path, binary, 0o755)
		syscall.ForkLock.RUnlock()
	}
	if err != nil {
		t.Fatal(err)
	}
	const nobody = 65534
	return path, &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
}
