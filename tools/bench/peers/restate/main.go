// Command restate runs workflows of trivial steps on a Restate server of its own, and prints one line of JSON: a peer that tools/bench
// compares with. The server is what npm has as @restatedev/restate-server, or the program that RESTATE_SERVER names; it keeps its data
// in a temporary folder, with its log synced, which is its default. The steps are in this process, by Restate's SDK for Go. It is a
// module of its own, outside of the workspace, so that nothing of ours depends on it.
package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"strings"

	sdk "github.com/restatedev/sdk-go"
	"github.com/restatedev/sdk-go/server"

	"github.com/lockstep-cd/lockstep/tools/bench/peers/peer"
)

func main() { peer.Main("restate", open) }

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
	handler, err := server.NewRestate().WithLogger(slog.New(slog.NewTextHandler(io.Discard, nil)).Handler(),
		true).Bind(sdk.Reflect(Counted{})).Handler()
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

func open(o peer.Order) (peer.Engine, error) {
	s, err := start(context.Background())
	if err != nil {
		return peer.Engine{}, err
	}
	address, err := serve()
	if err == nil {
		err = s.register(context.Background(), address)
	}
	if err != nil {
		s.stop()
		return peer.Engine{}, err
	}
	in := ingress{url: "http://" + s.ingress, client: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: o.Clients}}}
	return peer.Engine{
		Start: func(number int) error { return in.call(strconv.Itoa(number), "Run/send", o.Steps) },
		Await: func(number int) error { return in.await(strconv.Itoa(number)) },
		Run:   func(number int) error { return in.call(strconv.Itoa(number), "Run", o.Steps) },
		Used:  s.processorTime,
		Close: s.stop,
	}, nil
}
