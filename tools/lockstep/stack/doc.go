// Package stack keeps a whole Lockstep up on one machine: PostgreSQL, and as child processes of this executable NATS, an OCI
// registry, a Git server, a simulated cluster and the four services. A child that dies is started again with the same ports
// and data, so that what a crash does to the product can be seen, by hand and in tests.
//
// It is for development, the demo and the tests. It is not how Lockstep is run in production.
package stack
