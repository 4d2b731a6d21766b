package model

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/99designs/gqlgen/graphql"

	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/forge"
)

// ForgeMirror is the domain's.
type ForgeMirror struct {
	Application  string
	Environments []string
	Credential   string
	Enabled      bool
	Plans        bool
	Deployments  bool
	Addresses    []EnvironmentAddress
	Author       string
	ChangedAt    time.Time
}

// WrapForgeMirror makes one of the domain's.
func WrapForgeMirror(m forge.Named) ForgeMirror {
	addresses := []EnvironmentAddress{}
	for _, name := range slices.Sorted(maps.Keys(m.AddressOf)) {
		addresses = append(addresses, EnvironmentAddress{Environment: name, URL: m.AddressOf[name]})
	}
	return ForgeMirror{
		Addresses: addresses, Application: m.Application, Environments: m.Environments, Credential: m.Credential, Enabled: m.Enabled,
		Plans: m.Plans, Deployments: m.Deployments, Author: m.Author.Name, ChangedAt: m.ChangedAt,
	}
}

// AddressesByName are the addresses of the input by the names of environments; nil for none given.
func (in PutForgeMirrorInput) AddressesByName() map[string]string {
	if in.Addresses == nil {
		return nil
	}
	all := map[string]string{}
	for _, one := range in.Addresses {
		all[one.Environment] = one.URL
	}
	return all
}

// ForgeStatus is the domain's.
type ForgeStatus struct {
	Number                   int64
	Kind                     forge.Published
	Repository, Commit, Name string
	Phase                    core.CheckPhase
	Stage                    *forge.Stage
	RolloutID                *string
	ForgeNumber              *int64
	Description, Link        string
	State                    forge.State
	Error                    string
	Attempts                 int
	DueAt, SentAt            *time.Time
}

// WrapForgeStatus makes one of the domain's.
func WrapForgeStatus(s forge.Status) ForgeStatus {
	made := ForgeStatus{
		Number: s.ID, Kind: s.Kind, Repository: s.Repository, Commit: s.Commit, Name: s.Name, Phase: s.Phase, Description: s.Description,
		Link:  s.Link,
		State: s.State, Error: s.Error, Attempts: s.Attempts, SentAt: s.SentAt,
	}
	if s.State == forge.Pending || s.State == forge.Sending {
		made.DueAt = &s.DueAt
	}
	if s.Kind == forge.PublishedDeployment {
		rollout := fmt.Sprintf("rollout_%d", s.RolloutID)
		made.Stage, made.RolloutID = &s.Stage, &rollout
	}
	if s.ForgeNumber != 0 {
		made.ForgeNumber = &s.ForgeNumber
	}
	return made
}

// ForgeHost is the domain's.
type ForgeHost struct {
	Host                       string
	Waiting                    int
	PausedUntil                *time.Time
	Problem                    string
	QuotaLimit, QuotaRemaining *int
	QuotaResetsAt              *time.Time
}

// WrapForgeHost makes one of the domain's, as of a time.
func WrapForgeHost(h forge.Host, now time.Time) ForgeHost {
	made := ForgeHost{Host: h.Host, Waiting: h.Waiting, Problem: h.Problem}
	if h.PausedUntil.After(now) {
		made.PausedUntil = &h.PausedUntil
	}
	if q := h.Quota; q != nil {
		limit, remaining := int(q.Limit), int(q.Remaining)
		made.QuotaLimit, made.QuotaRemaining, made.QuotaResetsAt = &limit, &remaining, &q.ResetsAt
	}
	return made
}

// ForgeHook is the domain's.
type ForgeHook struct {
	Number                  int64
	Forge                   string
	Repositories, CheckKeys []string
	Plans, Commands         bool
	Author                  string
	CreatedAt               time.Time
	ReportedAt              *time.Time
}

// WrapForgeHook makes one of the domain's.
func WrapForgeHook(h forge.Hook) ForgeHook {
	return ForgeHook{
		Number: h.ID, Forge: h.Forge, Repositories: h.Repositories, CheckKeys: h.CheckKeys, Plans: h.Plans, Commands: h.Commands,
		Author:    h.Author.Name,
		CreatedAt: h.CreatedAt, ReportedAt: h.ReportedAt,
	}
}

