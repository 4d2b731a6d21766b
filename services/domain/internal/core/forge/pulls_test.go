package forge

import (
	"testing"
	"time"
)

// D63: of a pull request on which commands are written all the time, the plan is written all the same, and its comment with answers is not
// written all the time.
func TestAnswersAndPlansTakeTurns(t *testing.T) {
	t.Parallel()
	now := time.Date(2027, 1, 2, 3, 4, 5, 0, time.UTC)
	hooks := []Hook{{ID: 7, Repositories: []string{"git.test/*"}, Plans: true, Commands: true}}
	p := Pull{HookID: 7, Name: "git.test/shop/config", Revision: 1}
	var got []Step
	for range 4 {
		p.Answers++
		p.Revision++
		if p.Step = p.next(hooks); p.Step == StepAnswer {
			p.AnswersBegun, p.AnswersWritten = p.Answers, p.Answers
			p.Answers++
		} else {
			p.BegunRevision, p.Step = p.Revision, StepWrite
		}
		got = append(got, p.Step)
		p.State = Sent
		if p.more(now); p.State != Pending || (p.Step == StepAnswer) == p.DueAt.Equal(now) {
			t.Errorf("found %s at %s after %s; want it begun again, after answers not at once", p.State, p.DueAt, p.Step)
		}
	}
	if want := []Step{StepAnswer, StepWrite, StepAnswer, StepWrite}; [4]Step(got) != [4]Step(want) {
		t.Errorf("found %v; want %v", got, want)
	}
	p = Pull{Step: StepAnswer, Answers: 2, AnswersWritten: 1}
	if p.more(now); !p.DueAt.Equal(now.Add(BetweenAnswers)) {
		t.Errorf("found %s; want a pause between answers", p.DueAt)
	}
}
