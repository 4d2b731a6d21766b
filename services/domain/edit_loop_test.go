package domain

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/testkit/pgtest"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/trigger"
)

// commits has runs that have begun commit, and has built called for each.
func (e *editor) commits(built func(commit string)) {
	for len(e.answers) < len(e.order) {
		commit := shaOf(100 + len(e.answers))
		e.answers = append(e.answers, map[string]string{"outcome": "committed", "commit": commit})
		built(commit)
	}
}

// D58, R4-28: CI that builds each commit of a trigger's edits, with a new tag each time, and says which it has built, ends after one turn:
// wherever the event names the commit, and also where it comes before the answer of the edit.
func TestABuildOfAnEditEditsNothing(t *testing.T) {
	t.Parallel()
	const data = `{"build":{"tag":"1.%d","digest":"sha256:x"},%s}`
	for name, event := range map[string]func(n int, commit string) trigger.Event{
		"member": func(n int, commit string) trigger.Event {
			return trigger.Event{ID: fmt.Sprint(n), Source: "/ci", Data: json.RawMessage(fmt.Sprintf(data, n, fmt.Sprintf(`"commit":%q`, commit)))}
		},
		"list, within text, in capitals": func(n int, commit string) trigger.Event {
			list := fmt.Sprintf(`"of":[{"see":["built\nhttps://git.test/shop/config/commit/%s#x"]}]`, strings.ToUpper(commit))
			return trigger.Event{ID: fmt.Sprint(n), Source: "/ci", Data: json.RawMessage(fmt.Sprintf(data, n, list))}
		},
		"name": func(n int, commit string) trigger.Event {
			return trigger.Event{ID: fmt.Sprint(n), Source: "/ci", Data: json.RawMessage(fmt.Sprintf(data, n, fmt.Sprintf(`%q:1`, "git:"+commit)))}
		},
		"source": func(n int, commit string) trigger.Event {
			return trigger.Event{ID: fmt.Sprint(n), Source: "/ci/" + commit, Data: json.RawMessage(fmt.Sprintf(data, n, `"a":1`))}
		},
		"subject": func(n int, commit string) trigger.Event {
			return trigger.Event{
				ID: fmt.Sprint(n), Source: "/ci", Subject: "commit " + commit, Data: json.RawMessage(fmt.Sprintf(data, n, `"a":1`)),
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, e := withEditor(t)
			w.trigger(core.TriggerEvent, editing)
			n := 0
			build := func(commit string) {
				n++
				one := event(n, commit)
				one.Type = "build.passed"
				_, err := w.triggers.SendEvent(t.Context(), user(), one)
				w.ok(err)
			}
			build(shaOf(1))
			last := ""
			for range 20 {
				e.commits(build)
				if line := w.after(time.Minute, 1); line != "" {
					last = line
				}
			}
			w.want([]int{n, len(e.order), w.rolloutCount()}, []int{2, 1, 1})
			w.want(strings.HasPrefix(last, "declined: it names commit 000000000000, which is the trigger's own edit because of event:/ci"), true)
			w.want(w.triggers.Edits()["returned"], int64(1))
			w.verifyJournal(w.active())
		})
	}
}

// R4-28: only the trigger's own recorded commits count: not what a sender claims, and not the commit of another trigger, which a pipeline
// may well build.
func TestABuildOfAnotherCommitIsEdited(t *testing.T) {
	t.Parallel()
	w, e := withEditor(t)
	w.trigger(core.TriggerEvent, editing)
	_, err := w.triggers.PutTrigger(t.Context(), user(), trigger.NewTrigger{
		ApplicationID: w.application.ID, Name: "next", Kind: core.TriggerEvent, Enabled: true,
		Config: json.RawMessage(strings.Replace(editing, "build.passed", "next.passed", 1)),
	})
	w.ok(err)
	w.built("1", built)
	w.after(0, 1)
	e.commits(func(string) {})
	w.after(time.Minute, 2)
	w.want(w.countOf(`SELECT count(*) FROM cd_trigger_signals WHERE edit ->> 'commit' = $1`, shaOf(100)), 1)
	_, err = w.triggers.SendEvent(t.Context(), user(), trigger.Event{
		ID: "2", Source: "/ci", Type: "next.passed", Data: json.RawMessage(strings.Replace(built, "1.1", shaOf(100), 1)),
	})
	w.ok(err)
	w.built("3", strings.Replace(built, "1.1", shaOf(7), 1))
	// What is unchanged has the commit of others.
	e.answers = append(e.answers, map[string]string{"outcome": "unchanged", "commit": shaOf(8)}, map[string]string{"outcome": "unchanged", "commit": shaOf(8)})
	w.after(time.Minute, 3)
	w.built("4", strings.Replace(built, "1.1", shaOf(8), 1))
	w.after(time.Minute, 2)
	w.want(len(e.order), 4)
	w.want(w.triggers.Edits()["returned"], int64(0))
}

