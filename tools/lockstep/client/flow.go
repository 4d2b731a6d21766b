package client

import (
	"context"
	"time"
)

// FlowDefinition is one version of an application's pipeline.
type FlowDefinition struct {
	ID         string    `json:"id"`
	Version    int       `json:"version"`
	Definition any       `json:"definition"`
	CreatedAt  time.Time `json:"createdAt,omitzero"`
}

const flowFields = `id version definition createdAt`

// FlowDefinition finds the pipeline of an application, the latest version.
func (c *Client) FlowDefinition(ctx context.Context, application string) (FlowDefinition, error) {
	var data struct {
		Application *struct{ FlowDefinition *FlowDefinition }
	}
	err := c.do(ctx, `query($name: String!) { application(name: $name) { flowDefinition { `+flowFields+` } } }`, map[string]any{"name": application}, &data)
	a, err := found(data.Application, err, "application", application)
	if err != nil {
		return FlowDefinition{}, err
	}
	return found(a.FlowDefinition, nil, "pipeline of application", application)
}

// CreateFlowDefinition gives an application a new version of its pipeline.
func (c *Client) CreateFlowDefinition(ctx context.Context, application string, definition any) (FlowDefinition, error) {
	return change[FlowDefinition](ctx, c, "createFlowDefinition", "CreateFlowDefinitionInput", "flowDefinition", flowFields,
		map[string]any{"application": application, "definition": definition})
}
