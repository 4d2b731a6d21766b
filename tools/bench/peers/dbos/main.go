// Command dbos runs workflows of trivial steps on DBOS Transact for Go, and prints one line of JSON: a peer that
// tools/bench compares with. It is a module of its own, outside of the workspace, so that nothing of ours depends on it.
package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
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

func open(o peer.Order) (peer.Engine, error) {
	ctx, err := dbos.NewDBOSContext(context.Background(), dbos.Config{
		DatabaseURL: os.Getenv("DBURL"), AppName: "bench", Logger: slog.New(slog.NewTextHandler(io.Discard, nil)),
	})
	if err != nil {
		return peer.Engine{}, err
	}
	dbos.RegisterWorkflow(ctx, counted)
	if err := dbos.Launch(ctx); err != nil {
		return peer.Engine{}, err
	}
	run := time.Now().UnixNano() // no earlier run on the same database has had these ids
	handles := make([]dbos.WorkflowHandle[int], o.Numbers)
	return peer.Engine{
		Start: func(number int) (err error) {
			handles[number], err = dbos.RunWorkflow(ctx, counted, o.Steps, dbos.WithWorkflowID(fmt.Sprintf("%d-%d", run, number)))
			return err
		},
		Await: func(number int) error {
			_, err := handles[number].GetResult()
			return err
		},
	}, nil
}
