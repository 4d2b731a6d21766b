package drivertest

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/driver"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/history"
)

// cluster plays the Jobs of a cluster: each runs for some time, and then ends.
type cluster struct {
	all map[string]*workflow
	// takes is how long a job runs, fails how many of its attempts fail; by its name.
	takes map[string]time.Duration
	fails map[string]int
	// refuse is the error of job.run.
	refuse *history.FunctionError
	// lost is the error of job.run after it has created the job; copied adds an object with a copy of each job's label.
	lost   *history.FunctionError
	copied bool
	// created is when a job exists whose job.run had no answer; until then nothing in the cluster can be read. away is until when job.stop has
	// no answer, and stops are how often it was called.
	created, away time.Time
	stops         int
	// late makes migrate exist from created on.
	late bool
}

// refuses is why the cluster does not answer now.
func (c *cluster) refuses(w *world, name string) *history.FunctionError {
	away := &history.FunctionError{Code: "unreachable", Message: "the relay does not answer"}
	if strings.HasSuffix(name, ".stop") {
		c.stops++
		if w.now.Before(c.away) {
			return away
		}
		return nil
	}
	if w.now.Before(c.created) && (name == "job.run" || name == "k8s.list") {
		return away
	}
	return nil
}

func (c *cluster) call(w *world, name string, args object) (any, *history.FunctionError, bool) {
	if labels, _ := args["labels"].(string); name == "k8s.list" && !strings.HasPrefix(labels, "lockstep.dev/job=") {
		return nil, nil, false
	}
	if err := c.refuses(w, name); err != nil {
		return nil, err, true
	}
	switch name {
	case "job.run", "workflow.submit":
		if c.refuse != nil {
			return nil, c.refuse, true
		}
		o, _ := args["job"].(object)
		if o == nil {
			o = args["workflow"].(object)
		}
		id := o["metadata"].(object)["name"].(string)
		job, _, _ := strings.Cut(id, "-r7")
		if c.all[id] == nil {
			ends := "Complete"
			if c.fails[job] > 0 {
				c.fails[job]--
				ends = "Failed"
			}
			takes, given := c.takes[job]
			if !given {
				takes = 10 * time.Second
			}
			c.all[id] = &workflow{object: o, began: w.now, takes: takes, ends: ends}
			w.record("%s: %s in %s", name, id, args["namespace"])
		}
		return object{"name": id, "phase": "Pending"}, c.lost, true
	case "k8s.list":
		items := []any{}
		for _, id := range slices.Sorted(maps.Keys(c.all)) {
			j := c.all[id]
			if args["labels"] != "lockstep.dev/job="+id {
				continue
			}
			status := object{}
			if c.copied {
				failed := []any{object{"type": "Failed", "status": "True", "reason": "another"}}
				items = append(items, object{"metadata": object{"name": "a-copy"}, "status": object{"conditions": failed}})
			}
			if j.takes > 0 && !w.now.Before(j.began.Add(j.takes)) {
				status["conditions"] = []any{object{"type": j.ends, "status": "True", "reason": "BackoffLimitExceeded"}}
				status["phase"] = map[string]string{"Complete": "Succeeded", "Failed": "Failed"}[j.ends]
			}
			items = append(items, object{"metadata": object{"name": id}, "status": status})
		}
		return object{"items": items, "truncated": false}, nil, true
	case "job.stop", "workflow.stop":
		j := c.all[args["name"].(string)]
		if j == nil && c.late && !w.now.Before(c.created) {
			j = &workflow{object: object{}, began: c.created}
			c.all[args["name"].(string)] = j
		}
		if j == nil {
			return object{"phase": "None"}, nil, true
		}
		w.record("%s: %s", name, args["name"])
		if j.takes > 0 && !w.now.Before(j.began.Add(j.takes)) {
			return object{"phase": "Succeeded"}, nil, true
		}
		return object{"phase": "Running"}, nil, true
	case "job.logs", "workflow.logs":
		return object{"logs": []any{object{"pod": "p", "container": "c", "text": "the end of " + args["name"].(string) + "\n"}}}, nil, true
	default:
		return nil, nil, false
	}
}

func jobOf(name string, more object) object {
	job := object{
		"name": name,
		"template": "apiVersion: batch/v1\nkind: Job\nmetadata: {labels: {team: shop}}\nspec:\n  template:\n    spec:\n" +
			"      containers: [{name: main, image: {[ .versions.api.reference | toJson ]}, args: [{[ .failure | toJson ]}, \"{{kept}}\"]}]\n",
	}
	maps.Copy(job, more)
	return job
}

