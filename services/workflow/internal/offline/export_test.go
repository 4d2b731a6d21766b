package offline

import (
	"strings"
	"testing"

	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/program"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/script"
)

// OpenForTest opens the program of a recording, with the token ch_AAA… for channels.
func OpenForTest(t *testing.T, r Recording) program.Machine {
	t.Helper()
	env := r.environment()
	env.Begun, env.Token = false, func() string { return "ch_" + strings.Repeat("A", 26) }
	m, err := script.New(script.Limits{}).Open(ProgramOf(r.Program), r.Inputs, env)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.Close)
	return m
}