// ForgeReport is the domain's.
type ForgeReport struct {
	Number, Hook                int64
	Repository, Commit, Context string
	Kind                        *string
	Phase                       core.CheckPhase
	Description, Link           string
	ObservedAt, ChangedAt       time.Time
	Counted                     bool
}

// WrapForgeReport makes one of the domain's.
func WrapForgeReport(r forge.Known) ForgeReport {
	made := ForgeReport{
		Number: r.ID, Hook: r.HookID, Repository: r.Repository, Commit: r.Commit, Context: r.Context, Phase: r.Phase, Description: r.Description,
		ObservedAt: r.ObservedAt, ChangedAt: r.ChangedAt, Counted: r.Counted,
	}
	if core.PlainLink(r.Link) {
		made.Link = r.Link
	}
	if r.Kind != "" {
		made.Kind = &r.Kind
	}
	return made
}

// ForgeRefusal is the domain's.
type ForgeRefusal struct {
	Hook            int64
	What, Reason    string
	Times           int64
	FirstAt, LastAt time.Time
}

// WrapForgeRefusal makes one of the domain's.
func WrapForgeRefusal(r forge.Refusal) ForgeRefusal {
	return ForgeRefusal{Hook: r.HookID, What: r.What, Reason: r.Reason, Times: r.Times, FirstAt: r.FirstAt, LastAt: r.LastAt}
}

// MarshalForgeReportKind writes a kind of report.
func MarshalForgeReportKind(s string) graphql.Marshaler { return word(s) }

// UnmarshalForgeReportKind reads a kind of report.
func UnmarshalForgeReportKind(v any) (string, error) { return enum(v, forge.KindStatus, forge.KindRun) }

// ForgePull is the domain's.
type ForgePull struct {
	Number         int64
	Repository     string
	PullRequest    int64
	Commit, Link   string
	State          forge.State
	Outcome, Error string
	DueAt, EndedAt *time.Time
}

// WrapForgePull makes one of the domain's.
func WrapForgePull(p forge.Pull) ForgePull {
	made := ForgePull{
		Number: p.ID, Repository: p.Name, PullRequest: p.Number, Commit: p.Head, Link: p.Link, State: p.State, Outcome: p.Outcome, Error: p.Error,
		EndedAt: p.SentAt,
	}
	if p.State == forge.Pending || p.State == forge.Sending {
		made.DueAt = &p.DueAt
	}
	return made
}

// MadeForgeHook is the domain's.
type MadeForgeHook struct {
	Hook         ForgeHook
	Path, Secret string
}

// WrapMadeForgeHook makes one of the domain's.
func WrapMadeForgeHook(m forge.MadeHook) MadeForgeHook {
	return MadeForgeHook{Hook: WrapForgeHook(m.Hook), Path: m.Path, Secret: m.Secret}
}

// MarshalForgeKind writes a kind of forge.
func MarshalForgeKind(s string) graphql.Marshaler { return word(s) }

// UnmarshalForgeKind reads a kind of forge.
func UnmarshalForgeKind(v any) (string, error) { return enum(v, forge.Forges()...) }

// MarshalForgeStatusState writes a state.
func MarshalForgeStatusState(s forge.State) graphql.Marshaler { return word(string(s)) }

// UnmarshalForgeStatusState reads a state.
func UnmarshalForgeStatusState(v any) (forge.State, error) { return enum(v, forge.States()...) }

// MarshalForgePublicationKind writes what is published.
func MarshalForgePublicationKind(k forge.Published) graphql.Marshaler { return word(string(k)) }

// UnmarshalForgePublicationKind reads what is published.
func UnmarshalForgePublicationKind(v any) (forge.Published, error) {
	return enum(v, forge.Publications()...)
}

// MarshalForgeDeploymentStage writes a stage.
func MarshalForgeDeploymentStage(s forge.Stage) graphql.Marshaler { return word(string(s)) }

// UnmarshalForgeDeploymentStage reads a stage.
func UnmarshalForgeDeploymentStage(v any) (forge.Stage, error) { return enum(v, forge.Stages()...) }
