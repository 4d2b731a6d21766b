package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// usage is what an installation has used up so far.
type usage struct {
	// service, postgres and client are processor time; client includes the embedded NATS server.
	service, postgres, client time.Duration
	// wal is in bytes.
	wal, commits int64
}

// usage reads all meters. Processes of PostgreSQL that have ended count with the one that started them.
func (w *world) usage(ctx context.Context) (usage, error) {
	var u usage
	var err error
	if u.service, err = processorTime(w.service.Process.Pid); err != nil {
		return u, err
	}
	if u.postgres, err = familyTime(w.database.PID()); err != nil {
		return u, err
	}
	var self syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &self); err != nil {
		return u, err
	}
	u.client = time.Duration(self.Utime.Nano() + self.Stime.Nano())
	err = w.db.QueryRow(ctx, `SELECT pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0')::bigint,
	(SELECT xact_commit FROM pg_stat_database WHERE datname = current_database())`).Scan(&u.wal, &u.commits)
	return u, err
}

func (u usage) since(before usage) usage {
	return usage{u.service - before.service, u.postgres - before.postgres, u.client - before.client, u.wal - before.wal, u.commits - before.commits}
}

// ticksPerSecond is the kernel's USER_HZ, which is 100 on every Linux there is.
const ticksPerSecond = 100

// processorTime is what a process has used, with its children that have ended.
func processorTime(pid int) (time.Duration, error) {
	fields, err := stat(pid)
	if err != nil {
		return 0, err
	}
	var ticks int64
	for _, field := range fields[11:15] { // utime, stime, cutime, cstime
		n, err := strconv.ParseInt(field, 10, 64)
		if err != nil {
			return 0, fmt.Errorf("/proc/%d/stat: %w", pid, err)
		}
		ticks += n
	}
	return time.Duration(ticks) * time.Second / ticksPerSecond, nil
}

// stat are the fields of /proc/PID/stat after the name, which may hold anything.
func stat(pid int) ([]string, error) {
	b, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	if err != nil {
		return nil, err
	}
	fields := strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:]))
	if len(fields) < 15 {
		return nil, fmt.Errorf("/proc/%d/stat has %d fields, expected at least 15", pid, len(fields))
	}
	return fields, nil
}

// familyTime is the time of a process and of its children.
func familyTime(parent int) (time.Duration, error) {
	total, err := processorTime(parent)
	if err != nil {
		return 0, err
	}
	all, err := os.ReadDir("/proc")
	if err != nil {
		return 0, err
	}
	for _, entry := range all {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil {
			continue
		}
		fields, err := stat(pid)
		if err != nil || fields[1] != strconv.Itoa(parent) {
			continue // not ours, or gone meanwhile
		}
		if spent, err := processorTime(pid); err == nil {
			total += spent
		}
	}
	return total, nil
}

// load is the load average of the last minute.
func load() float64 {
	b, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return 0
	}
	first, _, _ := strings.Cut(string(b), " ")
	f, err := strconv.ParseFloat(first, 64)
	if err != nil {
		return 0
	}
	return f
}
