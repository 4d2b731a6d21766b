package domain

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/lockstep-cd/lockstep/pkg/pattern"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/trigger"
)

// reacting is the configuration of a trigger, as the test compares it.
type reacting struct {
	Types   []string          `json:"types"`
	Sources []string          `json:"sources,omitempty"`
	Data    map[string]string `json:"data,omitempty"`
}

func (r reacting) matches(e trigger.Event, data map[string]string) bool {
	one := func(list []string, text string) bool {
		return slices.ContainsFunc(list, func(p string) bool { return pattern.Match(p, text) })
	}
	for path, want := range r.Data {
		if found, exists := data[path]; !exists || !pattern.Match(want, found) {
			return false
		}
	}
	return one(r.Types, e.Type) && (len(r.Sources) == 0 || one(r.Sources, e.Source))
}

// D58: an event reaches each trigger that it matches and no other, whatever patterns they have: the keys by which they are found leave none
// out.
func TestAnEventFindsEveryTriggerThatItMatches(t *testing.T) {
	t.Parallel()
	w := clocked(t)
	const seed = 7
	random := rand.New(rand.NewPCG(seed, seed)) //nolint:gosec // a test
	text := func(letters []string, most int) string {
		var b strings.Builder
		for range 1 + random.IntN(most) {
			b.WriteString(letters[random.IntN(len(letters))])
		}
		return b.String()
	}
	letters := []string{"a", "b", "ü", "."}
	patterns := append(slices.Clone(letters), "*", "a", "b")
	var all []reacting
	for n := range trigger.MaxTriggers - 1 {
		r := reacting{Types: []string{text(patterns, 4), text(letters, 3)}, Data: map[string]string{}}
		for range random.IntN(3) {
			r.Sources = append(r.Sources, text(patterns, 5))
		}
		for range random.IntN(3) {
			r.Data[[]string{"x", "y", "z.a"}[random.IntN(3)]] = text(patterns, 2)
		}
		config, err := json.Marshal(r)
		w.ok(err)
		_, err = w.triggers.PutTrigger(t.Context(), user(), trigger.NewTrigger{
			ApplicationID: w.application.ID, Name: fmt.Sprintf("t%d", n), Kind: core.TriggerEvent, Config: config, Enabled: true,
		})
		w.ok(err)
		all = append(all, r)
	}
	matched := 0
	for n := range 400 {
		data := map[string]string{"x": text(letters, 2), "y": text(letters, 2), "z.a": text(letters, 2)}
		e := trigger.Event{ID: fmt.Sprint(n), Source: text(append(letters, "*"), 5), Type: text(append(letters, "*"), 4)}
		var err error
		e.Data, err = json.Marshal(map[string]any{"x": data["x"], "y": data["y"], "z": map[string]string{"a": data["z.a"]}, "list": []int{1}})
		w.ok(err)
		want := 0
		for _, r := range all {
			if r.matches(e, data) {
				want++
			}
		}
		matched += want
		found, err := w.triggers.SendEvent(t.Context(), user(), e)
		w.ok(err)
		if found.Triggers != want {
			t.Errorf("seed %d, event %d (%q of %q with %s): reached %d triggers, want %d", seed, n, e.Type, e.Source, e.Data, found.Triggers, want)
		}
	}
	if matched < 100 {
		t.Errorf("%d matches in 400 events; expected enough to compare", matched)
	}
}

// D58: a trigger is found by the rarest of its conditions, and by none while it is off or removed; each saving changes how it is found.
func TestTheKeysOfATriggerFollowItsConfiguration(t *testing.T) {
	t.Parallel()
	w := clocked(t)
	other := w.another("other", 5000)
	save := func(application int64, config string, enabled bool) {
		t.Helper()
		_, err := w.triggers.PutTrigger(t.Context(), user(), trigger.NewTrigger{
			ApplicationID: application, Name: "builds", Kind: core.TriggerEvent, Config: json.RawMessage(config), Enabled: enabled,
		})
		w.ok(err)
	}
	keys := func(application int64) (all []string) {
		t.Helper()
		rows, err := w.pool.Query(t.Context(), `SELECT k.type_key || ' ' || k.detail_key FROM cd_trigger_keys k
			JOIN cd_triggers t ON t.id = k.trigger_id WHERE t.application_id = $1 ORDER BY 1`, application)
		w.ok(err)
		defer rows.Close()
		for rows.Next() {
			var one string
			w.ok(rows.Scan(&one))
			all = append(all, one)
		}
		w.ok(rows.Err())
		return all
	}
	save(w.application.ID, `{"types":["build.passed"],"data":{"branch":"main","name":"shop"}}`, true)
	save(other.application.ID, `{"types":["build.passed"],"data":{"branch":"main","name":"other"}}`, true)
	w.want(keys(w.application.ID), []string{"=build.passed dbranch=main"}) // the first one cannot know
	w.want(keys(other.application.ID), []string{"=build.passed dname=other"})
	save(w.application.ID, `{"types":["build.*","*"],"sources":["/ci/shop","/ci/shopping*"],"data":{"branch":"ma*"}}`, true)
	w.want(keys(w.application.ID), []string{"^ s=/ci/shop", "^ s^/ci/shop", "^buil s=/ci/shop", "^buil s^/ci/shop"})
	save(w.application.ID, `{"types":["build.*"]}`, true)
	w.want(keys(w.application.ID), []string{"^buil "})
	save(w.application.ID, `{"types":["build.*"]}`, false)
	w.want(len(keys(w.application.ID)), 0)
	save(w.application.ID, `{"types":["build.*"]}`, true)
	_, err := w.triggers.RemoveTrigger(t.Context(), user(), w.application.ID, "builds", "")
	w.ok(err)
	w.want(len(keys(w.application.ID)), 0)
}
