package workflow_test

import (
	"encoding/json"
	"flag"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/rogpeppe/go-internal/txtar"

	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/pkg/clock/clocktest"
	"github.com/lockstep-cd/lockstep/pkg/outbox"
	"github.com/lockstep-cd/lockstep/pkg/testkit/bustest"
	"github.com/lockstep-cd/lockstep/pkg/testkit/pgtest"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/eventtype"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/execution"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/history"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/program"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/store"
)

var update = flag.Bool("update", false, "rewrite the histories of the scenarios")

// TestScenarios runs testdata/scenarios/*.txtar. The files of a scenario are
//
//   - main.star and other modules, the program, and inputs.json, its inputs;
//   - answers.json, the answers of Functions: name → list, of which the last one repeats. {"$error": …} fails; with "$times" it fails so
//     often, and then answers "sha"; {"$repeat": N} is a text of N characters;
//   - message.json, the message that the run is started with, and types.json, the schemas of event types by name, which its organization
//     has declared;
//   - script.txt, the steps that are carried out one by one whenever the run is parked: scenario_steps_test.go lists them;
//   - history.txt, what must be recorded and sent (-update rewrites it).
//
// Each scenario runs again for every commit of its first run, once with a crash before that commit and once with a crash after it that
// hides the answer (scenario_process_test.go). Every such run must record the same, and no effect may happen twice
// (scenario_world_test.go).
func TestScenarios(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/scenarios/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatal("no scenarios", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			t.Parallel()
			archive, err := txtar.ParseFile(file)
			if err != nil {
				t.Fatal(err)
			}
			pool, _ := pgtest.New(t, pgtest.Migration{Name: "outbox", FS: outbox.Migrations()},
				pgtest.Migration{Name: "workflow", FS: store.Migrations()})
			organization := int64(1)
			commits, got, kept := play(t, pool, organization, archive, crash{})
			if *update {
				rewrite(t, file, archive, got)
				keep(t, file, kept)
			} else if diff := cmp.Diff(section(archive, "history.txt"), got); diff != "" {
				t.Fatalf("history (-want +got):\n%s", diff)
			}
			for at := 1; at <= commits; at++ {
				for _, applied := range []bool{false, true} {
					organization++
					_, again, _ := play(t, pool, organization, archive, crash{at: at, applied: applied})
					if diff := cmp.Diff(got, again); diff != "" {
						t.Errorf("crash at commit %d, applied %t (-first +again):\n%s", at, applied, diff)
					}
				}
			}
		})
	}
}

// play runs a scenario to its end, in an organization of its own. It answers how many commits there were, and what was
// recorded.
func play(
	t *testing.T, pool *pgxpool.Pool, organization int64, a *txtar.Archive, c crash,
) (commits int, narrative string, kept []recording) {
	t.Helper()
	return playIn(t, pool, organization, a, func(w *world) process { return w.boot(c) })
}

// playIn is play with a first process of its own.
func playIn(
	t *testing.T, pool *pgxpool.Pool, organization int64, a *txtar.Archive, boot func(*world) process,
) (commits int, narrative string, kept []recording) {
	t.Helper()
	w := &world{
		t: t, pool: pool, organization: organization,
		clock: clocktest.New(time.Date(2026, 3, 25, 10, 0, 0, 0, time.UTC)), done: map[string]json.RawMessage{}, failures: map[string]int{},
		changed: map[string][]byte{},
	}
	if err := json.Unmarshal([]byte(section(a, "answers.json")), &w.answers); err != nil {
		t.Fatal(err)
	}
	w.answered = slices.Sorted(maps.Keys(w.answers))
	w.declare(a)
	w.start = w.startOf(a)
	p := boot(w)
	defer func() { p.stop() }()
	if _, err := p.service.Start(t.Context(), w.start); err != nil {
		t.Fatal(err)
	}
	steps := strings.Split(strings.TrimSpace(section(a, "script.txt")), "\n")
	for {
		e, crashed := w.settle(p)
		switch {
		case crashed:
			p.stop()
			p = w.boot(crash{})
		case e.State.Ended():
			w.nothingIsLeft(e)
			return p.store.commits, w.recorded(p.service, e), w.recordings(p.service, a, e)
		case len(steps) == 0 || steps[0] == "":
			_, waiting, _ := p.service.Get(t.Context(), organization, "scenario")
			t.Fatalf("the script is over, but the run %v", waiting)
		default:
			w.act(p.service, steps[0])
			p.setTime(w.clock.Now())
			steps = steps[1:]
		}
	}
}

