package rpc

import (
	"strings"

	"github.com/lockstep-cd/lockstep/pkg/fault"
)

// Scope is what a token may do. Each scope includes those before it.
type Scope int

// The scopes. The zero value allows nothing, so that an omitted scope is safe.
const (
	// ScopeWork allows the methods that need it, and no others; no other scope includes it.
	ScopeWork Scope = -1
	// ScopeNone allows nothing.
	ScopeNone Scope = iota - 1
	// ScopeRead allows reading.
	ScopeRead
	// ScopeStart also allows starting workflows and delivering events.
	ScopeStart
	// ScopeOperate also allows changing what others have started.
	ScopeOperate
	// ScopeAdmin allows everything.
	ScopeAdmin
)

const workName = "work"

func scopeNames() []string { return []string{"none", "read", "start", "operate", "admin"} }

// String is the scope's name in configurations.
func (s Scope) String() string {
	names := scopeNames()
	if s == ScopeWork {
		return workName
	}
	if s < 0 || int(s) >= len(names) {
		return names[ScopeNone]
	}
	return names[s]
}

// ParseScope parses a scope's name. The error is Invalid.
func ParseScope(name string) (Scope, error) {
	if name == workName {
		return ScopeWork, nil
	}
	for i, n := range scopeNames() {
		if n == name && Scope(i) != ScopeNone {
			return Scope(i), nil
		}
	}
	return ScopeNone, fault.New(fault.Invalid, "found scope %q, expected %s or %s", name, strings.Join(scopeNames()[1:], ", "), workName)
}

// Allows reports whether a token of this scope may call a method that needs another one.
func (s Scope) Allows(needed Scope) bool {
	if s == ScopeWork || needed == ScopeWork {
		return s == needed
	}
	return s >= needed
}
