package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/lockstep-cd/lockstep/tools/bench/peers/peer"
)

// version is the server's, in the npm registry.
const version = "1.7.12"

// restate is a server that runs.
type restate struct {
	dir            string
	command        *exec.Cmd
	ingress, admin string
}

// program finds the server, or has npm fetch it into the user's cache.
func program(ctx context.Context) (string, error) {
	if named := os.Getenv("RESTATE_SERVER"); named != "" {
		return named, nil
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(cache, "lockstep", "restate-"+version)
	pattern := filepath.Join(dir, "node_modules", "@restatedev", "restate-server-*", "bin", "restate-server")
	if found, _ := filepath.Glob(pattern); len(found) > 0 { // the pattern is well formed
		return found[0], nil
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	install := exec.CommandContext(ctx, "npm", "install", "--ignore-scripts", "--no-audit", "--no-fund", "--prefix", dir,
		"@restatedev/restate-server@"+version)
	if out, err := install.CombinedOutput(); err != nil {
		return "", fmt.Errorf("fetch the server with npm, or name it in RESTATE_SERVER: %w: %.500s", err, out)
	}
	found, _ := filepath.Glob(pattern)
	if len(found) == 0 {
		return "", fmt.Errorf("npm has installed no program %s", pattern)
	}
	return found[0], nil
}

// start starts a server with its data in a folder of its own, and returns when it answers.
func start(ctx context.Context) (_ *restate, err error) {
	name, err := program(ctx)
	if err != nil {
		return nil, err
	}
	s := &restate{}
	if s.dir, err = os.MkdirTemp("", "bench-restate-"); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			s.stop()
		}
	}()
	addresses, err := free(3)
	if err != nil {
		return nil, err
	}
	s.ingress, s.admin = addresses[0], addresses[1]
	file := filepath.Join(s.dir, "restate.toml")
	config := fmt.Sprintf(`cluster-name = "bench"
node-name = "bench"
base-dir = %q
disable-telemetry = true
bind-address = %q
default-num-partitions = 4
[admin]
bind-address = %q
[ingress]
bind-address = %q
`, filepath.Join(s.dir, "data"), addresses[2], s.admin, s.ingress)
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		return nil, err
	}
	return s, s.launch(ctx, name, file)
}

// free finds addresses that nobody listens on. Nothing else is started beside a measurement, so they are free a moment later as well.
func free(n int) (addresses []string, err error) {
	for range n {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		defer func() { _ = listener.Close() }() // together at the end: no two are the same
		addresses = append(addresses, listener.Addr().String())
	}
	return addresses, nil
}

// launch starts the program and waits until it answers.
func (s *restate) launch(ctx context.Context, name, file string) error {
	s.command = exec.CommandContext(ctx, name, "--config-file", file)
	log, err := os.Create(filepath.Join(s.dir, "log"))
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }()
	s.command.Stdout, s.command.Stderr = log, log
	if err := s.command.Start(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+s.admin+"/health", nil)
		if err != nil {
			return err
		}
		response, err := http.DefaultClient.Do(request)
		if err == nil {
			_ = response.Body.Close()
			if response.StatusCode == http.StatusOK {
				return nil
			}
		}
		select {
		case <-ctx.Done():
			output, _ := os.ReadFile(log.Name())
			return fmt.Errorf("the server does not answer: %w: %s", err, output[max(0, len(output)-500):])
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// register registers the address of the workflows at the server. It retries for a while: the server answers before it has elected itself.
func (s *restate) register(ctx context.Context, address string) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for {
		request, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+s.admin+"/deployments",
			strings.NewReader(`{"uri":"http://`+address+`"}`))
		if err != nil {
			return err
		}
		request.Header.Set("Content-Type", "application/json")
		response, err := http.DefaultClient.Do(request)
		if err == nil {
			body, _ := io.ReadAll(response.Body)
			_ = response.Body.Close()
			if response.StatusCode < http.StatusMultipleChoices {
				return nil
			}
			err = fmt.Errorf("%s: %.500s", response.Status, body)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("register the workflows: %w", err)
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// stop ends the server and removes its data.
func (s *restate) stop() {
	if s.command != nil && s.command.Process != nil {
		_ = s.command.Process.Signal(syscall.SIGKILL)
		_ = s.command.Wait()
	}
	_ = os.RemoveAll(s.dir)
}

// processorTime is what this process and the server have used.
func (s *restate) processorTime() time.Duration {
	const ticks = 100 // a second, on Linux
	b, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(s.command.Process.Pid), "stat"))
	if err != nil {
		return 0
	}
	// The name of the program, in parentheses, may have spaces in it; user and system time are the 12th and 13th behind it.
	fields := strings.Fields(string(b[strings.LastIndexByte(string(b), ')')+1:]))
	user, _ := strconv.Atoi(fields[11])
	system, _ := strconv.Atoi(fields[12])
	return peer.OwnTime() + time.Duration(user+system)*time.Second/ticks
}
