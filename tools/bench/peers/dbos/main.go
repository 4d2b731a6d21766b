// Command dbos runs workflows of trivial steps on DBOS Transact for Go, and prints one line of JSON: a peer that
// tools/bench compares with. It is a module of its own, outside of the workspace, so that nothing of ours depends on it.
package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/dbos-inc/dbos-transact-golang/dbos"

	"github.com/lockstep-cd/lockstep/tools/bench/peers/peer"
)

func main() { peer.Main("dbos", open) }

// counted is a workflow of so many steps, each of which answers a number.
func counted(ctx dbos.DBOSContext, steps int) (int, error) {
	for i := range steps {
		if _, err := dbos.RunAsStep(ctx, func(context.Context) (int, error) { return i, nil }); err != nil {
			return 0, err
		}
	}
	return steps, nil
}

// returned is a child.
func returned(_ dbos.DBOSContext, number int) (int, error) { return number, nil }

// parent starts so many children and waits for each.
func parent(ctx dbos.DBOSContext, children int) (int, error) {
	handles := make([]dbos.WorkflowHandle[int], children)
	for i := range handles {
		var err error
		if handles[i], err = dbos.RunWorkflow(ctx, returned, i); err != nil {
			return 0, err
		}
	}
	for _, handle := range handles {
		if _, err := handle.GetResult(); err != nil {
			return 0, err
		}
	}
	return children, nil
}

// answering answers so many messages, one after the other.
func answering(ctx dbos.DBOSContext, messages int) (int, error) {
	for i := range messages {
		message, err := dbos.Recv[int](ctx, topic, within)
		if err != nil {
			return 0, err
		}
		if err := dbos.SetEvent(ctx, strconv.Itoa(i), message); err != nil {
			return 0, err
		}
	}
	return messages, nil
}

const (
	topic  = "messages"
	within = time.Minute
)

// minute takes down how late the workflows of schedules begin that are due in it.
type minute struct {
	mu    sync.Mutex
	began time.Time
	late  []time.Duration
}

func (m *minute) due(_ dbos.DBOSContext, at time.Time) (int, error) {
	now := time.Now()
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.began.IsZero() && !at.Before(m.began) && at.Before(m.began.Add(time.Minute)) {
		m.late = append(m.late, now.Sub(at))
	}
	return 0, nil
}

// wait returns what was taken down of a minute that begins soon.
func (m *minute) wait() ([]time.Duration, error) {
	m.mu.Lock()
	m.began = time.Now().Add(5 * time.Second)
	m.mu.Unlock()
	time.Sleep(70 * time.Second)
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.late, nil
}

func open(o peer.Order) (peer.Engine, error) {
	ctx, err := dbos.NewDBOSContext(context.Background(), dbos.Config{
		DatabaseURL: os.Getenv("DBURL"), AppName: "bench", Logger: slog.New(slog.NewTextHandler(io.Discard, nil)),
	})
	if err != nil {
		return peer.Engine{}, err
	}
	program := map[string]dbos.Workflow[int, int]{peer.Children: parent, peer.Messages: answering}[o.Mode]
	if program == nil {
		program = counted
	}
	dbos.RegisterWorkflow(ctx, program)
	dbos.RegisterWorkflow(ctx, returned)
	var times minute
	for i := 0; o.Mode == peer.Schedules && i < o.Schedules(); i++ {
		dbos.RegisterWorkflow(ctx, times.due, dbos.WithWorkflowName(fmt.Sprintf("schedule-%d", i)),
			dbos.WithSchedule(fmt.Sprintf("%d * * * * *", i%60)))
	}
	if err := dbos.Launch(ctx); err != nil {
		return peer.Engine{}, err
	}
	run := time.Now().UnixNano() // no earlier run on the same database has had these ids
	id := func(number int) string { return fmt.Sprintf("%d-%d", run, number) }
	handles := make([]dbos.WorkflowHandle[int], o.Numbers)
	return peer.Engine{
		Start: func(number int) (err error) {
			handles[number], err = dbos.RunWorkflow(ctx, program, o.Size(number), dbos.WithWorkflowID(id(number)))
			return err
		},
		Await: func(number int) error {
			_, err := handles[number].GetResult()
			return err
		},
		Ask: func(number, message int) error {
			if err := dbos.Send(ctx, id(number), message, topic); err != nil {
				return err
			}
			answer, err := dbos.GetEvent[int](ctx, id(number), strconv.Itoa(message), within)
			if err == nil && answer != message {
				err = fmt.Errorf("the answer to message %d was %d", message, answer)
			}
			return err
		},
		Late: times.wait,
	}, nil
}
