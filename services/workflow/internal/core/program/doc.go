// Package program holds programs as the engine sees them: source code, what can be found out about it without running it, and the ports
// to the machine that runs it.
package program
