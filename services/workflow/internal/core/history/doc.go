// Package history holds what is recorded of an execution and what programs exchange with the world: entries, operations and
// their results, events and the filters that match them, messages of channels, errors of Functions, and the limits of values.
//
// What it encodes is stored, hashed and known to other systems: names, canonical forms and keys never change.
package history
