package bus

import "github.com/nats-io/nats.go/jetstream"

// JetStream is the client under a connection, for tests to look at the server through.
func JetStream(c *Conn) jetstream.JetStream { return c.js }
