package fault

import "log/slog"

// Disposition is what an event consumer does with a message whose handler returned an error.
type Disposition int

// The dispositions. A handler that returns nil acknowledges the message.
const (
	// Retry returns the message for redelivery after a delay.
	Retry Disposition = iota
	// Terminate ends its delivery and reports it as a dead letter.
	Terminate
	// Acknowledge ends its delivery without a report: the outcome is known and final.
	Acknowledge
)

// Row is the mapping of one class at every boundary.
type Row struct {
	// Name is the class in lower case, as logs show it.
	Name string
	// GRPC is the numeric status code (google.rpc.Code).
	GRPC uint32
	// GraphQL is the code in an error's extensions.
	GraphQL string
	// HTTP is the status code.
	HTTP int
	// Consumer is what a consumer does with the event.
	Consumer Disposition
	// Level is how the boundary logs it.
	Level slog.Level
}

// Describe returns the row of a class. It panics on a value that is not a class.
func Describe(c Class) Row {
	switch c {
	case Internal:
		return Row{"internal", 13, "INTERNAL", 500, Retry, slog.LevelError}
	case Invalid:
		return Row{"invalid", 3, "INVALID", 400, Terminate, slog.LevelInfo}
	case NotFound:
		return Row{"not_found", 5, "NOT_FOUND", 404, Terminate, slog.LevelInfo}
	case Conflict:
		return Row{"conflict", 6, "CONFLICT", 409, Terminate, slog.LevelInfo}
	case Refused:
		return Row{"refused", 9, "REFUSED", 409, Terminate, slog.LevelInfo}
	case Unauthenticated:
		return Row{"unauthenticated", 16, "UNAUTHENTICATED", 401, Terminate, slog.LevelInfo}
	case Denied:
		return Row{"denied", 7, "DENIED", 403, Terminate, slog.LevelWarn}
	case Unavailable:
		return Row{"unavailable", 14, "UNAVAILABLE", 503, Retry, slog.LevelWarn}
	case Limited:
		return Row{"limited", 8, "RATE_LIMITED", 429, Retry, slog.LevelInfo}
	case Terminal:
		return Row{"terminal", 13, "FAILED", 500, Terminate, slog.LevelError}
	default:
		panic("fault: not a class")
	}
}

// Classes returns all classes, for tables and tests.
func Classes() []Class {
	return []Class{Internal, Invalid, NotFound, Conflict, Refused, Unauthenticated, Denied, Unavailable, Limited, Terminal}
}

// FromGRPC returns the class for the status code of a call that we made.
func FromGRPC(code uint32) Class {
	switch code {
	case 3, 11:
		return Invalid
	case 5:
		return NotFound
	case 6:
		return Conflict
	case 9:
		return Refused
	case 16:
		return Unauthenticated
	case 7:
		return Denied
	case 8:
		return Limited
	case 1, 4, 10, 14:
		return Unavailable
	default:
		return Internal
	}
}

// String returns the name of the class.
func (c Class) String() string { return Describe(c).Name }
