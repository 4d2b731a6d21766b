package client

import (
	"context"
	"fmt"

	"github.com/lockstep-cd/lockstep/pkg/fault"
)

// pageSize is the number of objects per request.
const pageSize = 100

// connection is one page of anything.
type connection[T any] struct {
	Nodes    []T `json:"nodes"`
	PageInfo struct {
		HasNextPage bool   `json:"hasNextPage"`
		EndCursor   string `json:"endCursor"`
	} `json:"pageInfo"`
}

// all follows the pages of a connection to its end, or to limit objects if that is positive.
func all[T any](limit int, page func(first int, after *string) (connection[T], error)) ([]T, error) {
	nodes := []T{}
	var after *string
	for {
		first := pageSize
		if limit > 0 {
			first = min(first, limit-len(nodes))
		}
		c, err := page(first, after)
		if err != nil {
			return nil, err
		}
		nodes = append(nodes, c.Nodes...)
		if !c.PageInfo.HasNextPage || (limit > 0 && len(nodes) >= limit) {
			return nodes, nil
		}
		if c.PageInfo.EndCursor == "" {
			return nil, fmt.Errorf("read page after %d: found no cursor, expected one because there is more", len(nodes))
		}
		if after != nil && c.PageInfo.EndCursor == *after {
			return nil, fmt.Errorf("read page after %d: found the cursor of the page before, expected another one because there is more", len(nodes))
		}
		after = &c.PageInfo.EndCursor
	}
}

// upTo is a page whose cursor is nil if it is the last one.
func upTo[T any](nodes []T, next *string) (c connection[T]) {
	c.Nodes = nodes
	if next != nil {
		c.PageInfo.HasNextPage, c.PageInfo.EndCursor = true, *next
	}
	return c
}

const (
	pageInfo          = `pageInfo { hasNextPage endCursor }`
	applicationFields = `id name description` + detailsNewer + namesNewer + ` createdAt ` +
		`services { id name` + displayNewer + ` description` + detailsNewer + ` retiredAt artifactSources { id sourceRef sourceConfig } } ` +
		`environments { id environment { id name` + displayNewer + ` } readiness readinessReason } activeRollout { id } ` +
		`rollbackPolicy { onFailed onDegraded degradedAfterSeconds inFull } rolloutPolicy { onFailure onNewer } ` +
		`queuedRollout { ` + queuedFields + ` }` + lastQueuedNewer + ` missingVersions { artifactSource { id } blocks reason }`
	queuedFields = `versionSet { id name } reason requestedAt` + queuedNewer
	// queuedNewer and lastQueuedNewer are what an earlier release does not have.
	queuedNewer = ` id application { id name } state waitsFor why environments comparesUntil principalType principal { id name } endedAt ` +
		`rollout { id } cancelledBy { id name }`
	lastQueuedNewer   = ` lastQueuedRollout { ` + queuedFields + ` }`
	environmentFields = `id name` + displayNewer + ` description` + detailsNewer +
		` tier readiness readinessReason createdAt driverBindings { id version driverRef driverConfig fleet } ` +
		`approval { reason quorum group requesterMayApprove expiresAfterSeconds onExpiry } checks contact { reachable reason since }`
	versionSetFields = `id name createdAt entries { service { id name } version { id name digest digestSeen deletedAt reference } } warnings ` +
		`curated { name reason from { id name } principalName createdAt }`
	rolloutFields = `id application { id name } versionSet { id name } state status workflowRef isRollback awaitingApproval pauseRequested ` +
		`openGates { gateId reason requestedAt quorum group` + gateNewer + ` expiresAt onExpiry approvals { principalType principalId reason approvedAt } } ` +
		`createdAt startedAt finishedAt ` +
		`waitingOn { kind detail resolver since until gateId environment { id name } service { id name }` + waitNewer + ` } ` +
		rolloutNewer +
		`environments { id environment { id name } position state status driverDigest driverBinding { id version driverRef } ` +
		`previousVersionSet { id name } startedAt finishedAt ` +
		`deployments { id service { id name } state status versions { id name digest reference } snapshot { commitSha manifestDigest` + attemptsNewer + ` }` + linkNewer + ` ` +
		`gates { gateId weight reachedAt passedAt } } }`
	// namesNewer, detailsNewer, rolloutNewer, causesNewer, gateNewer, linkNewer, waitNewer, journalNewer and driftNewer list the fields that
	// the previous release of the domain service does not have.
	namesNewer   = ` formerNames`
	detailsNewer = ` labels owner links { title url }`
	rolloutNewer = `rollbackOf { id } rolledBackBy { id } automaticRollback { state cause dueAt why outcome rollout { id } } ` +
		`breakGlass { principal { id name } reason at } skippedEnvironments { environment { id name } cause } ` +
		`deadlines { kind environment { id name } seconds action countsWaiting` + workNewer + ` state dueAt remainingSeconds } strategy strategyReason inputs `
	// displayNewer, workNewer and plannedNewer are the latest, which a server may lack that has all of the others.
	displayNewer = ` displayName`
	workNewer    = ` atWork`
	plannedNewer = ` deadline { seconds action` + workNewer + ` }`
	// causesNewer is asked for of one rollout only: it is much to look for.
	causesNewer = ` causes { ` + transitionFields + ` }`
	gateNewer   = ` requirements { group quorum given }`
	linkNewer   = ` link { name namespace url status }`
	// attemptsNewer lists those of attempts before the latest.
	attemptsNewer = ` earlier { commitSha manifestDigest committedAt }`
	waitNewer     = ` status subject passage requirements { group quorum given } approvers { id name } link`
	// journalNewer lists those of a rollout's own journal.
	journalNewer = ` breach conditions { kind subject status environment { id name } by { principalType principalId principal { id name } at groups } ` +
		`soakSeconds cause until }`
	transitionFields = `subject fromState toState event gateId principalType principalId principal { id name } reason triggeredBy createdAt`
)

