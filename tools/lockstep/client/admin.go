package client

import (
	"context"
	"encoding/json"
)

// ArchiveApplication archives an application, given by name or identifier.
func (c *Client) ArchiveApplication(ctx context.Context, application, reason string) (Application, error) {
	return change[Application](ctx, c, "archiveApplication", "ArchiveApplicationInput", "application", applicationFields,
		map[string]any{"application": application, "reason": reason})
}

// RenameApplication gives an application, given by name or identifier, another name.
func (c *Client) RenameApplication(ctx context.Context, application, name, reason string) (Application, error) {
	return change[Application](ctx, c, "renameApplication", "RenameApplicationInput", "application", applicationFields,
		map[string]any{"application": application, "name": name, "reason": reason})
}

// RenameEnvironment gives an environment, given by its identifier, another display name.
func (c *Client) RenameEnvironment(ctx context.Context, environment, name, reason string) (Environment, error) {
	return change[Environment](ctx, c, "renameEnvironment", "RenameEnvironmentInput", "environment", environmentFields,
		map[string]any{"environmentId": environment, "displayName": name, "reason": reason})
}

// RenameService gives a service, given by its identifier, another display name.
func (c *Client) RenameService(ctx context.Context, service, name, reason string) (Service, error) {
	return change[Service](ctx, c, "renameService", "RenameServiceInput", "service", serviceFields,
		map[string]any{"serviceId": service, "displayName": name, "reason": reason})
}

const serviceFields = `id name` + displayNewer + ` description` + detailsNewer + ` retiredAt artifactSources { id sourceRef sourceConfig }`

// SourceInput is a source of a new service.
type SourceInput struct {
	Ref    string          `json:"sourceRef"`
	Config json.RawMessage `json:"sourceConfig"`
}

// AddService gives an application another service.
func (c *Client) AddService(
	ctx context.Context, application, name, description string, sources []SourceInput, reason string,
) (Service, error) {
	return change[Service](ctx, c, "addService", "AddServiceInput", "service", serviceFields, map[string]any{
		"application": application, "name": name, "description": description, "artifactSources": sources, "reason": reason,
	})
}

// RetireService takes a service, given by its identifier, out of new version sets and rollouts.
func (c *Client) RetireService(ctx context.Context, service, reason string) (Service, error) {
	return change[Service](ctx, c, "retireService", "RetireServiceInput", "service", serviceFields,
		map[string]any{"serviceId": service, "reason": reason})
}

// RestoreService brings back a retired service.
func (c *Client) RestoreService(ctx context.Context, service, reason string) (Service, error) {
	return change[Service](ctx, c, "restoreService", "RestoreServiceInput", "service", serviceFields,
		map[string]any{"serviceId": service, "reason": reason})
}

// NewVersionSet says of which versions a version set is put together.
type NewVersionSet struct {
	Application string
	// From is the set that it begins with; empty for none.
	From         string
	Versions     []ChosenVersion
	Name, Reason string
}

// ChosenVersion is a version of a service, by its name or identifier. A service that has several sources may have one of each.
type ChosenVersion struct{ Service, Version string }

// CreateVersionSet puts a version set together.
func (c *Client) CreateVersionSet(ctx context.Context, n NewVersionSet) (VersionSet, error) {
	versions := []map[string]string{}
	for _, one := range n.Versions {
		versions = append(versions, map[string]string{"service": one.Service, "version": one.Version})
	}
	input := map[string]any{"application": n.Application, "versions": versions, "name": n.Name, "reason": n.Reason}
	if n.From != "" {
		input["fromVersionSetId"] = n.From
	}
	return change[VersionSet](ctx, c, "createVersionSet", "CreateVersionSetInput", "versionSet", versionSetFields, input)
}

// ArchiveEnvironment archives an environment.
func (c *Client) ArchiveEnvironment(ctx context.Context, environment, reason string) (Environment, error) {
	return change[Environment](ctx, c, "archiveEnvironment", "ArchiveEnvironmentInput", "environment", environmentFields,
		map[string]any{"environmentId": environment, "reason": reason})
}

// RestoreApplication restores an archived application, given by name or identifier.
func (c *Client) RestoreApplication(ctx context.Context, application, reason string) (Application, error) {
	return change[Application](ctx, c, "restoreApplication", "RestoreApplicationInput", "application", applicationFields,
		map[string]any{"application": application, "reason": reason})
}

// RestoreEnvironment restores an archived environment.
func (c *Client) RestoreEnvironment(ctx context.Context, environment, reason string) (Environment, error) {
	return change[Environment](ctx, c, "restoreEnvironment", "RestoreEnvironmentInput", "environment", environmentFields,
		map[string]any{"environmentId": environment, "reason": reason})
}

