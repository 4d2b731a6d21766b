package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"

	"github.com/lockstep-cd/lockstep/pkg/telemetry"
	"github.com/lockstep-cd/lockstep/pkg/testkit/natsserver"
)

// natsCommand makes of this executable a NATS server, a process of its own, so that its processor time can be distinguished from the
// sender's. After it come the folder of the store and whether every write is synced. It ends with its standard input.
const natsCommand = "nats"

// natsServer is that process.
type natsServer struct {
	command *exec.Cmd
	input   io.Closer
	url     string
}

func startNATS(ctx context.Context, dir string, sync bool) (*natsServer, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find this program: %w", err)
	}
	s := &natsServer{command: exec.CommandContext(context.WithoutCancel(ctx), self, natsCommand, //nolint:gosec // it is this program
		dir, strconv.FormatBool(sync))}
	s.command.Stderr = os.Stderr
	input, err := s.command.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("start nats: %w", err)
	}
	s.input = input
	output, err := s.command.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("start nats: %w", err)
	}
	if err := s.command.Start(); err != nil {
		return nil, fmt.Errorf("start nats: %w", err)
	}
	line, err := bufio.NewReader(output).ReadString('\n')
	if err != nil {
		return nil, errors.Join(fmt.Errorf("nats did not say where it is: %w", err), s.stop())
	}
	s.url = strings.TrimSpace(line)
	return s, nil
}

func (s *natsServer) pid() int { return s.command.Process.Pid }

func (s *natsServer) stop() error { return errors.Join(s.input.Close(), s.command.Wait()) }

// serveNATS is the process.
func serveNATS() {
	nats, err := natsserver.Start(natsserver.Config{
		StoreDir: os.Args[2], SyncAlways: os.Args[3] == "true", Log: telemetry.Logger(os.Stderr, "warn"),
		Users: []natsserver.User{{Name: "workflow", Password: "workflow"}},
	})
	if err != nil {
		fmt.Fprintln(os.Stderr, "nats:", err)
		os.Exit(1) //nolint:forbidigo // this is a main package, as tools/bench is
	}
	fmt.Fprintln(os.Stdout, nats.URL())
	_, _ = io.Copy(io.Discard, os.Stdin) // until the parent process closes it, or ends
	nats.Shutdown()
}
