package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/pprof"
	"time"

	"github.com/jackc/pgx/v5"
	"google.golang.org/grpc"

	"github.com/lockstep-cd/lockstep/pkg/bus"
	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/pg"
	"github.com/lockstep-cd/lockstep/pkg/rpc"
	"github.com/lockstep-cd/lockstep/pkg/telemetry"
	"github.com/lockstep-cd/lockstep/pkg/testkit/natsserver"
	"github.com/lockstep-cd/lockstep/pkg/testkit/postgres"
	autoflowv1 "github.com/lockstep-cd/lockstep/proto/lockstep/autoflow/v1"
	"github.com/lockstep-cd/lockstep/services/workflow"
	"github.com/lockstep-cd/lockstep/tools/bench/probe"
)

const (
	organization = 1
	token        = "bench"
	schema       = "workflow"
	// startWithin bounds the start of a server or the service.
	startWithin = 2 * time.Minute
)

// world is one installation: PostgreSQL and NATS with all durability on, and the service in a process of its own.
type world struct {
	log      *slog.Logger
	options  options
	dir      string
	database *postgres.Server
	nats     *natsserver.Server
	config   workflow.Config
	service  *exec.Cmd
	// joined are processes of the service beside the first.
	joined []*exec.Cmd
	// over are the processes that clients are spread over; none: all use the first.
	over  []string
	db    *pgx.Conn
	conns []*grpc.ClientConn
	// herds is how often hogs were let loose, for their names.
	herds int
}

func newWorld(ctx context.Context, log *slog.Logger, dir string, o options, adjust func(*workflow.Config)) (_ *world, err error) {
	w := &world{log: log, options: o, dir: dir}
	defer func() {
		if err != nil {
			err = errors.Join(err, w.close(ctx))
		}
	}()
	if err := os.MkdirAll(dir, 0o755); err != nil { //nolint:gosec // the server's account has to get in
		return nil, err
	}
	if err := os.Chmod(filepath.Dir(dir), 0o755); err != nil { //nolint:gosec // as above
		return nil, err
	}
	if w.database, err = postgres.Start(ctx, postgres.Config{DataDir: filepath.Join(dir, "postgres"), Log: log}); err != nil {
		return nil, err
	}
	if err := w.serveNATS(0); err != nil {
		return nil, err
	}
	if w.db, err = pgx.Connect(ctx, w.database.URL()); err != nil {
		return nil, err
	}
	address, err := probe.FreeAddress()
	if err != nil {
		return nil, err
	}
	w.config = workflow.Config{
		Database: pg.Database{DatabaseURL: w.database.URL()}, Schema: schema, NATS: bus.NATS{NATSURL: w.nats.URL(), NATSPassword: "workflow"},
		GRPCAddress: address, Token: token, AgentOwners: []workflow.AgentOwner{{Agent: 1, Organization: 1}}, Instance: "bench",
		Settings: telemetry.Settings{LogLevel: "warn"},
		// The programs measured stand for those of drivers, which run in the service's process.
		TrustPrograms: true,
	}
	if adjust != nil {
		adjust(&w.config)
	}
	return w, w.up(ctx)
}

// serveNATS starts NATS with the users of the services and of so many relays.
func (w *world) serveNATS(relays int) (err error) {
	users := []natsserver.User{{Name: bus.UserWorkflow, Password: bus.UserWorkflow}, {Name: bus.UserDomain, Password: bus.UserDomain}}
	for i := range relays {
		name := bus.RelayUser(int64(i + 1))
		users = append(users, natsserver.User{Name: name, Password: name})
	}
	w.nats, err = natsserver.Start(natsserver.Config{StoreDir: filepath.Join(w.dir, "nats"), SyncAlways: true, Log: w.log, Users: users})
	return err
}

// withRelays starts NATS anew, so that it knows the relays.
func (w *world) withRelays(ctx context.Context, relays int) error {
	if err := w.down(); err != nil {
		return err
	}
	w.nats.Shutdown()
	if err := w.serveNATS(relays); err != nil {
		return err
	}
	w.config.NATSURL = w.nats.URL()
	return w.up(ctx)
}

// timed starts the database anew as one that remembers when each transaction was committed.
func (w *world) timed(ctx context.Context) error {
	if _, err := w.db.Exec(ctx, "ALTER SYSTEM SET track_commit_timestamp = on"); err != nil {
		return err
	}
	if err := errors.Join(w.down(), w.db.Close(ctx), w.database.Stop()); err != nil {
		return err
	}
	var err error
	if w.database, err = postgres.Start(ctx, postgres.Config{DataDir: filepath.Join(w.dir, "postgres"), Log: w.log}); err != nil {
		return err
	}
	if w.db, err = pgx.Connect(ctx, w.database.URL()); err != nil {
		return err
	}
	w.config.DatabaseURL = w.database.URL()
	return w.up(ctx)
}