// driftNewer is what the previous release of the domain service does not have.
const driftNewer = ` objects { kind namespace name how differs held { path manager } }`

const reconciliationFields = `reconciliation { drift` + driftNewer + ` since observedAt staleReason }`

// Applications lists applications.
func (c *Client) Applications(ctx context.Context) ([]Application, error) {
	return all(0, func(first int, after *string) (connection[Application], error) {
		var data struct{ Applications connection[Application] }
		err := c.do(ctx, `query($first: Int, $after: String) { applications(first: $first, after: $after) { nodes { `+
			applicationFields+` } `+pageInfo+` } }`, map[string]any{"first": first, "after": after}, &data)
		return data.Applications, err
	})
}

// Application finds an application by name.
func (c *Client) Application(ctx context.Context, name string) (Application, error) {
	var data struct{ Application *Application }
	err := c.do(ctx, `query($name: String!) { application(name: $name) { `+applicationFields+
		` environments { id `+reconciliationFields+` } } }`, map[string]any{"name": name}, &data)
	return found(data.Application, err, "application", name)
}

// VersionSets lists the version sets of an application, newest first: all of them, or limit if that is positive.
func (c *Client) VersionSets(ctx context.Context, application string, limit int) ([]VersionSet, error) {
	return all(limit, func(first int, after *string) (connection[VersionSet], error) {
		var data struct {
			Application *struct{ VersionSets connection[VersionSet] }
		}
		err := c.do(ctx, `query($name: String!, $first: Int, $after: String) { application(name: $name) { versionSets(first: $first, after: $after) { nodes { `+
			versionSetFields+` } `+pageInfo+` } } }`, map[string]any{"name": application, "first": first, "after": after}, &data)
		a, err := found(data.Application, err, "application", application)
		return a.VersionSets, err
	})
}

// NewestVersionSet returns the version set with the newest version of every source of an application; the error is NotFound if there is
// none.
func (c *Client) NewestVersionSet(ctx context.Context, application string) (VersionSet, error) {
	var data struct {
		Application *struct {
			NewestVersionSet *VersionSet
			MissingVersions  []MissingVersion
		}
	}
	err := c.do(ctx, `query($name: String!) { application(name: $name) { newestVersionSet { `+versionSetFields+` } missingVersions { blocks reason } } }`,
		map[string]any{"name": application}, &data)
	a, err := found(data.Application, err, "application", application)
	if err != nil {
		return VersionSet{}, err
	}
	if a.NewestVersionSet == nil {
		why := "it gets one when every artifact source has a version"
		for _, m := range a.MissingVersions {
			if m.Blocks {
				why = m.Reason
				break
			}
		}
		return VersionSet{}, fault.New(fault.NotFound, "application %q has no version set yet: %s", application, why)
	}
	return *a.NewestVersionSet, nil
}

// VersionSet finds a version set by its identifier.
func (c *Client) VersionSet(ctx context.Context, id string) (VersionSet, error) {
	var data struct{ Node *VersionSet }
	err := c.do(ctx, `query($id: ID!) { node(id: $id) { ... on VersionSet { `+versionSetFields+` } } }`, map[string]any{"id": id}, &data)
	if data.Node != nil && data.Node.ID == "" {
		data.Node = nil // a node of another kind
	}
	return found(data.Node, err, "version set", id)
}

