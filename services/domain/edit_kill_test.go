package domain

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/services/domain/internal/bundle"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/handoff"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/trigger"
)

// branch is an engine whose runs do what the program of edits does to a branch: a run finds the commit of an earlier one by the trailer.
type branch struct {
	mu   sync.Mutex
	now  clock.Clock
	away bool
	// lost is how many commits are made whose answer is lost.
	lost int
	// commits are the keys of edits that were committed, and runs what runs have reported.
	commits []string
	runs    map[string]map[string]string
}

func (b *branch) Cancel(context.Context, int64, string, string) error {
	return fault.New(fault.NotFound, "no run")
}

func (b *branch) Start(_ context.Context, w handoff.Workflow) (string, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.away {
		return "", fault.New(fault.Unavailable, "no engine")
	}
	if _, known := b.runs[w.ID]; known {
		return w.ID, nil
	}
	var in struct {
		Edit     string
		Look     bool
		NotAfter int64 `json:"not_after"`
		Trailers map[string]string
	}
	if err := json.Unmarshal(w.Inputs, &in); err != nil || in.Edit == "" || in.Trailers["Lockstep-Edit"] != in.Edit {
		return "", fault.New(fault.Invalid, "found inputs %s", w.Inputs)
	}
	at := slices.Index(b.commits, in.Edit)
	switch {
	case at < 0 && in.Look:
		b.runs[w.ID] = map[string]string{"outcome": "withdrawn"}
		return w.ID, nil
	case at < 0 && b.now.Now().Unix() > in.NotAfter:
		b.runs[w.ID] = map[string]string{"outcome": "failed", "code": "late", "why": "late", "at": fmt.Sprint(b.now.Now().Unix())}
		return w.ID, nil
	case at < 0:
		at = len(b.commits)
		b.commits = append(b.commits, in.Edit)
	}
	b.runs[w.ID] = map[string]string{"outcome": "committed", "commit": shaOf(100 + at)}
	if b.lost > 0 {
		b.lost--
		b.runs[w.ID] = map[string]string{"outcome": "failed", "code": "internal", "why": "commit: no answer"}
	}
	return w.ID, nil
}

func (b *branch) WorkflowByID(_ context.Context, _ int64, id string) (handoff.WorkflowRun, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	run := handoff.WorkflowRun{ID: id, State: handoff.WorkflowCompleted, CreatedAt: b.now.Now()}
	for key, value := range b.runs[id] {
		run.Status = append(run.Status, handoff.WorkflowPair{Key: key, Value: fmt.Sprintf("%q", value)})
	}
	return run, nil
}

// withBranch is the shop whose triggers edit a branch of the test, with as many edits as there are events.
func withBranch(t *testing.T) (winter, *branch) {
	t.Helper()
	w := clocked(t)
	b := &branch{now: w.now, runs: map[string]map[string]string{}}
	w.triggers = w.editing(w.service, b)
	w.trigger(core.TriggerEvent, strings.Replace(editing, `"edit":{`, `"edit":{"per_hour":0,`, 1))
	return w, b
}

func (w winter) editing(s *service, e trigger.Engine) *trigger.UseCases {
	return trigger.New(trigger.Deps{
		Store: s.store.ForTrigger(), Rollouts: s.rollouts, Ranges: bundle.Ranges{}, Sources: bundle.Repositories{}, Engine: e, Clock: w.now,
	})
}

// pins pins the environment, which refuses rollouts, or ends that.
func (w winter) pins(on bool) {
	w.t.Helper()
	var err error
	if on {
		_, err = w.freezes.PinEnvironment(w.t.Context(), user(), w.staging.ID, "audit")
	} else {
		_, err = w.freezes.UnpinEnvironment(w.t.Context(), user(), w.staging.ID, "over")
	}
	w.ok(err)
}

// R4-28: an edit that begins while the engine is away commits nothing once a rollout would be refused: it is asked again before the commit.
func TestAnEditThatBeginsLateIsAskedAgain(t *testing.T) {
	t.Parallel()
	for _, refused := range []bool{false, true} {
		t.Run(fmt.Sprint(refused), func(t *testing.T) {
			t.Parallel()
			w, b := withBranch(t)
			b.away = true
			w.built("1", built)
			for range 120 {
				w.now.Advance(time.Minute)
				_, _, _ = w.triggers.DecideDue(t.Context()) // the engine is away
			}
			if refused {
				w.pins(true)
			}
			b.away = false
			last := w.after(time.Minute, 8)
			if refused {
				w.want(strings.HasPrefix(last, "declined: ") && strings.Contains(last, "is pinned"), true)
				w.want([]int{len(b.commits), w.rolloutCount()}, []int{0, 0})
				return
			}
			w.want([]int{len(b.commits), w.rolloutCount()}, []int{1, 1})
		})
	}
}

