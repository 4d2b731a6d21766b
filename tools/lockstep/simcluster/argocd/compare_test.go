package argocd

import (
	"testing"

	"github.com/lockstep-cd/lockstep/tools/lockstep/simcluster/apiserver"
)

// Argo CD sees how a Deployment is doing by its status, once that is about what it is now.
func TestTheHealthOfADeployment(t *testing.T) {
	t.Parallel()
	deployment := func(status map[string]any) apiserver.Object {
		return apiserver.Object{"metadata": map[string]any{"generation": int64(2)}, "spec": map[string]any{"replicas": int64(2)}, "status": status}
	}
	exceeded := []any{map[string]any{"type": "Progressing", "status": "False", "reason": "ProgressDeadlineExceeded"}}
	for want, o := range map[string]apiserver.Object{
		"Missing":     nil,
		"Progressing": deployment(map[string]any{"observedGeneration": int64(2), "availableReplicas": int64(1)}),
		"Healthy":     deployment(map[string]any{"observedGeneration": int64(2), "availableReplicas": int64(2)}),
		"Degraded":    deployment(map[string]any{"observedGeneration": int64(2), "conditions": exceeded}),
	} {
		if got := healthOf(apiserver.Deployments, o); got != want {
			t.Errorf("found %s; want %s", got, want)
		}
	}
	before := deployment(map[string]any{"observedGeneration": int64(1), "availableReplicas": int64(2), "conditions": exceeded})
	if got := healthOf(apiserver.Deployments, before); got != "Progressing" {
		t.Errorf("with the status of the generation before: found %s; want Progressing", got)
	}
}
