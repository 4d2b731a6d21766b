package core

import (
	"slices"
	"strings"

	"github.com/lockstep-cd/lockstep/pkg/fault"
)

// OperatorOrganization is the first organization, which exists from the start. Its owners operate the installation: they make, list and
// rename organizations. They see nothing of what is in another one, and cannot sign in to it unless they are made members there.
const OperatorOrganization = 1

// Permission is one thing that a role may do, or that a token is good for.
type Permission uint16

// The permissions. Each role has the ones of its row in rolePermissions, and nothing else (D28).
const (
	// MayRead is to look at everything of the organization.
	MayRead Permission = 1 << iota
	// MayDeploy is to begin rollouts and to act on those under way.
	MayDeploy
	// MayApprove is to answer gates.
	MayApprove
	// MayConfigure is to make and change applications, environments, pipelines and policies.
	MayConfigure
	// MayAdminister is to say who may do what.
	MayAdminister
	// MayBreakGlass is to pass the approvals of a rollout alone, for everybody to see.
	MayBreakGlass
	// MayFreeze is to set and to end what stops passages: freezes, vetoes of versions, and pins of environments.
	MayFreeze
	// MayBypass is to let one rollout past freezes, for everybody to see.
	MayBypass
	// MayReport is to report the statuses of checks.
	MayReport
	// MayNudge is to have the programs of deployments look at what they deploy, and to decide nothing.
	MayNudge
)

// Permissions is a set of them.
type Permissions uint16

// AllPermissions is every permission, in the order in which they are shown.
func AllPermissions() []Permission {
	return []Permission{MayRead, MayDeploy, MayApprove, MayConfigure, MayAdminister, MayBreakGlass, MayFreeze, MayBypass, MayReport, MayNudge}
}

// String is the permission as tokens and the API spell it.
func (p Permission) String() string {
	switch p {
	case MayRead:
		return "read"
	case MayDeploy:
		return "deploy"
	case MayApprove:
		return "approve"
	case MayConfigure:
		return "configure"
	case MayAdminister:
		return "administer"
	case MayBreakGlass:
		return "break_glass"
	case MayFreeze:
		return "freeze"
	case MayBypass:
		return "bypass"
	case MayReport:
		return "report"
	case MayNudge:
		return "nudge"
	default:
		return "unknown"
	}
}

// PermissionsOf is the set of these.
func PermissionsOf(all ...Permission) Permissions {
	var s Permissions
	for _, p := range all {
		s |= Permissions(p)
	}
	return s
}

// Has reports whether the set has a permission.
func (s Permissions) Has(p Permission) bool { return s&Permissions(p) != 0 }

// List is the set, in order.
func (s Permissions) List() []Permission {
	return slices.DeleteFunc(AllPermissions(), func(p Permission) bool { return !s.Has(p) })
}

// Role is what a member is in its organization.
type Role string

// The roles. Who approves need not be able to deploy, nor the other way round: two pairs of eyes are two roles.
const (
	RoleViewer     Role = "viewer"
	RoleApprover   Role = "approver"
	RoleDeployer   Role = "deployer"
	RoleMaintainer Role = "maintainer"
	RoleOwner      Role = "owner"
)

// AllRoles is every role, the least first.
func AllRoles() []Role {
	return []Role{RoleViewer, RoleApprover, RoleDeployer, RoleMaintainer, RoleOwner}
}

// Permissions is what the role may do; nothing for what is no role.
func (r Role) Permissions() Permissions {
	switch r {
	case RoleViewer:
		return PermissionsOf(MayRead)
	case RoleApprover:
		return PermissionsOf(MayRead, MayApprove)
	case RoleDeployer:
		return PermissionsOf(MayRead, MayDeploy)
	case RoleMaintainer:
		return PermissionsOf(MayRead, MayDeploy, MayApprove, MayConfigure, MayBreakGlass, MayFreeze, MayBypass, MayReport, MayNudge)
	case RoleOwner:
		return PermissionsOf(AllPermissions()...)
	default:
		return 0
	}
}

// Action is something that an actor may want to do. It is named like the mutation of the API that does it.
type Action string

