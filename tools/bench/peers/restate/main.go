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

// Parent is the service with the workflow that starts so many children and waits for each.
type Parent struct{}

// Run does that.
func (Parent) Run(ctx sdk.WorkflowContext, children int) (int, error) {
	started := make([]sdk.ResponseFuture[int], children)
	for i := range started {
		started[i] = sdk.Workflow[int](ctx, "Child", sdk.Key(ctx)+"-"+strconv.Itoa(i), "Run").RequestFuture(i)
	}
	for _, child := range started {
		if _, err := child.Response(); err != nil {
			return 0, err
		}
	}
	return children, nil
}

// Child is the service with the workflow of a child.
type Child struct{}

// Run returns its number.
func (Child) Run(_ sdk.WorkflowContext, number int) (int, error) { return number, nil }

// Calling is the service with the workflow that calls another service so many times.
type Calling struct{}

// Run does that.
func (Calling) Run(ctx sdk.WorkflowContext, calls int) (int, error) {
	for i := range calls {
		if _, err := sdk.Service[int](ctx, "Echo", "Repeat").Request(i); err != nil {
			return 0, err
		}
	}
	return calls, nil
}

// Echo is that other service.
type Echo struct{}

// Repeat answers what it is given.
func (Echo) Repeat(_ sdk.Context, number int) (int, error) { return number, nil }

// Answering is the service with the workflow that answers so many messages, one after the other.
type Answering struct{}

// Run does that.
func (Answering) Run(ctx sdk.WorkflowContext, messages int) (int, error) {
	for i := range messages {
		message, err := sdk.Promise[int](ctx, "message-"+strconv.Itoa(i)).Result()
		if err != nil {
			return 0, err
		}
		if err := sdk.Promise[int](ctx, "answer-"+strconv.Itoa(i)).Resolve(message); err != nil {
			return 0, err
		}
	}
	return messages, nil
}

// Ask gives the workflow a message, and returns its answer.
func (Answering) Ask(ctx sdk.WorkflowSharedContext, message int) (int, error) {
	if err := sdk.Promise[int](ctx, "message-"+strconv.Itoa(message)).Resolve(message); err != nil {
		return 0, err
	}
	return sdk.Promise[int](ctx, "answer-"+strconv.Itoa(message)).Result()
}

// serve answers the server's calls, at an address that it answers.
func serve() (address string, err error) {
	handler, err := server.NewRestate().WithLogger(slog.New(slog.NewTextHandler(io.Discard, nil)).Handler(),
		true).Bind(sdk.Reflect(Counted{})).Bind(sdk.Reflect(Parent{})).Bind(sdk.Reflect(Child{})).
		Bind(sdk.Reflect(Calling{})).Bind(sdk.Reflect(Echo{})).Bind(sdk.Reflect(Answering{})).Handler()
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

// ingress is where workflows of a service are started.
type ingress struct {
	url    string
	name   string
	client *http.Client
}

// call starts a workflow; with send it does not wait for its end.
func (in ingress) call(key, what string, steps int) error {
	response, err := in.client.Post(in.url+"/"+in.name+"/"+key+"/"+what, "application/json", strings.NewReader(strconv.Itoa(steps)))
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
	response, err := in.client.Get(in.url + "/restate/workflow/" + in.name + "/" + key + "/attach")
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
	name := "Counted"
	switch o.Mode {
	case peer.Children:
		name = "Parent"
	case peer.Calls:
		name = "Calling"
	case peer.Messages:
		name = "Answering"
	}
	in := ingress{url: "http://" + s.ingress, name: name, client: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: o.Clients}}}
	return peer.Engine{
		Start: func(number int) error { return in.call(strconv.Itoa(number), "Run/send", o.Size(number)) },
		Await: func(number int) error { return in.await(strconv.Itoa(number)) },
		Run:   func(number int) error { return in.call(strconv.Itoa(number), "Run", o.Size(number)) },
		Ask:   func(number, message int) error { return in.call(strconv.Itoa(number), "Ask", message) },
		Used:  s.processorTime,
		Close: s.stop,
	}, nil
}
