package main

import (
	"testing"
	"time"

	"github.com/lockstep-cd/lockstep/tools/bench/probe"
)

// TestIdlenessIsPartsOfACore also leaves out what has used nothing.
func TestIdlenessIsPartsOfACore(t *testing.T) {
	t.Parallel()
	parts := probe.Family{"sessions": 30 * time.Millisecond, "walwriter": 10 * time.Millisecond, "checkpointer": 0}
	got := idleOf(usage{service: 50 * time.Millisecond, postgres: parts.Total(), parts: parts, commits: 28}, 10*time.Second).String()
	const want = "0.90% of a core (service 0.50, PostgreSQL 0.40: sessions 0.30, walwriter 0.10) and 2.8 commits/s"
	if got != want {
		t.Errorf("found %q, expected %q", got, want)
	}
}
