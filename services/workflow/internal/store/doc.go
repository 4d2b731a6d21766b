// Package store keeps executions, histories, events and waits in PostgreSQL. It implements engine.Store, whose comments document where
// transactions begin and end. It makes no decisions: it knows no program and calls no Function.
//
// # Commits
//
// The items of concurrent callers share a transaction (group.go). There is one way to commit (commit.go) for turns, for starts with their
// first turns, and for events from outside. It has a parameter, strict:
//
//	strict      every turn passes its fence and may park, every event is new, the filters of its type are known;
//	            no statement has an answer to wait for: one round trip, or two if events or waits have to be matched
//	            a statement that finds anything else refuses the transaction, and nothing of it has happened
//	not strict  reads what strict takes for granted, under the same locks, leaves out what does not pass,
//	            and runs the same statements
//
// A commit is strict first, and not strict if the server refuses that. match.go explains how events and waits find each other, lock.go
// which locks that takes, and shapes.go what a process knows of filters.
//
// # What the benchmarks need
//
// Two pieces make commits faster and nothing else. Without either of them a benchmark loses more than a tenth (tools/bench/README.md):
//
//   - knownFilters (shapes.go): without it no commit with events from outside is strict, and B2-events takes a fifth more processor time.
//   - tenants (tenants.go): without it quiet organizations wait two to three times as long beside a busy one in B12. A constant bound of
//     128 items takes B2 with 512 clients up to a quarter more processor time, and one of 256 is too long for B12.
//
// # Tables
//
// schema.sql shows the tables as they are now; migrations make them.
package store
