package engine

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/activity"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/history"
)

// leak is a Function that puts the secret it has resolved into its error.
type leak func(secret string) error

func (leak) Name() string { return "leak" }

func (leak) Location() activity.Location { return activity.InProcess }

func (leak) Effect() activity.Effect { return activity.Reads }

func (l leak) Call(ctx context.Context, _ activity.Call) (any, error) {
	activity.Conceal(ctx, canary)
	return nil, l(canary)
}

const canary = "hunter2 / s&cret"

// TestAFunctionsErrorShowsNoSecret has Functions put their secret into an error in every way, and looks at what the program, the
// history, the log and the trace get (D27).
func TestAFunctionsErrorShowsNoSecret(t *testing.T) {
	t.Parallel()
	encoded := base64.StdEncoding.EncodeToString([]byte(canary))
	for name, fails := range map[string]leak{
		"an error of a Function":  func(s string) error { return &history.FunctionError{Code: "forbidden", Message: "no access with " + s} },
		"an error from elsewhere": func(s string) error { return fmt.Errorf("log in: %w", errors.New("bad password "+s)) },
		"an address":              func(s string) error { return errors.New("GET https://x/?token=" + url.QueryEscape(s)) },
		"a header":                func(string) error { return errors.New("Authorization: " + encoded) },
		"a panic":                 func(s string) error { panic("cannot use " + s) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var log bytes.Buffer
			var seen string
			functions, err := activity.NewFunctions(fails)
			if err != nil {
				t.Fatal(err)
			}
			e := New(Deps{
				Functions: functions, Clock: clock.System(), Log: slog.New(slog.NewTextHandler(&log, nil)), Settings: Settings{Activities: 1},
				Observe: func(ctx context.Context, _ activity.Call) (context.Context, func(string)) {
					return ctx, func(problem string) { seen = problem }
				},
			})
			call := activity.Call{Function: "leak", Deadline: clock.System().Now().Add(time.Minute)}
			c, finished := e.carryOut(t.Context(), history.Op{Name: "leak", Args: json.RawMessage("{}"), NoRetry: true}, call)
			if !finished || c.Error == nil || !strings.Contains(log.String(), "function refused") {
				t.Fatalf("finished %t with %v; the log is %s", finished, c.Error, log.String())
			}
			if seen != c.Error.Error() {
				t.Errorf("observed %q, expected what the program gets, %q", seen, c.Error)
			}
			for _, form := range []string{canary, url.QueryEscape(canary), encoded} {
				if strings.Contains(c.Error.Error()+log.String(), form) {
					t.Errorf("the error is %q, and the log %s", c.Error, log.String())
				}
			}
			if !strings.Contains(log.String(), history.Redacted) {
				t.Errorf("nothing was taken out of the log: %s", log.String())
			}
		})
	}
}
