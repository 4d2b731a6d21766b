package api

import (
	"log/slog"
	"net/http"
	"strings"

	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/pkg/rpc"
	"github.com/lockstep-cd/lockstep/pkg/throttle"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/feed"
)

// DocsPath is the path of the documentation.
const DocsPath = "/docs/"

// Deps is what the HTTP surface is made of.
type Deps struct {
	// GraphQL answers /graphql, for requests whose actor is known.
	GraphQL http.Handler
	// Console answers every path that nothing else does. What it shows it asks of /graphql.
	Console http.Handler
	// Docs answers paths below DocsPath; nil where the documentation is switched off.
	Docs http.Handler
	// Tokens are configured; Access knows all others.
	Tokens Tokens
	Access Access
	// Export answers ExportPath.
	Export Export
	// Everything answers OrganizationExportPath.
	Everything Everything
	// Archived answers ArchivedPath.
	Archived Archived
	// Checks answers ChecksPath.
	Checks Checks
	// Evaluations answers EvaluateCheckPath.
	Evaluations Evaluations
	// Deployments takes what is sent to ReportDeploymentPath.
	Deployments Deployments
	// Triggers takes what is sent to EventsPath.
	Triggers Triggers
	Clock    clock.Clock
	// Guard slows down those whose credentials prove nothing; nil lets them try as often as they like.
	Guard *throttle.Guard
	// FeedGuard slows down those who ask for feeds and badges that do not exist. It is another one, so that a page that shows pictures which
	// are gone keeps nobody at its readers' address from signing in.
	FeedGuard *throttle.Guard
	// Chats takes what chat servers send to paths below ChatPath.
	Chats Chats
	// Feeds serves what is below FeedPath and BadgePath of package feed.
	Feeds Feeds
	Log   *slog.Logger
	// SignOn is nil where tokens are the only way in.
	SignOn *SignOn
}

// NewHandler is the HTTP surface: /graphql, ExportPath, OrganizationExportPath, ArchivedPath, ChecksPath, EvaluateCheckPath,
// ReportDeploymentPath, EventsPath, ChatPath, /session where a browser signs in and out (below it, by an identity provider), /feeds and
// /badges for readers who are not signed in, /docs with the documentation, and the console everywhere else.
func NewHandler(d Deps) http.Handler {
	keys := newKeyring(d.Tokens, d.Access, d.Clock, d.Guard)
	mux := http.NewServeMux()
	mux.Handle("/graphql", keys.authenticate(d.GraphQL))
	mux.Handle(ExportPath, keys.authenticate(exportHandler(d.Export)))
	mux.Handle(OrganizationExportPath, keys.authenticate(everythingHandler(d.Everything)))
	mux.Handle(ArchivedPath, keys.authenticate(archivedHandler(d.Archived)))
	mux.Handle(ChecksPath, keys.authenticate(checksHandler(d.Checks)))
	mux.Handle(EvaluateCheckPath, keys.authenticate(evaluateHandler(d.Evaluations)))
	mux.Handle(ReportDeploymentPath, keys.authenticate(reportDeploymentHandler(d.Deployments, d.Clock)))
	mux.Handle(EventsPath, keys.authenticate(eventsHandler(d.Triggers)))
	if d.Chats != nil {
		chats := chatHandler{d.Chats, d.Log}
		mux.HandleFunc("POST "+ChatPath+"{organization}/{channel}", keys.pressed(chats.take))
		mux.HandleFunc("POST "+ChatPath+"{organization}/{channel}"+CommandPath, keys.pressed(chats.command))
	}
	if d.Feeds != nil {
		feeds, readers := feedHandler{d.Feeds, d.Log}, newKeyring(d.Tokens, d.Access, d.Clock, d.FeedGuard)
		mux.HandleFunc("GET "+feed.FeedPath+"{organization}/{token}/{file}", readers.guessed(feeds.read))
		mux.HandleFunc("GET "+feed.BadgePath+"{organization}/{application}/{file}", readers.guessed(feeds.badge))
	}
	mux.HandleFunc("POST /session", keys.signIn)
	mux.HandleFunc("DELETE /session", keys.signOut)
	mux.HandleFunc("GET /session", d.SignOn.options)
	if d.SignOn != nil {
		mux.HandleFunc("GET "+signOnPath, d.SignOn.begin)
		mux.HandleFunc("GET "+callbackPath, keys.slowed(d.SignOn.finish))
		mux.HandleFunc("POST "+logoutPath, keys.slowed(d.SignOn.logout))
	}
	if d.Docs != nil {
		mux.Handle("GET "+DocsPath, d.Docs)
	}
	mux.Handle("/", d.Console)
	return guard(mux)
}

// guard sets what every answer has: nothing of ours is to be framed, sniffed or cached. The console, which is a page and
// has files that never change, says its own of the first and the last.
func guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, feed.FeedPath) { // whatever follows, it may be a token
			rpc.ShowPath(w, feed.FeedPath+"…")
		}
		h := w.Header()
		h.Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'")
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		h.Set("Cache-Control", "no-store")
		next.ServeHTTP(w, r)
	})
}
