// Package measure takes the figures that a real cluster decides: how soon the engine knows what a cluster shows, how soon a
// promotion leads to the next gate, how soon a rollout has its first commit, and what a relay needs for many rollouts at
// once. It says what it saw, side by side with the load of the machine; it judges nothing.
package measure
