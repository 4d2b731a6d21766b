// Package control is what callers ask of the workflow service: to start, find and read executions, to follow them, to interfere
// with them, and to hand over events, messages and answers.
package control
