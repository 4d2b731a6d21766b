// Package flow registers programs that events start, and starts their runs.
package flow
