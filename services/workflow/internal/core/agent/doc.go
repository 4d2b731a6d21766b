// Package agent holds what concerns the relays in clusters: who owns them, the calls sent to them, what they watch, and the
// standing reports they make.
package agent