// R4-28: runs that begin too late are no attempts that failed: the edit is made once one begins in time, or is given up after a day, with a
// sentence that has both times.
func TestALateEditIsAskedAgainForADay(t *testing.T) {
	t.Parallel()
	for _, behind := range []time.Duration{30 * time.Minute, 48 * time.Hour} {
		t.Run(fmt.Sprint(behind), func(t *testing.T) {
			t.Parallel()
			w, e := withEditor(t)
			w.trigger(core.TriggerEvent, editing)
			w.built("1", built)
			last := ""
			for at := time.Duration(0); at < 30*time.Hour; at += 5 * time.Minute {
				answer := map[string]string{"outcome": "failed", "code": "late", "why": "late", "at": fmt.Sprint(w.now.Now().Add(10 * time.Minute).Unix())}
				if at >= 2*behind {
					answer = map[string]string{"outcome": "committed", "commit": shaOf(77)}
				}
				for len(e.answers) < len(e.order) {
					e.answers = append(e.answers, answer)
				}
				if line := w.after(5*time.Minute, 1); line != "" {
					last = line
				}
			}
			if len(e.order) < 7 {
				t.Errorf("found %d runs; want more than failures have", len(e.order))
			}
			if behind < 24*time.Hour {
				w.want(w.rolloutCount(), 1)
				return
			}
			w.want(w.rolloutCount(), 0)
			if !strings.Contains(last, "it would have committed at 20") || !strings.Contains(last, ", and may until 20") || !strings.Contains(last, "its clock another one") {
				t.Errorf("found %q", last)
			}
		})
	}
}

// R4-28: what is unchanged after a run that was only late is by others: nothing is rolled out for it.
func TestAfterALateRunUnchangedIsByOthers(t *testing.T) {
	t.Parallel()
	w, e := withEditor(t)
	w.trigger(core.TriggerEvent, editing)
	e.answers = []map[string]string{{"outcome": "failed", "code": "late", "why": "late"}, {"outcome": "unchanged", "commit": shaOf(7)}}
	w.built("1", built)
	w.want(w.after(time.Minute, 3), "declined: the files have these values already")
	w.want([]int{len(e.order), w.rolloutCount()}, []int{2, 0})
}

// R4-02, R4-28: before an edit is given up, one more run looks for the commit of an earlier one: after the last attempt, and after one that
// was stopped.
func TestACommitIsSoughtBeforeAnEditIsGivenUp(t *testing.T) {
	t.Parallel()
	for _, found := range []bool{false, true} {
		t.Run(fmt.Sprint(found), func(t *testing.T) {
			t.Parallel()
			w, e := withEditor(t)
			w.trigger(core.TriggerEvent, editing)
			for range 5 {
				e.answers = append(e.answers, map[string]string{"outcome": "failed", "code": "internal", "why": "no answer"})
			}
			look := map[string]string{"outcome": "withdrawn"}
			if found {
				look = map[string]string{"outcome": "committed", "commit": shaOf(77)}
			}
			e.answers = append(e.answers, look)
			w.built("1", built)
			last := w.after(time.Minute, 20)
			w.want(len(e.order), 6)
			w.want(strings.Contains(e.inputs[e.order[5]], `"look": true`) || strings.Contains(e.inputs[e.order[5]], `"look":true`), true)
			w.want(w.rolloutCount() == 1, found)
			if !found {
				w.want(last, "declined: the files could not be edited: no answer; it was tried 5 times")
			}
		})
	}
}

// R4-02, R4-28: of a process that is killed at any statement of an edit, whose first run commits without an answer, and whose rollout is
// refused from then on, the next one finds the commit and reports it: it is made once, recorded, and not rolled out. What begins late is
// not committed at all.
func TestAnEditSurvivesAKillAtEachStatement(t *testing.T) {
	long(t)
	t.Parallel()
	w, b := withBranch(t)
	mortal, died := w.mortal(w.now)
	dying := w.editing(mortal, b)
	kills, late := 0, 0
	for n := int64(2); ; n++ {
		if n > 400 {
			t.Fatal("the edits do not get through")
		}
		made, isLate := len(b.commits), n%3 == 0
		b.lost, b.away = 1, isLate
		w.built(fmt.Sprint(n), built)
		died.left.Store(n)
		pinned := false
		for round := range 16 {
			w.now.Advance(time.Minute)
			if round == 8 && isLate {
				w.pins(true)
				pinned, b.away = true, false
			}
			for range 3 {
				if _, _, err := dying.DecideDue(t.Context()); err != nil && died.left.Load() == 1 {
					died.left.Store(0) // the next process
					kills++
				}
			}
			if !pinned && len(b.commits) > made {
				w.pins(true)
				pinned = true
			}
		}
		through := died.left.Swap(0) > 1
		w.after(time.Minute, 4)
		want := made + 1
		if isLate {
			want, late = made, late+1
		}
		w.want([]int{len(b.commits), w.rolloutCount()}, []int{want, 0})
		w.want(w.countOf(`SELECT count(*) FROM cd_trigger_signals WHERE edit ->> 'state' = 'committed'`), len(b.commits))
		w.want(w.countOf(`SELECT count(*) FROM cd_trigger_signals WHERE state = 'pending'`), 0)
		w.want(w.countOf(`SELECT count(*) FROM cd_trigger_signals WHERE cause = $1 AND outcome = 'declined' AND reason LIKE '%is pinned%'`, fmt.Sprintf("event:/ci/%d", n)), 1)
		w.pins(false)
		if through && !isLate {
			break
		}
	}
	if kills < 20 || late < 5 {
		t.Errorf("died %d times, %d edits began late; want at many statements", kills, late)
	}
}
