// Package sandbox runs programs that nobody here vouches for in child processes with limits of the operating system
// (D45). Starlark's own limits bound steps; they bound neither memory nor the time that one step takes.
//
// # How it works
//
// Scripts is a core.Scripts in front of another: programs that are trusted go to that one, all others to a small pool of
// children, each of which is this service's own binary in another role (Serve) around a core.Scripts of its own. A child
// holds many runs and works for one at a time. It is told programs, histories and completions and answers what the
// program asks for; the clock, identifiers and emits it asks back for. It gets an empty environment, no file but its
// three pipes, and never a secret: programs have references only (D27).
//
// # When a child dies
//
// A child ends itself when the program it works for exceeds its memory or its CPU time, and the operating system ends it
// when it is too late for that. CPU time is the program's alone, so that program has failed. Memory is shared by all
// runs of a child, so the program that was being run is only suspected: it is run again in a child of its own, and has
// failed if that one dies, too. All other runs of the child are interrupted (core.Interrupted): they lost nothing but
// time, and are replayed elsewhere.
//
// # What it is not
//
// It does not separate programs from a hole in the interpreter by more than a process: there is no other user, no
// namespace and no filter of system calls. Put the service itself into a container for that.
package sandbox
