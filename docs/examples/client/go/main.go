// A client of the workflow service in Go: LOCKSTEP_TOKEN=… go run . workflow.example.com:8083 greeting-1 ../greet.star [--plain]
//
// Its client is generated code of the module github.com/lockstep-cd/lockstep/proto.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	autoflowv1 "github.com/lockstep-cd/lockstep/proto/lockstep/autoflow/v1"
)

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1) //nolint:gocritic // the process ends
	}
}

func run(ctx context.Context, arguments []string) error {
	if len(arguments) < 3 {
		return errors.New("expected an address, the id of a workflow, and a program")
	}
	address, id, program := arguments[0], arguments[1], arguments[2]
	security := credentials.NewTLS(nil)
	if slices.Contains(arguments, "--plain") {
		security = insecure.NewCredentials()
	}
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(security))
	if err != nil {
		return err
	}
	defer conn.Close()
	client := autoflowv1.NewAutoFlowClient(conn)
	ctx = metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+os.Getenv("LOCKSTEP_TOKEN"))

	starlark, err := os.ReadFile(program)
	if err != nil {
		return err
	}
	started, err := client.StartWorkflow(ctx, &autoflowv1.StartWorkflowRequest{WorkflowId: id, Starlark: starlark})
	if err != nil {
		return err
	}
	if started.GetCreated() {
		fmt.Println("started")
	} else {
		fmt.Println("already there")
	}
	if err := call(ctx, client, id, "first", "Ada"); err != nil {
		return err
	}
	if err := call(ctx, client, id, "last", "end"); err != nil {
		return err
	}
	if err := watch(ctx, client, id); err != nil {
		return err
	}
	// Waiting for the end in one call, without a stream.
	got, err := client.GetWorkflow(ctx, &autoflowv1.GetWorkflowRequest{WorkflowId: id, Wait: durationpb.New(20 * time.Second)})
	if err != nil {
		return err
	}
	fmt.Println("greeted", got.GetWorkflow().GetStatus()["greeted"])
	// Another program under the same id.
	_, err = client.StartWorkflow(ctx, &autoflowv1.StartWorkflowRequest{WorkflowId: id, Starlark: []byte("pass")})
	fmt.Println(status.Code(err))
	return nil
}

// call sends a message to the inbox of a workflow and prints the answer. Repeated with the same request, it is the same message.
func call(ctx context.Context, client autoflowv1.AutoFlowClient, id, request, data string) error {
	message, err := json.Marshal(data)
	if err != nil {
		return err
	}
	answer, err := client.CallChannel(ctx, &autoflowv1.CallChannelRequest{WorkflowId: id, RequestId: request, Data: message})
	if err != nil {
		return err
	}
	if answer.GetError() != "" {
		return errors.New(answer.GetError())
	}
	var text string
	if err := json.Unmarshal(answer.GetValue(), &text); err != nil {
		return err
	}
	fmt.Println(text)
	return nil
}

// watch follows a workflow to its end and prints its last state.
func watch(ctx context.Context, client autoflowv1.AutoFlowClient, id string) error {
	stream, err := client.WatchWorkflow(ctx, &autoflowv1.WatchWorkflowRequest{WorkflowId: id})
	if err != nil {
		return err
	}
	var last autoflowv1.WorkflowState
	for {
		news, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			fmt.Println(last)
			return nil
		}
		if err != nil {
			return err
		}
		if w := news.GetWorkflow(); w != nil {
			last = w.GetState()
		}
	}
}
