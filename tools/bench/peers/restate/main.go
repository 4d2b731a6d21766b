// Command restate runs workflows of trivial steps on a Restate server of its own, and prints one line of JSON: a peer that tools/bench
// compares with. The server is what npm has as @restatedev/restate-server, or the program that RESTATE_SERVER names; it keeps its data
// in a temporary folder, with its log synced, which is its default. The steps are in this process, by Restate's SDK for Go. It is a
// module of its own, outside of the workspace, so that nothing of ours depends on it. With -mode start the clients go on as soon as a
// workflow is accepted; all have ended before it prints.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	sdk "github.com/restatedev/sdk-go"
	"github.com/restatedev/sdk-go/server"
)

// result is what tools/bench reads.
type result struct {
	PerSecond float64 `json:"per_second"`
	StartP50  float64 `json:"start_p50_ms"`
	P50       float64 `json:"p50_ms"`
	P99       float64 `json:"p99_ms"`
	// CPU is the processor time of this process and the server for each workflow, in milliseconds.
	CPU float64 `json:"cpu_ms"`
}

// warmUp is how many workflows come before those that count; tools/bench knows the number.
const warmUp = 100

func main() {
	steps := flag.Int("steps", 1, "steps of each workflow")
	n := flag.Int("n", 1000, "workflows")
	clients := flag.Int("c", 64, "clients")
	mode := flag.String("mode", "run", "run: a client waits for the end; start: it does not")
	flag.Parse()
	if err := run(*steps, *n, *clients, *mode == "start"); err != nil {
		fmt.Fprintln(os.Stderr, "restate:", err)
		os.Exit(1)
	}
}

// Counted is the service with the workflow.
type Counted struct{}

// Run is a workflow of so many steps, each of which answers a number.
func (Counted) Run(ctx sdk.WorkflowContext, steps int) (int, error) {
	for i := range steps {
		if _, err := sdk.Run(ctx, func(sdk.RunContext) (int, error) { return i, nil }); err != nil {
			return 0, err
		}
	}
	return steps, nil
}

// serve answers the server's calls, at an address that it answers.
func serve() (address string, err error) {
	handler, err := server.NewRestate().WithLogger(slog.New(slog.NewTextHandler(io.Discard, nil)).Handler(), true).Bind(sdk.Reflect(Counted{})).Handler()
	if err != nil {
		return "", err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	var protocols http.Protocols
	protocols.SetUnencryptedHTTP2(true)
	go func() {
		_ = (&http.Server{Handler: handler, Protocols: &protocols}).Serve(listener) // it ends with the process
	}()
	return listener.Addr().String(), nil
}

// ingress is where workflows are started.
type ingress struct {
	url    string
	client *http.Client
}

// call starts a workflow; with send it does not wait for its end.
func (in ingress) call(key, what string, steps int) error {
	response, err := in.client.Post(in.url+"/Counted/"+key+"/"+what, "application/json", strings.NewReader(strconv.Itoa(steps)))
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	answer, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode >= http.StatusMultipleChoices {
		err = fmt.Errorf("workflow %s: %s: %.500s", key, response.Status, answer)
	}
	return err
}

// await waits for the end of a workflow.
func (in ingress) await(key string) error {
	response, err := in.client.Get(in.url + "/restate/workflow/Counted/" + key + "/attach")
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode >= http.StatusMultipleChoices {
		return fmt.Errorf("attach to workflow %s: %s", key, response.Status)
	}
	return nil
}

func run(steps, n, clients int, startOnly bool) (err error) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	s, err := start(ctx)
	if err != nil {
		return err
	}
	defer s.stop()
	address, err := serve()
	if err != nil {
		return err
	}
	if err := s.register(ctx, address); err != nil {
		return err
	}
	in := ingress{url: "http://" + s.ingress, client: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: clients}}}
	drive := func(prefix string, n int) (starts, ends []time.Duration, err error) {
		starts, ends = make([]time.Duration, n), make([]time.Duration, n)
		var next atomic.Int64
		var group sync.WaitGroup
		failed := make(chan error, clients)
		for range clients {
			group.Go(func() {
				for {
					i := int(next.Add(1)) - 1
					if i >= n {
						return
					}
					began, what := time.Now(), "Run"
					if startOnly {
						what = "Run/send"
					}
					if err := in.call(fmt.Sprintf("%s-%d", prefix, i), what, steps); err != nil {
						failed <- err
						return
					}
					ends[i] = time.Since(began)
					if startOnly {
						starts[i] = ends[i]
					}
				}
			})
		}
		group.Wait()
		select {
		case err = <-failed:
		default:
		}
		return starts, ends, err
	}
	if _, _, err := drive("warm", warmUp); err != nil {
		return err
	}
	used, began := s.processorTime(), time.Now()
	starts, ends, err := drive("run", n)
	if err != nil {
		return err
	}
	took := time.Since(began)
	for i := 0; startOnly && i < n; i++ {
		if err := in.await(fmt.Sprintf("run-%d", i)); err != nil {
			return err
		}
	}
	return json.NewEncoder(os.Stdout).Encode(result{
		PerSecond: float64(n) / took.Seconds(), StartP50: at(starts, 0.5), P50: at(ends, 0.5), P99: at(ends, 0.99),
		CPU: float64((s.processorTime() - used).Microseconds()) / 1000 / float64(n),
	})
}

// at is the p-th part of durations, in milliseconds.
func at(all []time.Duration, p float64) float64 {
	slices.Sort(all)
	return float64(all[int(float64(len(all)-1)*p)].Microseconds()) / 1000
}

func ownTime() time.Duration {
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		return 0
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}
