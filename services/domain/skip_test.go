package domain

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/event"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/rollout"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/setup"
)

// changing is a commit that changes files since another one, as the registry service reports it. With " + " its message is that of several
// commits, the newest one first.
func (w winter) changing(n, since int, message string, files ...string) core.VersionSet {
	w.t.Helper()
	at := time.Unix(1_700_000_000+int64(n), 0)
	messages := strings.Split(message, " + ")
	data := event.ArtifactPublished{
		Image: "git:git.test/shop/config#main", Digest: shaOf(n), PublishedAt: at.UTC().Format(time.RFC3339), CommitMessage: messages[0], ChangedFiles: files,
	}
	if since != 0 {
		data.ChangedSince, data.ChangedMessages = shaOf(since), messages
	}
	changed, err := event.New(event.Header{ID: fmt.Sprintf("%s/changing/%d", w.t.Name(), n), Source: event.SourceRegistry, Time: at, Organization: org}, data)
	w.ok(err)
	w.publish(changed)
	return w.sets()[0]
}

// skipped are the rows of the journal of a rollout about what it leaves out, and the steps and jobs that its program sees.
func (w winter) skipped(r core.Rollout) (rows []string, program string) {
	w.t.Helper()
	j, err := w.view.Journal(w.t.Context(), org, r.ID, core.Page{First: 500})
	w.ok(err)
	for _, row := range j.Nodes {
		if row.Verb == core.VerbSkip {
			rows = append(rows, row.Reason)
		}
	}
	var in struct {
		Pipeline struct {
			Steps []struct {
				Type, Environment, Name string
				Before, After           []struct{ Name string }
				Job                     struct{ Name string }
			}
		}
	}
	w.ok(json.Unmarshal(w.inputsOfRun(r), &in))
	var steps []string
	for _, s := range in.Pipeline.Steps {
		one := s.Type + " " + s.Environment + s.Name + s.Job.Name
		for _, j := range append(s.Before, s.After...) {
			one += " " + j.Name
		}
		steps = append(steps, one)
	}
	return rows, strings.Join(steps, ", ")
}

// R4-26, R4-22: pauses and jobs are left out if every commit since what is live has a message, or only files, that the pipeline leaves out;
// the journal says so. What is not known is done, messages do not count for requests, and rollbacks leave nothing out.
func TestStepsAreSkippedByCommits(t *testing.T) {
	t.Parallel()
	w := clocked(t)
	w.withManifests()
	w.changing(901, 0, "feat: all")
	const (
		all      = "deploy staging, pause soak, approval , pause , deploy production"
		left     = "deploy staging, approval step-2, pause , deploy production"
		byPath   = "all changed files match docs/**"
		soak     = "soak is skipped: "
		messages = "the messages of all new commits begin with docs:"
	)
	rule := `"skip_on":{"commit_message_prefixes":["docs:"],"paths":["docs/**"]}`
	_, err := w.setup.CreateFlowDefinition(t.Context(), user(), setup.NewFlowDefinition{
		ApplicationID: w.application.ID, Definition: json.RawMessage(fmt.Sprintf(`{"steps":[
			{"type":"deploy","environment":"staging","config":%s},
			{"type":"pause","name":"soak","duration":60,%s},{"type":"approval"},{"type":"pause","duration":5},
			{"type":"deploy","environment":"production","config":%s}]}`, appEnvConfig("staging"), rule, appEnvConfig("production"))),
	})
	w.ok(err)
	w.makeReady()
	runs := func(r core.Rollout, program string, rows ...string) {
		t.Helper()
		found, steps := w.skipped(r)
		w.want(steps, program)
		w.want(strings.Join(found, "\n"), strings.Join(rows, "\n"))
	}
	request := func() core.Rollout {
		t.Helper()
		made, err := w.rollouts.CreateRollout(t.Context(), user(), rollout.NewRollout{VersionSetID: w.sets()[0].ID, Again: true})
		w.ok(err)
		return *made.Rollout
	}
	first := request()
	runs(first, all) // nothing is live
	w.succeed(first)

	w.changing(902, 901, "feat: words", "docs/a.md", "docs/b/c.md")
	byFile := request()
	runs(byFile, left, soak+byPath)
	w.succeed(byFile)

	// Two commits, of which one touches something else: what counts is everything since what is live.
	w.changing(903, 902, "feat: more", "deploy/api.yaml")
	w.changing(904, 903, "docs: words", "docs/a.md")
	both := request()
	runs(both, all)
	w.succeed(both)

	w.changing(905, 904, "docs: words", "deploy/api.yaml")
	asked := request()
	runs(asked, all)
	w.succeed(asked)
	w.trigger(core.TriggerGit, `{}`)
	w.changing(906, 905, "docs: words", "deploy/api.yaml")
	w.want(len(w.decide()), 1)
	begun := w.active()
	runs(begun, left, soak+messages)
	w.succeed(begun)
	w.changing(907, 906, "docs: words + feat: a danger", "deploy/api.yaml") // one push
	w.decide()
	runs(w.active(), all)
	w.succeed(w.active())

	w.changing(908, 0, "feat: unknown")
	w.decide()
	runs(w.active(), all)
	w.succeed(w.active())
	w.changing(909, 908, "docs: words", "docs/a.md")
	w.release(2) // an image is new as well
	w.decide()
	runs(w.active(), all)
	w.succeed(w.active())
	w.verifyJournal(begun)
}
