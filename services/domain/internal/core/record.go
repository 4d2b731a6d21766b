package core

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"reflect"
	"regexp"
	"strings"
	"time"
)

// Change is a row of the journal of changes to controls (D50). It is only ever added to.
type Change struct {
	// ID is its position; the rollouts' journals are numbered by the same sequence.
	ID int64
	Principal
	// PrincipalName is what the principal was called then.
	PrincipalName string
	Action        Action
	Subject       AccessSubject
	// ApplicationID and EnvironmentID are what the change concerns; 0 for none.
	ApplicationID, EnvironmentID int64
	// Reason is the one that was given with the request.
	Reason string
	// Detail is what was changed, for people; never a secret.
	Detail string
	// Before and After are the control as JSON, without secrets; nil where there was, or is, none.
	Before, After json.RawMessage
	// Environments are others that the change concerns, and Wider the permissions that it gives; for change control only.
	Environments []int64
	Wider        *Wider
	// Stricter reports whether the change can only make a control stricter, and so needs no second person.
	Stricter bool
	// TraceID is the trace of the request; empty where it was not traced.
	TraceID   string
	CreatedAt time.Time
}

// ChangeTx is the part of a transaction that records changes to controls.
type ChangeTx interface {
	// AddChange adds a row to the journal of changes, with the time and the trace of the transaction.
	AddChange(ctx context.Context, c Change) error
	ControlTx
	ChangePolicyTx
}

// Record writes that an actor has changed a control, in the transaction that changes it. Before and after are what the control was and is;
// nil for none. Values that look like secrets are replaced. Where a second person has to confirm the change, the error says so, and the
// transaction has to be rolled back: By and Within keep the change as a proposal then.
func Record(ctx context.Context, tx ChangeTx, a Actor, c Change, before, after any) error {
	c.Principal, c.PrincipalName = a.Principal(), a.DisplayName()
	var err error
	if c.Before, err = withoutSecrets(before); err == nil {
		c.After, err = withoutSecrets(after)
	}
	if err != nil {
		return fmt.Errorf("record %s of %s %d: %w", c.Action, c.Subject.Kind, c.Subject.ID, err)
	}
	if err := guard(ctx, tx, a, &c); err != nil {
		return err
	}
	if err := judgeChange(ctx, tx, a, &c); err != nil {
		return err
	}
	return tx.AddChange(ctx, c)
}

// RecordDifference is Record for a control that is kept outside of this service: before is what was recorded last, nil for none, and
// nothing is written where the control is still the same.
func RecordDifference(ctx context.Context, tx ChangeTx, a Actor, c Change, before json.RawMessage, after any) error {
	is, err := withoutSecrets(after)
	if err != nil {
		return fmt.Errorf("encode %s: %w", c.Subject.Kind, err)
	}
	var was, now any
	if before != nil {
		if err := json.Unmarshal(before, &was); err != nil {
			return fmt.Errorf("decode %s as it was recorded: %w", c.Subject.Kind, err)
		}
	}
	if is != nil {
		if err := json.Unmarshal(is, &now); err != nil {
			return fmt.Errorf("decode %s: %w", c.Subject.Kind, err)
		}
	}
	if reflect.DeepEqual(was, now) {
		return nil
	}
	return Record(ctx, tx, a, c, was, after)
}

// removed stands in the journal where a secret was.
const removed = "[removed]"

var (
	// secretKey matches the names of members whose values are secrets, unless they are references.
	secretKey = regexp.MustCompile(`(?i)(passw|secret|token|credential|api_?key|private_?key|seed|authorization)`)
	// reference matches what names a secret and is none (D27).
	reference = regexp.MustCompile(`^(k8s|env|file|vault):`)
	// issued matches what Lockstep and agents sign in with, wherever it stands.
	issued = regexp.MustCompile(`lockstep_[A-Z2-7]{20,}|\bSU[A-Z2-7]{56}\b`)
)

// withoutSecrets is a value as JSON in which everything that looks like a secret was replaced: values under names such as password, unless
// they refer to a secret elsewhere, users' passwords in URLs, tokens and seeds.
func withoutSecrets(v any) (json.RawMessage, error) {
	if v == nil {
		return nil, nil
	}
	plain, err := json.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("encode: %w", err)
	}
	decoder := json.NewDecoder(strings.NewReader(string(plain)))
	decoder.UseNumber()
	var tree any
	if err := decoder.Decode(&tree); err != nil {
		return nil, fmt.Errorf("decode: %w", err)
	}
	return json.Marshal(cleaned("", tree))
}

func cleaned(key string, v any) any {
	switch v := v.(type) {
	case map[string]any:
		for k, one := range v {
			v[k] = cleaned(k, one)
		}
		return v
	case []any:
		for i, one := range v {
			v[i] = cleaned(key, one)
		}
		return v
	case string:
		if secretKey.MatchString(key) && v != "" && !reference.MatchString(v) {
			return removed
		}
		if u, err := url.Parse(v); err == nil && u.User != nil {
			u.User = url.User(removed)
			v = u.String()
		}
		return issued.ReplaceAllString(v, removed)
	default:
		return v
	}
}
