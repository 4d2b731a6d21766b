// Package cluster runs a real Kubernetes API server with the real Argo CD and Argo Rollouts, without containers: etcd, the API server, its
// controller manager and scheduler, Argo CD's application controller and repo server with a Redis, and the Argo Rollouts controller are
// processes. Only the nodes are simulated, by KWOK: pods become ready because a stage says so, and SetBroken names images whose pods never
// do.
//
// The programs are built by tools/cluster. It is for end-to-end tests: only logs survive its end.
package cluster
