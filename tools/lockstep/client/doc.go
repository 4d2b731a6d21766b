// Package client is what the lockstep command and the demo know of Lockstep's GraphQL API: a few typed reads and changes over
// plain HTTP.
//
// It is not a general client: the schema is the contract, services/domain/internal/api/graph/schema.graphqls.
package client
