package postgres

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"time"
)

// dieWithParent has the kernel end the server when this process ends, however it ends.
func dieWithParent(attr *syscall.SysProcAttr, fast bool) {
	attr.Pdeathsig = syscall.SIGINT // a fast shutdown: everything is written
	if fast {
		attr.Pdeathsig = syscall.SIGQUIT
	}
}

// endOrphans ends what a killed process left running on the data: normally it is on its way out already. The caller
// holds the folder's lock, so nobody alive uses it. A pid file that is left then names no server of this folder, though
// perhaps, by chance, another living process, which would keep PostgreSQL from starting: it is removed.
func endOrphans(ctx context.Context, data string) error {
	for _, step := range []struct {
		signal syscall.Signal
		within time.Duration
	}{{0, 3 * time.Second}, {syscall.SIGINT, 10 * time.Second}, {syscall.SIGKILL, 5 * time.Second}} {
		if step.signal != 0 {
			for _, pid := range processesIn(data) {
				_ = syscall.Kill(pid, step.signal) // gone by now is as good
			}
		}
		if waitUntil(ctx, step.within, func() bool { return len(processesIn(data)) == 0 }) {
			_ = os.Remove(filepath.Join(data, "postmaster.pid"))
			return nil
		}
	}
	return fmt.Errorf("a server left by a killed process does not end: processes %v", processesIn(data))
}

// processesIn are the processes whose working directory is dir: PostgreSQL's are in their data folder.
func processesIn(dir string) []int {
	links, _ := filepath.Glob("/proc/[0-9]*/cwd") // the pattern is well formed
	var pids []int
	for _, link := range links {
		if at, err := os.Readlink(link); err != nil || at != dir {
			continue
		}
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(link)))
		if exe, _ := os.Readlink(filepath.Join(filepath.Dir(link), "exe")); err == nil && filepath.Base(exe) == "postgres" {
			pids = append(pids, pid)
		}
	}
	return pids
}
