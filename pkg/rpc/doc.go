// Package rpc is how services call each other and are called: gRPC servers and clients, and HTTP servers, with the same
// manners everywhere. A server recovers from panics, writes one line per call, knows its caller by a bearer token, and
// turns the class of an error (package fault) into a status with details; a client turns the status back into the class,
// retries what is unavailable, and never waits without a deadline.
//
// It knows no service's methods, and no user of the public API: its callers are machines of the installation.
package rpc
