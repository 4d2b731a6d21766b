// Package transport is GraphQL over HTTP: the checks of a request before GraphQL sees it, requests that are carried out once
// (Idempotency-Key), answers, and subscriptions as server-sent events.
//
// It knows no type of the schema: package graph resolves.
package transport
