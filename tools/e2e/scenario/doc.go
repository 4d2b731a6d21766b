// Package scenario runs end-to-end tests that are data: a folder with a scenario.yaml describes an application and what happens to it, act
// by act, each with the expected outcome. All scenarios of a run share a stack and a cluster; the names of what they create begin with the
// scenario's.
package scenario