// Environments lists environments.
func (c *Client) Environments(ctx context.Context) ([]Environment, error) {
	return all(0, func(first int, after *string) (connection[Environment], error) {
		var data struct{ Environments connection[Environment] }
		err := c.do(ctx, `query($first: Int, $after: String) { environments(first: $first, after: $after) { nodes { `+
			environmentFields+` } `+pageInfo+` } }`, map[string]any{"first": first, "after": after}, &data)
		return data.Environments, err
	})
}

// Environment finds an environment by name or display name.
func (c *Client) Environment(ctx context.Context, name string) (Environment, error) {
	var data struct{ Environment *Environment }
	err := c.do(ctx, `query($name: String!) { environment(name: $name) { `+environmentFields+` } }`, map[string]any{"name": name}, &data)
	return found(data.Environment, err, "environment", name)
}

// Drifts lists the applications that differ in an environment, by name. All applications of the environment are read for it.
func (c *Client) Drifts(ctx context.Context, environment string) ([]Drifted, error) {
	type row struct {
		Application Reference
		Cells       []Drifted
	}
	rows, err := all(0, func(first int, after *string) (connection[row], error) {
		var data struct{ Matrix connection[row] }
		err := c.do(ctx, `query($first: Int, $after: String, $environment: String!) { `+
			`matrix(first: $first, after: $after, filter: {environments: [$environment]}) { nodes { application { id name } `+
			`cells { environment { id name } `+reconciliationFields+` } } `+pageInfo+` } }`,
			map[string]any{"first": first, "after": after, "environment": environment}, &data)
		return data.Matrix, err
	})
	drifted := []Drifted{}
	for _, row := range rows {
		for _, cell := range row.Cells {
			if cell.Reconciliation != nil && cell.Reconciliation.Drift != "" {
				cell.Application = row.Application
				drifted = append(drifted, cell)
			}
		}
	}
	return drifted, err
}

// Filter narrows a list of rollouts.
type Filter struct {
	// Application is a name; empty for all.
	Application string
	// States are RolloutState values; none for all.
	States []string
	// Limit is the maximum number of rollouts; 0 means all.
	Limit int
}

// Rollouts lists rollouts without their journals, newest first.
func (c *Client) Rollouts(ctx context.Context, f Filter) ([]Rollout, error) {
	variables := map[string]any{}
	if f.Application != "" {
		variables["application"] = f.Application
	}
	if len(f.States) > 0 {
		variables["states"] = f.States
	}
	return all(f.Limit, func(first int, after *string) (connection[Rollout], error) {
		variables["first"], variables["after"] = first, after
		var data struct{ Rollouts connection[Rollout] }
		err := c.do(ctx, `query($first: Int, $after: String, $application: String, $states: [RolloutState!]) { `+
			`rollouts(first: $first, after: $after, application: $application, states: $states) { nodes { `+
			rolloutFields+` } `+pageInfo+` } }`, variables, &data)
		return data.Rollouts, err
	})
}

// QueuedRollouts lists the rollouts that wait in the queues of all applications or, if it is not empty, of one: the first to begin
// first. An earlier release does not list them.
func (c *Client) QueuedRollouts(ctx context.Context, application string) ([]QueuedRollout, error) {
	variables := map[string]any{}
	if application != "" {
		variables["application"] = application
	}
	var data struct{ QueuedRollouts []QueuedRollout }
	err := c.do(ctx, `query($application: String) { queuedRollouts(application: $application, first: 500) { `+queuedFields+` } }`, variables, &data)
	if IsUnknownField(err) {
		return nil, nil
	}
	return data.QueuedRollouts, err
}

// Rollout finds a rollout with its journal.
func (c *Client) Rollout(ctx context.Context, id string) (Rollout, error) {
	r, _, err := c.rolloutSince(ctx, id, "", "")
	return r, err
}

// RolloutWithCauses is Rollout with the rows of journals that led to it.
func (c *Client) RolloutWithCauses(ctx context.Context, id string) (Rollout, error) {
	r, _, err := c.rolloutSince(ctx, id, "", causesNewer)
	return r, err
}

// found returns the object of a response; null is NotFound.
func found[T any](object *T, err error, kind, key string) (T, error) {
	var zero T
	if err != nil {
		return zero, err
	}
	if object == nil {
		return zero, fault.New(fault.NotFound, "%s %q not found, or you don't have access", kind, key)
	}
	return *object, nil
}
