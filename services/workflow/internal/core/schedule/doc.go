// Package schedule starts runs of programs at given times: it computes due times, decides what happens to each, and starts the runs.
//
// Each due time leads to at most one run, whose id is made of the schedule and the due time.
package schedule
