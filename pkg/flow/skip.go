package flow

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/bmatcuk/doublestar/v4"

	"github.com/lockstep-cd/lockstep/pkg/fault"
)

// SkipOn is when a pause, an analysis or a job is left out of a rollout (R4-26): one of the two is enough.
type SkipOn struct {
	// CommitMessagePrefixes are beginnings of messages: one of them fits each new commit.
	CommitMessagePrefixes []string `json:"commit_message_prefixes,omitempty"`
	// Paths are patterns of files: one of them fits each changed file.
	Paths []string `json:"paths,omitempty"`
}

// News is what is new in a rollout, as far as it is known and counts.
type News struct {
	// Messages are those of all new commits; empty if not all are known, or if messages do not count.
	Messages []string
	// Files are all that were changed; empty if they are not known.
	Files []string
}

// Because is why something is left out; empty if it is not.
func (s *SkipOn) Because(n News) string {
	if s == nil {
		return ""
	}
	begins := func(message string) bool {
		return slices.ContainsFunc(s.CommitMessagePrefixes, func(p string) bool { return strings.HasPrefix(message, p) })
	}
	if len(n.Messages) > 0 && !slices.ContainsFunc(n.Messages, func(m string) bool { return !begins(m) }) {
		return "the messages of all new commits begin with " + strings.Join(s.CommitMessagePrefixes, " or ")
	}
	matches := func(file string) bool {
		return slices.ContainsFunc(s.Paths, func(p string) bool { return doublestar.MatchUnvalidated(p, file) })
	}
	if len(n.Files) > 0 && !slices.ContainsFunc(n.Files, func(f string) bool { return !matches(f) }) {
		return "all changed files match " + strings.Join(s.Paths, " or ")
	}
	return ""
}

// Skips reports whether something of the pipeline may be left out because of what is new.
func (d Definition) Skips() bool {
	one := func(j Job) bool { return j.SkipOn != nil }
	return slices.ContainsFunc(d.Steps, func(s Step) bool {
		return s.SkipOn != nil || s.Job != nil && one(*s.Job) || slices.ContainsFunc(s.Before, one) || slices.ContainsFunc(s.After, one)
	})
}

// skippable finds what is wrong with when parts of a step are left out.
func skippable(d Definition, s Step, at string) []fault.Field {
	found := s.SkipOn.wrong(at + "/skip_on")
	jobs := func(all []Job, under string) {
		for i := range all {
			found = append(found, all[i].SkipOn.wrong(fmt.Sprintf("%s/%s/%d/skip_on", at, under, i))...)
		}
	}
	jobs(s.Before, "before")
	jobs(s.After, "after")
	for i, j := range s.OnFailure {
		if j.SkipOn != nil {
			found = append(found, fault.Field{
				Name: fmt.Sprintf("%s/on_failure/%d/skip_on", at, i), Problem: "found a rule about a job that runs after a failure; expected none",
			})
		}
	}
	if s.Job == nil {
		return found
	}
	if s.Job.SkipOn != nil && d.Runbook() {
		return append(found, fault.Field{
			Name: at + "/job/skip_on", Problem: "found a rule about a job of a runbook; expected none: its jobs are all that it does",
		})
	}
	return append(found, s.Job.SkipOn.wrong(at+"/job/skip_on")...)
}

// wrong finds patterns that cannot be read.
func (s *SkipOn) wrong(at string) []fault.Field {
	if s == nil {
		return nil
	}
	var found []fault.Field
	for i, p := range s.Paths {
		// Each ** and each alternative multiplies the cost of a match; this many is enough.
		if !doublestar.ValidatePattern(p) || strings.HasPrefix(p, "/") || strings.Count(p, "**") > 4 || strings.Count(p, "{") > 2 {
			found = append(found, fault.Field{
				Name: fmt.Sprintf("%s/paths/%d", at, i), Problem: fmt.Sprintf(
					"found %.100q; expected a pattern of files, such as docs/**, from the top of the repository", p,
				),
			})
		}
	}
	return found
}

// Left is what a part of a pipeline may say about being left out, as it stands in the definition.
type Left struct {
	// What names it for people.
	What   string
	SkipOn *SkipOn
}

// LeftOf reads a step of a definition that is left out as a whole; SkipOn is nil for one that never is.
func LeftOf(step json.RawMessage) (Left, error) {
	var s Step
	if err := json.Unmarshal(step, &s); err != nil {
		return Left{}, fmt.Errorf("read a step of a pipeline: %w", err)
	}
	switch s.Type {
	case RunJob:
		if s.Job == nil {
			return Left{}, nil
		}
		return Left{What: fmt.Sprintf("the job %s in %s", s.Job.Name, s.Environment), SkipOn: s.Job.SkipOn}, nil
	case Pause:
		return Left{What: cmp.Or(s.Name, fmt.Sprintf("the pause of %d seconds", s.Duration)), SkipOn: s.SkipOn}, nil
	case Analysis:
		return Left{What: cmp.Or(s.Name, "the analysis"), SkipOn: s.SkipOn}, nil
	case Deploy, Approve:
	}
	return Left{}, nil
}
