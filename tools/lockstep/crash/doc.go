// Package crash holds no code, only tests: what happens to a rollout when processes of a whole stack are killed, its streams
// are wiped, its passwords are replaced, and its boundaries are given wrong input; what is recorded of it meanwhile, and which
// secrets are not.
package crash
