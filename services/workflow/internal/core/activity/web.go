package activity

import (
	"context"
	"time"
)

// WebShare is the share (Sharing) of the Functions that send requests to other servers, and RequestsAtOnce how many of them one
// organization has in progress at a time, in a process.
const (
	WebShare       = "web"
	RequestsAtOnce = 16
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
	// Delivery is that the run only reports to the outside what happens: such requests have a share of their own.
	Delivery    bool
	Method, URL string
	Header      map[string]string
	Body        []byte
	// Credential is the name of the credential to send; "" for none. Secrets are the references of the run, by the names that its program
	// may use instead.
	Credential string
	Secrets    map[string]string
	// URLCredential is the name of a credential that is the URL to send to, which has to begin with URL; "" for none.
	URLCredential string
	// Sign are the names of credentials that sign the request as Standard Webhooks does, each with a signature of its own, as a message of
	// SignID.
	Sign   []string
	SignID string
	// JSONCredentials are the names of credentials whose secrets are members of the body, a JSON object, by the names of the members.
	JSONCredentials map[string]string
	// Timeout bounds the request, the reading of the answer included.
	Timeout time.Duration
	// Repeatable is set if the server executes the request once even if it receives it twice.
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

// Mailer sends e-mail for programs. Errors are classed as those of Web; Refused means that the server refuses the message permanently.
type Mailer interface {
	SendMail(ctx context.Context, m Mail) (MailAnswer, error)
}

// Mail is one message.
type Mail struct {
	// Organization is whose workflow it is: it says which credentials may be used.
	Organization int64
	// Delivery is as that of WebRequest.
	Delivery bool
	// Server is the URL of the server: smtp://host:587, which has to offer STARTTLS, or smtps://host:465.
	Server string
	// Plain permits a server without encryption; no credential is sent to it.
	Plain bool
	// Credential is the name of the credential to sign in with, with a user name; "" for none. Secrets are as those of WebRequest.
	Credential string
	Secrets    map[string]string
	// From and To are addresses, and MessageID identifies the message, also when it is sent again.
	From      string
	To        []string
	MessageID string
	// InReplyTo is the MessageID of the message that began the conversation; "" for that message itself.
	InReplyTo     string
	Subject       string
	Text, HTML    string
	Timeout       time.Duration
	Date          time.Time
	AutoSubmitted bool
}

// MailAnswer says which addresses the server has refused, each with its answer.
type MailAnswer struct{ Refused map[string]string }

// Publisher publishes messages on subjects of NATS for programs. Errors are classed as those of Mailer.
type Publisher interface {
	Publish(ctx context.Context, m SubjectMessage) error
}

// SubjectMessage is one message on a subject.
type SubjectMessage struct {
	// Organization, Delivery, Credential and Secrets are as those of WebRequest. A credential with a user name is a password, any other one a
	// token.
	Organization int64
	Delivery     bool
	Credential   string
	Secrets      map[string]string
	// Server is the URL of the server: nats://host:4222, which has to offer TLS, or tls://host:4222.
	Server string
	// Plain permits a server without encryption; no credential is sent to it.
	Plain bool
	// Subject is where it is published, and MessageID identifies the message, also when it is sent again.
	Subject, MessageID string
	// ContentType is that of Data; "" for none.
	ContentType string
	Data        []byte
	// Stored is that a stream has to confirm that it has the message.
	Stored  bool
	Timeout time.Duration
}
