package store

import (
	"errors"
	"strings"
	"testing"

	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/engine"
)

// A run whose rows are damaged, in every possible way, is loaded together with an intact one.
func TestDamageIsReportedAndHarmsNoOtherRun(t *testing.T) {
	t.Parallel()
	const length = 6
	for name, tt := range map[string]struct{ damage, want string }{
		"an entry": {
			"DELETE FROM entry WHERE execution = $1 AND seq = 3",
			"missing from its history: 3; found 5 of generation 1, expected 6",
		},
		"several":           {"DELETE FROM entry WHERE execution = $1 AND seq IN (1, 3, 4)", "missing from its history: 1, 3 to 4; found 3"},
		"the last":          {"WITH l AS (UPDATE execution SET last_seq = 7 WHERE id = $1) SELECT 1", "missing from its history: 7;"},
		"all":               {"DELETE FROM entry WHERE execution = $1", "missing from its history: 1 to 6"},
		"the program":       {"UPDATE execution SET program = sha256('nothing') WHERE id = $1", "is missing"},
		"a module":          {`UPDATE execution SET modules = '{"m.star": "00"}' WHERE id = $1`, "m.star"},
		"a malformed error": {`UPDATE entry SET error = '[]' WHERE execution = $1 AND seq = 2`, "entry 2"},
		"malformed secrets": {`UPDATE execution SET secrets = '[]' WHERE id = $1`, "secrets"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newTestStore(t)
			damaged, whole := b.startRun(1), b.startRun(2)
			for _, l := range []engine.Loaded{damaged, whole} {
				c := b.recorded(l, length)
				b.commit(c)
				if _, err := b.Pool.Exec(t.Context(), "UPDATE execution SET last_seq = $2 WHERE id = $1", l.ID, length); err != nil {
					t.Fatal(err)
				}
			}
			if _, err := b.Pool.Exec(t.Context(), "ALTER TABLE execution DROP CONSTRAINT IF EXISTS execution_program_fkey"); err != nil {
				t.Fatal(err)
			}
			if _, err := b.Pool.Exec(t.Context(), tt.damage, damaged.ID); err != nil {
				t.Fatal(err)
			}
			items := []*load{{execution: damaged.ID}, {execution: whole.ID}}
			if err := b.loadAll(t.Context(), items); err != nil {
				t.Fatalf("the one that is whole was not loaded: %v", err)
			}
			if items[1].refusal != nil || len(items[1].loaded.History) != length {
				t.Errorf("the one that is whole: %v, %d entries", items[1].refusal, len(items[1].loaded.History))
			}
			_, err := b.Load(t.Context(), damaged.ID)
			damage, is := errors.AsType[*engine.Damaged](err)
			if !is || damage.Organization != 1 || damage.Workflow != damaged.Workflow || !strings.Contains(damage.What, tt.want) {
				t.Errorf("found %v, expected damage with %q", err, tt.want)
			}
			if _, err := b.Load(t.Context(), whole.ID); err != nil {
				t.Error(err)
			}
		})
	}
}

// The database refuses to answer, with an error that is not about connections, as if an operator had changed the service's rights: runs,
// with short and with long histories, are not reported as damaged.
func TestWhatCannotBeReadIsNotDamaged(t *testing.T) {
	t.Parallel()
	for _, length := range []int{3, loadEntries + 1} {
		b := newTestStore(t)
		l := b.startRun(1)
		c := b.recorded(l, length)
		b.commit(c)
		if _, err := b.Load(t.Context(), l.ID); err != nil {
			t.Fatal(err)
		}
		if _, err := b.Pool.Exec(t.Context(), "ALTER TABLE entry RENAME COLUMN recorded_at TO hidden"); err != nil {
			t.Fatal(err)
		}
		_, err := b.Load(t.Context(), l.ID)
		if damage, is := errors.AsType[*engine.Damaged](err); err == nil || is {
			t.Errorf("%d entries: found %v, %v; expected an error that is no damage", length, err, damage)
		}
		if _, err := b.Pool.Exec(t.Context(), "ALTER TABLE entry RENAME COLUMN hidden TO recorded_at"); err != nil {
			t.Fatal(err)
		}
		if _, err := b.Load(t.Context(), l.ID); err != nil {
			t.Error(err)
		}
		if _, err := b.Pool.Exec(t.Context(), `UPDATE entry SET error = '[]' WHERE execution = $1 AND seq = 2`, l.ID); err != nil {
			t.Fatal(err)
		}
		if _, err := b.Load(t.Context(), l.ID); err == nil || !strings.Contains(err.Error(), "entry 2") {
			t.Errorf("%d entries: found %v, expected the damage of entry 2", length, err)
		}
	}
}
