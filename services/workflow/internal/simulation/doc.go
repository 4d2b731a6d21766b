// Package simulation runs the engine's core, thousands of times in virtual time, over a store, a bus and a world of Functions
// that fail in every way that the real ones can, and looks after each step whether what has to stay true still is.
//
// It is made of
//
//   - Memory, a store that keeps in memory what internal/store keeps in PostgreSQL, by the same rules;
//   - a scheduler, which stops every call of every process in front of the store and of Functions, and lets one of them
//     through at a time: applied, refused, or applied with the answer lost. Processes are killed, stalled beyond their lease
//     and started again at the same points, their clocks differ, and messages of the bus come late, twice and in any order;
//   - programs made at random from all operations that there are, and a check of what they left behind.
//
// All that is decided at random is decided by one seed, so a failure is run again by its seed. The engine's goroutines run in a
// bubble of testing/synctest: when the scheduler decides, all of them stand still, so their speed decides nothing.
//
// It is no test of SQL, of NATS or of speed. What it finds out about the rules holds for PostgreSQL as far as the tests of
// internal/store show that the same rules hold there.
package simulation