// withJobs is the shop with the worked example of R2-41: migrate, roll out by canary, test, clean up after a failure.
func withJobs(t *testing.T, edit func(step object)) (*world, *cluster, object) {
	t.Helper()
	w := shop(t)
	c := &cluster{all: map[string]*workflow{}, takes: map[string]time.Duration{}, fails: map[string]int{}}
	w.tasks = c
	in := inputs(2, nil)
	step := in["pipeline"].(object)["steps"].([]any)[0].(object)
	step["before"] = []any{jobOf("migrate", nil)}
	step["after"] = []any{jobOf("smoke-test", nil)}
	step["on_failure"] = []any{jobOf("clean-up", nil)}
	if edit != nil {
		edit(step)
	}
	return w, c, in
}

const (
	migrate = "job.run: migrate-r7-e3-%d in shop"
	test    = "job.run: smoke-test-r7-e3-1 in shop"
	cleanUp = "job.run: clean-up-r7-e3-1 in shop"
)

// position is where a line of the story is; -1 if it is missing.
func (w *world) position(line string) int {
	return slices.IndexFunc(w.story, func(each string) bool { return strings.HasPrefix(each, line) })
}

// sequence expects lines in the story, in that order, and others nowhere.
func sequence(t *testing.T, w *world, lines []string, missing ...string) {
	t.Helper()
	last := -1
	for _, line := range lines {
		at := w.position(line)
		if at <= last {
			t.Errorf("%q is at %d, expected it after %d", line, at, last)
		}
		last = at
	}
	for _, line := range missing {
		if w.position(line) >= 0 {
			t.Errorf("found %q, expected it nowhere", line)
		}
	}
	if t.Failed() {
		t.Logf("story:\n%s", strings.Join(w.story, "\n"))
	}
}

// R2-41: migrate, roll out by canary, test.
func TestJobsAroundADeployment(t *testing.T) {
	t.Parallel()
	w, c, in := withJobs(t, nil)
	if failure := w.run(driver.Deploy, in); failure != "" {
		t.Fatal(failure)
	}
	sequence(t, w, []string{
		"rollout_environment.started", "rollout_environment.job_started", fmt.Sprintf(migrate, 1), "rollout_environment.job_ended",
		"deployment.started deployment_id=11", opening, "deployment.healthy deployment_id=12", test, "rollout_environment.healthy", "rollout.healthy",
	}, cleanUp)
	o := c.all["migrate-r7-e3-1"].object
	labels := o["metadata"].(object)["labels"].(object)
	if labels["team"] != "shop" || labels["lockstep.dev/job"] != "migrate-r7-e3-1" || labels["lockstep.dev/rollout"] != "7" {
		t.Errorf("labels %v, expected the author's and ours", labels)
	}
	if text := fmt.Sprint(o["spec"]); !strings.Contains(text, image("api", 2)) || !strings.Contains(text, "{{kept}}") {
		t.Errorf("spec %s, expected the version and what is not ours", text)
	}
}

