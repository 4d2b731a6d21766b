package model

import (
	"context"

	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/handoff"
)

// Edge is an item of a list, and where it stands there.
type Edge[M any] struct {
	Cursor string
	Node   M
}

// Connection is one page of a list, as Relay's specification of connections has it.
type Connection[M any, E ~struct {
	Cursor string
	Node   M
}] struct {
	Edges    []E
	Nodes    []M
	PageInfo PageInfo
	Total
}

// Total counts a list, if the caller asks for it.
type Total struct {
	Count func(ctx context.Context) (int, error)
}

// TotalCount is how many items the list has in all.
func (t Total) TotalCount(ctx context.Context) (int, error) { return t.Count(ctx) }

// Connect makes a connection of a page. Count is nil for lists whose schema has no total.
func Connect[E ~struct {
	Cursor string
	Node   M
}, V, M any](s core.Slice[V], wrap func(V) M, count func(ctx context.Context) (int, error)) Connection[M, E] {
	c := Connection[M, E]{Edges: make([]E, len(s.Nodes)), Nodes: make([]M, len(s.Nodes)), PageInfo: PageOf(s), Total: Total{count}}
	for i, v := range s.Nodes {
		c.Nodes[i] = wrap(v)
		c.Edges[i] = E{Cursor: s.Cursors[i], Node: c.Nodes[i]}
	}
	return c
}

// PageOf is what a client needs to know of a page to ask for those beside it.
func PageOf[V any](s core.Slice[V]) PageInfo {
	return PageInfo{
		HasNextPage: s.HasNext, HasPreviousPage: s.HasPrevious, StartCursor: orNull(s.StartCursor()), EndCursor: orNull(s.EndCursor()),
	}
}

// The lists of the schema, and their items.
type (
	// JournalEntryConnection is a page of them.
	JournalEntryConnection Connection[JournalEntry, JournalEntryEdge]
	// JournalEntryEdge is one of them.
	JournalEntryEdge Edge[JournalEntry]

	// MatrixConnection is a page of them.
	MatrixConnection Connection[MatrixRow, MatrixEdge]
	// MatrixEdge is one of them.
	MatrixEdge Edge[MatrixRow]

	// MemberConnection is a page of them.
	MemberConnection Connection[Member, MemberEdge]
	// MemberEdge is one of them.
	MemberEdge Edge[Member]

	// GroupConnection is a page of them.
	GroupConnection Connection[Group, GroupEdge]
	// GroupEdge is one of them.
	GroupEdge Edge[Group]

	// OrganizationConnection is a page of them.
	OrganizationConnection Connection[Organization, OrganizationEdge]
	// OrganizationEdge is one of them.
	OrganizationEdge Edge[Organization]
	// AgentConnection is a page of them.
	AgentConnection Connection[Agent, AgentEdge]
	// AgentEdge is one of them.
	AgentEdge Edge[Agent]

	// AuditEntryConnection is a page of them.
	AuditEntryConnection Connection[AuditEntry, AuditEntryEdge]
	// AuditEntryEdge is one of them.
	AuditEntryEdge Edge[AuditEntry]

	// ProposedChangeConnection is a page of them.
	ProposedChangeConnection Connection[ProposedChange, ProposedChangeEdge]
	// ProposedChangeEdge is one of them.
	ProposedChangeEdge Edge[ProposedChange]

	// AccessChangeConnection is a page of them.
	AccessChangeConnection Connection[AccessChange, AccessChangeEdge]
	// AccessChangeEdge is one of them.
	AccessChangeEdge Edge[AccessChange]

	// ApplicationConnection is a page of them.
	ApplicationConnection Connection[Application, ApplicationEdge]
	// ApplicationEdge is one of them.
	ApplicationEdge Edge[Application]

	// ArtifactSourceConnection is a page of them.
	ArtifactSourceConnection Connection[ArtifactSource, ArtifactSourceEdge]
	// ArtifactSourceEdge is one of them.
	ArtifactSourceEdge Edge[ArtifactSource]

	// VersionConnection is a page of them.
	VersionConnection Connection[Version, VersionEdge]
	// VersionEdge is one of them.
	VersionEdge Edge[Version]

	// VersionSetConnection is a page of them.
	VersionSetConnection Connection[VersionSet, VersionSetEdge]
	// VersionSetEdge is one of them.
	VersionSetEdge Edge[VersionSet]

	// FreezeConnection is a page of them.
	FreezeConnection Connection[Freeze, FreezeEdge]
	// FreezeEdge is one of them.
	FreezeEdge Edge[Freeze]

	// EnvironmentConnection is a page of them.
	EnvironmentConnection Connection[Environment, EnvironmentEdge]
	// EnvironmentEdge is one of them.
	EnvironmentEdge Edge[Environment]

	// RolloutConnection is a page of them.
	RolloutConnection Connection[Rollout, RolloutEdge]
	// RolloutEdge is one of them.
	RolloutEdge Edge[Rollout]

	// GateConnection is a page of them.
	GateConnection Connection[Gate, GateEdge]
	// GateEdge is one of them.
	GateEdge Edge[Gate]

	// JournalConnection is a page of them.
	JournalConnection Connection[Transition, JournalEdge]
	// JournalEdge is one of them.
	JournalEdge Edge[Transition]

	// WorkflowConnection is a page of them.
	WorkflowConnection Connection[Workflow, WorkflowEdge]
	// WorkflowEdge is one of them.
	WorkflowEdge Edge[Workflow]

	// WorkflowScheduleConnection is a page of them.
	WorkflowScheduleConnection Connection[WorkflowSchedule, WorkflowScheduleEdge]
	// WorkflowScheduleEdge is one of them.
	WorkflowScheduleEdge Edge[WorkflowSchedule]

	// WorkflowHistoryConnection is a page of them.
	WorkflowHistoryConnection Connection[handoff.WorkflowEntry, WorkflowHistoryEdge]
	// WorkflowHistoryEdge is one of them.
	WorkflowHistoryEdge Edge[handoff.WorkflowEntry]

	// WorkflowLogConnection is a page of them.
	WorkflowLogConnection Connection[handoff.WorkflowLine, WorkflowLogEdge]
	// WorkflowLogEdge is one of them.
	WorkflowLogEdge Edge[handoff.WorkflowLine]
)
