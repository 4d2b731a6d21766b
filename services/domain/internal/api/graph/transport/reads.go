package transport

import (
	"context"
	"net/http"

	"github.com/99designs/gqlgen/graphql"
)

// positionHeader is how a client says what its query has to include: a position that an earlier answer had, or "now". Answers to requests
// that have it say in it what they include.
const positionHeader = "Lockstep-Position"

// Reads has queries read from a standby of the database, where that has what the client has seen.
type Reads interface {
	// Begin has the reads of ctx run there, if it may. The error is Invalid for a malformed position.
	Begin(ctx context.Context, after string) (context.Context, error)
	// Position is that of what was read or changed in ctx.
	Position(ctx context.Context) (string, error)
}

// positioned is what a request is answered with beside its result: "" if the client did not ask, or that is not known.
func positioned(ctx context.Context, reads Reads, r *http.Request) string {
	if reads == nil || r.Header.Get(positionHeader) == "" {
		return ""
	}
	position, err := reads.Position(ctx)
	if err != nil {
		return "" // the client continues with the one that it has
	}
	return position
}

// extend adds the position to an event of a stream.
func extend(response *graphql.Response, position string) {
	if position == "" {
		return
	}
	if response.Extensions == nil {
		response.Extensions = map[string]any{}
	}
	response.Extensions["position"] = position
}
