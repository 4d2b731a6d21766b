package rollouts

import (
	"strconv"

	"github.com/lockstep-cd/lockstep/tools/lockstep/simcluster/apiserver"
)

// resolve gives a Rollout the pods and the selector of the Deployment that it refers to (spec.workloadRef), and answers the
// generation that they are of; "" when it has pods of its own. A Deployment that is not there leaves it without pods.
func (c *Controller) resolve(ro apiserver.Object) (apiserver.Object, string) {
	ref := ro.Map("spec", "workloadRef")
	if ref == nil {
		return ro, ""
	}
	workload := c.Store.Get(apiserver.Key{Resource: apiserver.Deployments, Namespace: ro.Namespace(), Name: ref.Text("name")})
	if workload == nil || ref.Text("kind") != "Deployment" {
		return ro, ""
	}
	ro = ro.Copy()
	ro.Set(workload.At("spec", "template"), "spec", "template")
	ro.Set(workload.At("spec", "selector"), "spec", "selector")
	generation, _ := workload.Number("metadata", "generation")
	return ro, strconv.FormatInt(generation, 10)
}
