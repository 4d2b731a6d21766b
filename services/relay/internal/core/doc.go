// Package core decides what a relay does with a call: which Functions there are, which arguments they take, and, from
// what was asked for and what the cluster shows, what to do next. Deciding is pure (NextSync, NextPromotion, …) and
// needs no cluster; Runner does what was decided through the Cluster port, looks again, and decides again.
//
// It holds no state beside the calls in flight: after a restart the same call, sent again, is decided from what the
// cluster shows, and comes to the same answer (E39, D11). It is not a Kubernetes client: that is internal/cluster.
package core
