package workflow

import (
	"context"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	autoflowv1 "github.com/lockstep-cd/lockstep/proto/lockstep/autoflow/v1"
	"github.com/lockstep-cd/lockstep/tools/lockstep/cli/command"
)

// eventType is about the types of events that an organization declares.
func (e *Engine) eventType() *cobra.Command {
	cmd := command.Noun("event-type", "event-types", "Event types of your own, which programs may emit", e.eventTypeDeclare(), e.eventTypeList(),
		e.eventTypeDelete())
	cmd.GroupID = ""
	return cmd
}

func (e *Engine) eventTypeDeclare() *cobra.Command {
	var description string
	cmd := e.asking("declare TYPE SCHEMA", "Declare an event type with a JSON schema of its data, or replace it",
		"  lockstep workflow event-type declare com.example.order.shipped shipped.schema.json --description 'An order has left the house.'",
		command.Exactly(2), func(ctx context.Context, client autoflowv1.AutoFlowClient, args []string) error {
			schema, err := os.ReadFile(args[1])
			if err != nil {
				return fault.New(fault.Invalid, "schema: %w", err)
			}
			answer, err := client.DeclareEventType(ctx, &autoflowv1.DeclareEventTypeRequest{
				OrganizationId: e.organization, Type: args[0], Description: description, Schema: schema,
			})
			if err != nil {
				return err
			}
			return e.Print(message{answer}, func(w io.Writer) {
				state := "declared"
				if !answer.GetChanged() {
					state = "unchanged"
				}
				command.Row(w, "TYPE", "STATE")
				command.Row(w, args[0], state)
			})
		})
	cmd.Flags().StringVar(&description, "description", "", "what an event of the type means, as `text`")
	return cmd
}

func (e *Engine) eventTypeList() *cobra.Command {
	return e.asking("list", "List the event types that the organization has declared", "  lockstep workflow event-type list -o json",
		command.Exactly(0), func(ctx context.Context, client autoflowv1.AutoFlowClient, _ []string) error {
			found, err := client.ListEventTypes(ctx, &autoflowv1.ListEventTypesRequest{OrganizationId: e.organization})
			if err != nil {
				return err
			}
			return e.Print(messages(found.GetEventTypes()), func(w io.Writer) {
				command.Row(w, "TYPE", "VERSION", "DECLARED", "BY", "DESCRIPTION")
				for _, t := range found.GetEventTypes() {
					command.Row(w, t.GetType(), command.Number(int(t.GetVersion())), command.Moment(t.GetDeclaredAt().AsTime()), t.GetDeclaredBy(),
						firstLineOf(t.GetDescription()))
				}
			})
		})
}

func (e *Engine) eventTypeDelete() *cobra.Command {
	return e.asking("delete TYPE", "Delete a declared event type; programs can no longer emit it",
		"  lockstep workflow event-type delete com.example.order.shipped", command.Exactly(1),
		func(ctx context.Context, client autoflowv1.AutoFlowClient, args []string) error {
			answer, err := client.DeleteEventType(ctx, &autoflowv1.DeleteEventTypeRequest{OrganizationId: e.organization, Type: args[0]})
			if err != nil {
				return err
			}
			return e.Print(message{answer}, func(w io.Writer) { command.Row(w, args[0]+" is gone") })
		})
}
