// Command goworkflows runs workflows of trivial activities on cschleiden/go-workflows with its PostgreSQL backend, and prints one line
// of JSON: a peer that tools/bench compares with. It is a module of its own, outside of the workspace, so that nothing of ours
// depends on it.
package main

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"io"
	"log/slog"
	"os"
	"time"

	"github.com/cschleiden/go-workflows/backend"
	"github.com/cschleiden/go-workflows/backend/postgres"
	"github.com/cschleiden/go-workflows/client"
	"github.com/cschleiden/go-workflows/worker"
	"github.com/cschleiden/go-workflows/workflow"
	"github.com/jackc/pgx/v5"

	"github.com/lockstep-cd/lockstep/tools/bench/peers/peer"
)

const (
	// pollers is how many look for workflows, and as many for activities.
	pollers = 16
	// within bounds a workflow.
	within = 2 * time.Minute
)

func main() { peer.Main("goworkflows", open) }

// answer is the activity.
func answer(_ context.Context, i int) (int, error) { return i, nil }

// counted is a workflow of so many activities.
func counted(ctx workflow.Context, steps int) (int, error) {
	for i := range steps {
		if _, err := workflow.ExecuteActivity[int](ctx, workflow.DefaultActivityOptions, answer, i).Get(ctx); err != nil {
			return 0, err
		}
	}
	return steps, nil
}

// returned is a child.
func returned(_ workflow.Context, number int) (int, error) { return number, nil }

// parent starts so many children and waits for each.
func parent(ctx workflow.Context, children int) (int, error) {
	started := make([]workflow.Future[int], children)
	for i := range started {
		started[i] = workflow.CreateSubWorkflowInstance[int](ctx, workflow.DefaultSubWorkflowOptions, returned, i)
	}
	for _, child := range started {
		if _, err := child.Get(ctx); err != nil {
			return 0, err
		}
	}
	return children, nil
}

func open(o peer.Order) (peer.Engine, error) {
	config, err := pgx.ParseConfig(os.Getenv("DBURL"))
	if err != nil {
		return peer.Engine{}, err
	}
	// The backend writes them one behind the other, and an empty password would take the next word for its value.
	password := cmp.Or(config.Password, "none")
	b := postgres.NewPostgresBackend(config.Host, int(config.Port), config.User, password, config.Database,
		postgres.WithBackendOptions(backend.WithLogger(slog.New(slog.NewTextHandler(io.Discard, nil)))),
		postgres.WithPostgresOptions(func(db *sql.DB) { db.SetMaxOpenConns(60); db.SetMaxIdleConns(60) }))
	options := worker.DefaultOptions
	options.WorkflowPollers, options.ActivityPollers = pollers, pollers
	w := worker.New(b, &options)
	program := counted
	if o.Mode == peer.Children {
		program = parent
	}
	for _, known := range []workflow.Workflow{program, returned} {
		if err := w.RegisterWorkflow(known); err != nil {
			return peer.Engine{}, err
		}
	}
	if err := w.RegisterActivity(answer); err != nil {
		return peer.Engine{}, err
	}
	ctx := context.Background()
	if err := w.Start(ctx); err != nil {
		return peer.Engine{}, err
	}
	starter := client.New(b)
	run := time.Now().UnixNano() // no earlier run on the same database has had these ids
	instances := make([]*workflow.Instance, o.Numbers)
	return peer.Engine{
		Start: func(number int) (err error) {
			id := client.WorkflowInstanceOptions{InstanceID: fmt.Sprintf("%d-%d", run, number)}
			instances[number], err = starter.CreateWorkflowInstance(ctx, id, program, o.Size(number))
			return err
		},
		Await: func(number int) error {
			_, err := client.GetWorkflowResult[int](ctx, starter, instances[number], within)
			return err
		},
	}, nil
}
