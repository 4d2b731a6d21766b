package workflow_test

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/lockstep-cd/lockstep/pkg/event"
	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/telemetry"
	autoflowv1 "github.com/lockstep-cd/lockstep/proto/lockstep/autoflow/v1"
)

// doorCase is an event as it is sent through every door.
type doorCase struct {
	name string
	// attributes and data are members of its JSON, beside specversion 1.0, id, source /test, type and organizationid 1; text is all of it.
	eventType, attributes, text string
	// refused is the part of it that is wrong, "malformed" for no CloudEvent; "" where programs get it, with this data. atBus means that for
	// NATS, where it differs: a caller may not send the type, and what is on the bus has another source.
	refused, data, atBus string
}

const (
	customType  = "com.example.tick"
	healthyType = "com.gitlab.cd.rollout.healthy"
)

func doorCases() []doorCase {
	deep := strings.Repeat("[", 201) + strings.Repeat("]", 201)
	return []doorCase{
		{name: "custom", attributes: `"time": "2026-03-25T12:00:00Z", "data": {"n": 1}`, data: `{"n":1}`},
		{name: "catalogue", eventType: healthyType, attributes: `"data": {"rollout_id": 3}`, refused: "type", atBus: "source"},
		{name: "schema", eventType: healthyType, attributes: `"data": {"rollout_id": "3"}`, refused: "data"},
		{name: "unknown-of-ours", eventType: "com.gitlab.cd.unknown.thing", attributes: `"data": {"n": 1}`, refused: "type", atBus: "source"},
		{name: "no-data", data: "null"},
		{name: "null", attributes: `"data": null`, data: "null"},
		{name: "list", attributes: `"data": [1, "a"]`, data: `[1,"a"]`},
		{name: "string", attributes: `"data": "a"`, data: `"a"`},
		{name: "base64", attributes: `"datacontenttype": "application/json", "data_base64": "eyJuIjogMX0="`, data: `{"n":1}`},
		{name: "text", attributes: `"datacontenttype": "text/plain", "data": "no JSON"`, refused: "data"},
		{name: "number", attributes: `"data": {"n": 1e400}`, refused: "malformed"}, // the SDK reads numbers of data that is not said to be JSON
		{name: "number-in-json", attributes: `"datacontenttype": "application/json", "data": {"n": 1e400}`, refused: "data"},
		{name: "number-in-base64", attributes: `"datacontenttype": "application/json", "data_base64": "eyJuIjogMWU0MDB9"`, refused: "data"},
		{name: "deep", attributes: `"data": {"n": ` + deep + `}`, refused: "data"},
		{
			name: "old-version", text: `{"specversion": "0.3", "id": "ID", "source": "/test", "type": "com.example.tick", "organizationid": "1"}`,
			refused: "specversion",
		},
		{name: "no-version", text: `{"id": "ID", "source": "/test", "type": "com.example.tick", "organizationid": "1"}`, refused: "malformed"},
		{name: "no-source", text: `{"specversion": "1.0", "id": "ID", "type": "com.example.tick", "organizationid": "1"}`, refused: "malformed"},
		{
			name: "no-id", text: `{"specversion": "1.0", "source": "/test", "type": "com.example.tick", "organizationid": "1"}`,
			refused: "malformed",
		},
		{
			name: "control", text: `{"specversion": "1.0", "id": "ID\u0007", "source": "/test", "type": "com.example.tick", "organizationid": "1"}`,
			refused: "id",
		},
		{name: "control-in-catalogue", text: `{"specversion": "1.0", "id": "ID\u0000", "source": "/test", "type": "` + healthyType +
			`", "organizationid": "1", "data": {"rollout_id": 3}}`, refused: "id"},
		{
			name: "no-organization", text: `{"specversion": "1.0", "id": "ID", "source": "/test", "type": "com.example.tick"}`,
			refused: "organizationid",
		},
		{
			name: "no-number", text: `{"specversion": "1.0", "id": "ID", "source": "/test", "type": "com.example.tick", "organizationid": "one"}`,
			refused: "organizationid",
		},
		{
			name: "batch", text: `[{"specversion": "1.0", "id": "ID", "source": "/test", "type": "com.example.tick", "organizationid": "1"}]`,
			refused: "malformed",
		},
		{name: "no-json", text: `ID`, refused: "malformed"},
	}
}

