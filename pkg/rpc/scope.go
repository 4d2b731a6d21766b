package rpc

import (
	"strings"

	"github.com/lockstep-cd/lockstep/pkg/fault"
)

// Scope is how much a token may do. Each includes those before it.
type Scope int

// The scopes. The zero value may do nothing, so that a forgotten scope opens no door.
const (
	// ScopeNone may do nothing.
	ScopeNone Scope = iota
	// ScopeRead may look.
	ScopeRead
	// ScopeStart may also begin something, and tell of events.
	ScopeStart
	// ScopeOperate may also interfere with what others have begun.
	ScopeOperate
	// ScopeAdmin may do everything.
	ScopeAdmin
)

func scopeNames() []string { return []string{"none", "read", "start", "operate", "admin"} }

// String is the scope's name in configurations.
func (s Scope) String() string {
	names := scopeNames()
	if s < 0 || int(s) >= len(names) {
		return names[ScopeNone]
	}
	return names[s]
}

// ParseScope reads a scope's name. The error is Invalid.
func ParseScope(name string) (Scope, error) {
	for i, n := range scopeNames() {
		if n == name && Scope(i) != ScopeNone {
			return Scope(i), nil
		}
	}
	return ScopeNone, fault.New(fault.Invalid, "found scope %q, expected %s", name, strings.Join(scopeNames()[1:], ", "))
}
