package argocd

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/lockstep-cd/lockstep/tools/lockstep/simcluster/apiserver"
)

const (
	annotationHook = "argocd.argoproj.io/hook"
	annotationWave = "argocd.argoproj.io/sync-wave"
)

// The phases of a sync, in their order. The last one is only for a sync that has failed.
const (
	preSync  = "PreSync"
	inSync   = "Sync"
	postSync = "PostSync"
	syncFail = "SyncFail"
)

// task is one object of a sync in one of its phases, with what has come of it so far.
type task struct {
	desired

	phase string
	wave  int
	hook  bool
	// status is Synced or SyncFailed, state the phase of an operation; "" before it is applied.
	status, state, message string
}

func isHook(o apiserver.Object) bool { return o.Text("metadata", "annotations", annotationHook) != "" }

// withoutHooks are the objects that an Application is compared by.
func withoutHooks(all []desired) []desired {
	return slices.DeleteFunc(slices.Clone(all), func(d desired) bool { return isHook(d.object) })
}

// tasksOf are the tasks of a sync in the order of their phases and waves, with the results of what has been done already.
func tasksOf(all []desired, results []any) []*task {
	done := map[string]apiserver.Object{}
	for _, each := range results {
		if r, ok := each.(map[string]any); ok {
			done[resultKey(r)] = r
		}
	}
	var tasks []*task
	for _, d := range all {
		phases := []string{inSync}
		if hook := isHook(d.object); hook {
			phases = strings.Split(d.object.Text("metadata", "annotations", annotationHook), ",")
		}
		for _, phase := range phases {
			t := &task{desired: d, phase: strings.TrimSpace(phase), hook: isHook(d.object)}
			if !slices.Contains([]string{preSync, inSync, postSync, syncFail}, t.phase) {
				continue // Skip, and what is for the Application's deletion
			}
			t.wave, _ = strconv.Atoi(d.object.Text("metadata", "annotations", annotationWave))
			if r, found := done[resultKey(t.result())]; found {
				t.status, t.state, t.message = r.Text("status"), r.Text("hookPhase"), r.Text("message")
			}
			tasks = append(tasks, t)
		}
	}
	order := []string{preSync, inSync, postSync, syncFail}
	slices.SortStableFunc(tasks, func(a, b *task) int {
		return cmp.Or(slices.Index(order, a.phase)-slices.Index(order, b.phase), a.wave-b.wave, inOrder(a.desired, b.desired))
	})
	return tasks
}

// result is the task as syncResult.resources has it.
func (t *task) result() apiserver.Object {
	r := apiserver.Object{
		"group": t.key.Resource.Group, "version": t.key.Resource.Version, "kind": t.key.Resource.Kind, "namespace": t.key.Namespace,
		"name":      t.key.Name,
		"hookPhase": t.state, "syncPhase": t.phase, "message": t.message,
	}
	if t.status != "" {
		r["status"] = t.status
	}
	if t.hook {
		r["hookType"] = t.phase
	}
	return r
}

func resultKey(r apiserver.Object) string {
	return strings.Join([]string{r.Text("syncPhase"), r.Text("group"), r.Text("kind"), r.Text("namespace"), r.Text("name")}, "/")
}

// resultsOf are those of the tasks that have been begun, and of what was pruned.
func resultsOf(tasks []*task, pruned []any) []any {
	results := []any{}
	for _, t := range tasks {
		if t.state != "" {
			results = append(results, map[string]any(t.result()))
		}
	}
	return append(results, pruned...)
}

// multiStep reports whether a sync has more than one phase or wave. One that has not ends when everything is applied.
func multiStep(tasks []*task) bool {
	return len(tasks) > 0 && (tasks[0].wave != tasks[len(tasks)-1].wave || tasks[0].phase != tasks[len(tasks)-1].phase)
}

