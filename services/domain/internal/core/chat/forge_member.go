package chat

import (
	"context"
	"strings"

	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/forge"
)

// AccountTx is the part of a transaction that finds the member who has linked an account.
type AccountTx interface {
	ForgeHooks(ctx context.Context, organization int64) ([]forge.Hook, error)
	ChatAccountsOf(ctx context.Context, kind core.NotificationKind, workspace, user string, member int64) ([]Account, error)
	MembersByID(ctx context.Context, organization int64, ids []int64) (map[int64]core.Member, error)
	GroupsByMember(ctx context.Context, organization int64, members []int64) (map[int64][]core.Group, error)
	GrantsByMember(ctx context.Context, organization int64, members []int64) (map[int64][]core.Grant, error)
}

// MemberAtForge is the member who has linked the account of a user of a forge, by the forge's number, for comments on pull requests of the
// repository; or why it is nobody, without names. The rights are those of this moment, as far as the account was linked for them.
func MemberAtForge(ctx context.Context, tx AccountTx, organization int64, repository string, user int64) (core.Actor, string, error) {
	const unlinked = "no member has linked this account for the repository"
	name := forge.RepositoryName(repository)
	// A name stands for http and SSH as well, which may be another server: only over https it is the one that the hook is of.
	if !strings.HasPrefix(strings.ToLower(repository), "https://") || name == "" {
		return core.Actor{}, "accounts count for a repository with an https address alone", nil
	}
	if user <= 0 {
		return core.Actor{}, unlinked, nil
	}
	hooks, err := tx.ForgeHooks(ctx, organization)
	if err != nil {
		return core.Actor{}, "", err
	}
	var found core.Actor
	is, nobody := false, unlinked
	for _, h := range hooks {
		if !h.Commands || !h.Covers(name) {
			continue
		}
		of := Comment{HookID: h.ID, Name: name, AuthorID: user}.account()
		by := Press{Kind: of.Kind, Workspace: of.Workspace, User: of.User, KeyDigest: of.KeyDigest}
		a, how, err := memberOf(ctx, tx, organization, by, core.MayApprove)
		if err != nil {
			return core.Actor{}, "", err
		}
		switch {
		case how == ownerMissing:
		case how != ownerFound:
			nobody = how.sentence()
		case is && a.ID != found.ID:
			return core.Actor{}, "two members have linked this account, for different hooks", nil
		default:
			found, is = a, true
		}
	}
	if is {
		nobody = ""
	}
	return found, nobody, nil
}

// sentence is why a member who has linked an account counts for nothing; empty for what is not known.
func (o ownership) sentence() string {
	switch o {
	case ownerLeft:
		return "the member who had linked this account has left"
	case ownerUnproved:
		return "the secret was replaced since this account was linked, so it has to be linked again"
	case ownerWeak:
		return "this account was linked by a sign-in that may not approve, so it has to be linked again"
	case ownerMachine:
		return "this account is linked to a machine"
	default:
		return ""
	}
}
