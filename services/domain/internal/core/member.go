package core

import (
	"fmt"
	"strings"
	"time"
)

// Member is a person or a machine that belongs to an organization. Its ID is what journals name.
type Member struct {
	ID   int64
	Name string
	// Kind is PrincipalUser or PrincipalAgent.
	Kind      PrincipalType
	Role      Role
	RemovedAt *time.Time
	CreatedAt time.Time
}

// Group is a named set of members, for gates that not everybody may answer (D24).
type Group struct {
	ID        int64
	Name      string
	CreatedAt time.Time
}

// AccessToken is what a member shows to say who it is; the token itself is kept nowhere.
type AccessToken struct {
	ID       int64
	MemberID int64
	// ParentID is the token that a browser's session was given for; 0 for a token of its own.
	ParentID int64
	Name     string
	// SignIn reports whether a sign-in made it: nobody can show it, and it ends with the session that began with it.
	SignIn bool
	// ProviderSession is the identity provider's name of the session that a sign-in there belongs to; empty where it gave none.
	ProviderSession string
	// Scopes are what it is good for, as far as the member's role allows that too.
	Scopes Permissions
	// CheckKeys are the keys of checks that it may report; empty for all.
	CheckKeys  []string
	ExpiresAt  time.Time
	RevokedAt  *time.Time
	LastUsedAt *time.Time
	CreatedAt  time.Time
}

// AccessKind says what a Change is about.
type AccessKind string

// The kinds.
const (
	AccessMember   AccessKind = "member"
	AccessGroup    AccessKind = "group"
	AccessGrant    AccessKind = "grant"
	AccessOfToken  AccessKind = "accesstoken"
	AccessAgent    AccessKind = "agent"
	AccessAgentKey AccessKind = "agentkey"
	// AccessOrganization is an organization as a whole.
	AccessOrganization AccessKind = "organization"
	// The other controls, which are in the journal of changes and not in the log of access.
	ChangedApplication            AccessKind = "application"
	ChangedEnvironment            AccessKind = "environment"
	ChangedApplicationEnvironment AccessKind = "applicationenvironment"
	ChangedFlowDefinition         AccessKind = "flowdefinition"
	ChangedArtifactSource         AccessKind = "artifactsource"
	ChangedService                AccessKind = "service"
	ChangedVersionSet             AccessKind = "versionset"
	ChangedRollout                AccessKind = "rollout"
	ChangedFreeze                 AccessKind = "freeze"
	ChangedVeto                   AccessKind = "veto"
	ChangedPolicySet              AccessKind = "policyset"
	ChangedCredential             AccessKind = "credential"
	ChangedCall                   AccessKind = "callrequest"
	ChangedProposal               AccessKind = "proposedchange"
	// ChangedWorkflow is a run of the engine; it has a name and no number.
	ChangedWorkflow AccessKind = "workflow"
	// ChangedConfiguration are settings of the service; it has a name and no number.
	ChangedConfiguration AccessKind = "configuration"
	// ChangedCommit is a commit in Git; it has its SHA as name and no number.
	ChangedCommit AccessKind = "commit"
	// ChangedNotifications are channels, routes and messages of notifications; it has a name, which begins with what it is, and no number.
	ChangedNotifications AccessKind = "notifications"
	// ChangedFeed is a feed that is read without signing in, and ChangedBadges whether an application shows badges.
	ChangedFeed   AccessKind = "feed"
	ChangedBadges AccessKind = "badges"
	// ChangedForgeMirror is whether and how the checks of an application are published; or a status or a hook, which have a name and no
	// number.
	ChangedForgeMirror AccessKind = "forgemirror"
)

// AccessSubject is whose access, or which token's, changed. The name is what it was called then.
type AccessSubject struct {
	Kind AccessKind
	ID   int64
	Name string
}

// AccessChange is a row of the log of who gave or took whose access. It is only ever added to.
type AccessChange struct {
	ID int64
	Principal
	Action  Action
	Subject AccessSubject
	// Detail is what was given or taken, for people; never a secret.
	Detail    string
	CreatedAt time.Time
}

// Grant is what a token is good for, and until when.
func (t AccessToken) Grant() string {
	words := make([]string, 0, len(AllPermissions()))
	for _, p := range t.Scopes.List() {
		words = append(words, p.String())
	}
	if len(t.CheckKeys) > 0 {
		words = append(words, "of the checks "+strings.Join(t.CheckKeys, ", "))
	}
	return fmt.Sprintf("%s, until %s", strings.Join(words, " "), t.ExpiresAt.UTC().Format(time.RFC3339))
}
