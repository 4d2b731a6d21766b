package policy

import (
	"iter"
	"slices"
	"strings"

	"github.com/cedar-policy/cedar-go"
	"github.com/cedar-policy/cedar-go/ast"
	"github.com/cedar-policy/cedar-go/types"
	xast "github.com/cedar-policy/cedar-go/x/exp/ast"
)

// index finds the policies whose scope may match a request, because cedar-go evaluates every policy for every request. It goes by what
// the scopes say of the action, and of the types and identities of principal and resource; a scope with `in` may match any entity, because
// that depends on the entities of the request. It never leaves a policy out that could match: the differential test compares it with the
// evaluation of all policies.
type index struct {
	all []*policy
	// byAction are the policies that name an action; anyAction those that may match every one.
	byAction  map[types.EntityUID]*side
	anyAction *side
}

// side are policies by what their scope says of the resource.
type side struct {
	byResource map[types.EntityUID][]*policy
	byType     map[types.EntityType][]*policy
	anywhere   []*policy
}

func (s *side) add(p *policy, resource xast.IsResourceScopeNode) {
	switch scope := resource.(type) {
	case xast.ScopeTypeEq:
		s.byResource[scope.Entity] = append(s.byResource[scope.Entity], p)
	case xast.ScopeTypeIs:
		s.byType[scope.Type] = append(s.byType[scope.Type], p)
	case xast.ScopeTypeIsIn:
		s.byType[scope.Type] = append(s.byType[scope.Type], p)
	default:
		s.anywhere = append(s.anywhere, p)
	}
}

func newSide() *side {
	return &side{byResource: map[types.EntityUID][]*policy{}, byType: map[types.EntityType][]*policy{}}
}

// indexOf indexes policies. groups reports whether actions may be in groups, so that `action in` may match any of them.
func indexOf(all []*policy, groups bool) *index {
	x := &index{all: all, byAction: map[types.EntityUID]*side{}, anyAction: newSide()}
	for i, p := range all {
		p.order = i
		p.rest = p.remainder(groups)
		actions, named := p.actions(groups)
		if !named {
			x.anyAction.add(p, p.ast().Resource)
			continue
		}
		for _, action := range actions {
			if x.byAction[action] == nil {
				x.byAction[action] = newSide()
			}
			x.byAction[action].add(p, p.ast().Resource)
		}
	}
	return x
}

// actions are those that the scope of a policy names; false if it may match any.
func (p *policy) actions(groups bool) ([]types.EntityUID, bool) {
	switch scope := p.ast().Action.(type) {
	case xast.ScopeTypeEq:
		return []types.EntityUID{scope.Entity}, true
	case xast.ScopeTypeIn:
		return []types.EntityUID{scope.Entity}, !groups
	case xast.ScopeTypeInSet:
		named := slices.Clone(scope.Entities)
		slices.SortFunc(named, func(a, b types.EntityUID) int { return strings.Compare(a.String(), b.String()) })
		return slices.Compact(named), !groups
	default:
		return nil, false
	}
}

// concerns reports whether the scope of a policy may match a principal.
func (p *policy) concerns(principal types.EntityUID) bool {
	switch scope := p.ast().Principal.(type) {
	case xast.ScopeTypeEq:
		return scope.Entity == principal
	case xast.ScopeTypeIs:
		return scope.Type == principal.Type
	case xast.ScopeTypeIsIn:
		return scope.Type == principal.Type
	default:
		return true
	}
}

// remainder is the policy without the parts of its scope that hold wherever the index finds it, so that they are not evaluated once more.
func (p *policy) remainder(groups bool) *cedar.Policy {
	rest := *p.ast()
	switch rest.Principal.(type) {
	case xast.ScopeTypeEq, xast.ScopeTypeIs:
		rest.Principal = xast.ScopeTypeAll{}
	}
	switch rest.Resource.(type) {
	case xast.ScopeTypeEq, xast.ScopeTypeIs:
		rest.Resource = xast.ScopeTypeAll{}
	}
	switch rest.Action.(type) {
	case xast.ScopeTypeEq:
		rest.Action = xast.ScopeTypeAll{}
	case xast.ScopeTypeIn, xast.ScopeTypeInSet:
		if !groups {
			rest.Action = xast.ScopeTypeAll{}
		}
	}
	return cedar.NewPolicyFromAST((*ast.Policy)(&rest))
}

// candidates are policies that may match a request, in the order of their text.
type candidates []*policy

func (x *index) candidates(principal, action, resource types.EntityUID) candidates {
	if x == nil { // none is about the action
		return nil
	}
	var found candidates
	for _, s := range []*side{x.byAction[action], x.anyAction} {
		if s == nil {
			continue
		}
		for _, some := range [][]*policy{s.byResource[resource], s.byType[resource.Type], s.anywhere} {
			for _, p := range some {
				if p.concerns(principal) {
					found = append(found, p)
				}
			}
		}
	}
	slices.SortFunc(found, func(a, b *policy) int { return a.order - b.order })
	return found
}

// All implements cedar.PolicyIterator.
func (c *candidates) All() iter.Seq2[cedar.PolicyID, *cedar.Policy] {
	return func(yield func(cedar.PolicyID, *cedar.Policy) bool) {
		for _, p := range *c {
			if !yield(cedar.PolicyID(p.ID), p.rest) {
				return
			}
		}
	}
}