// up starts the service and returns when it answers.
func (w *world) up(ctx context.Context) (err error) {
	if w.service, err = w.launch(ctx, w.config); err != nil {
		return err
	}
	return w.answers(ctx, w.config.GRPCAddress)
}

// join starts another process of the service on the same servers, answers its address when it answers, and has down end it too.
func (w *world) join(ctx context.Context) (address string, err error) {
	c := w.config
	if c.GRPCAddress, err = probe.FreeAddress(); err != nil {
		return "", err
	}
	c.Instance += fmt.Sprintf("-%d", len(w.joined)+2)
	service, err := w.launch(ctx, c)
	if err != nil {
		return "", err
	}
	w.joined = append(w.joined, service)
	return c.GRPCAddress, w.answers(ctx, c.GRPCAddress)
}

// launch starts a process of the service.
func (w *world) launch(ctx context.Context, c workflow.Config) (*exec.Cmd, error) {
	config, err := json.Marshal(c)
	if err != nil {
		return nil, err
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	service := exec.CommandContext(context.WithoutCancel(ctx), self, serveCommand) //nolint:gosec // it is this program
	service.Stdin, service.Stderr = bytes.NewReader(config), os.Stderr
	if w.options.profile != "" {
		service.Env = append(os.Environ(), profileVariable+"="+filepath.Join(w.options.profile, filepath.Base(w.dir)+"-"+c.Instance+".cpu"))
	}
	return service, service.Start()
}

// answers returns when the process at an address answers.
func (w *world) answers(ctx context.Context, address string) error {
	client, err := w.clientOf(address)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, startWithin)
	defer cancel()
	for {
		_, err := client.GetWorkflow(ctx, &autoflowv1.GetWorkflowRequest{OrganizationId: organization, WorkflowId: "none"})
		if fault.Is(err, fault.NotFound) {
			return nil
		}
		if clock.Sleep(ctx, clock.System(), 10*time.Millisecond) != nil {
			return fmt.Errorf("the service does not answer: %w", err)
		}
	}
}

// down ends the service as an operator would.
func (w *world) down() error {
	var err error
	for _, service := range w.services() {
		err = errors.Join(err, service.Process.Signal(os.Interrupt), service.Wait())
	}
	w.service, w.joined = nil, nil
	return err
}

// services are the processes that run.
func (w *world) services() []*exec.Cmd {
	if w.service == nil {
		return w.joined
	}
	return append([]*exec.Cmd{w.service}, w.joined...)
}

// client is a connection of its own.
func (w *world) client() (autoflowv1.AutoFlowClient, error) { return w.clientOf(w.config.GRPCAddress) }

// clientOf is a connection to one of several processes.
func (w *world) clientOf(address string) (autoflowv1.AutoFlowClient, error) {
	conn, err := rpc.Dial(rpc.ClientConfig{Address: address, Token: token, Insecure: true})
	if err != nil {
		return nil, err
	}
	w.conns = append(w.conns, conn)
	return autoflowv1.NewAutoFlowClient(conn), nil
}

func (w *world) close(ctx context.Context) error {
	for _, conn := range w.conns {
		_ = conn.Close() // nothing is under way on it
	}
	err := w.down()
	if w.db != nil {
		_ = w.db.Close(context.WithoutCancel(ctx)) // the server ends next
	}
	if w.nats != nil {
		w.nats.Shutdown()
	}
	if w.database != nil {
		err = errors.Join(err, w.database.Stop())
	}
	return err
}

const (
	serveCommand = "serve"
	// profileVariable names the file for a CPU profile of the service.
	profileVariable = "BENCH_PROFILE"
)

// serve is the child: the service, configured on its standard input.
func serve(ctx context.Context) error {
	var c workflow.Config
	if err := json.NewDecoder(os.Stdin).Decode(&c); err != nil {
		return fmt.Errorf("configuration: %w", err)
	}
	if name := os.Getenv(profileVariable); name != "" {
		f, err := os.Create(filepath.Clean(name))
		if err != nil {
			return err
		}
		if err := pprof.StartCPUProfile(f); err != nil {
			return err
		}
		defer func() {
			pprof.StopCPUProfile()
			_ = f.Close()
		}()
	}
	defer workflow.RoomyHeap()() // as its own command does
	return workflow.Run(ctx, c)
}
