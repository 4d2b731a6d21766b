package natsserver

import (
	"context"
	"fmt"
	"log/slog"
	"strings"

	"github.com/lockstep-cd/lockstep/pkg/telemetry"
)

// logger writes what the server says as our log lines.
type logger struct {
	log   *slog.Logger
	fatal chan<- string // the first fatal error
}

// plaintext is a warning that everybody who gives passwords to an embedded server gets.
const plaintext = "Plaintext passwords detected"

func (l logger) write(level slog.Level, format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	if strings.HasPrefix(text, plaintext) {
		return
	}
	l.log.Log(context.Background(), level, "nats server", telemetry.KeyMessage, text)
}

// Fatalf does not end the process, which is not the server's.
func (l logger) Fatalf(format string, args ...any) {
	l.write(slog.LevelError, format, args...)
	select {
	case l.fatal <- fmt.Sprintf(format, args...):
	default:
	}
}

// Noticef is about starting and stopping, which our own log lines report as well.
func (l logger) Noticef(format string, args ...any) { l.write(slog.LevelDebug, format, args...) }

// Warnf is something that an operator should know.
func (l logger) Warnf(format string, args ...any) { l.write(slog.LevelWarn, format, args...) }

// Errorf is something that an operator should act upon.
func (l logger) Errorf(format string, args ...any) { l.write(slog.LevelError, format, args...) }

// Debugf is not called: the server's debugging is off.
func (l logger) Debugf(format string, args ...any) { l.write(slog.LevelDebug, format, args...) }

// Tracef is not called: the server's tracing is off.
func (l logger) Tracef(format string, args ...any) { l.write(slog.LevelDebug, format, args...) }
