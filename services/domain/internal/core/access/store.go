package access

import (
	"context"
	"encoding/json"
	"time"

	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
)

// Store keeps what this package needs. Its errors have the classes of pkg/fault.
type Store interface {
	core.Transactions[Tx]
	Organization(ctx context.Context, organization int64) (core.Organization, error)
	// IdentityOf is who a member is at an identity provider; empty for one that has not signed in at any.
	IdentityOf(ctx context.Context, organization, member int64) (issuer, subject string, err error)
	// TokensByMember is newest first, and without browsers' sessions.
	TokensByMember(ctx context.Context, organization int64, members []int64) (map[int64][]core.AccessToken, error)
	// AccessChanges are newest first.
	AccessChanges(ctx context.Context, organization int64, p core.Page) (core.Slice[core.AccessChange], error)

	CountAccessChanges(ctx context.Context, organization int64) (int, error)

	// AgentOfKey is whose public key it is that is good at an instant; NotFound when it is nobody's.
	AgentOfKey(ctx context.Context, public string, at time.Time) (core.AgentLogin, error)
	// GoodAgentKeys are those of the keys that are good at an instant, with their organizations.
	GoodAgentKeys(ctx context.Context, keys []int64, at time.Time) (map[int64]int64, error)
	// OrganizationsWithToken is the one that a token of this digest belongs to.
	OrganizationsWithToken(ctx context.Context, digest []byte) ([]int64, error)
	// OrganizationsOfIdentity are those of the members that an identity of a provider is linked to, in order.
	OrganizationsOfIdentity(ctx context.Context, issuer, subject string) ([]core.Organization, error)
	// OrganizationsWithMember are those with a member of a name that has not signed in at an identity provider yet, in order.
	OrganizationsWithMember(ctx context.Context, name string) ([]int64, error)
	// OrganizationsWithProviderSession are those with a sign-in that belongs to a session at an identity provider.
	OrganizationsWithProviderSession(ctx context.Context, session string) ([]int64, error)
	// AllOrganizations is a page of every organization, for an actor of one of them.
	AllOrganizations(ctx context.Context, organization int64, p core.Page) (core.Slice[core.Organization], error)
	// CountAllOrganizations is how many there are.
	CountAllOrganizations(ctx context.Context, organization int64) (int, error)
	// EachRow hands on every row that belongs to an organization, as all of them were at one moment, without what is secret: the table's
	// name, and the row as a JSON object. An error of row ends it.
	EachRow(ctx context.Context, organization int64, row func(table string, content []byte) error) error
	// NewOrganizationID is a number that no organization has, or gets.
	NewOrganizationID(ctx context.Context) (int64, error)
	// InTwo is In for two organizations, one after the other, in one transaction.
	InTwo(
		ctx context.Context, first int64, do func(ctx context.Context, tx Tx) error, second int64, then func(ctx context.Context, tx Tx) error,
	) error
}

