package feed

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/cron"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
)

// schedules reads a definition that is a schedule, of what enters the environment production.
type schedules struct{}

func (schedules) Read(definition json.RawMessage) (f core.Flow, err error) {
	var s cron.Schedule
	err = json.Unmarshal(definition, &s)
	step := core.DeployStep{Environment: "production"}
	step.Proposed = []core.Check{{Kind: core.CheckSchedule, Schedule: &s}}
	f.Deploys = append(f.Deploys, step)
	return f, err
}

func (schedules) ReadChecks(json.RawMessage) (core.CheckSet, error) { return core.CheckSet{}, nil }

func pipelines(t *testing.T, n int, schedule func(i int) cron.Schedule) (all []Pipeline) {
	t.Helper()
	for i := range n {
		raw, err := json.Marshal(schedule(i))
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, Pipeline{ApplicationID: int64(i + 1), Application: fmt.Sprintf("app-%03d", i), Definition: raw})
	}
	return all
}

// D64: however much there is to search, it is bounded, and a calendar has an event where its list ends.
func TestCalendarsOfWindowsHaveTheirEnd(t *testing.T) {
	t.Parallel()
	u, now := New(nil, nil, "https://cd.example.com", schedules{}), time.Date(2027, 3, 26, 8, 0, 0, 0, time.UTC)
	daily := func(int) cron.Schedule {
		return cron.Schedule{Allow: []cron.Window{{Cron: "0 9 * * *", Duration: 3600}}}
	}
	costly := func(i int) (s cron.Schedule) {
		for n := range cron.MaxWindows {
			s.Allow = append(s.Allow, cron.Window{Cron: "*/2 * * * *", Duration: 60})
			s.Exclude = append(s.Exclude, cron.Window{Cron: fmt.Sprintf("%d %d 29 2 *", n, i%24), Duration: 60 * (i + 1)})
		}
		return s
	}
	for name, one := range map[string]struct {
		from             sources
		windows, endings int
		text             string
	}{
		"few":               {sources{pipelines: pipelines(t, 2, daily)}, 56, 0, "app-001 may enter production"},
		"many windows":      {sources{pipelines: pipelines(t, 30, daily)}, 500, 1, "Not all windows are listed from here on"},
		"many pipelines":    {sources{pipelines: pipelines(t, 201, daily)}, 499, 2, "Not all windows are listed from here on"},
		"many environments": {sources{pipelines: pipelines(t, 2, daily), environments: make([]OwnChecks, 501)}, 0, 1, "Not all windows are listed"},
		"much work":         {sources{pipelines: pipelines(t, 200, costly)}, -1, 200, "app-007: windows to enter production are listed until here"},
	} {
		all, err := u.windows(t.Context(), one.from, now)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		endings := 0
		for _, o := range all {
			if o.unlisted {
				endings++
			}
		}
		if windows := len(all) - endings; one.windows >= 0 && windows != one.windows ||
			endings < min(one.endings, 1) || one.windows >= 0 && endings != one.endings {
			t.Errorf("%s: found %d windows and %d ends; want %d and %d", name, windows, endings, one.windows, one.endings)
		}
		written := ""
		for _, l := range parsed(t, string(u.windowCalendar(1, all))) {
			written += l[0] + ":" + l[1] + "\n"
		}
		if !strings.Contains(written, one.text) {
			t.Errorf("%s: expected %q in %.2000s", name, one.text, written)
		}
	}
	gone, leave := context.WithCancel(t.Context())
	leave()
	if _, err := u.windows(gone, sources{pipelines: pipelines(t, 2, daily)}, now); err == nil {
		t.Error("found windows for nobody")
	}
}

// D64: many readers at once have a document made once; one that fails is made again for the next of them.
func TestADocumentIsMadeOnceAtATime(t *testing.T) {
	t.Parallel()
	u := New(nil, nil, "", nil)
	var made atomic.Int64
	var wait sync.WaitGroup
	begun, proceed := make(chan struct{}), make(chan struct{})
	read := func() {
		_, _ = u.keep(t.Context(), "a", time.Unix(1000, 0), func() (Document, error) {
			if made.Add(1) == 1 {
				close(begun)
				<-proceed
				return Document{}, errNotMade
			}
			return Document{ETag: "1"}, nil
		})
	}
	wait.Go(read)
	<-begun
	gone, leave := context.WithCancel(t.Context())
	leave()
	if _, err := u.keep(gone, "a", time.Unix(1000, 0), nil); err == nil {
		t.Error("found no error of one who has gone")
	}
	for range 50 {
		wait.Go(read)
	}
	close(proceed)
	wait.Wait()
	if n := made.Load(); n != 2 {
		t.Errorf("found it made %d times; want once that fails and once more", n)
	}
}
