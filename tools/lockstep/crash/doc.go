// Package crash holds no code, only tests: what becomes of a rollout when processes of a whole stack are killed, its streams
// are wiped, and its boundaries are given wrong input; and what is recorded of it meanwhile.
package crash