func (c doorCase) event(id string) string {
	if c.text != "" {
		return strings.Replace(c.text, "ID", id, 1)
	}
	eventType, attributes := c.eventType, c.attributes
	if eventType == "" {
		eventType = customType
	}
	if attributes != "" {
		attributes = ", " + attributes
	}
	return fmt.Sprintf(`{"specversion": "1.0", "id": %q, "source": "/test", "type": %q, "organizationid": "1"%s}`, id, eventType, attributes)
}

// subject is where services publish it.
func (c doorCase) subject() string {
	if c.eventType == healthyType || strings.Contains(c.text, healthyType) {
		return "cd.domain.1.rollout.healthy"
	}
	return "cd.domain.1.external"
}

// rejections are what the bus's consumer of this process has given up, by reason.
func rejections(t *testing.T) map[string]int {
	t.Helper()
	rec := httptest.NewRecorder()
	telemetry.Health(nil).ServeHTTP(rec, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", nil))
	counted := map[string]int{}
	for lines := bufio.NewScanner(rec.Body); lines.Scan(); {
		const name = `lockstep_events_rejected_total{consumer="workflow",reason="`
		if reason, count, ok := strings.Cut(strings.TrimPrefix(lines.Text(), name), `"} `); ok && strings.HasPrefix(lines.Text(), name) {
			n, err := strconv.Atoi(count)
			if err != nil {
				t.Fatal(err)
			}
			counted[reason] = n
		}
	}
	return counted
}

// TestTheDoorsForEventsBehaveTheSame sends every case to CloudEvent and to NATS: programs get the same of it, or it is refused for the
// same reason, which the caller gets in the one case and the metric names in the other. It is not parallel: the metric is the process's.
//
//nolint:paralleltest // as said
func TestTheDoorsForEventsBehaveTheSame(t *testing.T) {
	s := start(t)
	s.submit("listener", `
while True:
    e = wait_for_event(["com.example.tick", "com.gitlab.cd.rollout.healthy", "com.gitlab.cd.unknown.thing"])
    print(e.id, e.source, e.time.startswith("20"), json.encode(e.data))
`, "")
	s.await("listener", autoflowv1.WorkflowState_WORKFLOW_STATE_PARKED)

	before, given := rejections(t), map[string]int{}
	js := s.bus.JetStream(t, elsewhere)
	lines := map[string]bool{}
	for _, c := range doorCases() {
		_, err := s.CloudEvent(t.Context(), &autoflowv1.CloudEventRequest{CloudEvent: []byte(c.event(c.name + "-grpc"))})
		if reason := refusedFor(err); reason != c.refused {
			t.Errorf("%s: CloudEvent refuses it for %q (%v), expected %q", c.name, reason, err, c.refused)
		}
		if _, err := js.PublishMsg(t.Context(), &nats.Msg{Subject: c.subject(), Data: []byte(c.event(c.name + "-nats"))}); err != nil {
			t.Fatal(err)
		}
		if c.refused != "" {
			given[cmp.Or(c.atBus, c.refused)]++
			continue
		}
		for _, door := range []string{"grpc", "nats"} {
			lines[fmt.Sprintf("%s-%s /test True %s", c.name, door, c.data)] = true
		}
	}
	s.eventually("all events are consumed or given up", func(context.Context) bool {
		for reason, n := range given {
			if rejections(t)[reason]-before[reason] < n {
				return false
			}
		}
		return len(s.lines("listener")) >= len(lines)
	})
	for _, line := range s.lines("listener") {
		if !lines[line] {
			t.Errorf("a program got %q, which is to be refused, or is another", line)
		}
		delete(lines, line)
	}
	for line := range lines {
		t.Errorf("no program got %q", line)
	}
	for reason, n := range rejections(t) {
		if n-before[reason] != given[reason] {
			t.Errorf("%d events given up at NATS for %q, expected %d", n-before[reason], reason, given[reason])
		}
	}
}

// refusedFor is the part of an event that CloudEvent refuses; "" if it does not.
func refusedFor(err error) string {
	if err == nil {
		return ""
	}
	fields := fault.FieldsOf(err)
	if !fault.Is(err, fault.Invalid) || len(fields) == 0 {
		return err.Error()
	}
	part, ok := strings.CutPrefix(fields[0].Name, "cloud_event.")
	if !ok {
		return "malformed"
	}
	part, _, _ = strings.Cut(part, ".")
	return part
}

// lines are what a workflow has printed.
func (s *service) lines(id string) (lines []string) {
	s.t.Helper()
	log, err := s.GetLogs(s.t.Context(), &autoflowv1.GetLogsRequest{OrganizationId: organization, WorkflowId: id, PageSize: 500})
	if err != nil {
		s.t.Fatal(err)
	}
	for _, l := range log.GetLines() {
		if l.GetKind() == "print" {
			lines = append(lines, l.GetText())
		}
	}
	return lines
}

// TestTheOtherDoorsRefuseWhatNoProgramCanRead covers inputs, messages and the answers of relays; nothing of it is stored.
func TestTheOtherDoorsRefuseWhatNoProgramCanRead(t *testing.T) {
	t.Parallel()
	s := start(t)
	const flow = "def h(event):\n    pass\non_event(type = \"com.example.tick\", handler = h)\n"
	for bad, only := range map[string]string{
		`1e400`: "", strings.Repeat("[", 201) + strings.Repeat("]", 201): "", `{"b": 1, "b": 2}`: "inputs",
	} {
		inputs := []byte(`{"a": ` + bad + `}`)
		_, started := s.StartWorkflow(t.Context(), &autoflowv1.StartWorkflowRequest{
			OrganizationId: organization, WorkflowId: "refused",
			Starlark: []byte("x = 1"), Inputs: inputs,
		})
		_, registered := s.RegisterFlow(t.Context(),
			&autoflowv1.RegisterFlowRequest{OrganizationId: organization, Name: "refused", Starlark: []byte(flow), Inputs: inputs})
		_, sent := s.SendToChannel(t.Context(), &autoflowv1.SendToChannelRequest{
			OrganizationId: organization,
			Token:          "ch_" + strings.Repeat("A", 26), MessageId: "m", Data: inputs,
		})
		for field, err := range map[string]error{"inputs": started, "inputs of a flow": registered, "data": sent} {
			name, _, _ := strings.Cut(field, " ")
			if only != "" && name != only {
				if !fault.Is(err, fault.NotFound) {
					t.Errorf("%.20s as %s: found %v, expected that there is no such channel", bad, field, err)
				}
				continue
			}
			if fields := fault.FieldsOf(err); !fault.Is(err, fault.Invalid) || len(fields) != 1 || fields[0].Name != name {
				t.Errorf("%.20s as %s: found %v, expected a refusal of %s", bad, field, err, name)
			}
		}
	}
	if _, err := s.GetWorkflow(t.Context(), &autoflowv1.GetWorkflowRequest{
		OrganizationId: organization,
		WorkflowId:     "refused",
	}); !fault.Is(err, fault.NotFound) {
		t.Errorf("found %v, expected that no run was stored", err)
	}

	s.relay(func(event.FunctionCalled) event.FunctionCompleted {
		return event.FunctionCompleted{Value: json.RawMessage(`{"n": 1e400}`)}
	})
	s.submit("answered", `
r = run("k8s.get", {"agent_id": 7, "kind": "Pod", "name": "x"}, on_error = "return")
print(r.code, r.error)
`, "")
	s.await("answered", autoflowv1.WorkflowState_WORKFLOW_STATE_COMPLETED)
	if lines := s.lines("answered"); len(lines) != 1 ||
		!strings.HasPrefix(lines[0], "unreadable the answer of the relay: found the number 1e400") {
		t.Errorf("printed %q", lines)
	}
}
