package client

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
)

// ArchiveApplication archives an application, given by name or identifier.
func (c *Client) ArchiveApplication(ctx context.Context, application, reason string) (Application, error) {
	return change[Application](ctx, c, "archiveApplication", "ArchiveApplicationInput", "application", applicationFields,
		map[string]any{"application": application, "reason": reason})
}

const serviceFields = `id name retiredAt artifactSources { id sourceRef sourceConfig }`

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
	// From is the set that it begins with; empty for none. Versions are names or identifiers, by service.
	From         string
	Versions     map[string]string
	Name, Reason string
}

// CreateVersionSet puts a version set together.
func (c *Client) CreateVersionSet(ctx context.Context, n NewVersionSet) (VersionSet, error) {
	versions := []map[string]string{}
	for _, service := range slices.Sorted(maps.Keys(n.Versions)) {
		versions = append(versions, map[string]string{"service": service, "version": n.Versions[service]})
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
