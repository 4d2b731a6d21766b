// Package planner decides how a rollout goes through its environments: by a quick sync, which deploys everything at once, or by the
// pipeline, which stops at its weights (D59, D31). It is one table, read from the top, and every decision has a sentence.
//
// It decides nothing else: what a quick sync needs before it may enter an environment is up to the passages (D46), and it reads nothing but
// the facts that it is given.
package planner

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/lockstep-cd/lockstep/pkg/fault"
)

// Strategy is how a rollout goes through its environments; empty for rollouts of releases that did not plan.
type Strategy string

// The strategies.
const (
	// Quick deploys at once: it does not stop at weights, whose conditions apply at the entrance of their environment.
	Quick Strategy = "quick"
	// Pipeline stops at every weight of the pipeline.
	Pipeline Strategy = "pipeline"
)

// Words is the strategy for people.
func (s Strategy) Words() string {
	switch s {
	case Quick:
		return "quick sync"
	case Pipeline:
		return "pipeline"
	default:
		return "not planned"
	}
}

// Choice is what the requester has chosen; empty is Auto.
type Choice string

// The choices.
const (
	Auto           Choice = "auto"
	ChoosePipeline        = Choice(Pipeline)
	ChooseQuick           = Choice(Quick)
)

// CheckChoice returns an Invalid error for a choice that does not exist.
func CheckChoice(c Choice) error {
	switch c {
	case "", Auto, ChoosePipeline, ChooseQuick:
		return nil
	default:
		return fault.InvalidFields(fault.Field{
			Name: "/strategy", Problem: fmt.Sprintf("found %q; expected %s, %s or %s", string(c), Auto, ChooseQuick, ChoosePipeline),
		})
	}
}

// Rules are those of a pipeline.
type Rules struct {
	// Pipeline and Quick are regular expressions about the messages of new commits; empty matches none.
	Pipeline, Quick string
	// Always is that nothing but a person chooses a quick sync once something has matched neither.
	Always bool
	// Compare is that the platform is asked what changes, where nothing before decides.
	Compare bool
}

// Commit is a new commit of a rollout.
type Commit struct {
	SHA string
	// Message is empty if it is not known.
	Message string
}

// Finding is what the platform says of the changes (R4-19).
type Finding struct {
	Strategy Strategy
	// Summary is one sentence.
	Summary string
}

// Facts are everything that a decision depends on.
type Facts struct {
	// Application is its name, for sentences.
	Application string
	// Repeats is the rollout that is begun again, and As what it was; 0 for none.
	Repeats int64
	As      Strategy
	// Choice is what the requester has chosen.
	Choice Choice
	// Weights is that the pipeline has weights in the environments that the rollout goes to: there is a pipeline to go by.
	Weights bool
	// Runbook is that the pipeline deploys nothing.
	Runbook bool
	// PromoteFull is that a rollback policy passes all weights at once.
	PromoteFull bool
	// Command is that a person or a machine has asked for the rollout, or that it is a rollback: messages of commits do not count (R4-22).
	Command bool
	Rules   Rules
	// Commits are the new commits among its versions. Silent is that other versions are new as well, which have no message.
	Commits []Commit
	Silent  bool
	// Deployed is that a version set of the application has been deployed successfully.
	Deployed bool
	// Finding is nil if the platform says nothing.
	Finding *Finding
}

// Decision is a strategy, and why in one sentence.
type Decision struct {
	Strategy Strategy
	Why      string
	// SHA is that of the commit whose message has decided, which Why names; empty for none. It is not stored.
	SHA string
}

// WithoutCommit is why, for those who may not see the commit that has decided.
func (d Decision) WithoutCommit() string {
	if d.SHA == "" {
		return d.Why
	}
	return "the message of another new commit matches commitMatcher." + d.Strategy.matcher()
}

// matcher is the name of the rule about messages.
func (s Strategy) matcher() string {
	if s == Quick {
		return "quickSync"
	}
	return string(s)
}

// edge is one way out of the flowchart.
type edge struct {
	name string
	// leaves is the decision, if the facts take this way; false if the next edge is tried.
	leaves func(Facts) (Decision, bool)
}

// Decide returns how a rollout goes. The error is Invalid if a pipeline was chosen where there is none (R4-18), and for a choice that does
// not exist.
func Decide(f Facts) (Decision, error) {
	if err := CheckChoice(f.Choice); err != nil {
		return Decision{}, err
	}
	if f.Choice == ChoosePipeline && !f.Weights {
		return Decision{}, fault.InvalidFields(fault.Field{Name: "/strategy", Problem: fmt.Sprintf(
			"found pipeline, but the pipeline of %q has no weights where the rollout goes; expected auto or quick, or gates in a deploy step",
			f.Application,
		)})
	}
	for _, e := range table() {
		if d, leaves := e.leaves(f); leaves {
			return d, nil
		}
	}
	if f.Rules.Compare {
		return Decision{Strategy: Pipeline, Why: "unless the drivers list no change of what runs: they compare the manifests before it begins"}, nil
	}
	return Decision{Strategy: Pipeline, Why: "the application is deployed already, and nothing says that its weights may be skipped"}, nil
}

