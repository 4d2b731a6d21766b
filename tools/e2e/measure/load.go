package measure

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/tools/e2e/scenario"
	"github.com/lockstep-cd/lockstep/tools/lockstep/client"
	"github.com/lockstep-cd/lockstep/tools/lockstep/demo"
)

// Load is what a relay needed for concurrent rollouts.
type Load struct {
	Rollouts int
	Took     time.Duration
	// Before and Peak are the relay's resident memory in bytes, before the first rollout and at its maximum.
	Before, Peak int64
	// Calls counts the relay's requests to the API server by verb, from the first rollout to the end of the last.
	Calls map[string]int
	// Failed is the number of rollouts that did not complete.
	Failed int
}

// atOnce bounds how many applications are created concurrently: their creation is not measured.
const atOnce = 8

// eachLook is the pause between two requests, over all rollouts: following a hundred of them ten times a second each would measure the
// domain's API.
const eachLook = 20 * time.Millisecond

// patience is how long one of many rollouts may take.
const patience = 20 * time.Minute

// Counter returns the number of the relay's requests to the API server so far, by verb.
type Counter func(context.Context) (map[string]int, error)

// AtOnce creates applications with one service and deploys all of them at the same time, through one gate. relayPID is the file with the
// relay's process id.
func AtOnce(ctx context.Context, place *scenario.Place, rollouts int, relayPID string, count Counter) (Load, error) {
	worlds, sets, err := prepare(ctx, place, rollouts, 0)
	if err != nil {
		return Load{Rollouts: rollouts}, err
	}
	return take(ctx, place, worlds, sets, relayPID, count)
}

// take deploys all applications at the same time.
func take(
	ctx context.Context, place *scenario.Place, worlds []*demo.World, sets []client.VersionSet, relayPID string, count Counter,
) (load Load, err error) {
	rollouts := len(worlds)
	load.Rollouts = rollouts
	if load.Before, _, err = memory(relayPID); err != nil {
		return load, err
	}
	before, err := count(ctx)
	if err != nil {
		return load, err
	}
	began := place.Clock.Now()
	errs := each(rollouts, rollouts, func(i int) error {
		_, err := promote(ctx, worlds[i], sets[i])
		return err
	})
	load.Took = place.Clock.Now().Sub(began)
	for _, err := range errs {
		if err != nil {
			load.Failed++
		}
	}
	after, err := count(ctx)
	if err != nil {
		return load, err
	}
	load.Calls = less(after, before)
	_, load.Peak, err = memory(relayPID)
	if load.Failed > 0 {
		failed := slices.DeleteFunc(errs, func(err error) bool { return err == nil })
		err = errors.Join(err, fmt.Errorf("%d of %d rollouts did not complete; the first: %w", load.Failed, rollouts,
			errors.Join(failed[:min(len(failed), 3)]...)))
	}
	return load, err
}

// Standing takes rollouts of as many applications to a gate with a soak time of an hour, waits for the given time, and returns the relay's
// requests in that time, by verb, and its exact duration. poll is the interval in seconds at which each would be polled without a watch.
func Standing(
	ctx context.Context, place *scenario.Place, rollouts int, poll float64, during time.Duration, count Counter,
) (map[string]int, time.Duration, error) {
	worlds, sets, err := prepare(ctx, place, rollouts, poll)
	if err != nil {
		return nil, 0, err
	}
	started := make([]client.Rollout, rollouts)
	err = errors.Join(each(rollouts, atOnce, func(i int) (err error) {
		if started[i], err = worlds[i].Roll(ctx, sets[i].ID, "a figure"); err != nil {
			return err
		}
		return worlds[i].Await(ctx, "the gate of "+started[i].ID, func() (string, bool, error) {
			r, err := worlds[i].API.Rollout(ctx, started[i].ID)
			reached := slices.ContainsFunc(r.Journal, func(t client.Transition) bool { return t.Subject == r.ID && t.Event == "reach_gate" })
			return r.State, reached, err
		})
	})...)
	if err != nil {
		return nil, 0, err
	}
	began := place.Clock.Now()
	before, err := count(ctx)
	if err != nil {
		return nil, 0, err
	}
	if err := clock.Sleep(ctx, place.Clock, during); err != nil {
		return nil, 0, fmt.Errorf("stand: %w", err)
	}
	after, err := count(ctx)
	took := place.Clock.Now().Sub(began)
	for i, r := range started {
		_, problem := worlds[i].API.CancelRollout(ctx, r.ID, "measurement done")
		err = errors.Join(err, problem)
	}
	return less(after, before), took, err
}

// less returns the difference of two counts.
func less(after, before map[string]int) map[string]int {
	grown := map[string]int{}
	for verb, n := range after {
		grown[verb] = n - before[verb]
	}
	return grown
}

