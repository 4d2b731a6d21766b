// Package rpc is how services answer synchronous callers: one way to build a gRPC server, a gRPC client and an HTTP
// server, so that all of them class errors, authenticate, log and stop alike.
//
// An error crosses as its class (pkg/fault): the status code says what to do, ErrorInfo carries the reason and
// BadRequest each field at fault. What is lost on the way is the chain of causes, which stays in the log of the process
// that failed. It is not a framework: it knows no service and no method.
package rpc
