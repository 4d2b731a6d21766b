// Package core is the continuous-delivery domain: its nouns, the rules of their life cycles, and the use cases through
// which everything changes. Every use case writes state, journal row, hand-over and event in one transaction; state is a
// cache of the journal (R42).
//
// It is pure: it knows neither PostgreSQL nor NATS, neither a driver's bundle nor GraphQL. What it needs of them it asks
// for in ports.go and store.go. It never looks inside driver configuration, and knows nothing of clusters or of where an
// artifact was built (R1, R2).
package core
