package command

import (
	"testing"
	"time"
)

func TestDurationsHaveDaysAndWeeks(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]struct {
		of    time.Duration
		shown string
	}{
		"90d": {90 * Day, "90d"}, "1w": {week, "7d"}, "2w3d": {17 * Day, "17d"}, "1d12h": {36 * time.Hour, "36h"}, "1d": {Day, "24h"},
		"720h": {30 * Day, "30d"}, "30m": {30 * time.Minute, "30m"}, "90s": {90 * time.Second, "1m30s"},
		"1.5s": {1500 * time.Millisecond, "1.5s"},
		"0":    {0, "0s"}, "0d": {0, "0s"}, "-5m": {-5 * time.Minute, "-5m0s"},
	} {
		var got duration
		if err := got.Set(text); err != nil || time.Duration(got) != want.of || got.String() != want.shown {
			t.Errorf("%s: got %s, shown as %q, %v; want %s, shown as %q", text, time.Duration(got), &got, err, want.of, want.shown)
		}
	}
	for _, text := range []string{
		"", "d", "w", "90", "1d2w", "1d-3h", "1d+3h", "-1d", "1.5d", "999999d", "9999w99999d9999999h",
		"90 d", "90D", "soon",
	} {
		var got duration
		if err := got.Set(text); err == nil {
			t.Errorf("%q: got %s; want an error", text, time.Duration(got))
		}
	}
}
