package model

import (
	"time"

	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/chat"
)

// ChatAccount is the domain's.
type ChatAccount struct {
	Number                        int
	Kind                          core.NotificationKind
	Workspace, User, Name, Member string
	Permissions                   []core.Permission
	LinkedAt                      *time.Time
}

// WrapChatAccount makes one of the domain's.
func WrapChatAccount(a chat.Account) ChatAccount {
	made := ChatAccount{
		Number: int(a.ID), Kind: a.Kind, Workspace: a.Workspace, User: a.User, Name: a.Name, Member: a.Member, Permissions: a.Permissions.List(),
	}
	if !a.LinkedAt.IsZero() {
		made.LinkedAt = &a.LinkedAt
	}
	return made
}

// ForgeAccount is the domain's.
type ForgeAccount struct {
	Number                    int
	Place, User, Name, Member string
	Permissions               []core.Permission
	LinkedAt                  time.Time
}

// WrapForgeAccount makes one of the domain's.
func WrapForgeAccount(a chat.Account) ForgeAccount {
	return ForgeAccount{
		Number: int(a.ID), Place: a.Workspace, User: a.User, Name: a.Name, Member: a.Member, Permissions: a.Permissions.List(),
		LinkedAt: a.LinkedAt,
	}
}

// MadeForgeAccountCode is the domain's.
type MadeForgeAccountCode struct {
	Comment, Account string
	ExpiresAt        time.Time
}

// WrapForgeCode makes one of the domain's.
func WrapForgeCode(m chat.MadeCode) MadeForgeAccountCode {
	return MadeForgeAccountCode{Comment: m.Comment(), Account: m.Account, ExpiresAt: m.ExpiresAt}
}
