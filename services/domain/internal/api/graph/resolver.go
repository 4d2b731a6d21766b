package graph

import (
	"log/slog"

	"github.com/lockstep-cd/lockstep/services/domain/internal/api/graph/exec"
)

// resolvers says who resolves the fields of each type.
type resolvers struct {
	domain Domain
	log    *slog.Logger
}

var _ exec.ResolverRoot = resolvers{}

// Viewer resolves its fields.
func (r resolvers) Viewer() exec.ViewerResolver { return viewer{r.domain} }

// Member resolves its fields.
func (resolvers) Member() exec.MemberResolver { return member{} }

// ProposedChange resolves its fields.
func (r resolvers) ProposedChange() exec.ProposedChangeResolver { return proposedChange{r.domain} }

// Grant resolves its fields.
func (resolvers) Grant() exec.GrantResolver { return grant{} }

// Group resolves its fields.
func (resolvers) Group() exec.GroupResolver { return group{} }

// Agent resolves its fields.
func (resolvers) Agent() exec.AgentResolver { return agent{} }

// AuditEntry resolves its fields.
func (resolvers) AuditEntry() exec.AuditEntryResolver { return auditEntry{} }

// JournalChain resolves its fields.
func (r resolvers) JournalChain() exec.JournalChainResolver { return journalChain{r.domain} }

// RecordDifference resolves its fields.
func (resolvers) RecordDifference() exec.RecordDifferenceResolver { return recordDifference{} }

// AccessChange resolves its fields.
func (resolvers) AccessChange() exec.AccessChangeResolver { return accessChange{} }

// Transition resolves its fields.
func (resolvers) Transition() exec.TransitionResolver { return transition{} }

// PassageCondition resolves its fields.
func (resolvers) PassageCondition() exec.PassageConditionResolver { return passageCondition{} }

// PassageConditionBy resolves its fields.
func (resolvers) PassageConditionBy() exec.PassageConditionByResolver { return passageConditionBy{} }

// UnanswerableRule resolves its fields.
func (resolvers) UnanswerableRule() exec.UnanswerableRuleResolver { return unanswerableRule{} }

// MemberPayload resolves its fields.
func (r resolvers) MemberPayload() exec.MemberPayloadResolver { return memberPayload{r.domain} }

// GrantPayload resolves its fields.
func (r resolvers) GrantPayload() exec.GrantPayloadResolver { return grantPayload{r.domain} }

// GroupPayload resolves its fields.
func (r resolvers) GroupPayload() exec.GroupPayloadResolver { return groupPayload{r.domain} }

// CreateFlowDefinitionPayload resolves its fields.
func (r resolvers) CreateFlowDefinitionPayload() exec.CreateFlowDefinitionPayloadResolver {
	return createFlowDefinitionPayload{r.domain}
}

// SetEnvironmentApprovalPayload resolves its fields.
func (r resolvers) SetEnvironmentApprovalPayload() exec.SetEnvironmentApprovalPayloadResolver {
	return setEnvironmentApprovalPayload{r.domain}
}

// Gate resolves its fields.
func (resolvers) Gate() exec.GateResolver { return gate{} }

// Wait resolves its fields.
func (resolvers) Wait() exec.WaitResolver { return wait{} }

// DeliveryMetrics resolves its fields.
func (resolvers) DeliveryMetrics() exec.DeliveryMetricsResolver { return deliveryMetrics{} }

// Workflow resolves its fields.
func (r resolvers) Workflow() exec.WorkflowResolver { return workflow{r.domain} }

// WorkflowSchedule resolves its fields.
func (r resolvers) WorkflowSchedule() exec.WorkflowScheduleResolver {
	return workflowSchedule{r.domain}
}

// Query begins every query.
func (r resolvers) Query() exec.QueryResolver { return query{r.domain} }

// Mutation begins every mutation.
func (r resolvers) Mutation() exec.MutationResolver { return mutation{r.domain} }

// Subscription begins every subscription.
func (r resolvers) Subscription() exec.SubscriptionResolver { return subscription(r) }

// JournalEntry resolves its fields.
func (resolvers) JournalEntry() exec.JournalEntryResolver { return journalEntry{} }

// QueuedRollout resolves its fields.
func (resolvers) QueuedRollout() exec.QueuedRolloutResolver { return queuedRollout{} }

// Rollout resolves its fields.
func (resolvers) Rollout() exec.RolloutResolver { return rolloutResolver{} }

// AutomaticRollback resolves its fields.
func (resolvers) AutomaticRollback() exec.AutomaticRollbackResolver { return automaticRollback{} }

// RolloutDeadline resolves its fields.
func (resolvers) RolloutDeadline() exec.RolloutDeadlineResolver { return rolloutDeadline{} }

