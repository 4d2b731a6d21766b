// Package sandbox runs programs that nobody here vouches for in child processes with limits of the operating system
// (D45). Starlark's own limits bound steps; they bound neither memory nor the time that one step takes.
//
// # How it works
//
// Scripts is a program.Scripts in front of another: programs that are trusted go to that one, all others to a small pool of
// children, each of which is this service's own binary in another role (Serve) around a program.Scripts of its own. A child
// holds many runs of one organization and works for one at a time. It receives programs, histories and completions and returns what the
// program asks for; the clock, identifiers and emits it asks back for. It gets an empty environment, no file but its
// three pipes, and never a secret: programs have references only (D27).
//
// Who may compute is decided by organization (cpu.go), and so is who has a child and for how long (place.go).
//
// # When a child dies
//
// A child ends itself when the program it works for exceeds its memory or its CPU time, and the operating system ends it
// when it is too late for that. CPU time is the program's alone, so that program has failed. Memory is shared by all
// runs of a child, so the program that was being run is only suspected: it is run again in a child of its own, and has
// failed if that one dies, too. All other runs of the child are interrupted (program.Interrupted): they lost nothing but
// time, and are replayed elsewhere.
//
// # When something is found in the interpreter
//
// A child confines itself before it reads a program (isolate): it has no network, no files, no sight of other processes and no way to start
// one, as far as its kernel can refuse them. What the kernel cannot is reported. There is no other user and no namespace.
package sandbox
