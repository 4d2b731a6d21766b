// Package measure takes the measurements that depend on a real cluster: how soon the engine sees a change in the cluster, how soon a
// promotion leads to the next gate, how soon a rollout has its first commit, and what a relay needs for many concurrent rollouts. It
// reports the figures together with the load of the machine, and judges nothing.
package measure
