// Package demo plays what `lockstep demo` shows: two services are rolled out to two environments gate by gate, a bad version is
// stopped, and a rollback restores the good one. It drives a stack from the outside, as a user and a registry would, and reports
// only what it has observed.
package demo
