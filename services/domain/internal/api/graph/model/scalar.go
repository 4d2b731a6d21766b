// Package model is what the GraphQL schema's types are in Go: the domain's nouns in thin wrappers that give them public
// identifiers and hide what the API does not show, and, generated, the inputs, payloads and pages.
//
// It resolves nothing: what hangs below an object is loaded by package graph.
package model

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/99designs/gqlgen/graphql"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/text"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/view"
)

// MarshalJSON writes an opaque blob as it is.
func MarshalJSON(blob json.RawMessage) graphql.Marshaler {
	if len(blob) == 0 {
		return graphql.Null
	}
	return graphql.WriterFunc(func(w io.Writer) { _, _ = w.Write(blob) })
}

// UnmarshalJSON takes any value as an opaque blob, if its texts are such as UnmarshalText takes.
func UnmarshalJSON(v any) (json.RawMessage, error) {
	if err := checkTexts(v); err != nil {
		return nil, err
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil, fault.Because(err, fault.Invalid, "found a value that is not JSON")
	}
	return bytes.TrimSpace(b.Bytes()), nil
}

// MarshalText writes a text.
func MarshalText(s string) graphql.Marshaler { return graphql.MarshalString(s) }

// UnmarshalText reads a text. It is the scalar of every String and ID, so that no resolver sees a control character: none can be kept
// in the database (U+0000), or does something to a terminal that shows it later.
func UnmarshalText(v any) (string, error) {
	s, err := graphql.UnmarshalString(v)
	if err != nil {
		return "", fault.New(fault.Invalid, "found %T; expected a text", v)
	}
	return s, checkText(s)
}

func checkText(s string) error {
	if r, bad := text.Control(s); bad {
		return fault.New(fault.Invalid, "found %s in the text; expected none of the control characters but tab and line feed, nor any that turn the order of writing", text.Name(r))
	}
	return nil
}

// checkTexts is checkText of every text in a value, and of every name.
func checkTexts(v any) error {
	switch v := v.(type) {
	case string:
		return checkText(v)
	case []any:
		for _, one := range v {
			if err := checkTexts(one); err != nil {
				return err
			}
		}
	case map[string]any:
		for name, one := range v {
			if err := checkText(name); err != nil {
				return err
			}
			if err := checkTexts(one); err != nil {
				return err
			}
		}
	}
	return nil
}

// Enumerations are the domain's values in capitals.

// MarshalTier writes a tier.
func MarshalTier(t core.Tier) graphql.Marshaler { return word(string(t)) }

// UnmarshalTier reads a tier.
func UnmarshalTier(v any) (core.Tier, error) {
	return enum(v, core.TierDevelopment, core.TierQA, core.TierStaging, core.TierProduction)
}

// MarshalReadiness writes a readiness.
func MarshalReadiness(r core.Readiness) graphql.Marshaler { return word(string(r)) }

// UnmarshalReadiness reads a readiness.
func UnmarshalReadiness(v any) (core.Readiness, error) {
	return enum(v, core.ReadinessPending, core.ReadinessReady, core.ReadinessNot)
}

// MarshalRolloutState writes a state.
func MarshalRolloutState(s core.RolloutState) graphql.Marshaler { return word(string(s)) }

// UnmarshalRolloutState reads a state.
func UnmarshalRolloutState(v any) (core.RolloutState, error) {
	return enum(v, core.RolloutPending, core.RolloutInProgress, core.RolloutPaused, core.RolloutCompleted, core.RolloutFailed,
		core.RolloutCancelled)
}

// MarshalRolloutStatus writes a status.
func MarshalRolloutStatus(s core.RolloutStatus) graphql.Marshaler { return word(string(s)) }

// UnmarshalRolloutStatus reads a status.
func UnmarshalRolloutStatus(v any) (core.RolloutStatus, error) {
	return enum(v, core.StatusPlanned, core.StatusAborting, core.StatusAborted)
}

// MarshalDeploymentStatus writes a status.
func MarshalDeploymentStatus(s core.RolloutStatus) graphql.Marshaler { return word(string(s)) }

// UnmarshalDeploymentStatus reads a status.
func UnmarshalDeploymentStatus(v any) (core.RolloutStatus, error) {
	return enum(v, core.StatusAborting, core.StatusAborted)
}

// MarshalAutomaticRollbackState writes a state.
func MarshalAutomaticRollbackState(s core.RollbackState) graphql.Marshaler { return word(string(s)) }

// UnmarshalAutomaticRollbackState reads a state.
func UnmarshalAutomaticRollbackState(v any) (core.RollbackState, error) {
	return enum(v, core.RollbackDue, core.RollbackStarted, core.RollbackDropped)
}

// MarshalAutomaticRollbackCause writes a cause.
func MarshalAutomaticRollbackCause(cause string) graphql.Marshaler { return word(cause) }

// UnmarshalAutomaticRollbackCause reads a cause.
func UnmarshalAutomaticRollbackCause(v any) (string, error) { return UnmarshalText(v) }

// MarshalSkipCause writes a cause.
func MarshalSkipCause(c core.SkipCause) graphql.Marshaler { return word(string(c)) }

