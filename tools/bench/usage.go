package main

import (
	"context"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/lockstep-cd/lockstep/tools/bench/probe"
)

// usage is what an installation has used up so far.
type usage struct {
	// service, postgres and client are processor time: of all processes of the service, and client includes the embedded NATS server.
	service, postgres, client time.Duration
	// parts are PostgreSQL's.
	parts probe.Family
	// wal is in bytes.
	wal, commits int64
}

// usage reads all meters. Processes of PostgreSQL that have ended count with the one that started them.
func (w *world) usage(ctx context.Context) (usage, error) {
	var u usage
	var err error
	for _, service := range w.services() {
		used, err := probe.ProcessorTime(service.Process.Pid)
		if err != nil {
			return u, err
		}
		u.service += used
	}
	if u.parts, err = probe.FamilyParts(w.database.PID()); err != nil {
		return u, err
	}
	u.postgres = u.parts.Total()
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
	return usage{
		u.service - before.service, u.postgres - before.postgres, u.client - before.client, u.parts.Since(before.parts), u.wal - before.wal,
		u.commits - before.commits,
	}
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
