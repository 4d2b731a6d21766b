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