// BreakGlass resolves its fields.
func (resolvers) BreakGlass() exec.BreakGlassResolver { return breakGlass{} }

// SkippedEnvironment resolves its fields.
func (resolvers) SkippedEnvironment() exec.SkippedEnvironmentResolver { return skippedEnvironment{} }

// RolloutPreview resolves its fields.
func (resolvers) RolloutPreview() exec.RolloutPreviewResolver { return rolloutPreview{} }

// PreviewedEnvironment resolves its fields.
func (resolvers) PreviewedEnvironment() exec.PreviewedEnvironmentResolver {
	return previewedEnvironment{}
}

// Application resolves its fields.
func (resolvers) Application() exec.ApplicationResolver { return application{} }

// ApplicationEnvironment resolves its fields.
func (resolvers) ApplicationEnvironment() exec.ApplicationEnvironmentResolver {
	return applicationEnvironment{}
}

// MatrixRow resolves its fields.
func (resolvers) MatrixRow() exec.MatrixRowResolver { return matrixRow{} }

// ArtifactSource resolves its fields.
func (resolvers) ArtifactSource() exec.ArtifactSourceResolver { return artifactSource{} }

// Archiving resolves its fields.
func (resolvers) Archiving() exec.ArchivingResolver { return archiving{} }

// Deployment resolves its fields.
func (resolvers) Deployment() exec.DeploymentResolver { return deployment{} }

// DeploymentSnapshot resolves its fields.
func (resolvers) DeploymentSnapshot() exec.DeploymentSnapshotResolver { return snapshot{} }

// RolloutCheck resolves its fields.
func (resolvers) RolloutCheck() exec.RolloutCheckResolver { return rolloutCheck{} }

// CheckReport resolves its fields.
func (resolvers) CheckReport() exec.CheckReportResolver { return checkReport{} }

// PolicySet resolves its fields.
func (resolvers) PolicySet() exec.PolicySetResolver { return policySetResolver{} }

// CallRequest resolves its fields.
func (r resolvers) CallRequest() exec.CallRequestResolver { return callRequest{r.domain} }

// NotificationMessage resolves its fields.
func (resolvers) NotificationMessage() exec.NotificationMessageResolver { return notificationMessage{} }

// NotificationLink resolves its fields.
func (resolvers) NotificationLink() exec.NotificationLinkResolver { return notificationLink{} }

// Trigger resolves its fields.
func (resolvers) Trigger() exec.TriggerResolver { return triggerResolver{} }

// TriggerDecision resolves its fields.
func (resolvers) TriggerDecision() exec.TriggerDecisionResolver { return triggerDecision{} }

// PromotionHold resolves its fields.
func (resolvers) PromotionHold() exec.PromotionHoldResolver { return promotionHold{} }

// Chain resolves its fields.
func (resolvers) Chain() exec.ChainResolver { return chainResolver{} }

// ChainNode resolves its fields.
func (resolvers) ChainNode() exec.ChainNodeResolver { return chainNode{} }

// Provenance resolves its fields.
func (resolvers) Provenance() exec.ProvenanceResolver { return origins{} }

// Whereabouts resolves its fields.
func (resolvers) Whereabouts() exec.WhereaboutsResolver { return whereabouts{} }

// Freeze resolves its fields.
func (r resolvers) Freeze() exec.FreezeResolver { return freezeResolver{r.domain} }

// Environment resolves its fields.
func (resolvers) Environment() exec.EnvironmentResolver { return environment{} }

// RolloutEnvironment resolves its fields.
func (resolvers) RolloutEnvironment() exec.RolloutEnvironmentResolver { return rolloutEnvironment{} }

// RolloutFleet is the resolver of its loaded fields.
func (resolvers) RolloutFleet() exec.RolloutFleetResolver { return rolloutFleet{} }

// Service resolves its fields.
func (resolvers) Service() exec.ServiceResolver { return service{} }

// ServiceHealth resolves its fields.
func (resolvers) ServiceHealth() exec.ServiceHealthResolver { return serviceHealth{} }

// Version resolves its fields.
func (resolvers) Version() exec.VersionResolver { return version{} }

// VersionSet resolves its fields.
func (resolvers) VersionSet() exec.VersionSetResolver { return versionSet{} }

// CuratedVersionSet implements exec.ResolverRoot.
func (resolvers) CuratedVersionSet() exec.CuratedVersionSetResolver { return curatedVersionSet{} }

// MissingVersion implements exec.ResolverRoot.
func (resolvers) MissingVersion() exec.MissingVersionResolver { return missingVersion{} }

// VersionSetEntry resolves its fields.
func (resolvers) VersionSetEntry() exec.VersionSetEntryResolver { return versionSetEntry{} }
