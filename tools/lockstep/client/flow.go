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
	// Unchanged means that it equals the previous version.
	Unchanged bool `json:"unchanged,omitempty"`
}

const flowFields = `id version definition createdAt`

// FlowDefinition returns the latest version of an application's pipeline.
func (c *Client) FlowDefinition(ctx context.Context, application string) (FlowDefinition, error) {
	var data struct {
		Application *struct{ FlowDefinition *FlowDefinition }
	}
	err := c.do(ctx, `query($name: String!) { application(name: $name) { flowDefinition { `+flowFields+` } } }`,
		map[string]any{"name": application}, &data)
	a, err := found(data.Application, err, "application", application)
	if err != nil {
		return FlowDefinition{}, err
	}
	return found(a.FlowDefinition, nil, "pipeline of application", application)
}

// CreateFlowDefinition creates a new version of an application's pipeline, unless it equals the latest one.
func (c *Client) CreateFlowDefinition(ctx context.Context, application string, definition any) (FlowDefinition, error) {
	var data struct {
		CreateFlowDefinition struct {
			FlowDefinition *FlowDefinition
			Unchanged      bool
			Errors         []UserError
		}
	}
	err := c.do(ctx, `mutation($input: CreateFlowDefinitionInput!) { createFlowDefinition(input: $input) { flowDefinition { `+
		flowFields+` } unchanged `+
		`errors { field message code } } }`, map[string]any{"input": map[string]any{"application": application, "definition": definition}}, &data)
	if err == nil {
		err = refusal(data.CreateFlowDefinition.Errors)
	}
	made, err := found(data.CreateFlowDefinition.FlowDefinition, err, "pipeline of application", application)
	made.Unchanged = data.CreateFlowDefinition.Unchanged
	return made, err
}
