package run_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"syscall"
	"testing"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/run"
)

func TestMainExitCodes(t *testing.T) { //nolint:paralleltest // one case sends this process a signal, which every Main hears
	tests := []struct {
		name string
		run  func(context.Context) error
		want int
	}{
		{"success", func(context.Context) error { return nil }, 0},
		{"failure", func(context.Context) error { return errors.New("boom") }, 1},
		{"mistake in the configuration", func(context.Context) error { return fault.New(fault.Invalid, "unknown key") }, 2},
		{"help", func(context.Context) error { return fmt.Errorf("usage: %w", flag.ErrHelp) }, 0},
		{"cancelled by itself", func(context.Context) error { return context.Canceled }, 1},
		{"interrupted", func(ctx context.Context) error {
			if err := syscall.Kill(os.Getpid(), syscall.SIGTERM); err != nil {
				return err
			}
			<-ctx.Done()
			return ctx.Err()
		}, 0},
		{"fails after an interruption", func(ctx context.Context) error {
			if err := syscall.Kill(os.Getpid(), syscall.SIGINT); err != nil {
				return err
			}
			<-ctx.Done()
			return errors.New("flush")
		}, 1},
	}
	for _, tt := range tests { //nolint:paralleltest // see above
		t.Run(tt.name, func(t *testing.T) {
			if got := run.Main("test", tt.run); got != tt.want {
				t.Errorf("exit code %d, want %d", got, tt.want)
			}
		})
	}
}