// The actions.
const (
	ActionArchiveApplication      Action = "archiveApplication"
	ActionArchiveEnvironment      Action = "archiveEnvironment"
	ActionRestoreApplication      Action = "restoreApplication"
	ActionRestoreEnvironment      Action = "restoreEnvironment"
	ActionCreateApplication       Action = "createApplication"
	ActionCreateEnvironment       Action = "createEnvironment"
	ActionUpdateEnvironment       Action = "updateEnvironment"
	ActionSetLabels               Action = "setLabels"
	ActionSetDetails              Action = "setDetails"
	ActionRenameApplication       Action = "renameApplication"
	ActionRenameEnvironment       Action = "renameEnvironment"
	ActionRenameService           Action = "renameService"
	ActionCreateArtifactSource    Action = "createArtifactSource"
	ActionSetArtifactSourceConfig Action = "setArtifactSourceConfig"
	ActionDisableArtifactSource   Action = "disableArtifactSource"
	ActionEnableArtifactSource    Action = "enableArtifactSource"
	ActionRemoveArtifactSource    Action = "removeArtifactSource"
	ActionReplaceArtifactSource   Action = "replaceArtifactSource"
	ActionAddService              Action = "addService"
	ActionRetireService           Action = "retireService"
	ActionRestoreService          Action = "restoreService"
	ActionCreateVersionSet        Action = "createVersionSet"
	ActionTryArtifactSource       Action = "tryArtifactSource"
	ActionLookAtArtifactSource    Action = "lookAtArtifactSource"
	ActionLookUpProvenance        Action = "lookUpProvenance"
	ActionCreateFlowDefinition    Action = "createFlowDefinition"
	ActionRetryOnboarding         Action = "retryEnvironmentOnboarding"
	ActionSetEnvironmentApproval  Action = "setEnvironmentApproval"
	ActionSetEnvironmentChecks    Action = "setEnvironmentChecks"
	ActionSetDirectChanges        Action = "setDirectChanges"
	ActionRetrySetup              Action = "retryApplicationEnvironmentSetup"
	ActionSetRollbackPolicy       Action = "setRollbackPolicy"
	ActionCreateRollout           Action = "createRollout"
	ActionPreviewRollout          Action = "previewRollout"
	ActionPauseRollout            Action = "pauseRollout"
	ActionResumeRollout           Action = "resumeRollout"
	ActionPauseWave               Action = "pauseWave"
	ActionResumeWave              Action = "resumeWave"
	ActionCancelRollout           Action = "cancelRollout"
	ActionCancelQueuedRollout     Action = "cancelQueuedRollout"
	ActionRollbackRollout         Action = "rollbackRollout"
	ActionAbortRollout            Action = "abortRollout"
	ActionRetryRollout            Action = "retryRollout"
	ActionBreakGlass              Action = "breakGlass"
	ActionStartFreeze             Action = "startFreeze"
	ActionExtendFreeze            Action = "extendFreeze"
	ActionEndFreeze               Action = "endFreeze"
	ActionBypassFreeze            Action = "bypassFreeze"
	ActionVetoVersion             Action = "vetoVersion"
	ActionLiftVeto                Action = "liftVeto"
	ActionPinEnvironment          Action = "pinEnvironment"
	ActionUnpinEnvironment        Action = "unpinEnvironment"
	ActionReportCheck             Action = "reportCheck"
	ActionDecideCheck             Action = "decideCheck"
	ActionEvaluateCheck           Action = "evaluateCheck"
	ActionNudgeDeployment         Action = "nudgeDeployment" // by what is deployed, over HTTP
	ActionPutPolicySet            Action = "putPolicySet"
	ActionAnswerCall              Action = "answerCall"
	ActionStopRollback            Action = "stopAutomaticRollback"
	ActionPutTrigger              Action = "putTrigger"
	ActionRemoveTrigger           Action = "removeTrigger"
	ActionSendEvent               Action = "sendEvent"
	ActionReleasePromotionHold    Action = "releasePromotionHold"
	ActionPutNotifyChannel        Action = "putNotificationChannel"
	ActionRemoveNotifyChannel     Action = "removeNotificationChannel"
	ActionPutNotifyRoute          Action = "putNotificationRoute"
	ActionRemoveNotifyRoute       Action = "removeNotificationRoute"
	ActionTestNotifyRoute         Action = "testNotificationRoute"
	ActionRetryNotification       Action = "retryNotification"
	ActionPutMyNotification       Action = "putMyNotification"
	ActionRemoveMyNotification    Action = "removeMyNotification"
	ActionRetryMyNotification     Action = "retryMyNotification"
	ActionCreateFeed              Action = "createFeed"
	ActionRevokeFeed              Action = "revokeFeed"
	ActionSetBadges               Action = "setBadges"
	ActionPutForgeMirror          Action = "putForgeMirror"
	ActionRetryForgeStatus        Action = "retryForgeStatuses"
	ActionAddForgeHook            Action = "addForgeHook"
	ActionRemoveForgeHook         Action = "removeForgeHook"
	ActionOpenLink                Action = "openNotificationLink"
	ActionLinkChatAccount         Action = "linkChatAccount"
	ActionUnlinkChatAccount       Action = "unlinkChatAccount"
	ActionMakeForgeCode           Action = "makeForgeAccountCode"
	ActionLinkForgeAccount        Action = "linkForgeAccount" // by a comment with a code
	ActionUnlinkForgeAccount      Action = "unlinkForgeAccount"
	ActionCancelChain             Action = "cancelChain"
	ActionCreateCredential        Action = "createCredential"
	ActionRotateCredential        Action = "rotateCredential" //nolint:gosec // a name
	ActionRevokeCredential        Action = "revokeCredential" //nolint:gosec // a name
	ActionSetRolloutPolicy        Action = "setRolloutPolicy"
	ActionApproveGate             Action = "approveGate"
	ActionRejectGate              Action = "rejectGate"
	ActionCreateMember            Action = "createMember"
	ActionSetMemberRole           Action = "setMemberRole"
	ActionRemoveMember            Action = "removeMember"
	ActionSetChangeControl        Action = "setChangeControl"
	ActionProposeChange           Action = "proposeChange" // by any other action; nobody asks for it by this name
	ActionConfirmChange           Action = "confirmChange"
	ActionRejectChange            Action = "rejectChange"
	ActionWithdrawChange          Action = "withdrawChange"
	ActionForceChange             Action = "forceChange"
	ActionGrantPermissions        Action = "grantPermissions"
	ActionRevokeGrant             Action = "revokeGrant"
	ActionCreateGroup             Action = "createGroup"
	ActionSetGroupMembers         Action = "setGroupMembers"
	ActionCreateToken             Action = "createToken"
	ActionRevokeToken             Action = "revokeToken"
	ActionRegisterAgent           Action = "registerAgent"
	ActionSetAgentLabels          Action = "setAgentLabels"
	ActionRotateAgent             Action = "rotateAgent"
	ActionRevokeAgent             Action = "revokeAgent"
	ActionRevokeAgentKey          Action = "revokeAgentKey"
	ActionAccessChanges           Action = "accessChanges"
	ActionCheckJournal            Action = "journalCheck"
	ActionReconcile               Action = "reconcileRecord"
	ActionSetRetention            Action = "setRetention"
	ActionSetLegalHold            Action = "setLegalHold"
	ActionRetryWorkflow           Action = "retryWorkflow"
	ActionCancelWorkflow          Action = "cancelWorkflow"
	ActionRegisterSchedule        Action = "registerWorkflowSchedule"
	ActionBackfillSchedule        Action = "backfillWorkflowSchedule"
	ActionDeleteSchedule          Action = "deleteWorkflowSchedule"
	ActionPauseSchedule           Action = "pauseWorkflowSchedule"
	ActionResumeSchedule          Action = "resumeWorkflowSchedule"
	ActionTriggerSchedule         Action = "triggerWorkflowSchedule"
	ActionOrganizations           Action = "organizations"
	ActionCreateOrganization      Action = "createOrganization"
	ActionRenameOrganization      Action = "renameOrganization"
	ActionExportOrganization      Action = "exportOrganization"
)