// R4-23: a failure at each point: what comes after it does not run, and what cleans up does, knowing why.
func TestJobsThatFail(t *testing.T) {
	t.Parallel()
	t.Run("before", func(t *testing.T) {
		t.Parallel()
		w, c, in := withJobs(t, nil)
		c.fails["migrate"] = 1
		failure := w.run(driver.Deploy, in)
		if !strings.Contains(failure, "job migrate failed: BackoffLimitExceeded") {
			t.Errorf("failure %q", failure)
		}
		sequence(t, w, []string{fmt.Sprintf(migrate, 1), cleanUp, "rollout_environment.failed", "rollout.failed"}, opening, test, "deployment.started")
		if text := fmt.Sprint(c.all["clean-up-r7-e3-1"].object["spec"]); !strings.Contains(text, "job migrate failed") {
			t.Errorf("the cleanup was given %s, expected the failure", text)
		}
	})
	t.Run("the deployment", func(t *testing.T) {
		t.Parallel()
		w, _, in := withJobs(t, nil)
		w.rollouts["shop/api"].degraded, w.rollouts["shop/api"].breaks = "", 3*time.Second
		if failure := w.run(driver.Deploy, in); failure == "" {
			t.Error("no failure, expected one of the deployment")
		}
		sequence(t, w, []string{fmt.Sprintf(migrate, 1), opening, cleanUp, "rollout.failed"}, test)
	})
	t.Run("after, and the cleanup too", func(t *testing.T) {
		t.Parallel()
		w, c, in := withJobs(t, nil)
		c.fails["smoke-test"], c.fails["clean-up"] = 1, 1
		failure := w.run(driver.Deploy, in)
		if !strings.Contains(failure, "job smoke-test failed") || !strings.Contains(failure, "job clean-up failed") {
			t.Errorf("failure %q, expected both", failure)
		}
		sequence(t, w, []string{opening, test, cleanUp, "rollout.failed"})
	})
	t.Run("a retry succeeds", func(t *testing.T) {
		t.Parallel()
		w, c, in := withJobs(t, func(step object) { step["before"].([]any)[0].(object)["retries"] = 2 })
		c.fails["migrate"] = 1
		if failure := w.run(driver.Deploy, in); failure != "" {
			t.Fatal(failure)
		}
		sequence(t, w, []string{fmt.Sprintf(migrate, 1), fmt.Sprintf(migrate, 2), opening}, fmt.Sprintf(migrate, 3), cleanUp)
	})
	t.Run("it never ends", func(t *testing.T) {
		t.Parallel()
		w, c, in := withJobs(t, func(step object) { step["before"].([]any)[0].(object)["deadline"] = 120 })
		c.takes["migrate"] = 0
		if failure := w.run(driver.Deploy, in); !strings.Contains(failure, "timed out after 120 seconds") {
			t.Errorf("failure %q", failure)
		}
		sequence(t, w, []string{fmt.Sprintf(migrate, 1), "job.stop: migrate-r7-e3-1", cleanUp}, opening)
	})
	t.Run("it is refused", func(t *testing.T) {
		t.Parallel()
		w, c, in := withJobs(t, nil)
		c.refuse = &history.FunctionError{Code: "forbidden", Message: "this relay runs no Jobs"}
		if failure := w.run(driver.Deploy, in); !strings.Contains(failure, "it was not started: this relay runs no Jobs") {
			t.Errorf("failure %q", failure)
		}
	})
	t.Run("without an answer it is awaited, and not repeated", func(t *testing.T) {
		t.Parallel()
		w, c, in := withJobs(t, func(step object) { step["before"].([]any)[0].(object)["retries"] = 2 })
		c.lost = &history.FunctionError{Code: "timeout", Message: "no answer"}
		if failure := w.run(driver.Deploy, in); failure != "" {
			t.Fatal(failure)
		}
		sequence(t, w, []string{fmt.Sprintf(migrate, 1), opening}, fmt.Sprintf(migrate, 2), cleanUp)
	})
	t.Run("another object with its label says nothing about it", func(t *testing.T) {
		t.Parallel()
		w, c, in := withJobs(t, nil)
		c.copied = true
		if failure := w.run(driver.Deploy, in); failure != "" {
			t.Fatal(failure)
		}
	})
	for template, want := range map[string]string{
		"{[": "template: ", "kind: Pod": "makes Pod, expected a Job or a Workflow", "x": "makes a string, expected a Job or a Workflow",
	} {
		t.Run(template, func(t *testing.T) {
			t.Parallel()
			w, c, in := withJobs(t, func(step object) { step["before"].([]any)[0].(object)["template"] = template })
			if failure := w.run(driver.Deploy, in); !strings.Contains(failure, want) || len(c.all) != 1 { // the cleanup's
				t.Errorf("failure %q with %d jobs", failure, len(c.all))
			}
		})
	}
}

// An abort stops the job; a retry runs it again under another name. An abort without a retry ends the rollout.
func TestAnAbortStopsAJob(t *testing.T) {
	t.Parallel()
	for _, retried := range []bool{true, false} {
		t.Run(fmt.Sprintf("retried %t", retried), func(t *testing.T) {
			t.Parallel()
			w, c, in := withJobs(t, nil)
			c.takes["migrate"] = 300 * time.Second
			w.asks = map[string]map[string]time.Duration{
				"rollout_environment.job_started environment_id=3": {"com.gitlab.cd.rollout.abort_requested": 20 * time.Second},
			}
			if retried {
				w.asks["rollout.aborted environment_id=3 reason=aborted: because"] = map[string]time.Duration{
					"com.gitlab.cd.rollout.retry_requested": 60 * time.Second,
				}
			}
			failure := w.run(driver.Deploy, in)
			if retried != (failure == "") {
				t.Errorf("failure %q", failure)
			}
			lines := []string{fmt.Sprintf(migrate, 1), "job.stop: migrate-r7-e3-1", "rollout.aborted"}
			if retried {
				sequence(t, w, append(lines, fmt.Sprintf(migrate, 2), opening, "rollout.healthy"))
			} else {
				sequence(t, w, append(lines, "rollout.failed"), fmt.Sprintf(migrate, 2), opening)
			}
		})
	}
}

// A step of its own runs after the environment, and not at all if the rollout leaves the environment out. A Workflow is a job as well.
func TestAJobAsAStep(t *testing.T) {
	t.Parallel()
	w, _, in := withJobs(t, nil)
	workflow := jobOf("report", object{
		"template":  "apiVersion: argoproj.io/v1alpha1\nkind: Workflow\nspec: {entrypoint: main}\n",
		"namespace": "tools",
	})
	pipeline := in["pipeline"].(object)
	pipeline["steps"] = append(pipeline["steps"].([]any),
		object{"type": "job", "environment": "staging", "job": workflow}, object{"type": "job", "environment": "left-out", "job": jobOf("other", nil)})
	if failure := w.run(driver.Deploy, in); failure != "" {
		t.Fatal(failure)
	}
	sequence(t, w, []string{test, "rollout_environment.healthy", "workflow.submit: report-r7-e3-1 in tools", "rollout.healthy"}, "job.run: other")
}
