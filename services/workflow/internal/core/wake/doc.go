// Package wake has the signals that wake loops: they do not pile up, and none is lost between two waits.
package wake
