package client

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/fault"
)

// Agent is the relay of a cluster.
type Agent struct {
	ID string `json:"id"`
	// Number is its number in the configurations of environments.
	Number       int64       `json:"number"`
	Name         string      `json:"name"`
	CreatedAt    time.Time   `json:"createdAt"`
	RevokedAt    *time.Time  `json:"revokedAt,omitempty"`
	Connected    bool        `json:"connected"`
	LastSeenAt   *time.Time  `json:"lastSeenAt,omitempty"`
	Keys         []AgentKey  `json:"keys"`
	Environments []Reference `json:"environments"`
	// Labels are what fleets select their targets by.
	Labels map[string]string `json:"labels,omitempty"`
	// Seed is the secret half of a key that has just been created.
	Seed string `json:"seed,omitempty"`
}

// AgentKey is a key with which an agent authenticates.
type AgentKey struct {
	ID         string     `json:"id"`
	PublicKey  string     `json:"publicKey"`
	CreatedAt  time.Time  `json:"createdAt"`
	ExpiresAt  *time.Time `json:"expiresAt,omitempty"`
	RevokedAt  *time.Time `json:"revokedAt,omitempty"`
	LastSeenAt *time.Time `json:"lastSeenAt,omitempty"`
}

// AccessChange is a row of the log of changes of access.
type AccessChange struct {
	CreatedAt     time.Time `json:"createdAt"`
	PrincipalType string    `json:"principalType"`
	PrincipalID   int64     `json:"principalId,omitempty"`
	// Principal is set if it is a member.
	Principal   *Reference `json:"principal,omitempty"`
	Action      string     `json:"action"`
	Subject     string     `json:"subject"`
	SubjectName string     `json:"subjectName"`
	Detail      string     `json:"detail"`
}

// Who returns who did it, for people.
func (a AccessChange) Who() string { return who(a.Principal, a.PrincipalType, a.PrincipalID) }

const agentFields = `id number name createdAt revokedAt connected lastSeenAt
	keys { id publicKey createdAt expiresAt revokedAt lastSeenAt } environments { id name } labels`

// Agents lists the agents of the organization, optionally with revoked ones.
func (c *Client) Agents(ctx context.Context, withRevoked bool) ([]Agent, error) {
	return all(0, func(first int, after *string) (connection[Agent], error) {
		var data struct{ Agents connection[Agent] }
		err := c.do(ctx, `query($first: Int, $after: String, $withRevoked: Boolean) { agents(first: $first, after: $after, withRevoked: $withRevoked) { nodes { `+agentFields+` } `+pageInfo+` } }`,
			map[string]any{"first": first, "after": after, "withRevoked": withRevoked}, &data)
		return data.Agents, err
	})
}

// Agent returns an agent that is not revoked, by name, number or identifier.
func (c *Client) Agent(ctx context.Context, which string) (Agent, error) {
	agents, err := c.Agents(ctx, false)
	if err != nil {
		return Agent{}, err
	}
	i := slices.IndexFunc(agents, func(a Agent) bool {
		return a.Name == which || a.ID == which || strconv.FormatInt(a.Number, 10) == which
	})
	if i < 0 {
		return Agent{}, fault.New(fault.NotFound, "agent %q not found", which)
	}
	return agents[i], nil
}

// RegisterAgent creates an agent; only this response contains the seed of its key.
func (c *Client) RegisterAgent(ctx context.Context, name string) (Agent, error) {
	return c.withSeed(ctx, "registerAgent", "RegisterAgentInput", map[string]any{"name": name})
}

// RotateAgent gives an agent another key; only this response contains its seed. The previous key stays valid for the overlap.
func (c *Client) RotateAgent(ctx context.Context, id string, overlap time.Duration) (Agent, error) {
	return c.withSeed(ctx, "rotateAgent", "RotateAgentInput", map[string]any{"agentId": id, "overlapSeconds": int(overlap / time.Second)})
}

func (c *Client) withSeed(ctx context.Context, mutation, input string, in map[string]any) (made Agent, err error) {
	var data struct {
		It struct {
			Agent  json.RawMessage
			Seed   string
			Errors []UserError
		}
	}
	err = c.do(ctx, `mutation($input: `+input+`!) { it: `+mutation+`(input: $input) { agent { `+agentFields+
		` } seed errors { field message code } } }`,
		map[string]any{"input": in}, &data)
	if err == nil {
		err = refusal(data.It.Errors)
	}
	if err != nil {
		return Agent{}, err
	}
	if err := json.Unmarshal(data.It.Agent, &made); err != nil {
		return made, fmt.Errorf("decode agent of %s: %w", mutation, err)
	}
	made.Seed = data.It.Seed
	return made, nil
}

