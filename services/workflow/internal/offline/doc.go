// Package offline runs programs without the service: it replays histories that the service has recorded, with breakpoints, and runs tests
// of programs in virtual time, over Functions that answer what a test says, with crashes at random.
//
// It stores nothing and calls nothing. Programs run in this process, within the limits of the service: they are the caller's own.
package offline
