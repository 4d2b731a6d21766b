package fault_test

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/lockstep-cd/lockstep/pkg/fault"
)

func TestTable(t *testing.T) {
	t.Parallel()
	want := map[fault.Class]fault.Row{
		fault.Internal: {Name: "internal", GRPC: 13, GraphQL: "INTERNAL", HTTP: 500, Consumer: fault.Retry, Level: slog.LevelError},
		fault.Invalid:  {Name: "invalid", GRPC: 3, GraphQL: "INVALID", HTTP: 400, Consumer: fault.Terminate, Level: slog.LevelInfo},
		fault.NotFound: {Name: "not_found", GRPC: 5, GraphQL: "NOT_FOUND", HTTP: 404, Consumer: fault.Terminate, Level: slog.LevelInfo},
		fault.Conflict: {Name: "conflict", GRPC: 6, GraphQL: "CONFLICT", HTTP: 409, Consumer: fault.Terminate, Level: slog.LevelInfo},
		fault.Refused:  {Name: "refused", GRPC: 9, GraphQL: "REFUSED", HTTP: 409, Consumer: fault.Terminate, Level: slog.LevelInfo},
		fault.Unauthenticated: {
			Name: "unauthenticated", GRPC: 16, GraphQL: "UNAUTHENTICATED", HTTP: 401, Consumer: fault.Terminate,
			Level: slog.LevelInfo,
		},
		fault.Denied:      {Name: "denied", GRPC: 7, GraphQL: "DENIED", HTTP: 403, Consumer: fault.Terminate, Level: slog.LevelWarn},
		fault.Unavailable: {Name: "unavailable", GRPC: 14, GraphQL: "UNAVAILABLE", HTTP: 503, Consumer: fault.Retry, Level: slog.LevelWarn},
		fault.Limited:     {Name: "limited", GRPC: 8, GraphQL: "RATE_LIMITED", HTTP: 429, Consumer: fault.Retry, Level: slog.LevelInfo},
		fault.Terminal:    {Name: "terminal", GRPC: 13, GraphQL: "FAILED", HTTP: 500, Consumer: fault.Terminate, Level: slog.LevelError},
	}
	got := map[fault.Class]fault.Row{}
	for _, c := range fault.Classes() {
		got[c] = fault.Describe(c)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("table (-want +got):\n%s", diff)
	}
}

func TestClassSurvivesWrapping(t *testing.T) {
	t.Parallel()
	err := fmt.Errorf("load run %q: %w", "r1", fault.New(fault.NotFound, "run %q does not exist", "r1"))
	if !fault.Is(err, fault.NotFound) {
		t.Errorf("class of %v is %v, want not_found", err, fault.ClassOf(err))
	}
	if fault.ClassOf(io.EOF) != fault.Internal {
		t.Error("an unclassed error is not internal")
	}
}

func TestInternalTextNeverLeaks(t *testing.T) {
	t.Parallel()
	secret := errors.New("dial postgres://cd:hunter2@db")
	if got := fault.Public(fmt.Errorf("load run: %w", secret)); got != "internal error" {
		t.Errorf("Public of an unclassed error = %q", got)
	}
	err := fault.Because(secret, fault.Unavailable, "the database is away")
	if got := fault.Public(err); got != "the database is away" {
		t.Errorf("Public = %q, want the message without its cause", got)
	}
	if !errors.Is(err, secret) {
		t.Error("the cause is lost to the log")
	}
}

func TestInvalidFieldsNamesEach(t *testing.T) {
	t.Parallel()
	err := fault.InvalidFields(
		fault.Field{Name: "data.digest", Problem: "missing; expected sha256:<64 hexadecimal digits>"},
		fault.Field{Name: "data.image", Problem: "found 7; expected a string"},
	)
	want := "data.digest: missing; expected sha256:<64 hexadecimal digits>; data.image: found 7; expected a string"
	if err.Error() != want {
		t.Errorf("message = %q, want %q", err.Error(), want)
	}
	if n := len(fault.FieldsOf(fmt.Errorf("publish: %w", err))); n != 2 {
		t.Errorf("%d fields survive wrapping, want 2", n)
	}
}

func TestEveryClassButTheInternalOnesSurvivesGRPC(t *testing.T) {
	t.Parallel()
	for _, c := range fault.Classes() {
		got := fault.FromGRPC(fault.Describe(c).GRPC)
		if c == fault.Terminal {
			c = fault.Internal // both answer code 13: a caller can do nothing about either
		}
		if got != c {
			t.Errorf("%v comes back as %v", c, got)
		}
	}
}
