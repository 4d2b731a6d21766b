package bus_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/lockstep-cd/lockstep/pkg/bus"
	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/testkit/bustest"
	"github.com/lockstep-cd/lockstep/pkg/testkit/wait"
)

func TestAQuestionIsAnswered(t *testing.T) {
	t.Parallel()
	server := bustest.Server(t)
	domain, registry := server.Connect(t, bus.UserDomain), server.Connect(t, bus.UserRegistry)
	answer := func(_ context.Context, request []byte) ([]byte, error) {
		switch string(request) {
		case "invalid":
			return nil, fault.InvalidFields(fault.Field{Name: "/a", Problem: "found b; expected c"})
		case "missing":
			return nil, fault.New(fault.NotFound, "there is no %s", "source 7")
		case "internal":
			return nil, errors.New("the password is hunter2")
		case "panic":
			panic("no")
		}
		return append([]byte("pulled "), request...), nil
	}
	if _, err := registry.Ask(t.Context(), bus.SourcesPull, []byte("1")); !fault.Is(err, fault.Unavailable) {
		t.Errorf("nobody answers: %v", err)
	}
	ctx, stop := context.WithCancel(t.Context())
	if err := domain.Answer(ctx, bus.SourcesPull, answer); err != nil {
		t.Fatal(err)
	}
	for i := range 50 {
		got, err := registry.Ask(t.Context(), bus.SourcesPull, fmt.Append(nil, i))
		if want := fmt.Sprintf("pulled %d", i); err != nil || string(got) != want {
			t.Fatalf("answered %q, %v; want %q", got, err, want)
		}
	}
	_, err := registry.Ask(t.Context(), bus.SourcesPull, []byte("invalid"))
	if diff := cmp.Diff([]fault.Field{{Name: "/a", Problem: "found b; expected c"}}, fault.FieldsOf(err)); diff != "" {
		t.Errorf("fields (-want +got):\n%s", diff)
	}
	if _, err := registry.Ask(t.Context(), bus.SourcesPull, []byte("missing")); !fault.Is(err, fault.NotFound) ||
		err.Error() != "there is no source 7" {
		t.Errorf("missing: %v", err)
	}
	for _, request := range []string{"internal", "panic"} {
		if _, err := registry.Ask(t.Context(), bus.SourcesPull, []byte(request)); !fault.Is(err, fault.Internal) ||
			contains(err.Error(), "hunter2") {
			t.Errorf("%s: %v", request, err)
		}
	}
	stop()
	wait.For(t, "the end of answers", func() bool {
		_, err := registry.Ask(t.Context(), bus.SourcesPull, []byte("1"))
		return fault.Is(err, fault.Unavailable)
	})
}

func TestWhoMayAskWhom(t *testing.T) {
	t.Parallel()
	server := bustest.Server(t)
	nothing := func(context.Context, []byte) ([]byte, error) { return nil, nil }
	for _, user := range []string{bus.UserRegistry, bus.UserDomain, bus.UserWorkflow, bus.RelayUser(1)} {
		// A denial reaches every call that waits for one about the subject, so asking has a connection of its own.
		answering, asking := server.Connect(t, user), server.Connect(t, user)
		for _, subject := range []string{bus.SourcesPull, bus.SourcesLook, bus.SourcesStates, bus.SourcesProve} {
			byDomain := subject == bus.SourcesPull
			err := answering.Answer(t.Context(), subject, nothing)
			if may := user == bus.UserDomain && byDomain || user == bus.UserRegistry && !byDomain; may != (err == nil) ||
				!may && !fault.Is(err, fault.Denied) {
				t.Errorf("%s answers %s: %v", user, subject, err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			_, err = asking.Ask(ctx, subject, nil)
			cancel()
			if may := user == bus.UserRegistry && byDomain || user == bus.UserDomain && !byDomain; may == fault.Is(err, fault.Denied) {
				t.Errorf("%s asks %s: %v", user, subject, err)
			}
		}
	}
}