// UnmarshalSkipCause reads a cause.
func UnmarshalSkipCause(v any) (core.SkipCause, error) {
	return enum(v, core.SkipUnchanged, core.SkipExcluded)
}

// MarshalDeploymentState writes a state.
func MarshalDeploymentState(s core.DeploymentState) graphql.Marshaler { return word(string(s)) }

// UnmarshalDeploymentState reads a state.
func UnmarshalDeploymentState(v any) (core.DeploymentState, error) {
	return enum(v, core.DeploymentPending, core.DeploymentDeploying, core.DeploymentHealthy,
		core.DeploymentDegraded, core.DeploymentFailed, core.DeploymentCancelled)
}

// MarshalGateOutcome writes an outcome.
func MarshalGateOutcome(o core.GateOutcome) graphql.Marshaler { return word(string(o)) }

// UnmarshalGateOutcome reads an outcome.
func UnmarshalGateOutcome(v any) (core.GateOutcome, error) {
	return enum(v, core.ExpiryRejects, core.ExpiryApproves)
}

// MarshalNamedOrder writes an order of things with names.
func MarshalNamedOrder(o core.Order) graphql.Marshaler { return word(string(o)) }

// UnmarshalNamedOrder reads an order of things with names.
func UnmarshalNamedOrder(v any) (core.Order, error) {
	return enum(v, core.OrderCreated, core.OrderCreatedDesc, core.OrderName, core.OrderNameDesc)
}

// MarshalCreationOrder writes an order.
func MarshalCreationOrder(o core.Order) graphql.Marshaler { return word(string(o)) }

// UnmarshalCreationOrder reads an order.
func UnmarshalCreationOrder(v any) (core.Order, error) {
	return enum(v, core.OrderCreated, core.OrderCreatedDesc)
}

// MarshalRolloutOrder writes an order of rollouts.
func MarshalRolloutOrder(o core.Order) graphql.Marshaler { return word(string(o)) }

// UnmarshalRolloutOrder reads an order of rollouts.
func UnmarshalRolloutOrder(v any) (core.Order, error) {
	return enum(v, core.OrderCreated, core.OrderCreatedDesc, core.OrderFinished, core.OrderFinishedDesc)
}

// MarshalRole writes a role.
func MarshalRole(r core.Role) graphql.Marshaler { return word(string(r)) }

// UnmarshalRole reads a role.
func UnmarshalRole(v any) (core.Role, error) { return enum(v, core.AllRoles()...) }

// MarshalMemberKind writes what a member is.
func MarshalMemberKind(k core.PrincipalType) graphql.Marshaler { return word(string(k)) }

// UnmarshalMemberKind reads what a member is.
func UnmarshalMemberKind(v any) (core.PrincipalType, error) {
	return enum(v, core.PrincipalUser, core.PrincipalAgent)
}

// MarshalPermission writes a permission.
func MarshalPermission(p core.Permission) graphql.Marshaler { return word(p.String()) }

// UnmarshalPermission reads a permission.
func UnmarshalPermission(v any) (core.Permission, error) { return enum(v, core.AllPermissions()...) }

// MarshalWaitKind writes a kind of wait.
func MarshalWaitKind(k view.WaitKind) graphql.Marshaler { return word(string(k)) }

// UnmarshalWaitKind reads a kind of wait.
func UnmarshalWaitKind(v any) (view.WaitKind, error) { return enum(v, view.AllWaitKinds()...) }

// MarshalWaitStatus writes how far a condition is from being met.
func MarshalWaitStatus(s view.WaitStatus) graphql.Marshaler { return word(string(s)) }

// UnmarshalWaitStatus reads how far a condition is from being met.
func UnmarshalWaitStatus(v any) (view.WaitStatus, error) { return enum(v, view.AllWaitStatuses()...) }

// MarshalFailurePolicy writes a policy.
func MarshalFailurePolicy(p core.FailurePolicy) graphql.Marshaler { return word(string(p)) }

// UnmarshalFailurePolicy reads a policy.
func UnmarshalFailurePolicy(v any) (core.FailurePolicy, error) {
	return enum(v, core.FailureStops, core.FailureAborts, core.FailureRollsBack)
}

// MarshalNewerPolicy writes a policy.
func MarshalNewerPolicy(p core.NewerPolicy) graphql.Marshaler { return word(string(p)) }

// UnmarshalNewerPolicy reads a policy.
func UnmarshalNewerPolicy(v any) (core.NewerPolicy, error) {
	return enum(v, core.NewerRefused, core.NewerQueued, core.NewerSupersedes)
}

func word(s string) graphql.Marshaler {
	return graphql.WriterFunc(func(w io.Writer) { _, _ = io.WriteString(w, strconv.Quote(strings.ToUpper(s))) })
}

func enum[T comparable](v any, values ...T) (T, error) {
	words := make([]string, len(values))
	for i, value := range values {
		words[i] = strings.ToUpper(fmt.Sprint(value))
		if v == words[i] {
			return value, nil
		}
	}
	var none T
	return none, fault.New(fault.Invalid, "found %v; expected one of %s", v, strings.Join(words, ", "))
}