// RevokeAgent revokes an agent.
func (c *Client) RevokeAgent(ctx context.Context, id string) (Agent, error) {
	return change[Agent](ctx, c, "revokeAgent", "RevokeAgentInput", "agent", agentFields, map[string]any{"agentId": id})
}

// RevokeAgentKey revokes one key of an agent.
func (c *Client) RevokeAgentKey(ctx context.Context, key string) (Agent, error) {
	return change[Agent](ctx, c, "revokeAgentKey", "RevokeAgentKeyInput", "agent", agentFields, map[string]any{"keyId": key})
}

// AccessChanges returns the log of changes of access, newest first: limit rows, or all for 0.
func (c *Client) AccessChanges(ctx context.Context, limit int) ([]AccessChange, error) {
	return all(limit, func(first int, after *string) (connection[AccessChange], error) {
		var data struct{ AccessChanges connection[AccessChange] }
		err := c.do(ctx, `query($first: Int, $after: String) { accessChanges(first: $first, after: $after) { nodes {
			createdAt principalType principalId principal { id name } action subject subjectName detail } `+pageInfo+` } }`,
			map[string]any{"first": first, "after": after}, &data)
		return data.AccessChanges, err
	})
}

// Target is a cluster that a rollout deploys to as a part of a fleet.
type Target struct {
	AgentNumber int64      `json:"agentNumber"`
	Name        string     `json:"name"`
	Wave        int        `json:"wave"`
	State       string     `json:"state"`
	Attempt     int        `json:"attempt"`
	Reason      string     `json:"reason,omitempty"`
	StartedAt   *time.Time `json:"startedAt,omitempty"`
	FinishedAt  *time.Time `json:"finishedAt,omitempty"`
}

// TargetFilter selects targets of an environment of a rollout.
type TargetFilter struct {
	Rollout, Environment string
	// Wave is 0 for any, and State empty for any.
	Wave  int
	State string
	// Limit is the most targets; 0 for all.
	Limit int
}

// Targets lists the targets of an environment of a rollout, failed ones first.
func (c *Client) Targets(ctx context.Context, f TargetFilter) ([]Target, error) {
	var state *string
	if f.State != "" {
		state = &f.State
	}
	return all(f.Limit, func(first int, after *string) (connection[Target], error) {
		var data struct{ RolloutTargets connection[Target] }
		err := c.do(ctx, `query($rollout: ID!, $environment: String!, $wave: Int, $state: RolloutTargetState, $first: Int, $after: String) {
	rolloutTargets(rolloutId: $rollout, environment: $environment, wave: $wave, state: $state, first: $first, after: $after) {
		nodes { agentNumber name wave state attempt reason startedAt finishedAt } `+pageInfo+` } }`, map[string]any{
			"rollout": f.Rollout, "environment": f.Environment, "wave": f.Wave, "state": state, "first": first, "after": after,
		}, &data)
		return data.RolloutTargets, err
	})
}

// Wave is a wave of a fleet.
type Wave struct {
	Rollout, Environment string
	Number               int
	Reason               string
}

// PauseWave holds a wave, and those behind it.
func (c *Client) PauseWave(ctx context.Context, w Wave) (Rollout, error) {
	return change[Rollout](ctx, c, "pauseWave", "PauseWaveInput", "rollout", rolloutFields, w.input())
}

// ResumeWave ends the hold of a wave.
func (c *Client) ResumeWave(ctx context.Context, w Wave) (Rollout, error) {
	return change[Rollout](ctx, c, "resumeWave", "ResumeWaveInput", "rollout", rolloutFields, w.input())
}

func (w Wave) input() map[string]any {
	return map[string]any{"rolloutId": w.Rollout, "environment": w.Environment, "wave": w.Number, "reason": w.Reason}
}

// SetAgentLabels sets and ends labels of an agent; the others stay.
func (c *Client) SetAgentLabels(ctx context.Context, agent string, set map[string]string, unset ...string) (Agent, error) {
	return change[Agent](ctx, c, "setAgentLabels", "SetAgentLabelsInput", "agent", agentFields,
		map[string]any{"agentId": agent, "set": set, "unset": unset})
}