// JournalCheck is the result of rebuilding states from the journal.
type JournalCheck struct {
	Rollouts    int                 `json:"rollouts"`
	Rows        int                 `json:"rows"`
	Differences []JournalDifference `json:"differences"`
	// Chain is the check of the chain that the journals are sealed in; nil where the server is of a release that does not seal them.
	Chain *JournalChain `json:"chain,omitempty"`
}

// JournalDifference is a difference between a cached state and the journal.
type JournalDifference struct {
	Subject string `json:"subject"`
	Problem string `json:"problem"`
}

// CheckJournal rebuilds the states of every rollout of the organization from the journal, page by page; progress is called after each page.
func (c *Client) CheckJournal(ctx context.Context, progress func(JournalCheck)) (JournalCheck, error) {
	total := JournalCheck{Differences: []JournalDifference{}}
	_, err := all(0, func(first int, after *string) (connection[struct{}], error) {
		var data struct {
			JournalCheck struct {
				JournalCheck
				connection[struct{}]
			}
		}
		err := c.do(ctx, `query($first: Int, $after: String) { journalCheck(first: $first, after: $after) { rollouts rows differences { subject problem } `+
			pageInfo+` } }`, map[string]any{"first": first, "after": after}, &data)
		page := data.JournalCheck
		total.Rollouts, total.Rows = total.Rollouts+page.Rollouts, total.Rows+page.Rows
		total.Differences = append(total.Differences, page.Differences...)
		if err == nil {
			progress(total)
		}
		return page.connection, err
	})
	return total, err
}

// Details is a change of the labels, the description, the owner and the links of an application, an environment or a service. What is nil,
// and labels and links that it does not name, stay.
type Details struct {
	// Subject is the identifier, such as application_3.
	Subject            string
	SetLabels          map[string]string
	UnsetLabels        []string
	Description, Owner *string
	SetLinks           []Link
	UnsetLinks         []string
	Reason             string
}

// Labels reports whether labels change, and Others whether anything else does.
func (d Details) Labels() bool { return len(d.SetLabels)+len(d.UnsetLabels) > 0 }

// Others reports whether the description, the owner or links change.
func (d Details) Others() bool {
	return d.Description != nil || d.Owner != nil || len(d.SetLinks)+len(d.UnsetLinks) > 0
}

// SetDetails changes labels by one request, and everything else by another one before it.
func SetDetails[T Application | Environment | Service](ctx context.Context, c *Client, d Details) (T, error) {
	var changed T
	object, fields := "application", applicationFields
	switch any(changed).(type) {
	case Environment:
		object, fields = "environment", environmentFields
	case Service:
		object, fields = "service", serviceFields
	}
	if d.Others() {
		input := map[string]any{"subjectId": d.Subject, "setLinks": d.SetLinks, "unsetLinks": d.UnsetLinks, "reason": d.Reason}
		if d.Description != nil {
			input["description"] = *d.Description
		}
		if d.Owner != nil {
			input["owner"] = *d.Owner
		}
		var err error
		if changed, err = change[T](ctx, c, "setDetails", "SetDetailsInput", object, fields, input); err != nil || !d.Labels() {
			return changed, err
		}
	}
	return change[T](ctx, c, "setLabels", "SetLabelsInput", object, fields,
		map[string]any{"subjectId": d.Subject, "set": d.SetLabels, "unset": d.UnsetLabels, "reason": d.Reason})
}

// Called reports whether a person may mean the service by a name.
func (s Service) Called(name string) bool {
	return s.Name == name || s.DisplayName == name && name != ""
}

// Shown is how people see the service.
func (s Service) Shown() string { return shownAs(s.DisplayName, s.Name) }

// Shown is how people see the environment.
func (e Environment) Shown() string { return shownAs(e.DisplayName, e.Name) }

// EnvironmentReference is an environment with both of its names.
type EnvironmentReference struct {
	Reference
	// DisplayName is what people see, and may write in place of the name; empty if the server does not know of it.
	DisplayName string `json:"displayName,omitempty"`
}

// Called reports whether a person may mean the environment by a name.
func (e EnvironmentReference) Called(name string) bool {
	return e.Name == name || e.DisplayName == name && name != ""
}

// Shown is how people see the environment.
func (e EnvironmentReference) Shown() string { return shownAs(e.DisplayName, e.Name) }

// shownAs is a display name with the name in brackets; the name alone where there is no other.
func shownAs(display, name string) string {
	if display == "" || display == name {
		return name
	}
	return display + " (" + name + ")"
}