// Asks reports whether the decision depends on what the platform says of the changes, which is not known yet: no edge before it leaves.
func Asks(f Facts) bool {
	if !f.Rules.Compare || f.Finding != nil || CheckChoice(f.Choice) != nil || f.Choice == ChoosePipeline && !f.Weights {
		return false
	}
	return !slices.ContainsFunc(table(), func(e edge) bool { _, leaves := e.leaves(f); return leaves })
}

// table is the flowchart, in the order of R4-17. What is begun again keeps its strategy, and a rollback policy that promotes in full comes
// before everything that is about new versions.
func table() []edge {
	return []edge{
		{"repeated", func(f Facts) (Decision, bool) {
			as := f.As == Quick || f.As == Pipeline && f.Weights
			return Decision{Strategy: f.As, Why: fmt.Sprintf("rollout_%d, which it repeats, had the strategy %s", f.Repeats, f.As.Words())}, f.Repeats != 0 && as
		}},
		{"quick chosen", func(f Facts) (Decision, bool) {
			return Decision{Strategy: Quick, Why: "the requester chose a quick sync"}, f.Choice == ChooseQuick
		}},
		{"pipeline chosen", func(f Facts) (Decision, bool) {
			return Decision{Strategy: Pipeline, Why: "the requester chose the pipeline"}, f.Choice == ChoosePipeline
		}},
		{"runbook", func(f Facts) (Decision, bool) {
			return Decision{Strategy: Quick, Why: "the pipeline is a runbook, which deploys nothing"}, f.Runbook
		}},
		{"no pipeline", func(f Facts) (Decision, bool) {
			return Decision{Strategy: Quick, Why: "the pipeline has no weights where the rollout goes"}, !f.Weights
		}},
		{"promoted in full", func(f Facts) (Decision, bool) {
			return Decision{Strategy: Quick, Why: "the rollback policy promotes in full"}, f.PromoteFull
		}},
		{"commit matches pipeline", func(f Facts) (Decision, bool) {
			return f.matches(Pipeline, f.Rules.Pipeline)
		}},
		{"commit matches quick", func(f Facts) (Decision, bool) {
			// What says nothing, and what says something else, may need what a quick sync leaves out.
			d, matches := f.matches(Quick, f.Rules.Quick)
			return d, matches && !f.Silent && f.allMatch(f.Rules.Quick)
		}},
		{"always", func(f Facts) (Decision, bool) {
			return Decision{Strategy: Pipeline, Why: "the pipeline has alwaysUsePipeline"}, f.Rules.Always
		}},
		{"never deployed", func(f Facts) (Decision, bool) {
			return Decision{Strategy: Quick, Why: "nothing of the application has been deployed successfully yet"}, !f.Deployed
		}},
		{"platform", func(f Facts) (Decision, bool) {
			if f.Finding == nil {
				return Decision{}, false
			}
			return Decision{Strategy: f.Finding.Strategy, Why: f.Finding.Summary}, true
		}},
	}
}

// shown is how much of a commit's identifier and of its subject a sentence has.
const (
	shownSHA     = 12
	shownSubject = 80
)

// matches is whether the matcher of a strategy fits the message of a new commit, and the decision.
func (f Facts) matches(to Strategy, expression string) (Decision, bool) {
	if f.Command || expression == "" {
		return Decision{}, false
	}
	pattern, err := regexp.Compile(expression)
	if err != nil { // it was checked when the pipeline was saved
		return Decision{}, false
	}
	for _, c := range f.Commits {
		if c.Message == "" || !pattern.MatchString(c.Message) {
			continue
		}
		subject, _, _ := strings.Cut(c.Message, "\n")
		why := fmt.Sprintf("the message of commit %.*s (%s) matches commitMatcher.%s", shownSHA, c.SHA, cut(subject, shownSubject), to.matcher())
		return Decision{Strategy: to, Why: why, SHA: c.SHA}, true
	}
	return Decision{}, false
}

// allMatch is whether an expression fits the messages of all new commits.
func (f Facts) allMatch(expression string) bool {
	pattern, err := regexp.Compile(expression)
	return err == nil && !slices.ContainsFunc(f.Commits, func(c Commit) bool { return c.Message == "" || !pattern.MatchString(c.Message) })
}

// cut shortens a text to a number of characters.
func cut(text string, most int) string {
	if letters := []rune(text); len(letters) > most {
		return string(letters[:most]) + "…"
	}
	return text
}