// Tx is what a use case may do in its transaction. Get and lock methods answer NotFound for what the organization does not have.
type Tx interface {
	// MembersByID finds removed ones as well: journals speak of them.
	MemberByName(ctx context.Context, organization int64, name string) (core.Member, error)
	// HasSignedIn reports whether a member has had a token or a session, or is known to an identity provider.
	HasSignedIn(ctx context.Context, member int64) (bool, error)
	GroupsByMember(ctx context.Context, organization int64, members []int64) (map[int64][]core.Group, error)
	ApproverReads
	// GrantsByGroup are those of groups, GrantsByID also those that were revoked.
	GrantsByGroup(ctx context.Context, organization int64, groups []int64) (map[int64][]core.Grant, error)
	GrantsByID(ctx context.Context, organization int64, ids []int64) (map[int64]core.Grant, error)
	ApplicationsByID(ctx context.Context, organization int64, ids []int64) (map[int64]core.Application, error)
	EnvironmentsByID(ctx context.Context, organization int64, ids []int64) (map[int64]core.Environment, error)
	AddGrant(ctx context.Context, g core.Grant) (core.Grant, error)
	// RevokeGrant ends a grant; NotFound for one that is not in force.
	RevokeGrant(ctx context.Context, id int64, at time.Time) error
	TokensByID(ctx context.Context, organization int64, ids []int64) (map[int64]core.AccessToken, error)
	// AgentKeysByAgent are the latest of each, newest first.
	AgentKeysByAgent(ctx context.Context, organization int64, agents []int64) (map[int64][]core.AgentKey, error)
	AgentKeysByID(ctx context.Context, organization int64, ids []int64) (map[int64]core.AgentKey, error)
	// EnvironmentsByAgent are those whose configurations name an agent.
	EnvironmentsByAgent(ctx context.Context, organization int64, agents []int64) (map[int64][]core.Environment, error)

	// LockEnvironment locks one against change, and waits for plans of rollouts (AllEnvironments).
	LockEnvironment(ctx context.Context, id int64) (core.BoundEnvironment, error)
	// SaveEnvironment writes readiness and the onboarding attempt.
	SaveEnvironment(ctx context.Context, e core.Environment) error

	AddMember(ctx context.Context, m core.Member) (core.Member, error)
	// LockMembers locks a member, if it exists, and every owner.
	LockMembers(ctx context.Context, id int64) ([]core.Member, error)
	// SaveMember writes role and removal.
	SaveMember(ctx context.Context, m core.Member) error
	// MemberByIdentity is whom an identity provider means, also one who was removed.
	MemberByIdentity(ctx context.Context, issuer, subject string) (core.Member, error)
	// SetMemberAddress keeps the address that a sign-in has brought; empty for none. ForgetMemberAddress forgets that of an identity.
	SetMemberAddress(ctx context.Context, member int64, email string, at time.Time) error
	ForgetMemberAddress(ctx context.Context, issuer, subject string) error
	// SetMemberIdentity is for a member that has none yet; NotFound for any other.
	SetMemberIdentity(ctx context.Context, id int64, issuer, subject string) error
	AddGroup(ctx context.Context, g core.Group) (core.Group, error)
	LockGroup(ctx context.Context, id int64) (core.Group, error)
	// SetGroupMembers ends and begins memberships, so that these members belong to the group and nobody else.
	SetGroupMembers(ctx context.Context, group int64, members []int64, at time.Time) error
	AddToken(ctx context.Context, t core.AccessToken, digest []byte) (core.AccessToken, error)
	// RevokeSignInOf ends the sign-in that a session began with; of a session that began with a token it is a no-op.
	RevokeSignInOf(ctx context.Context, session int64, at time.Time) error
	// RevokeSignIns ends sign-ins at an identity provider, and their sessions with them.
	RevokeSignIns(ctx context.Context, which SignIns, at time.Time) error
	// AddOrganization makes the organization of the transaction; Conflict when its name is taken.
	AddOrganization(ctx context.Context, name string) (core.Organization, error)
	// LockOrganization locks the organization of the transaction.
	LockOrganization(ctx context.Context) (core.Organization, error)
	// LatestChange is what the latest change of a kind of control by an action has led to; nil for none.
	LatestChange(ctx context.Context, action core.Action, kind core.AccessKind) (after json.RawMessage, err error)
	// RenameOrganization is a Conflict when the name is taken.
	RenameOrganization(ctx context.Context, name string) (core.Organization, error)
	// RevokeTokens ends a token and the sessions it began; what has ended stays as it was.
	RevokeTokens(ctx context.Context, id int64, at time.Time) error
	// TokenByDigest is a token that is good at an instant, and whose it is.
	TokenByDigest(ctx context.Context, digest []byte, at time.Time) (core.AccessToken, core.Member, error)
	// TouchToken notes that a token was used; not more than once a minute.
	TouchToken(ctx context.Context, id int64, at time.Time) error

	// AddRequest is false when the principal has used the key before.
	AddRequest(ctx context.Context, p core.Principal, r Request) (first bool, err error)
	PriorRequest(ctx context.Context, p core.Principal, key string) (PriorRequest, error)
	AnswerRequest(ctx context.Context, p core.Principal, key string, answer []byte) error

	core.ChangeTx
	core.FleetPlacesTx

	// AddAgent is a Conflict when an agent that is not revoked has the name.
	AddAgent(ctx context.Context, name string) (core.Agent, error)
	LockAgent(ctx context.Context, id int64) (core.Agent, error)
	// SetAgentLabels replaces them.
	SetAgentLabels(ctx context.Context, id int64, labels map[string]string) (core.Agent, error)
	// RevokeAgent and RevokeAgentKey are no-ops for what has been revoked before.
	RevokeAgent(ctx context.Context, id int64, at time.Time) error
	AddAgentKey(ctx context.Context, agent int64, public string) (core.AgentKey, error)
	// ExpireAgentKeys has the keys of an agent that are good until later end at an instant.
	ExpireAgentKeys(ctx context.Context, agent int64, at time.Time) error
	RevokeAgentKey(ctx context.Context, id int64, at time.Time) error
	// SeeAgentKeys notes that keys are in use, not more than once a minute.
	SeeAgentKeys(ctx context.Context, ids []int64, at time.Time) error
}
