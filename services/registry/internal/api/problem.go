package api

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"github.com/lockstep-cd/lockstep/pkg/fault"
)

// refusal is an error at the HTTP level, with a status that no class of package fault has.
type refusal struct {
	status                 int
	field, found, expected string
	cause                  error
}

// Error names the field.
func (r refusal) Error() string { return r.field + ": " + r.problem() }

// Unwrap returns the cause, for the log.
func (r refusal) Unwrap() error { return r.cause }

func (r refusal) problem() string {
	found := "missing"
	if r.found != "" {
		found = "found " + r.found
	}
	return fmt.Sprintf("%s; expected %s", found, r.expected)
}

// problem is a document of RFC 9457. Its type is left at about:blank: the status and errors say everything.
type problem struct {
	Title  string         `json:"title"`
	Status int            `json:"status"`
	Detail string         `json:"detail"`
	Errors []problemField `json:"errors,omitempty"`
}

// problemField is one problem of the request.
type problemField struct {
	// Field is its path as the sender wrote it: data.digest, [2].data.image, events[0].target.digest, content-type.
	Field string `json:"field"`
	// Problem says what was found and what was expected.
	Problem string `json:"problem"`
}

// refuse answers with an error and notes it for the log.
func refuse(w http.ResponseWriter, r *http.Request, err error) {
	noteError(r, err)
	status := statusOf(err)
	p := problem{Title: http.StatusText(status), Status: status, Detail: "the request was refused and nothing was stored"}
	if own, ok := errors.AsType[refusal](err); ok {
		p.Detail = own.Error()
		p.Errors = []problemField{{Field: own.field, Problem: own.problem()}}
	} else {
		// The message, or a constant for internal errors, whose text is only for the log.
		p.Detail = fault.Public(err)
		for _, f := range fault.FieldsOf(err) {
			p.Errors = append(p.Errors, problemField{Field: f.Name, Problem: f.Problem})
		}
	}
	// In seconds. A sender that honours it comes back when a failover of the database is likely over.
	if status == http.StatusServiceUnavailable {
		w.Header().Set("Retry-After", "5")
	}
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(p) // fails only if the sender hung up
}
