// Package bus carries events between services over NATS JetStream, and hints over core NATS.
//
// An event is a CloudEvent of package event, published on the subject that its type gives it and confirmed by the stream
// that stores it. A consumer is durable and pulls: its handler's nil is a double-acknowledged message, and the class of
// its error decides between another delivery after a delay and the end of the message (table in package fault).
// A hint is a message that may get lost.
//
// The bus is transport, never the record (decision D44). A connection therefore outlives everything: it reconnects for
// ever, remembers the streams and consumers that it was given, and makes them again when the server comes back without
// them. What was in a lost stream is sent again by package outbox, which this package knows nothing about.
//
// Each kind of service logs in as its own user, whose permissions (Permissions) keep the three event paths apart, and on the domain's path
// the events of the domain service from those of the workflow service. The
// server reports a denial to a client by an asynchronous error only; here it is the error of the call that caused it.
package bus