// permissionFor is what an action needs; false for one that is not known, which nobody may do.
func permissionFor(action Action) (Permission, bool) {
	switch action {
	case ActionCreateRollout, ActionPreviewRollout, ActionPauseRollout, ActionResumeRollout, ActionCancelRollout, ActionRollbackRollout,
		ActionPauseWave, ActionResumeWave,
		ActionAbortRollout, ActionRetryRollout, ActionStopRollback, ActionLookAtArtifactSource, ActionSendEvent, ActionReleasePromotionHold,
		ActionLookUpProvenance, ActionCancelChain, ActionCreateVersionSet, ActionCancelQueuedRollout:
		return MayDeploy, true
	case ActionApproveGate, ActionRejectGate, ActionDecideCheck, ActionAnswerCall:
		return MayApprove, true
	case ActionBreakGlass, ActionForceChange:
		return MayBreakGlass, true
	case ActionStartFreeze, ActionExtendFreeze, ActionEndFreeze, ActionVetoVersion, ActionLiftVeto, ActionPinEnvironment,
		ActionUnpinEnvironment:
		return MayFreeze, true
	case ActionBypassFreeze:
		return MayBypass, true
	case ActionReportCheck, ActionEvaluateCheck:
		return MayReport, true
	case ActionNudgeDeployment:
		return MayNudge, true
	case ActionCreateArtifactSource, ActionSetArtifactSourceConfig, ActionTryArtifactSource, ActionRetryWorkflow, ActionCancelWorkflow,
		ActionDisableArtifactSource, ActionEnableArtifactSource, ActionRemoveArtifactSource, ActionReplaceArtifactSource, ActionAddService,
		ActionRetireService, ActionRestoreService:
		return MayConfigure, true
	case ActionRegisterSchedule, ActionBackfillSchedule, ActionDeleteSchedule:
		return MayConfigure, true
	case ActionPauseSchedule, ActionResumeSchedule, ActionTriggerSchedule, ActionPutNotifyChannel, ActionRemoveNotifyChannel,
		ActionPutNotifyRoute, ActionRemoveNotifyRoute, ActionTestNotifyRoute, ActionRetryNotification, ActionPutForgeMirror,
		ActionRetryForgeStatus, ActionAddForgeHook, ActionRemoveForgeHook, ActionCreateFeed, ActionRevokeFeed, ActionSetBadges,
		ActionCreateCredential, ActionRotateCredential, ActionRevokeCredential:
		return MayConfigure, true
	case ActionArchiveApplication, ActionArchiveEnvironment, ActionRestoreApplication, ActionRestoreEnvironment, ActionCreateApplication,
		ActionCreateEnvironment, ActionUpdateEnvironment, ActionCreateFlowDefinition, ActionRetryOnboarding, ActionRetrySetup,
		ActionSetRollbackPolicy, ActionSetLabels, ActionSetDetails, ActionRenameApplication, ActionRenameEnvironment, ActionRenameService,
		ActionSetRolloutPolicy, ActionSetEnvironmentApproval, ActionSetEnvironmentChecks, ActionSetChangeControl, ActionConfirmChange,
		ActionRejectChange, ActionPutPolicySet, ActionPutTrigger, ActionRemoveTrigger:
		return MayConfigure, true
	case ActionCreateMember, ActionSetMemberRole, ActionRemoveMember, ActionGrantPermissions, ActionRevokeGrant, ActionCreateGroup,
		ActionSetGroupMembers, ActionCheckJournal, ActionReconcile, ActionSetRetention, ActionSetLegalHold,
		ActionAccessChanges, ActionRegisterAgent, ActionSetAgentLabels, ActionRotateAgent, ActionRevokeAgent,
		ActionRevokeAgentKey,
		ActionOrganizations, ActionCreateOrganization, ActionRenameOrganization, ActionExportOrganization, ActionSetDirectChanges:
		return MayAdminister, true
	case ActionCreateToken, ActionRevokeToken, ActionWithdrawChange, ActionOpenLink, ActionLinkChatAccount, ActionUnlinkChatAccount,
		ActionPutMyNotification, ActionRemoveMyNotification, ActionRetryMyNotification, ActionMakeForgeCode, ActionLinkForgeAccount,
		ActionUnlinkForgeAccount:
		return MayRead, true // one's own; those of others take the permission to administer
	default:
		return 0, false
	}
}

