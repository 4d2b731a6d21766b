// Package core holds the nouns of continuous delivery and the rules of their life cycles: states, the transitions between them, actors
// and what they may do, gates, pages of lists. It imports no other package of the service.
//
// The use cases are in the packages below it: access, setup, intake, rollout, handoff and view. Every use case writes state, journal row,
// hand-over and event in one transaction; state is a cache of the journal (R42).
//
// All of them are pure: they know neither PostgreSQL nor NATS, neither a driver's bundle nor GraphQL. Each declares what it needs of the
// store in store.go and of other adapters in ports.go. None looks inside driver configuration, and none knows clusters or where an artifact
// was built (R1, R2).
package core
