package activity

import (
	"context"
	"time"
)

// Web sends HTTP requests for programs. Errors are classed: Invalid, Unauthenticated (the credential), Denied (the address), NotFound,
// Refused (the answer is too large), Unavailable (there was no answer), Conflict (there was no answer, and the server may have executed the
// request).
type Web interface {
	// Send sends one request, and reads the answer up to its limits.
	Send(ctx context.Context, r WebRequest) (WebAnswer, error)
}

// WebRequest is one HTTP request.
type WebRequest struct {
	// Organization is whose workflow it is: it says which credentials may be used.
	Organization int64
	Method, URL  string
	Header       map[string]string
	Body         []byte
	// Credential is the name of the credential to send; "" for none. Secrets are the references of the run, by the names that its program
	// may use instead.
	Credential string
	Secrets    map[string]string
	// Timeout bounds the request, the reading of the answer included.
	Timeout time.Duration
	// Repeatable says that the server executes the request once even if it receives it twice.
	Repeatable bool
	// Keep is how many bytes of the answer's body are kept; of a longer one, only its size and digest.
	Keep int
}

// WebAnswer is the answer to a WebRequest.
type WebAnswer struct {
	Status int
	// Header has lower-case names. Of several values of one header it has all, joined by a comma.
	Header map[string]string
	// Body is complete, or nil if it is longer than WebRequest.Keep.
	Body []byte
	// Size is the length of the body in bytes, and Digest its SHA-256, hexadecimal.
	Size   int64
	Digest string
}
