package model

import (
	"github.com/lockstep-cd/lockstep/pkg/id"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
)

// The kinds of objects, as their identifiers begin.
const (
	KindOrganization           = "organization"
	KindApplication            = "application"
	KindService                = "service"
	KindArtifactSource         = "artifactsource"
	KindVersion                = "version"
	KindVersionSet             = "versionset"
	KindFlowDefinition         = "flowdefinition"
	KindEnvironment            = "environment"
	KindDriverBinding          = "driverbinding"
	KindApplicationEnvironment = "applicationenvironment"
	KindMember                 = "member"
	KindGroup                  = "group"
	KindProposedChange         = "proposedchange"
	KindGrant                  = "grant"
	KindAccessToken            = "accesstoken"
	KindAgent                  = "agent"
	KindAgentKey               = "agentkey"
	KindQueuedRollout          = "queuedrollout"
	KindRollout                = string(core.SubjectRollout)
	KindRolloutEnvironment     = string(core.SubjectRolloutEnvironment)
	KindDeployment             = string(core.SubjectDeployment)
)

// Node is anything that has an identifier.
type Node interface {
	// GlobalID is the public identifier.
	GlobalID() string
	// IsNode marks the types of the schema that are nodes.
	IsNode()
}

// GlobalID is member_<number>.
func (m Member) GlobalID() string { return id.Format(KindMember, m.ID) }

// GlobalID is group_<number>.
func (g Group) GlobalID() string { return id.Format(KindGroup, g.ID) }

// GlobalID is accesstoken_<number>.
func (p ProposedChange) GlobalID() string { return id.Format(KindProposedChange, p.ID) }

// GlobalID names the object among all objects of the API.
func (g Grant) GlobalID() string { return id.Format(KindGrant, g.ID) }

// GlobalID names the object among all objects of the API.
func (t AccessToken) GlobalID() string { return id.Format(KindAccessToken, t.ID) }

// GlobalID is agent_<number>.
func (a Agent) GlobalID() string { return id.Format(KindAgent, a.ID) }

// GlobalID is agentkey_<number>.
func (k AgentKey) GlobalID() string { return id.Format(KindAgentKey, k.ID) }

// GlobalID is organization_<number>.
func (o Organization) GlobalID() string { return id.Format(KindOrganization, o.ID) }

// GlobalID is application_<number>.
func (a Application) GlobalID() string { return id.Format(KindApplication, a.ID) }

// GlobalID is service_<number>.
func (s Service) GlobalID() string { return id.Format(KindService, s.ID) }

// GlobalID is artifactsource_<number>.
func (s ArtifactSource) GlobalID() string { return id.Format(KindArtifactSource, s.ID) }

// GlobalID is version_<number>.
func (v Version) GlobalID() string { return id.Format(KindVersion, v.ID) }

// GlobalID is versionset_<number>.
func (v VersionSet) GlobalID() string { return id.Format(KindVersionSet, v.ID) }

// GlobalID is flowdefinition_<number>.
func (f FlowDefinition) GlobalID() string { return id.Format(KindFlowDefinition, f.ID) }

// GlobalID is environment_<number>.
func (e Environment) GlobalID() string { return id.Format(KindEnvironment, e.ID) }

// GlobalID is driverbinding_<number>.
func (b DriverBinding) GlobalID() string { return id.Format(KindDriverBinding, b.ID) }

// GlobalID is applicationenvironment_<number>.
func (e ApplicationEnvironment) GlobalID() string { return id.Format(KindApplicationEnvironment, e.ID) }

// GlobalID is rollout_<number>.
func (r Rollout) GlobalID() string { return id.Format(KindRollout, r.ID) }

// GlobalID is rolloutenvironment_<number>.
func (e RolloutEnvironment) GlobalID() string { return id.Format(KindRolloutEnvironment, e.ID) }

// GlobalID is deployment_<number>.
func (d Deployment) GlobalID() string { return id.Format(KindDeployment, d.ID) }

// IsNode marks a node.
func (Member) IsNode() {}

// IsNode marks a node.
func (Group) IsNode() {}

// IsNode marks a node.
func (Agent) IsNode() {}

// IsNode marks a node.
func (Organization) IsNode() {}

// IsNode marks a node.
func (Application) IsNode() {}

// IsNode marks a node.
func (Service) IsNode() {}

// IsNode marks a node.
func (ArtifactSource) IsNode() {}

// IsNode marks a node.
func (Version) IsNode() {}

// IsNode marks a node.
func (VersionSet) IsNode() {}

// IsNode marks a node.
func (FlowDefinition) IsNode() {}

// IsNode marks a node.
func (Environment) IsNode() {}

// IsNode marks a node.
func (DriverBinding) IsNode() {}

// IsNode marks a node.
func (ApplicationEnvironment) IsNode() {}

// IsNode marks a node.
func (Rollout) IsNode() {}

// IsNode marks a node.
func (RolloutEnvironment) IsNode() {}

// IsNode marks a node.
func (Deployment) IsNode() {}

// IsNode marks a node.
func (ProposedChange) IsNode() {}

// IsNode marks what can be looked up by identifier.
func (Grant) IsNode() {}

// IsNode marks what can be looked up by identifier.
func (AccessToken) IsNode() {}

// IsNode marks a node.
func (AgentKey) IsNode() {}

// IsNode marks a node.
func (QueuedRollout) IsNode() {}
