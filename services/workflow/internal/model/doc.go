// Package model holds models of what the engine's durability rests on, in Promela, and the tests that have Spin search every
// interleaving of them (`make model`) and that keep their words tied to the code. README.md says what they cover.
//
// It is no part of the service: nothing imports it. What the code itself does under failures is the simulation's to find.
package model
