package planner_test

import (
	"strings"
	"testing"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/planner"
)

// usual is a rollout of something new that a trigger has begun, of an application that is deployed already.
func usual(change func(*planner.Facts)) planner.Facts {
	f := planner.Facts{
		Application: "shop", Weights: true, Deployed: true,
		Rules:   planner.Rules{Pipeline: `(?i)^feat`, Quick: `^(fix|docs)`},
		Commits: []planner.Commit{{SHA: "0123456789abcdef0123", Message: "chore: tidy\n\nfix of nothing"}},
	}
	change(&f)
	return f
}

// D31: each edge of the flowchart, in its order (R4-15 to R4-17, R4-22): the facts of an edge also fit every edge after it where they can,
// so that an edge in the wrong place fails.
func TestEachEdge(t *testing.T) {
	t.Parallel()
	message := func(text string) func(*planner.Facts) {
		return func(f *planner.Facts) { f.Commits = append(f.Commits, planner.Commit{SHA: "feedc0de", Message: text}) }
	}
	both := func(all ...func(*planner.Facts)) func(*planner.Facts) {
		return func(f *planner.Facts) {
			for _, one := range all {
				one(f)
			}
		}
	}
	quickFound := func(f *planner.Facts) {
		f.Finding = &planner.Finding{Strategy: planner.Quick, Summary: "only replicas differ: to scale"}
	}
	first := func(f *planner.Facts) { f.Deployed = false }
	alone := func(f *planner.Facts) { f.Commits = nil }
	always := func(f *planner.Facts) { f.Rules.Always = true }
	for name, c := range map[string]struct {
		change func(*planner.Facts)
		want   planner.Strategy
		why    string
	}{
		"a runbook": {
			both(func(f *planner.Facts) { f.Runbook, f.Weights = true, false }, always), planner.Quick,
			"the pipeline is a runbook, which deploys nothing",
		},
		"a repetition of a quick sync": {
			both(func(f *planner.Facts) { f.Repeats, f.As, f.Choice = 12, planner.Quick, planner.ChoosePipeline }, always), planner.Quick,
			"rollout_12, which it repeats, had the strategy quick sync",
		},
		"a repetition of a pipeline": {
			both(func(f *planner.Facts) { f.Repeats, f.As, f.Command = 12, planner.Pipeline, true }, first), planner.Pipeline,
			"rollout_12, which it repeats, had the strategy pipeline",
		},
		"a repetition of a rollout of an earlier release": {
			both(func(f *planner.Facts) { f.Repeats, f.Command = 12, true }, first), planner.Quick, "nothing of the application",
		},
		"a repetition of a pipeline that has lost its weights": {
			func(f *planner.Facts) { f.Repeats, f.As, f.Weights = 12, planner.Pipeline, false }, planner.Quick, "has no weights",
		},
		"[A] the requester chose a quick sync": {
			both(func(f *planner.Facts) { f.Choice = planner.ChooseQuick }, message("feat: x"), always), planner.Quick, "the requester chose a quick sync",
		},
		"[A] the requester chose the pipeline": {
			both(func(f *planner.Facts) { f.Choice, f.PromoteFull = planner.ChoosePipeline, true }, message("fix: x"), first, quickFound),
			planner.Pipeline,
			"the requester chose the pipeline",
		},
		"[B] no pipeline": {
			both(func(f *planner.Facts) { f.Weights = false }, message("feat: x"), always), planner.Quick, "the pipeline has no weights where the rollout goes",
		},
		"a rollback in full": {
			both(func(f *planner.Facts) { f.PromoteFull, f.Command = true, true }, always), planner.Quick, "the rollback policy promotes in full",
		},
		"[C] a commit matches pipeline, and one quickSync": {
			both(message("fix: y"), message("Feat: x\n\nbody"), first, quickFound), planner.Pipeline,
			"the message of commit feedc0de (Feat: x) matches commitMatcher.pipeline",
		},
		"[C] a commit matches quickSync": {
			both(alone, message("fix: y"), always), planner.Quick, "the message of commit feedc0de (fix: y) matches commitMatcher.quickSync",
		},
		"[C] a commit matches quickSync, and another one nothing": {
			both(message("fix: y")), planner.Pipeline, "nothing says that its weights may be skipped",
		},
		"[C] a commit matches quickSync, beside a new image": {
			both(alone, message("fix: y"), func(f *planner.Facts) { f.Silent = true }), planner.Pipeline, "nothing says that its weights may be skipped",
		},
		"[C] messages do not count for a command": {
			both(message("fix: y"), func(f *planner.Facts) { f.Command = true }), planner.Pipeline, "nothing says that its weights may be skipped",
		},
		"[C] a message that is not known matches nothing": {
			func(f *planner.Facts) { f.Rules.Quick, f.Commits = `.*`, []planner.Commit{{SHA: "a"}} }, planner.Pipeline, "nothing says",
		},
		"[B] alwaysUsePipeline": {
			both(always, first, quickFound), planner.Pipeline, "the pipeline has alwaysUsePipeline",
		},
		"[D] nothing deployed yet": {
			both(first, func(f *planner.Facts) {
				f.Finding = &planner.Finding{Strategy: planner.Pipeline, Summary: "image changed"}
			}), planner.Quick,
			"nothing of the application has been deployed successfully yet",
		},
		"[E] the platform says quick": {quickFound, planner.Quick, "only replicas differ: to scale"},
		"[E] the platform says pipeline": {func(f *planner.Facts) {
			f.Finding = &planner.Finding{Strategy: planner.Pipeline, Summary: "image a is b"}
		}, planner.Pipeline, "image a is b"},
		"nothing decides": {
			func(*planner.Facts) {}, planner.Pipeline, "the application is deployed already, and nothing says that its weights may be skipped",
		},
		"auto is as nothing": {func(f *planner.Facts) { f.Choice = planner.Auto }, planner.Pipeline, "nothing says"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := planner.Decide(usual(c.change))
			if err != nil || got.Strategy != c.want || !strings.Contains(got.Why, c.why) {
				t.Errorf("found %+v, %v; want %s: %s", got, err, c.want, c.why)
			}
		})
	}
}

// R4-18, and a choice that does not exist: the error says what was found, and what was expected.
func TestChoicesThatAreRefused(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(*planner.Facts)
		why    string
	}{
		"a pipeline where there is none": {
			func(f *planner.Facts) { f.Choice, f.Weights = planner.ChoosePipeline, false },
			`found pipeline, but the pipeline of "shop" has no weights where the rollout goes; expected auto or quick`,
		},
		"an unknown choice": {func(f *planner.Facts) { f.Choice = "slow" }, `found "slow"; expected auto, quick or pipeline`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := planner.Decide(usual(c.change))
			fields := fault.FieldsOf(err)
			if !fault.Is(err, fault.Invalid) || len(fields) != 1 || fields[0].Name != "/strategy" || !strings.Contains(fields[0].Problem, c.why) {
				t.Errorf("found %v", err)
			}
		})
	}
}

// A long subject is cut between two characters.
func TestALongSubjectIsShortened(t *testing.T) {
	t.Parallel()
	d, err := planner.Decide(usual(func(f *planner.Facts) {
		f.Commits = []planner.Commit{{SHA: strings.Repeat("a", 40), Message: "fix " + strings.Repeat("ü", 200)}}
	}))
	if err != nil || !strings.Contains(d.Why, "("+"fix "+strings.Repeat("ü", 76)+"…)") || !strings.Contains(d.Why, "commit aaaaaaaaaaaa (") {
		t.Errorf("found %+v, %v", d, err)
	}
}