func (w *world) startOf(a *txtar.Archive) execution.Start {
	s := execution.Start{
		Organization: w.organization, Workflow: "scenario", Inputs: []byte(section(a, "inputs.json")),
		Program: program.Program{Modules: map[string][]byte{}},
	}
	for _, f := range a.Files {
		if f.Name == mainFile {
			s.Program.Source = f.Data
		} else if strings.HasSuffix(f.Name, ".star") {
			s.Program.Modules[f.Name] = f.Data
		} else if f.Name == "message.json" {
			s.Message = new(history.Message)
			if err := json.Unmarshal(f.Data, s.Message); err != nil {
				w.t.Fatal(err)
			}
		} else if strings.HasPrefix(f.Name, "changed") {
			w.changed[f.Name] = f.Data
		}
	}
	return s
}

// declare declares the event types of a scenario for its organization.
func (w *world) declare(a *txtar.Archive) {
	w.t.Helper()
	var types map[string]json.RawMessage
	if text := section(a, "types.json"); text == "" {
		return
	} else if err := json.Unmarshal([]byte(text), &types); err != nil {
		w.t.Fatal(err)
	}
	declared := declaredTypes(w.pool, w.clock, bustest.Log(w.t))
	for name, schema := range types {
		if _, err := declared.Declare(w.t.Context(), eventtype.Type{Organization: w.organization, Name: name, Schema: schema}); err != nil {
			w.t.Fatal(err)
		}
	}
}

// settle waits until nothing happens without the script any more, or the process has crashed.
func (w *world) settle(p process) (e execution.Execution, crashed bool) {
	w.t.Helper()
	deadline := clock.System().Now().Add(within)
	for clock.System().Now().Before(deadline) {
		select {
		case <-p.gone:
			return e, true
		default:
		}
		var err error
		if e, err = p.store.Get(w.t.Context(), w.organization, "scenario"); err != nil {
			w.t.Fatal(err)
		}
		if e.State.Ended() || w.quiet(e) {
			return e, false
		}
		if clock.Sleep(w.t.Context(), clock.System(), time.Millisecond) != nil {
			break
		}
	}
	if p.quit != nil {
		p.quit()
	}
	waiting, _ := p.store.Waiting(w.t.Context(), e.ID)
	w.t.Fatalf("the run does not settle: it is %+v and waits for %+v", e, waiting)
	return e, false
}

// quiet reports whether the run is parked and waits for the script only: nothing is being matched, no timer is due and
// no relay is about to answer. It is one statement, so one moment.
func (w *world) quiet(e execution.Execution) (quiet bool) {
	w.t.Helper()
	err := w.pool.QueryRow(w.t.Context(), `
SELECT EXISTS (SELECT 1 FROM execution WHERE id = $1 AND state = 'parked')
   AND NOT EXISTS (SELECT 1 FROM timer WHERE execution = $1 AND due <= $2)
   AND NOT EXISTS (SELECT 1 FROM call WHERE execution = $1 AND function = ANY ($3))
   AND NOT EXISTS (SELECT 1 FROM execution WHERE organization = $4 AND state = 'running')`, // a child
		e.ID, w.clock.Now(), w.answered, w.organization).Scan(&quiet)
	if err != nil {
		w.t.Fatal(err)
	}
	return quiet
}

func section(a *txtar.Archive, name string) string {
	for _, f := range a.Files {
		if f.Name == name {
			return string(f.Data)
		}
	}
	return ""
}

func rewrite(t *testing.T, file string, a *txtar.Archive, narrative string) {
	t.Helper()
	a.Files = slices.DeleteFunc(a.Files, func(f txtar.File) bool { return f.Name == "history.txt" })
	a.Files = append(a.Files, txtar.File{Name: "history.txt", Data: []byte(narrative)})
	if err := os.WriteFile(file, txtar.Format(a), 0o600); err != nil {
		t.Fatal(err)
	}
}
