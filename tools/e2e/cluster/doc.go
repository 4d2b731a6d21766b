// Package cluster runs a real Kubernetes API server with the real Argo CD and Argo Rollouts, without containers: etcd, the
// API server, its controller manager and scheduler, Argo CD's application controller and repo server with a Redis, and the
// Argo Rollouts controller are processes. Only what would be a node is played, by KWOK: pods become ready because a stage
// says so, and SetBroken names images whose pods never do.
//
// The programs are those that tools/cluster builds. It is for end-to-end tests: nothing in it survives its end but logs.
package cluster
