package transport

import (
	"encoding/json"
	"fmt"
	"mime"
	"net/http"
	"strings"

	"github.com/99designs/gqlgen/graphql"
	"github.com/99designs/gqlgen/graphql/errcode"
	"github.com/vektah/gqlparser/v2/ast"
	"github.com/vektah/gqlparser/v2/gqlerror"

	"github.com/lockstep-cd/lockstep/pkg/fault"
)

// Exchange is GraphQL over HTTP: one operation, one response. It is ours and not the library's because a subscription has to be refused
// here, a request with errors alone has no data, and the status depends on the media type as the specification has it.
type Exchange struct {
	// Reads is where queries read; nil for the database alone.
	Reads Reads
}

const (
	graphQLResponse = "application/graphql-response+json"
	plainJSON       = "application/json"
	// maxErrors is how many errors of a request are shown: its author fixes them one after the other.
	maxErrors = 50
)

var _ graphql.Transport = Exchange{}

// Supports reports whether this may be answered so; Check has seen method and content type.
func (Exchange) Supports(*http.Request) bool { return true }

// Do answers one operation.
func (e Exchange) Do(w http.ResponseWriter, r *http.Request, executor graphql.GraphExecutor) {
	params, err := rawParams(r)
	if err != nil {
		refuse(w, http.StatusBadRequest, invalid, err.Error())
		return
	}
	operation, errs := executor.CreateOperationContext(r.Context(), params)
	ctx := graphql.WithOperationContext(r.Context(), operation)
	media := mediaOf(r)
	if len(errs) > 0 {
		// With application/json a status other than 200 says that the server is no GraphQL server; the other type is only GraphQL's.
		status := http.StatusBadRequest
		if media == plainJSON {
			status = http.StatusOK
		}
		write(w, media, status, executor.DispatchError(ctx, requestErrors(operation, errs)))
		return
	}
	switch kind := operation.Operation.Operation; {
	case kind == ast.Subscription:
		refuse(w, http.StatusNotAcceptable, invalid,
			fmt.Sprintf("accept: found %q; expected %s for a subscription", r.Header.Get("Accept"), eventStream))
		return
	case kind != ast.Query && r.Method == http.MethodGet:
		refuseGET(w)
		return
	case kind == ast.Query && e.Reads != nil && r.Header.Get(positionHeader) != "":
		if ctx, err = e.Reads.Begin(ctx, r.Header.Get(positionHeader)); fault.Is(err, fault.Invalid) {
			refuse(w, http.StatusBadRequest, invalid, positionHeader+": "+fault.Public(err))
			return
		}
	}
	next, ctx := executor.DispatchOperation(ctx, operation)
	if response := next(ctx); response != nil { // nil: the caller hung up
		if position := positioned(ctx, e.Reads, r); position != "" {
			w.Header().Set(positionHeader, position)
		}
		write(w, media, http.StatusOK, response)
	}
}

// refuseGET answers a mutation by GET: that changes nothing.
func refuseGET(w http.ResponseWriter) {
	w.Header().Set("Allow", http.MethodPost)
	refuse(w, http.StatusMethodNotAllowed, invalid, "method: found GET; expected POST for a mutation")
}

// mediaOf is the media type of the answer: the first that the client accepts, and GraphQL's own where it does not mind.
func mediaOf(r *http.Request) string {
	for part := range strings.SplitSeq(r.Header.Get("Accept"), ",") {
		switch media, _, _ := mime.ParseMediaType(strings.TrimSpace(part)); media {
		case plainJSON, graphQLResponse:
			return media
		case "*/*", "application/*":
			return graphQLResponse
		}
	}
	return graphQLResponse
}

// write answers. Where nothing was carried out there is no data, not even null.
func write(w http.ResponseWriter, media string, status int, response *graphql.Response) {
	var answer any = response
	if len(response.Data) == 0 {
		answer = struct {
			Errors     gqlerror.List  `json:"errors,omitempty"`
			Extensions map[string]any `json:"extensions,omitempty"`
		}{response.Errors, response.Extensions}
	}
	text, err := json.Marshal(answer)
	if err != nil {
		refuse(w, http.StatusInternalServerError, "INTERNAL", "the answer cannot be written")
		return
	}
	w.Header().Set("Content-Type", media)
	w.WriteHeader(status)
	_, _ = w.Write(text) // the caller hung up; there is nobody to answer
}

// requestErrors are what is wrong with a request, as many as anybody reads, and with what was expected where the library does not say.
func requestErrors(operation *graphql.OperationContext, errs gqlerror.List) gqlerror.List {
	if operation != nil && operation.Doc != nil && operation.Operation == nil && len(errs) == 1 {
		var names []string
		for _, o := range operation.Doc.Operations {
			names = append(names, o.Name)
		}
		found := "none"
		if operation.OperationName != "" {
			found = fmt.Sprintf("%.100q", operation.OperationName)
		}
		err := gqlerror.Errorf("operationName: found %s; expected the one of the document's operations that is to be carried out: %s", found,
			cut(strings.Join(names, ", ")))
		errcode.Set(err, errcode.ValidationFailed)
		return gqlerror.List{err}
	}
	if len(errs) <= maxErrors {
		return errs
	}
	more := gqlerror.Errorf("and %d more errors", len(errs)-maxErrors)
	errcode.Set(more, errcode.ValidationFailed)
	return append(errs[:maxErrors:maxErrors], more)
}

// cut keeps a text as long as a message may be.
func cut(text string) string {
	const most = 500
	if len(text) > most {
		return strings.ToValidUTF8(text[:most], "") + "…"
	}
	return text
}