// operates reports whether an action concerns the installation, and not the actor's organization.
func (a Action) operates() bool {
	return a == ActionOrganizations || a == ActionCreateOrganization || a == ActionRenameOrganization
}

// May is nil when the actor's permissions allow an action everywhere, whatever state its object is in, and Denied with the reason
// otherwise. What concerns one application or environment asks MayIn.
func (a Actor) May(action Action) error {
	needed, known := permissionFor(action)
	if !known {
		return fault.New(fault.Denied, "nobody may %s", action)
	}
	if action.operates() && a.Organization != OperatorOrganization {
		return fault.New(fault.Denied, "%s is for those who operate the installation: owners of organization %d", action, OperatorOrganization)
	}
	forPeople := []Action{
		ActionBreakGlass, ActionBypassFreeze, ActionConfirmChange, ActionForceChange, ActionReleasePromotionHold, ActionDecideCheck,
		ActionOpenLink, ActionLinkChatAccount, ActionPutMyNotification, ActionRemoveMyNotification, ActionRetryMyNotification,
		ActionMakeForgeCode, ActionLinkForgeAccount,
	}
	if slices.Contains(forPeople, action) && a.Type != PrincipalUser {
		return fault.New(fault.Denied, "%s is for people; %s is none (%s)", action, a.DisplayName(), a.Type)
	}
	if a.Permissions.Has(needed) {
		return nil
	}
	var roles []string
	for _, r := range RolesWith(needed) {
		roles = append(roles, string(r)+"s")
	}
	return fault.New(
		fault.Denied, "%s needs the permission %q, which you do not have here; %s of the organization have it, if their token is good for it",
		action, needed, strings.Join(roles, ", "),
	)
}

// RolesWith are the roles that have a permission, the least first.
func RolesWith(p Permission) []Role {
	return slices.DeleteFunc(AllRoles(), func(r Role) bool { return !r.Permissions().Has(p) })
}
