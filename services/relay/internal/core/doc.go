// Package core decides what a relay does with a call: the Functions, their arguments and, from the request and the state of the cluster,
// the next action. Decisions are pure functions (NextSync, NextPromotion, …) that need no cluster; Runner executes them through the Cluster
// port, looks again, and decides again.
//
// It holds no state beside the calls in flight: after a restart the repeated call is decided from the state of the cluster, and comes to
// the same answer (E39, D11). It is not a Kubernetes client: internal/cluster is.
package core
