package probe

import (
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestPercentiles(t *testing.T) {
	t.Parallel()
	took := make([]time.Duration, 0, 100)
	for i := 100; i > 0; i-- {
		took = append(took, time.Duration(i)*time.Millisecond)
	}
	if p50, p99 := Percentiles(took); p50 != 51 || p99 != 100 {
		t.Errorf("of 1 to 100 ms: %g and %g, expected 51 and 100", p50, p99)
	}
	if p50, p99 := Percentiles(nil); p50 != 0 || p99 != 0 {
		t.Errorf("of nothing: %g and %g, expected 0", p50, p99)
	}
}

func TestTheRoleOfAProcessOfPostgres(t *testing.T) {
	t.Parallel()
	for title, want := range map[string]string{
		"postgres: checkpointer \x00":                  "checkpointer",
		"postgres: background writer ":                 "background writer",
		"postgres: autovacuum worker postgres\x00\x00": "autovacuum worker",
		"postgres: autovacuum launcher ":               "autovacuum launcher",
		"postgres: lockstep postgres [local] idle":     "sessions",
	} {
		if got := part([]byte(title)); got != want {
			t.Errorf("%q is for %q, expected %q", title, got, want)
		}
	}
}

// TestTheTimeOfProcessesThatHaveEndedIsCounted has a session end between two readings: what it had used is with those that have ended.
func TestTheTimeOfProcessesThatHaveEndedIsCounted(t *testing.T) {
	t.Parallel()
	before := Family{"postmaster": 10, "sessions": 100, ended: 5, "walwriter": 7}
	after := Family{"postmaster": 11, "sessions": 20, ended: 95}
	got := after.Since(before)
	if diff := cmp.Diff(Family{"postmaster": 1, "sessions": -80, ended: 90, "walwriter": -7}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if total := got.Total(); total != after.Total()-before.Total() {
		t.Errorf("in all %d, expected %d", total, after.Total()-before.Total())
	}
}

// TestAProcessIsWithItsFamily starts one that only waits for the end of its input.
func TestAProcessIsWithItsFamily(t *testing.T) {
	t.Parallel()
	child := exec.CommandContext(t.Context(), "cat")
	in, err := child.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	family, err := FamilyParts(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	if _, there := family["sessions"]; !there {
		t.Errorf("found %v, expected the child as well", family)
	}
	if err := in.Close(); err != nil {
		t.Fatal(err)
	}
	if err := child.Wait(); err != nil {
		t.Fatal(err)
	}
	if _, err := ProcessorTime(0); err == nil {
		t.Error("no process has the number 0, expected an error")
	}
}
