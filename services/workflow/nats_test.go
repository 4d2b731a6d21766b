package workflow_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	autoflowv1 "github.com/lockstep-cd/lockstep/proto/lockstep/autoflow/v1"
	"github.com/lockstep-cd/lockstep/services/workflow"
)

// The program with which the domain service sends notifications publishes on a subject of a real server, all events of a message in their
// order; what the server refuses is a dead letter, and a server that is away is tried again (D62).
func TestTheProgramOfNotificationsPublishesOnASubject(t *testing.T) {
	t.Parallel()
	program, err := os.ReadFile(filepath.Join("..", "domain", "internal", "core", "notify", "send.star"))
	if err != nil {
		t.Fatal(err)
	}
	s, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: server.RANDOM_PORT, NoLog: true, NoSigs: true, Users: []*server.User{
		{Username: "reader", Password: "reader"},
		{Username: "lockstep", Permissions: &server.Permissions{Publish: &server.SubjectPermission{Allow: []string{"cd.>"}}}},
	}, NoAuthUser: "lockstep"})
	if err != nil {
		t.Fatal(err)
	}
	go s.Start()
	t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
	if !s.ReadyForConnections(20 * time.Second) {
		t.Fatal("the server does not start")
	}
	address := "nats://" + s.Addr().String()
	reader, err := nats.Connect(address, nats.UserInfo("reader", "reader"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(reader.Close)
	received, err := reader.SubscribeSync("cd.>")
	if err == nil {
		err = reader.Flush()
	}
	if err != nil {
		t.Fatal(err)
	}
	service := startWith(t, func(c *workflow.Config) { c.HTTPAllowNetworks = []string{"127.0.0.1"} })
	for i, one := range []struct{ name, server, subject, want string }{
		{"two events", address, "cd.shop", `"sent" `},
		{"a subject that is not permitted", address, "other.shop", `"refused" "refused: `},
		{"a subject with a wildcard", address, "cd.*", `"refused" "invalid: `},
		{"a server that is away", "nats://127.0.0.1:1", "cd.shop", `"again" "unreachable: `},
	} {
		request := func(n int) map[string]any {
			return map[string]any{
				"server": one.server, "subject": one.subject, "plain": true, "message_id": fmt.Sprint("m-", n), "json": map[string]any{"n": n}, "timeout": 30,
			}
		}
		inputs, err := json.Marshal(map[string]any{
			"function": "nats.publish", "request": request(1), "further": []any{request(2)}, "answer": map[string]any{"ok": "", "ref": ""},
		})
		if err != nil {
			t.Fatal(err)
		}
		id := fmt.Sprintf("notification-9-%d", i+1)
		if _, err := service.StartWorkflow(t.Context(), &autoflowv1.StartWorkflowRequest{
			OrganizationId: organization, WorkflowId: id, Starlark: program, Inputs: inputs,
		}); err != nil {
			t.Fatal(err)
		}
		status := service.await(id, autoflowv1.WorkflowState_WORKFLOW_STATE_COMPLETED).GetStatus()
		if found := status["outcome"] + " " + status["why"]; !strings.HasPrefix(found, one.want) {
			t.Errorf("%s: found %s; want %s", one.name, found, one.want)
		}
	}
	for _, want := range []string{`m-1 {"n":1}`, `m-2 {"n":2}`} {
		m, err := received.NextMsg(10 * time.Second)
		if err != nil {
			t.Fatal(err)
		}
		if found := m.Header.Get("Nats-Msg-Id") + " " + string(m.Data); found != want {
			t.Errorf("found %s; want %s", found, want)
		}
	}
	if n, _, _ := received.Pending(); n != 0 {
		t.Errorf("found %d more messages", n)
	}
}
