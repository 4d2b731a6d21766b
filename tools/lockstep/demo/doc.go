// Package demo is the story that `lockstep demo` tells: two services reach two environments gate by gate, a bad version is
// stopped, and a rollback makes it good again. It drives a stack from the outside, as a user and a registry would, and believes
// only what it has observed.
package demo
