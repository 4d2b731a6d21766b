// Package core holds the nouns and rules of the durable engine: executions, their histories, waits, timers and calls,
// the ports to the store and to Functions, and the turn that ties them together.
//
// It knows no SQL, no bus and no Starlark: adapters bring those.
package core
