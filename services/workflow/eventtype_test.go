package workflow_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/event"
	"github.com/lockstep-cd/lockstep/pkg/fault"
	autoflowv1 "github.com/lockstep-cd/lockstep/proto/lockstep/autoflow/v1"
)

const shipped = "com.example.order.shipped"

// declareType declares a type of events of an organization.
func (s *service) declareType(org int64, name, schema string) (bool, error) {
	done, err := s.DeclareEventType(s.t.Context(), &autoflowv1.DeclareEventTypeRequest{
		OrganizationId: org, Type: name, Description: "An order has left.", Schema: []byte(schema),
	})
	return done.GetChanged(), err
}

// TestProgramsEmitTypesThatTheirOrganizationHasDeclared: such an event is checked, wakes the waits and the flows of the organization
// alone, and leaves the service nowhere.
func TestProgramsEmitTypesThatTheirOrganizationHasDeclared(t *testing.T) { // issue 18
	t.Parallel()
	s := start(t)
	received := make(chan event.Event, 100)
	listen(t, s.bus.Connect(t, "domain"), received)
	const schema = `{"type": "object", "properties": {"order": {"type": "integer"}}, "required": ["order"], "additionalProperties": false}`
	program := fmt.Sprintf(`def emitted(data):
    return attempt(run, "emit", {"type": %q, "data": data})
for data in [{"order": 7}, {"order": "x"}, {"order": 7, "more": 1}]:
    r = emitted(data)
    print(r.ok, "" if r.ok else r.error.message)
`, shipped)
	s.submit("before", program, "")
	s.await("before", autoflowv1.WorkflowState_WORKFLOW_STATE_COMPLETED)
	for _, line := range s.lines("before") {
		if !strings.Contains(line, "or one that the organization has declared") {
			t.Errorf("before the declaration: %s", line)
		}
	}
	for n, want := range []bool{true, false} {
		if changed, err := s.declareType(organization, shipped, schema); err != nil || changed != want {
			t.Fatalf("declaration %d: changed %t, error %v", n, changed, err)
		}
	}
	wait := fmt.Sprintf(`e = wait_for_event(%q, filter = {"order": 7})
print(e.source, e.data.order)`, shipped)
	s.submit("waits", wait, "")
	s.await("waits", autoflowv1.WorkflowState_WORKFLOW_STATE_PARKED)
	if _, err := s.StartWorkflow(t.Context(), &autoflowv1.StartWorkflowRequest{
		OrganizationId: 2, WorkflowId: "other", Starlark: []byte(wait),
	}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.RegisterFlow(t.Context(), &autoflowv1.RegisterFlowRequest{
		OrganizationId: organization, Name: "on-shipped", Labels: map[string]string{"by": "flow"}, Starlark: []byte(fmt.Sprintf(
			"def h(event):\n    print(event.data.order)\non_event(type = %q, filter = {\"order\": 7}, handler = h)\n", shipped)),
	}); err != nil {
		t.Fatal(err)
	}
	s.submit("emits", program, "")
	s.await("emits", autoflowv1.WorkflowState_WORKFLOW_STATE_COMPLETED)
	lines := s.lines("emits")
	if len(lines) != 3 || strings.TrimSpace(lines[0]) != "True" || !strings.Contains(lines[1], "order") || !strings.Contains(lines[2], "more") {
		t.Errorf("printed %q", lines)
	}
	s.await("waits", autoflowv1.WorkflowState_WORKFLOW_STATE_COMPLETED)
	if found := s.lines("waits"); !slices.Equal(found, []string{event.SourceWorkflow + " 7"}) {
		t.Errorf("the wait has received %v", found)
	}
	s.eventually("the flow has a run", func(ctx context.Context) bool {
		found, err := s.CountWorkflows(ctx, &autoflowv1.CountWorkflowsRequest{Filter: &autoflowv1.ListWorkflowsRequest{
			OrganizationId: organization, Labels: map[string]string{"by": "flow"},
			States: []autoflowv1.WorkflowState{autoflowv1.WorkflowState_WORKFLOW_STATE_COMPLETED},
		}})
		return err == nil && found.GetCount() == 1
	})
	got, err := s.GetWorkflow(t.Context(), &autoflowv1.GetWorkflowRequest{OrganizationId: 2, WorkflowId: "other"})
	if err != nil || got.GetWorkflow().GetState() != autoflowv1.WorkflowState_WORKFLOW_STATE_PARKED {
		t.Errorf("the run of another organization: %v, error %v", got, err)
	}
	// Everything that leaves, leaves in order: the end of a later run is the last.
	s.submit("last", "x = 1", "")
	for {
		select {
		case e := <-received:
			if e.Type() == shipped {
				t.Fatal("the event has left the service")
			}
			if done, err := event.Decode[event.WorkflowCompleted](e); err == nil && done.WorkflowID == "last" {
				return
			}
		case <-time.After(within):
			t.Fatal("the last run's end has not left")
		}
	}
}

func TestCallersSendDeclaredTypesThatFit(t *testing.T) {
	t.Parallel()
	s := start(t)
	if _, err := s.declareType(organization, "com.example.tick", `{"type": "object", "properties": {"n": {"type": "string"}}}`); err != nil {
		t.Fatal(err)
	}
	send := func(id, data string) error {
		text := strings.Replace(strings.Replace(cloudEvent, "ID", id, 1), `{"n": 1}`, data, 1)
		_, err := s.CloudEvent(t.Context(), &autoflowv1.CloudEventRequest{CloudEvent: []byte(text)})
		return err
	}
	if err := send("1", `{"n": 1}`); !fault.Is(err, fault.Invalid) {
		t.Errorf("an event that does not fit: %v", err)
	}
	if err := send("2", `{"n": "1"}`); err != nil {
		t.Error(err)
	}
	if _, err := s.DeleteEventType(t.Context(), &autoflowv1.DeleteEventTypeRequest{
		OrganizationId: organization, Type: "com.example.tick",
	}); err != nil {
		t.Fatal(err)
	}
	if err := send("3", `{"n": 1}`); err != nil {
		t.Errorf("after the type was deleted: %v", err)
	}
}

func TestWhatCannotBeDeclared(t *testing.T) { // issue 18: a declared type may never be mistaken for one of the catalogue
	t.Parallel()
	s := start(t)
	const object = `{"type": "object"}`
	for name, tt := range map[string]struct{ eventType, schema, field string }{
		"a type of the catalogue":   {event.TypeRolloutStarted, object, "type"},
		"one that could be":         {event.Prefix + "shop.opened", object, "type"},
		"the prefix itself":         {strings.TrimSuffix(event.Prefix, "."), object, "type"},
		"capital letters":           {"Com.Gitlab.Cd.rollout.started", object, "type"},
		"one word":                  {"shipped", object, "type"},
		"a space":                   {"com.example.order shipped", object, "type"},
		"too long":                  {"com.example." + strings.Repeat("x", 300), object, "type"},
		"no schema":                 {shipped, "", "schema"},
		"no JSON":                   {shipped, "{", "schema"},
		"a schema of nothing known": {shipped, `{"type": "order"}`, "schema"},
		"a schema from elsewhere":   {shipped, `{"$ref": "https://example.com/x.json"}`, "schema"},
		"a schema that is too long": {shipped, `{"description": "` + strings.Repeat("x", 70_000) + `"}`, "schema"},
	} {
		_, err := s.declareType(organization, tt.eventType, tt.schema)
		if fields := fault.FieldsOf(err); !fault.Is(err, fault.Invalid) || len(fields) != 1 || fields[0].Name != tt.field {
			t.Errorf("%s: %v, expected an error about %s", name, err, tt.field)
		}
	}
	_, err := s.DeleteEventType(t.Context(), &autoflowv1.DeleteEventTypeRequest{OrganizationId: organization, Type: shipped})
	if !fault.Is(err, fault.NotFound) {
		t.Errorf("a type that was not declared: %v", err)
	}
	for _, d := range event.Catalogue() {
		if event.Own(d.Type) {
			t.Errorf("%s of the catalogue could be declared", d.Type)
		}
	}
	if _, err := s.declareType(2, shipped, object); err != nil {
		t.Fatal(err)
	}
	found, err := s.ListEventTypes(t.Context(), &autoflowv1.ListEventTypesRequest{OrganizationId: organization})
	if err != nil || len(found.GetEventTypes()) != 0 {
		t.Errorf("types of another organization: %v, error %v", found, err)
	}
}
