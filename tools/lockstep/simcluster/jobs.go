package simcluster

import (
	"fmt"
	"time"

	"github.com/lockstep-cd/lockstep/tools/lockstep/simcluster/apiserver"
)

// finishJobs ends the Jobs that have not ended: as complete, or as failed for the reason in the annotation simulated.lockstep.dev/fails of
// the template. No node has labels here, so that a pod with a node selector waits for ever, and its Job ends by its deadline.
func finishJobs(store *apiserver.Store, now time.Time) error {
	jobs, _ := apiserver.ByKind("batch/v1", "Job")
	all, _ := store.List(jobs, "")
	for _, o := range all {
		status := statusOfJob(o, now)
		if _, active := o.Number("status", "active"); o.List("status", "conditions") != nil || (active && status["active"] != nil) {
			continue
		}
		_, err := store.Modify(apiserver.Key{Resource: jobs, Namespace: o.Namespace(), Name: o.Name()}, apiserver.Status,
			func(o apiserver.Object) (apiserver.Object, error) {
				o["status"] = status
				return o, nil
			})
		if err != nil && !apiserver.Is(err, "NotFound") {
			return fmt.Errorf("status of Job %s: %w", o.Name(), err)
		}
	}
	return nil
}

// statusOfJob is what Kubernetes' controller would say of a Job.
func statusOfJob(o apiserver.Object, now time.Time) map[string]any {
	ended := func(how, reason, message string) map[string]any {
		condition := map[string]any{"type": how, "status": "True", "message": message}
		if reason != "" {
			condition["reason"] = reason
		}
		return map[string]any{"conditions": []any{condition}}
	}
	pod := o.Map("spec", "template")
	if why := pod.Text("metadata", "annotations", "simulated.lockstep.dev/fails"); why != "" {
		return ended("Failed", "", why)
	}
	if pod.Map("spec", "nodeSelector") == nil {
		return ended("Complete", "CompletionsReached", "Reached expected number of succeeded pods")
	}
	began, err := time.Parse(time.RFC3339, o.Text("metadata", "creationTimestamp"))
	deadline, bounded := o.Number("spec", "activeDeadlineSeconds")
	if err == nil && bounded && !now.Before(began.Add(time.Duration(deadline)*time.Second)) {
		return ended("Failed", "DeadlineExceeded", "Job was active longer than specified deadline")
	}
	return map[string]any{"active": int64(1)}
}
