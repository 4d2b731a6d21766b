package api

import (
	_ "embed"
	"net/http"
)

//go:embed landing.html
var landing []byte

// Deps is what the HTTP surface is made of.
type Deps struct {
	// GraphQL answers /graphql, for requests whose actor is known.
	GraphQL http.Handler
	Tokens  Tokens
}

// NewHandler is the HTTP surface: /graphql, and a page at / that says so. Everything else is not there.
func NewHandler(d Deps) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/graphql", authenticate(d.Tokens, d.GraphQL))
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		_, _ = w.Write(landing) // a client that is gone needs no answer
	})
	return guard(mux)
}

// guard sets what every answer has: nothing of ours is to be framed, sniffed or cached.
func guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'")
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cache-Control", "no-store")
		next.ServeHTTP(w, r)
	})
}
