// Package rpc has the gRPC servers and clients, and the HTTP servers, of all services, so that they behave alike. A server recovers from
// panics, logs one line per call, authenticates its caller by a bearer token, and converts the class of an error (package fault) to a
// status with details. A client converts the status back to the class, retries Unavailable, and always has a deadline.
//
// It knows no service's methods, and no users of the public API: its callers are machines of the installation.
package rpc
