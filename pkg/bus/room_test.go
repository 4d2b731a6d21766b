package bus_test

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/bus"
	"github.com/lockstep-cd/lockstep/pkg/testkit/bustest"
)

// warnings hands what is logged as a warning to a channel, as far as there is room in it.
type warnings struct{ texts chan string }

func (w warnings) Enabled(context.Context, slog.Level) bool { return true }

func (w warnings) WithAttrs([]slog.Attr) slog.Handler { return w }

func (w warnings) WithGroup(string) slog.Handler { return w }

func (w warnings) Handle(_ context.Context, r slog.Record) error {
	if r.Level < slog.LevelWarn {
		return nil
	}
	text := r.Message
	r.Attrs(func(a slog.Attr) bool {
		text += " " + a.String()
		return true
	})
	select {
	case w.texts <- text:
	default:
	}
	return nil
}

// A stream reserves more than the server has: the log says so, and not that nobody answers.
func TestAStreamThatHasNoRoomIsNamed(t *testing.T) {
	t.Parallel()
	log := warnings{texts: make(chan string, 16)}
	conn, err := bus.Connect(t.Context(), bustest.Server(t).Config("domain"), slog.New(log))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	stream := bus.DomainStream()
	stream.MaxBytes = 1 << 60
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- conn.Apply(ctx, bus.Topology{Streams: []bus.Stream{stream}}) }()
	for found := false; !found; {
		select {
		case text := <-log.texts:
			found = strings.Contains(text, "make stream DOMAIN: the event bus cannot do it: insufficient storage")
		case <-ctx.Done():
			t.Fatal("no warning that there is no room")
		}
	}
	cancel()
	if err := <-ended; err == nil {
		t.Error("a stream that there is no room for is made")
	}
}