// R4-28: a person's push on top of the trigger's own edit names that one, too, as what was before. Its build is edited: by the member that
// the trigger has for it, and without one, since the event names another hash as well.
func TestABuildOnTopOfAnEditIsEdited(t *testing.T) {
	t.Parallel()
	const data = `{"build":{"tag":"1.%d","digest":"sha256:%s","sha":%q},"before":%q}`
	for name, member := range map[string]string{"no member": "", "a member": `"commit":"build.sha",`} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, e := withEditor(t)
			w.trigger(core.TriggerEvent, strings.Replace(editing, `"edit":{`, `"edit":{`+member, 1))
			digest := strings.Repeat("e", 64)
			w.built("1", fmt.Sprintf(data, 1, digest, shaOf(1), shaOf(2)))
			w.after(0, 1)
			e.commits(func(string) {})
			w.after(time.Minute, 2)
			own := shaOf(100)
			w.built("2", fmt.Sprintf(data, 2, digest, shaOf(3), own))
			w.after(time.Minute, 2)
			w.want([]int{len(e.order), int(w.triggers.Edits()["returned"])}, []int{2, 0})
			e.commits(func(string) {})
			w.after(time.Minute, 2)
			// What was built is the edit itself: with the digest of an image beside it, and with its parent where the trigger has a member.
			before := own
			if member != "" {
				before = shaOf(3)
			}
			w.built("3", fmt.Sprintf(data, 3, digest, own, before))
			w.after(time.Minute, 2)
			w.want([]int{len(e.order), int(w.triggers.Edits()["returned"])}, []int{2, 1})
		})
	}
}

// editsLimitedTo is the trigger of these tests with a limit.
func editsLimitedTo(n string) string {
	return strings.Replace(editing, `"edit":{`, `"edit":{"per_hour":`+n+`,`, 1)
}

// R4-28: CI that hides which commit it has built is slowed down: no more edits begin within an hour than the trigger may make, the order
// stays, and a higher limit counts at once.
func TestEditsHaveALimitAnHour(t *testing.T) {
	t.Parallel()
	w, e := withEditor(t)
	w.trigger(core.TriggerEvent, editsLimitedTo("3"))
	n := 0
	build := func(string) {
		n++
		w.built(fmt.Sprint(n), fmt.Sprintf(`{"build":{"tag":"1.%d","digest":"sha256:x"}}`, n))
	}
	build("")
	var hours []int
	for range 4 {
		for range 60 {
			e.commits(build)
			w.now.Advance(time.Minute)
			w.decide()
		}
		hours = append(hours, len(e.order))
	}
	if hours[0] != 3 || hours[3] > 12 || hours[3] < 10 {
		t.Errorf("found %v edits after each hour; want 3 in each", hours)
	}
	w.trigger(core.TriggerEvent, editsLimitedTo("0"))
	for range 10 {
		e.commits(func(string) {})
		w.after(time.Minute, 1)
	}
	w.want(len(e.order), n)
	w.want(w.countOf(`SELECT count(*) FROM cd_trigger_signals WHERE state = 'pending' AND edit ->> 'state' IS NULL`), 0)
	w.want(w.countOf(`SELECT count(*) FROM cd_trigger_signals a JOIN cd_trigger_signals b ON a.id < b.id AND a.edit_begun > b.edit_begun`), 0)
}