// prepare creates the applications, deploys each once, and pushes the version that is measured. With a poll interval they soak for an hour
// at their gate.
func prepare(ctx context.Context, place *scenario.Place, n int, poll float64) ([]*demo.World, []client.VersionSet, error) {
	worlds, sets := make([]*demo.World, n), make([]client.VersionSet, n)
	errs := each(n, atOnce, func(i int) error {
		name, soak, interval := fmt.Sprintf("load-%03d", i), 0, 30.0
		if poll > 0 {
			name, soak, interval = fmt.Sprintf("standing-%03d", i), 3600, poll
		}
		w, err := world(place, demo.Scenario{
			Application: name, Services: []string{"api"}, PollInterval: interval,
			// One Argo CD and one Argo Rollouts serve all of them: the relay is measured, not their speed.
			Config: map[string]any{"deadline": int(patience.Seconds())},
			Stages: []demo.Stage{{Environment: name, Tier: "STAGING", Gates: []int{50}, Soak: soak}},
		})
		if err != nil {
			return err
		}
		worlds[i], w.Patience, w.Interval = w, patience, time.Duration(n)*eachLook
		if err := w.Create(ctx); err != nil {
			return err
		}
		first, err := w.Push(ctx, "1", nil)
		if err != nil {
			return err
		}
		if _, err := promote(ctx, w, first); err != nil {
			return err
		}
		sets[i], err = w.Push(ctx, "2", nil)
		return err
	})
	return worlds, sets, errors.Join(errs...)
}

// each calls do n times, several at a time.
func each(n, atATime int, do func(i int) error) []error {
	errs := make([]error, n)
	slots := make(chan struct{}, atATime)
	var wait sync.WaitGroup
	for i := range n {
		slots <- struct{}{}
		wait.Go(func() {
			defer func() { <-slots }()
			errs[i] = do(i)
		})
	}
	wait.Wait()
	return errs
}

// memory returns a process's resident memory now, and its maximum, in bytes (proc(5)).
func memory(pidFile string) (now, peak int64, err error) {
	pid, err := os.ReadFile(pidFile)
	if err != nil {
		return 0, 0, fmt.Errorf("process of the relay: %w", err)
	}
	text, err := os.ReadFile("/proc/" + strings.TrimSpace(string(pid)) + "/status")
	if err != nil {
		return 0, 0, fmt.Errorf("memory of the relay: %w", err)
	}
	for line := range strings.Lines(string(text)) {
		fields := strings.Fields(line)
		if len(fields) < 2 {
			continue
		}
		kilobytes, _ := strconv.ParseInt(fields[1], 10, 64) // 0 for lines without a number
		switch fields[0] {
		case "VmRSS:":
			now = kilobytes << 10
		case "VmHWM:":
			peak = kilobytes << 10
		}
	}
	return now, peak, nil
}

// forgetPeak has the maximum of a process's resident memory begin anew, from what it is now (proc(5)).
func forgetPeak(pidFile string) error {
	pid, err := os.ReadFile(pidFile)
	if err != nil {
		return fmt.Errorf("process of the relay: %w", err)
	}
	const resetPeak = "5"
	if err := os.WriteFile("/proc/"+strings.TrimSpace(string(pid))+"/clear_refs", []byte(resetPeak), 0o200); err != nil {
		return fmt.Errorf("forget the maximum of the relay's memory: %w", err)
	}
	return nil
}

// Cost is what a relay has used so far.
func Cost(relayPID string, count Counter) func(context.Context) (scenario.Cost, error) {
	return func(ctx context.Context) (c scenario.Cost, err error) {
		if c.Memory, c.Peak, err = memory(relayPID); err == nil {
			c.Calls, err = count(ctx)
		}
		return c, err
	}
}

// Audit counts the requests in an API server's audit log.
func Audit(file string) Counter {
	return func(context.Context) (map[string]int, error) { return calls(file) }
}

// calls counts the requests in an audit log by verb. A watch is recorded when it begins and when it ends.
func calls(audit string) (map[string]int, error) {
	file, err := os.Open(audit)
	if err != nil {
		return nil, fmt.Errorf("record of requests: %w", err)
	}
	defer func() { _ = file.Close() }()
	found := map[string]int{}
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var entry struct{ Verb, Stage string }
		if json.Unmarshal(lines.Bytes(), &entry) == nil && entry.Stage == "RequestReceived" {
			found[entry.Verb]++
		}
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("record of requests: %w", err)
	}
	return found, nil
}

// Table formats all figures, one per line.
func Table(l Latency, load Load) string {
	var b strings.Builder
	row := func(name string, s Samples) {
		fmt.Fprintf(&b, "%-42s %6d  %8.0f  %8.0f\n", name, len(s), ms(s.at(50)), ms(s.at(99)))
	}
	fmt.Fprintf(&b, "%-42s %6s  %8s  %8s\n", "", "n", "p50 ms", "p99 ms")
	row("status change → workflow resumed", l.Resumed)
	row("gate passed → next gate seen", l.NextGate)
	row("rollout created → first commit", l.FirstCommit)
	b.WriteString(load.Table())
	return b.String()
}

// each is how many requests to the API server one rollout took.
func (load Load) each() float64 {
	if load.Rollouts == 0 {
		return 0
	}
	all := 0
	for _, n := range load.Calls {
		all += n
	}
	return float64(all) / float64(load.Rollouts)
}

// Table formats the figures of a load, one per line; it is empty without any.
func (load Load) Table() string {
	if load.Rollouts == 0 {
		return ""
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%d rollouts at once on one relay: %.0f s, %d failed; its memory %.0f MB, before %.0f MB\n",
		load.Rollouts, load.Took.Seconds(), load.Failed, float64(load.Peak)/(1<<20), float64(load.Before)/(1<<20))
	verbs := make([]string, 0, len(load.Calls))
	for verb := range load.Calls {
		verbs = append(verbs, verb)
	}
	slices.Sort(verbs)
	for _, verb := range verbs {
		fmt.Fprintf(&b, "  %-10s %6d requests to the API server, %5.1f for each rollout\n", verb, load.Calls[verb],
			float64(load.Calls[verb])/float64(load.Rollouts))
	}
	return b.String()
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