// step takes a sync of several phases or waves as far as it comes without waiting, as gitops-engine does (sync_context.go): what runs is
// looked at, and only when nothing runs any more the next wave is applied. The answer is the operation's phase and its message.
func (c *Controller) step(tasks []*task) (phase, message string) {
	for {
		for _, t := range running(tasks) {
			t.state = c.stateOf(t)
		}
		if still := running(tasks); len(still) > 0 {
			return "Running", waitingFor(still)
		}
		onFailure, rest := split(tasks)
		if i := slices.IndexFunc(rest, func(t *task) bool { return t.state == "Failed" }); i >= 0 {
			return c.fail(onFailure, rest[i])
		}
		pending := slices.DeleteFunc(slices.Clone(rest), func(t *task) bool { return t.state != "" })
		if len(pending) == 0 {
			return "Succeeded", "successfully synced (no more tasks)"
		}
		first := pending[0]
		for _, t := range pending {
			if t.phase == first.phase && t.wave == first.wave {
				c.begin(t)
			}
		}
	}
}

// fail runs the hooks that a failed sync has, and ends it when they have ended.
func (c *Controller) fail(hooks []*task, failed *task) (phase, message string) {
	for _, t := range hooks {
		if t.state == "" {
			c.begin(t)
			t.state = cmp.Or(c.stateOf(t), t.state)
		}
	}
	if still := running(hooks); len(still) > 0 {
		return "Running", waitingFor(still)
	}
	if failed.status == "SyncFailed" {
		return "Failed", "one or more objects failed to apply, reason: " + failed.message
	}
	return "Failed", "one or more synchronization tasks completed unsuccessfully"
}

func running(tasks []*task) []*task {
	return slices.DeleteFunc(slices.Clone(tasks), func(t *task) bool { return t.state != "Running" })
}

// split are the tasks for a failure, and the others.
func split(tasks []*task) (onFailure, rest []*task) {
	for _, t := range tasks {
		if t.phase == syncFail {
			onFailure = append(onFailure, t)
		} else {
			rest = append(rest, t)
		}
	}
	return onFailure, rest
}

// waitingFor is what Argo CD says of a sync that waits.
func waitingFor(tasks []*task) string {
	what, more := "healthy state of", "resources"
	if tasks[0].hook {
		what, more = "completion of hook", "hooks"
	}
	text := fmt.Sprintf("waiting for %s %s/%s/%s", what, tasks[0].key.Resource.Group, tasks[0].key.Resource.Kind, tasks[0].key.Name)
	if n := len(tasks) - 1; n > 0 {
		text += fmt.Sprintf(" and %d more %s", n, more)
	}
	return text
}

// begin applies a task. A hook is made anew for every sync (BeforeHookCreation, the default).
func (c *Controller) begin(t *task) {
	if t.hook && t.unknown == "" {
		if _, err := c.Store.Delete(t.key, ""); err != nil && !apiserver.Is(err, "NotFound") {
			t.status, t.state, t.message = "SyncFailed", "Failed", err.Error()
			return
		}
	}
	message, err := c.put(t.desired)
	if err != nil {
		t.status, t.state, t.message = "SyncFailed", "Failed", err.Error()
		return
	}
	t.status, t.state, t.message = "Synced", "Running", message
}

// stateOf is how a task that was applied does.
func (c *Controller) stateOf(t *task) string {
	if t.state != "Running" {
		return t.state
	}
	live := c.Store.Get(t.key)
	if t.hook && t.key.Resource.Kind == "Job" {
		for _, each := range live.List("status", "conditions") {
			condition, _ := each.(map[string]any)
			switch {
			case condition["status"] != "True":
			case condition["type"] == "Complete":
				return "Succeeded"
			case condition["type"] == "Failed":
				t.message, _ = condition["message"].(string)
				return "Failed"
			}
		}
		return "Running"
	}
	switch healthOf(t.key.Resource, live) {
	case "Healthy":
		return "Succeeded"
	case "Degraded":
		t.message = live.Text("status", "message")
		return "Failed"
	default:
		return "Running"
	}
}

// terminate ends a sync on request: hooks that run are deleted, what is applied stays.
func (c *Controller) terminate(tasks []*task) {
	for _, t := range tasks {
		if t.hook && c.stateOf(t) == "Running" {
			_, _ = c.Store.Delete(t.key, "") // it may be gone by itself
			t.state, t.message = "Succeeded", "Deleted"
		}
	}
}
