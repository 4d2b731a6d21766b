package model

import (
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/evidence"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/setup"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/view"
)

// The wrappers as functions, for the lists and references that are loaded.

// WrapApplication wraps the domain's.
func WrapApplication(a core.Application) Application { return Application{a} }

// WrapService wraps the domain's.
func WrapService(s core.Service) Service { return Service{s} }

// WrapArtifactSource wraps the domain's.
func WrapArtifactSource(s core.ArtifactSource) ArtifactSource { return ArtifactSource{s} }

// WrapMissingVersion wraps the domain's.
func WrapMissingVersion(m core.MissingSource) MissingVersion { return MissingVersion{m} }

// WrapCuratedVersionSet wraps the domain's.
func WrapCuratedVersionSet(c core.Curated) CuratedVersionSet { return CuratedVersionSet{c} }

// WrapArtifactSourceState wraps the domain's.
func WrapArtifactSourceState(s setup.SourceState) ArtifactSourceState { return ArtifactSourceState{s} }

// WrapArtifactSender wraps the domain's.
func WrapArtifactSender(s setup.ArtifactSender) ArtifactSender { return ArtifactSender{s} }

// WrapArtifactSourceKind wraps the domain's.
func WrapArtifactSourceKind(k setup.SourceKind) ArtifactSourceKind { return ArtifactSourceKind{k} }

// WrapVersion wraps the domain's.
func WrapVersion(v core.Version) Version { return Version{v} }

// WrapVersionSet wraps the domain's.
func WrapVersionSet(v core.VersionSet) VersionSet { return VersionSet{v} }

// WrapVersionSetEntry wraps the domain's.
func WrapVersionSetEntry(e core.VersionSetEntry) VersionSetEntry { return VersionSetEntry{e} }

// WrapFlowDefinition wraps the domain's.
func WrapFlowDefinition(f core.FlowDefinition) FlowDefinition { return FlowDefinition{f} }

// WrapEnvironment wraps the domain's.
func WrapEnvironment(e core.Environment) Environment { return Environment{e} }

// WrapDriverBinding wraps the domain's.
func WrapDriverBinding(b core.DriverBinding) DriverBinding { return DriverBinding{b} }

// WrapApplicationEnvironment wraps the domain's.
func WrapApplicationEnvironment(c core.Cell) ApplicationEnvironment { return ApplicationEnvironment{c} }

// WrapRollout wraps the domain's.
func WrapRollout(r core.Rollout) Rollout { return Rollout{Rollout: r} }

// WrapRolloutEnvironment wraps the domain's.
func WrapRolloutEnvironment(e core.RolloutEnvironment) RolloutEnvironment {
	return RolloutEnvironment{e}
}

// WrapDeployment wraps the domain's.
func WrapDeployment(d core.Deployment) Deployment { return Deployment{d} }

// WrapSnapshot wraps the domain's.
func WrapSnapshot(s core.Snapshot) DeploymentSnapshot { return DeploymentSnapshot{s} }

// WrapDeploymentLink wraps the domain's.
func WrapDeploymentLink(l core.DeploymentLink) DeploymentLink {
	return DeploymentLink{Name: l.Name, Namespace: given(l.Namespace), URL: given(l.URL), Status: given(l.Status)}
}

// given is a text that may be missing.
func given(text string) *string {
	if text == "" {
		return nil
	}
	return &text
}

// WrapRollbackPolicy wraps the domain's.
func WrapRollbackPolicy(p core.RollbackPolicy) RollbackPolicy { return RollbackPolicy{p} }

// WrapDeploymentGate wraps the domain's.
func WrapDeploymentGate(g core.DeploymentGate) DeploymentGate { return DeploymentGate{g} }

// WrapGate wraps the domain's.
func WrapGate(g core.Gate) Gate { return Gate{g} }

// WrapRolloutPolicy wraps the domain's.
func WrapRolloutPolicy(p core.RolloutPolicy) RolloutPolicy { return RolloutPolicy{p} }

// WrapQueuedRollout wraps the domain's.
func WrapQueuedRollout(q core.QueuedRollout) QueuedRollout { return QueuedRollout{q} }

// WrapEnvironmentApproval wraps the domain's.
func WrapEnvironmentApproval(a core.EnvironmentApproval) EnvironmentApproval {
	return EnvironmentApproval{a}
}

// WrapJournalEntry wraps the domain's.
func WrapJournalEntry(e core.JournalEntry) JournalEntry { return JournalEntry{JournalEntry: e} }

// WrapFollowed wraps a row with what it belongs to, where that was read along.
func WrapFollowed(f view.Followed) JournalEntry {
	e := WrapJournalEntry(f.JournalEntry)
	if f.Rollout != nil {
		r := WrapRollout(*f.Rollout)
		r.application = f.Application
		e.rollout = &r
	}
	return e
}

// WrapMember wraps the domain's.
func WrapMember(m core.Member) Member { return Member{m} }

// WrapGroup wraps the domain's.
func WrapGroup(g core.Group) Group { return Group{g} }

// WrapProposedChange wraps the domain's.
func WrapProposedChange(p core.ProposedChange) ProposedChange { return ProposedChange{p} }

// WrapGrant wraps the domain's.
func WrapGrant(g core.Grant) Grant { return Grant{g} }

// WrapAccessToken wraps the domain's.
func WrapAccessToken(t core.AccessToken) AccessToken { return AccessToken{t} }

// WrapOrganization wraps the domain's.
func WrapOrganization(o core.Organization) Organization { return Organization{o} }

// WrapAgent wraps the domain's.
func WrapAgent(a core.Agent) Agent { return Agent{a} }

// WrapAgentKey wraps the domain's.
func WrapAgentKey(k core.AgentKey) AgentKey { return AgentKey{k} }

// WrapAuditEntry wraps the domain's.
func WrapAuditEntry(e evidence.Entry) AuditEntry { return AuditEntry{e} }

// WrapAccessChange wraps the domain's.
func WrapAccessChange(c core.AccessChange) AccessChange { return AccessChange{c} }

// WrapWait wraps the domain's.
func WrapWait(w view.Wait) Wait { return Wait{w} }

// WrapTransition wraps the domain's.
func WrapTransition(t core.Transition) Transition { return Transition{t} }

// WrapDriver wraps the domain's.
func WrapDriver(d core.Driver) Driver { return Driver{d} }

// WrapDriverOrigin wraps the domain's.
func WrapDriverOrigin(o core.DriverOrigin) DriverOrigin { return DriverOrigin{o} }

// WrapArchiving wraps the domain's.
func WrapArchiving(a core.Archiving) Archiving { return Archiving{a} }
