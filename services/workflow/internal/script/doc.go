// Package script runs workflow programs written in Starlark, and replays them over their histories.
//
// The dialect has while, control flow at top level, sets and reassignment of globals; recursion is off, and load() finds
// only the program's own modules (D34). A program is its top level, followed by main(…), if it defines one, with the
// inputs of the parameters' names. Inputs are globals. testdata/*.star shows all of the language that is ours; the rest
// is https://github.com/google/starlark-go/blob/master/doc/spec.md.
//
// # How a run stays deterministic
//
// A machine runs one branch at a time, as coroutines. A branch runs until it blocks on an operation (run, sleep,
// wait_for_event, gather) or ends; then the next branch that can run does. When none can, only a completion makes
// progress, and completions become the history in the order in which they are applied. Operations that are answered on
// the spot (now, uuid, print, emit) are recorded in line. So the history alone decides every choice, and replay is the
// same loop fed from it: each entry must fit the operation it names by kind, name and hash of arguments, or the run
// stops with a *program.Mismatch.
//
// # What it is not
//
// It is no sandbox for hostile programs: steps, source, values and output are bounded, memory is not (D45).
package script
