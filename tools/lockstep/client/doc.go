// Package client is the part of Lockstep's GraphQL API that the lockstep command and the demo use: a few typed queries and mutations over
// plain HTTP.
//
// It is not a general client: the contract is the schema, services/domain/internal/api/graph/schema.
package client
