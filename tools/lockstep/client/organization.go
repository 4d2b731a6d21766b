package client

import (
	"context"
	"encoding/json"
	"fmt"
	"time"
)

// Organization owns members, tokens and rollouts.
type Organization struct {
	ID        string    `json:"id"`
	Name      string    `json:"name"`
	CreatedAt time.Time `json:"createdAt"`
	// Token is the first owner's, if the organization has just been created.
	Token string `json:"token,omitempty"`
}

// Viewer is the principal of the current token.
type Viewer struct {
	// Member is missing for a principal that is not a member.
	Member       *Reference   `json:"member,omitempty"`
	Role         string       `json:"role,omitempty"`
	Organization Organization `json:"organization"`
	// Permissions are those of the member's role that the token includes.
	Permissions []string `json:"permissions"`
	// Organizations are all that the viewer may sign in to.
	Organizations []Organization `json:"organizations"`
}

const organizationFields = `id name createdAt`

// Viewer returns the principal of the current token.
func (c *Client) Viewer(ctx context.Context) (Viewer, error) {
	var data struct {
		Viewer struct {
			Viewer

			Member *struct {
				Reference

				Role string
			}
		}
	}
	err := c.do(ctx, `query { viewer { member { id name role } permissions organization { `+organizationFields+` } organizations { `+
		organizationFields+` } } }`, nil, &data)
	v := data.Viewer.Viewer
	if m := data.Viewer.Member; m != nil {
		v.Member, v.Role = &m.Reference, m.Role
	}
	return v, err
}

// Organizations lists all organizations of the installation.
func (c *Client) Organizations(ctx context.Context) ([]Organization, error) {
	return all(0, func(first int, after *string) (connection[Organization], error) {
		var data struct{ Organizations connection[Organization] }
		err := c.do(ctx, `query($first: Int, $after: String) { organizations(first: $first, after: $after) { nodes { `+organizationFields+
			` } `+pageInfo+` } }`,
			map[string]any{"first": first, "after": after}, &data)
		return data.Organizations, err
	})
}

// CreateOrganization creates an organization with its first owner, by name; only this response contains the owner's token.
func (c *Client) CreateOrganization(ctx context.Context, name, owner string) (Organization, error) {
	var data struct {
		CreateOrganization struct {
			Organization json.RawMessage
			Token        string
			Errors       []UserError
		}
	}
	err := c.do(ctx, `mutation($input: CreateOrganizationInput!) { createOrganization(input: $input) { organization { `+organizationFields+
		` } token errors { field message code } } }`,
		map[string]any{"input": map[string]any{"name": name, "owner": owner}}, &data)
	if err == nil {
		err = refusal(data.CreateOrganization.Errors)
	}
	var made Organization
	if err != nil {
		return made, err
	}
	if err := json.Unmarshal(data.CreateOrganization.Organization, &made); err != nil {
		return made, fmt.Errorf("decode organization of createOrganization: %w", err)
	}
	made.Token = data.CreateOrganization.Token
	return made, nil
}

// RenameOrganization renames an organization, given by identifier.
func (c *Client) RenameOrganization(ctx context.Context, organization, name string) (Organization, error) {
	return change[Organization](ctx, c, "renameOrganization", "RenameOrganizationInput", "organization", organizationFields,
		map[string]any{"organizationId": organization, "name": name})
}