// R4-28: while the limit is reached, the newest event waits, and those before it give way to it; one about the trigger's own edit is not
// the newest. What waits has a sentence that is true of it, and each that has waited is counted once.
func TestTheNewestEventWaitsForTheLimit(t *testing.T) {
	t.Parallel()
	w, e := withEditor(t)
	w.trigger(core.TriggerEvent, editsLimitedTo("1"))
	send := func(n int, commit string) {
		w.built(fmt.Sprint(n), fmt.Sprintf(`{"build":{"tag":"1.%d","digest":"sha256:x"},"commit":%q}`, n, commit))
	}
	send(1, "")
	w.after(0, 1)
	e.commits(func(string) {})
	w.after(time.Minute, 2)
	for n := 2; n <= 8; n++ {
		send(n, "")
		if n%2 == 0 {
			w.after(time.Minute, 1)
		}
	}
	send(9, shaOf(100))
	w.after(time.Minute, 3)
	w.want(w.countOf(`SELECT count(*) FROM cd_trigger_signals WHERE state = 'pending'`), 2)
	w.want(w.countOf(`SELECT count(*) FROM cd_trigger_signals WHERE state = 'pending' AND reason LIKE 'the limit of edits is reached: at most 1 begin within an hour%'`), 2)
	w.want(w.countOf(`SELECT count(*) FROM cd_trigger_signals WHERE outcome = 'declined' AND edit ->> 'state' = 'failed'
		AND reason LIKE 'it waited for the limit of edits%, and gives way to the newer event /ci/%, which sets the same values'`), 6)
	w.want([]int{len(e.order), int(w.triggers.Edits()["limited"])}, []int{1, 7})
	w.after(time.Minute, 60)
	w.want(len(e.order), 2)
	w.want(strings.Contains(e.inputs[e.order[1]], `"value":"1.8"`), true)
	e.commits(func(string) {})
	w.after(time.Minute, 2)
	w.want(w.countOf(`SELECT count(*) FROM cd_trigger_signals WHERE state = 'pending'`), 0)
	w.want([]int{len(e.order), int(w.triggers.Edits()["limited"]), int(w.triggers.Edits()["returned"])}, []int{2, 7, 1})
}

// R4-28: what changed nothing does not count for the limit, and a clock that was set back does not make it longer.
func TestWhatCountsForTheLimit(t *testing.T) {
	t.Parallel()
	w, e := withEditor(t)
	w.trigger(core.TriggerEvent, editsLimitedTo("2"))
	for n := range 4 {
		e.answers = append(e.answers, map[string]string{"outcome": "unchanged", "commit": shaOf(7)})
		w.built(fmt.Sprint(n), built)
		w.after(time.Second, 4)
	}
	w.want(len(e.order), 4)
	for n := range 3 {
		w.built(fmt.Sprint("c", n), built)
		w.after(time.Second, 2)
		e.commits(func(string) {})
		w.after(time.Second, 4)
	}
	w.want(len(e.order), 6)
	_, err := w.pool.Exec(t.Context(), `UPDATE cd_trigger_signals SET edit_begun = edit_begun + interval '1 day'`)
	w.ok(err)
	w.after(time.Minute, 1)
	w.want(len(e.order), 7)
}

// R4-28: the commits of a trigger, and how many edits began within an hour, are found by index as the role of the service, under row
// security, among many decisions.
func TestEditsAreFoundByIndex(t *testing.T) {
	t.Parallel()
	w, _ := withEditor(t)
	w.trigger(core.TriggerEvent, editing)
	_, err := w.pool.Exec(t.Context(), `INSERT INTO cd_trigger_signals (organization_id, trigger_id, cause, at, due_at, state, outcome, reason, decided_at, edit, edit_begun)
		SELECT t.organization_id, t.id, 'event:/ci/' || n, now(), now(), 'decided', 'declined', 'x', now(),
			jsonb_build_object('inputs', jsonb_build_object('x', repeat(md5(n::text), 60)), 'state', 'committed', `+
		`'commit', md5(n::text) || '00000000'), now() - n * interval '1 minute'
		FROM cd_triggers t, generate_series(1, 8000) n WHERE t.kind = 'event'`)
	w.ok(err)
	_, err = w.pool.Exec(t.Context(), `ANALYZE cd_trigger_signals`)
	w.ok(err)
	pool := pgtest.As(t, w.db, role)
	trigger := int64(w.countOf(`SELECT max(trigger_id) FROM cd_trigger_signals`))
	for _, a := range []asked{
		{
			sql: `-- name: EditOfCommit :many
			SELECT cause, edit_commit::text AS commit FROM cd_trigger_signals
			WHERE organization_id = $1 AND trigger_id = $2 AND edit_commit IS NOT NULL AND edit_commit = ANY($3::text[])`,
			args: []any{int64(org), trigger, []string{shaOf(1), shaOf(2)}},
		},
		{
			sql: `-- name: EditBegun :one
			SELECT edit_begun::timestamptz AS begun FROM cd_trigger_signals
			WHERE organization_id = $1 AND trigger_id = $2 AND edit_commit IS NOT NULL AND edit_begun > $3 AND edit_begun <= $4
			ORDER BY edit_begun DESC OFFSET $5::integer LIMIT 1`,
			args: []any{int64(org), trigger, time.Now().Add(-time.Hour), time.Now(), 29},
		},
	} {
		rows, err := visits(t.Context(), pool, a)
		w.ok(err)
		if rows > 100 {
			t.Errorf("%s visits %v rows of 8,000", a.name(), rows)
		}
	}
}
