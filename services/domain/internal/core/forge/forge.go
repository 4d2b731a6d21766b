// Package forge holds the use cases of statuses of commits, at the forges of the repositories that versions come from (R3-09, D48, D64),
// and of the plans of pull requests there (R4-27, D60).
//
// What checks have come to is published there. It is a copy: nothing is decided by it, and nothing waits for it. What may have changed
// leaves a mark, in the transaction that changes it. A mark is turned into statuses, of which only the newest of each name is kept, and
// each is published by a run of the engine, at least once and one run at a time.
//
// In the other direction, what forges report to the hooks of an organization is recorded by commit, also before a version comes from it,
// and leaves marks as well: checks of kind status follow from it, as from the reports of any other reporter.
package forge

import (
	"context"
	"encoding/json"
	"sync/atomic"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/handoff"
)

// Mirror says that the checks of an application are published.
type Mirror struct {
	ApplicationID int64
	// EnvironmentIDs are those whose checks are published; none for all.
	EnvironmentIDs []int64
	// Credential is the name of one; empty for the one with the longest matching URL.
	Credential string
	Enabled    bool
	// Plans reports whether comments on pull requests are about the application, too; they are without a mirror.
	Plans bool
	// Deployments reports whether deployments are published, too.
	Deployments bool
	// Addresses are where the application is reached, by environment: forges show them with deployments.
	Addresses map[int64]string
	// Author is who saved it last, at ChangedAt.
	Author    core.Author
	ChangedAt time.Time
}

// State is what became of a status.
type State string

// The states.
const (
	// Pending is to be sent, Sending is sent by a run, Sent is what the forge has, Failed was given up.
	Pending State = "pending"
	Sending State = "sending"
	Sent    State = "sent"
	Failed  State = "failed"
)

// States are all states.
func States() []State { return []State{Pending, Sending, Sent, Failed} }

// Status is a status of a commit at a forge, or a deployment of it.
type Status struct {
	ID   int64
	Kind Published
	// Repository is the URL, Host its server.
	Repository, Host, Commit string
	// Name is what forges call its context: lockstep/<application>/<environment>/<key>, or without a key for what was deployed there. That of
	// a deployment has #rollout_<id> after the environment.
	Name string
	// ApplicationID is whose it is, EnvironmentID what it is about. The name has both.
	ApplicationID, EnvironmentID int64
	// RolloutID is that of a deployment, and ForgeNumber what the forge calls it; 0 if that is not known.
	RolloutID, ForgeNumber int64
	Part
	Credential string
	// Revision counts what it was to say, SentRevision is what the forge has, and BegunRevision what the present run sends.
	Revision, SentRevision, BegunRevision int
	Delivery
	CreatedAt time.Time
}

// Delivery is how far something has come that runs bring to a forge.
type Delivery struct {
	State State
	// DueAt is when it is begun, or looked at again while a run is about it.
	DueAt    time.Time
	Attempts int
	// Run counts the runs that were begun for it; Started is whether the engine has the present one, and Inputs are what it is begun with.
	Run     int
	Started bool
	Inputs  json.RawMessage
	// AwaySince is when its server first failed to answer since it was sent last; nil if it has not.
	AwaySince *time.Time
	// Error is why the last attempt failed; empty if it did not.
	Error  string
	SentAt *time.Time
	// SpentAt is when the present run was taken from what all organizations together may send; nil if it was not.
	SpentAt *time.Time
}

// Part is what a status states, or is to state.
type Part struct {
	// Set is the version set that it is about: what is about an older one changes nothing.
	Set   int64
	Phase core.CheckPhase
	// Stage is that of a deployment; empty for a status.
	Stage             Stage
	Description, Link string
}

// Host is a server that statuses are sent to.
type Host struct {
	Host string
	// Standing is that of statuses, and Pulls that of pull requests: what anybody may cause holds up no status. Pull requests wait for both.
	Standing
	Pulls Standing
	// Problem is why the last status failed because of the server.
	Problem string
	// WindowAt is when the present minute began, in which WindowCount statuses were begun.
	WindowAt    time.Time
	WindowCount int
	// PullWindowAt and PullWindowCount are the same for pull requests.
	PullWindowAt    time.Time
	PullWindowCount int
	// Quota is how many requests it still accepts; nil where it does not say.
	Quota *Quota
	// Waiting is how many statuses wait for it or are being sent.
	Waiting int
	// SharedUntil is before when nothing is begun there for which a credential of the operator may be used.
	SharedUntil time.Time
	// news is what all who share the account of the operator learn from an answer.
	news news
}

// news is what an answer says of the account of the operator: nothing if it is empty.
type news struct {
	quota       *Quota
	pausedUntil time.Time
	// unused reports that the account was not used.
	unused bool
}

// Budget is what all organizations together send to a server with the credentials of the operator.
type Budget struct {
	// WindowAt is when the present minute began, in which WindowCount runs were begun.
	WindowAt    time.Time
	WindowCount int
	// PausedUntil is before when nothing is begun, and Quota how many requests it still accepts; nil where it does not say.
	PausedUntil time.Time
	Quota       *Quota
}

// spend takes one of the most that all organizations together may begin within a minute, and returns until when they have to wait; the zero
// time if it was taken.
func (b *Budget) spend(now time.Time, most int) time.Time {
	if b.PausedUntil.After(now) {
		return b.PausedUntil
	}
	if !now.Before(b.WindowAt.Add(window)) || b.WindowAt.After(now) {
		b.WindowAt, b.WindowCount = now, 0
	}
	if b.WindowCount >= most {
		return b.WindowAt.Add(window)
	}
	b.WindowCount++
	return time.Time{}
}

// learn takes what an answer says of the account that was used. What pauses statuses pauses those of all who share the account.
func (h *Host) learn(at *Standing, o outcome, limited bool) {
	if o.quota != nil {
		h.Quota = o.quota
	}
	switch {
	case o.shared == nil: // it may have been either
	case !*o.shared:
		h.news.unused = true
	default:
		h.news.quota = o.quota
		if limited && at == &h.Standing {
			h.news.pausedUntil = at.PausedUntil
		}
	}
}

// settleBudget changes what all who share the account of the operator know of a server: what a run was counted for that did not use the
// account is given back.
func settleBudget(ctx context.Context, tx Tx, host string, spent *time.Time, n news) error {
	if n.unused = n.unused && spent != nil; !n.unused && n.quota == nil && n.pausedUntil.IsZero() {
		return nil
	}
	b, err := tx.LockForgeBudget(ctx, host)
	if err != nil {
		return err
	}
	if n.unused && b.WindowCount > 0 && !b.WindowAt.After(*spent) && spent.Before(b.WindowAt.Add(window)) {
		b.WindowCount--
	}
	if n.quota != nil {
		b.Quota = n.quota
	}
	if n.pausedUntil.After(b.PausedUntil) {
		b.PausedUntil = n.pausedUntil
	}
	return tx.SaveForgeBudget(ctx, host, b)
}

// Standing is how a server has dealt with what was brought there.
type Standing struct {
	// PausedUntil is before when nothing is begun there, and Failures how many attempts failed in succession because of the server.
	PausedUntil time.Time
	Failures    int
}

// Quota is how many requests a server accepts until ResetsAt.
type Quota struct {
	Limit     int64     `json:"limit"`
	Remaining int64     `json:"remaining"`
	ResetsAt  time.Time `json:"resets_at"`
}

// scarce reports whether less than a part of it is left until a time that is to come.
func (q *Quota) scarce(part int64, now time.Time) bool {
	return q != nil && q.Remaining < q.Limit/part && q.ResetsAt.After(now)
}

// Store keeps what this package needs. Its errors have the classes of pkg/fault.
type Store interface {
	core.Transactions[Tx]
	Reads
	// OrganizationsWithDueForge returns those with something to look at or to send.
	OrganizationsWithDueForge(ctx context.Context, at time.Time) ([]int64, error)
	// ForgeHooksAfter are the hooks of all organizations behind an id that were not removed, in order.
	ForgeHooksAfter(ctx context.Context, id int64, most int) ([]PlacedHook, error)
}

// Reads is what the API and the use cases read.
type Reads interface {
	// ForgeMirrors are all of the organization, also those that are switched off.
	ForgeMirrors(ctx context.Context, organization int64) ([]Mirror, error)
	// ForgeStatuses are the newest first.
	ForgeStatuses(ctx context.Context, organization int64, f Filter) ([]Status, error)
	ForgeHosts(ctx context.Context, organization int64) ([]Host, error)
	// ForgePulls are the newest first, after one by its ID; 0 for all. They have neither Inputs nor Reading.
	ForgePulls(ctx context.Context, organization, before int64, most int) ([]Pull, error)
	// ForgeHooks are those that were not removed, the oldest first.
	ForgeHooks(ctx context.Context, organization int64) ([]Hook, error)
	// ForgeReportsOf are reports of hooks that were not removed, the newest first.
	ForgeReportsOf(ctx context.Context, organization int64, f ReportFilter) ([]Known, error)
}

// Filter narrows a list of statuses; its zero value does not.
type Filter struct {
	State  State
	Kind   Published
	Commit string
	// Before is the status that the list continues after; 0 for the newest. Most is how many are returned.
	Before int64
	Most   int
}

// Mark says that the statuses of a version set may have changed. IDs are all marks that say so now.
type Mark struct {
	Application, VersionSet int64
	IDs                     []int64
}

// Live is what is live in an environment.
type Live struct {
	VersionSet int64
	Name       string
	Since      *time.Time
}

// SetVersion is a version of a set, with the configuration of the source that it came from.
type SetVersion struct {
	core.Version
	Config json.RawMessage
}

// Tx is what a use case may do in its transaction.
type Tx interface {
	core.ChangeTx
	core.TargetReads
	Reads
	ApplicationByName(ctx context.Context, organization int64, name string) (core.Application, error)
	ApplicationsByID(ctx context.Context, organization int64, ids []int64) (map[int64]core.Application, error)
	EnvironmentByName(ctx context.Context, organization int64, name string) (core.Environment, error)
	VersionSetsByID(ctx context.Context, organization int64, ids []int64) (map[int64]core.VersionSet, error)
	RolloutsByID(ctx context.Context, organization int64, ids []int64) (map[int64]core.Rollout, error)
	RolloutEnvironmentsByRollout(ctx context.Context, organization int64, rollouts []int64) (map[int64][]core.RolloutEnvironment, error)
	CheckReports(ctx context.Context, organization int64, sets []int64) (map[int64][]core.CheckReport, error)
	Origins(ctx context.Context, organization int64, versions []int64) (map[int64]core.Origin, error)
	LockApplication(ctx context.Context, id int64) (core.Application, error)

	SaveForgeMirror(ctx context.Context, m Mirror) error
	// UnreadPipelines returns pipelines that were not read for their places, at most so many, with so many bytes together or the first alone.
	UnreadPipelines(ctx context.Context, most, bytes int) ([]Pipeline, error)
	// SaveForgePlaces puts what a pipeline says in the place of what the one before has said, unless a later one was saved.
	SaveForgePlaces(ctx context.Context, p Pipeline, all []Place) error
	// ForgePlaces are those of a repository by its name, and by that without the port, of applications that plans are about and that are not
	// archived, by the names of application and environment: at most so many. MayHaveForgePlaces reports whether there are any, or may be.
	ForgePlaces(ctx context.Context, name, portless string, most int) ([]Place, error)
	MayHaveForgePlaces(ctx context.Context, name, portless string) (bool, error)
	// ForgeOfCredential is the kind of forge of a credential of the organization; empty if it has no such credential, or it is of none.
	ForgeOfCredential(ctx context.Context, name string) (string, error)
	// MarkForgeLive marks what is live of an application, and what its latest rollouts are about.
	MarkForgeLive(ctx context.Context, application int64) error
	// DueForgeMark returns the version set whose mark has been due longest, with all of its marks; false for none.
	DueForgeMark(ctx context.Context, at time.Time) (Mark, bool, error)
	// TakeForgeMarks keeps others from writing statuses of the version set until the transaction ends, and deletes the marks. It reports false
	// if one of them is gone or there are more by now: then what was read may be old, and the transaction has to be rolled back.
	TakeForgeMarks(ctx context.Context, m Mark) (bool, error)
	AddForgeMark(ctx context.Context, application, set int64, due time.Time) error
	PutOffForgeMarks(ctx context.Context, m Mark, until time.Time) error
	// LatestRolloutOfSet is the number of the latest rollout of a version set; 0 for none.
	LatestRolloutOfSet(ctx context.Context, application, set int64) (int64, error)
	// ForgeLive is what is live of an application, by environment.
	ForgeLive(ctx context.Context, application int64) (map[int64]Live, error)
	VersionsOfSet(ctx context.Context, set int64) ([]SetVersion, error)
	// MergeForgeStatus stores what is to be published under a name, unless that is known, or only what is known is to be changed.
	MergeForgeStatus(ctx context.Context, s Status, onlyKnown bool) error
	// OpenForgeDeployments are the rollouts of a version set with deployments that may change yet.
	OpenForgeDeployments(ctx context.Context, application, set int64) ([]int64, error)

	// DueForgeStatus locks one that is to be sent or looked at, skipping those that others have locked; false for none. None is sent to a
	// server that is paused, or to which that many are being sent: one, while it does not answer.
	DueForgeStatus(ctx context.Context, at time.Time, together int) (Status, bool, error)
	LockForgeStatus(ctx context.Context, id int64) (Status, error)
	SaveForgeStatus(ctx context.Context, s Status) error
	// ForgeNumbersOfOthers is what the forge calls the other deployments of an environment of a repository, of all organizations. It keeps
	// others from storing one of the repository until the transaction ends.
	ForgeNumbersOfOthers(ctx context.Context, status int64, repository, environment string) ([]int64, error)
	// ForgeStatusesSending is how many are being sent to a server.
	ForgeStatusesSending(ctx context.Context, host string) (int, error)
	// RetryForgeStatuses has those sent again that were given up: one, or the oldest for 0, up to a limit.
	RetryForgeStatuses(ctx context.Context, id int64, at time.Time, most int) (int, error)
	// ForgetForgeStatuses deletes what is older, up to a limit.
	ForgetForgeStatuses(ctx context.Context, before time.Time, most int) error
	// LockForgeHost locks a server, known or not.
	LockForgeHost(ctx context.Context, host string) (Host, error)
	SaveForgeHost(ctx context.Context, h Host) error
	// OwnForgeCredential reports whether a credential of the organization itself is used for a repository in any case: it is named, or it is
	// for this repository alone. Otherwise it may be one of the operator.
	OwnForgeCredential(ctx context.Context, credential, repository string) (bool, error)
	// LockForgeBudget locks what all organizations together send to a server, known or not. It is locked last.
	LockForgeBudget(ctx context.Context, host string) (Budget, error)
	// SaveForgeBudget saves it, and ForgetForgeBudgets deletes some that were neither used nor paused since.
	SaveForgeBudget(ctx context.Context, host string, b Budget) error
	ForgetForgeBudgets(ctx context.Context, before time.Time) error

	// MergeForgePull notes that a pull request may have changed; it is begun at DueAt, and not before a pause after it was last done with. It
	// reports false if it is not known and as many as most wait already, or if it was asked for, does not wait, and half as many wait that
	// were.
	MergeForgePull(ctx context.Context, p Pull, most int, pause time.Duration) (bool, error)
	// DueForgePull locks one that is to be begun or looked at, skipping those that others have locked; false for none. None is begun at a
	// server that is paused, at which as many are under way, at which rate were begun since a time, or of whose quota less than half is left
	// for at most a wait.
	DueForgePull(ctx context.Context, at, since time.Time, wait time.Duration, rate, together int) (Pull, bool, error)
	LockForgePull(ctx context.Context, id int64) (Pull, error)
	SaveForgePull(ctx context.Context, p Pull) error
	// ForgePullsSending is how many are under way at a server.
	ForgePullsSending(ctx context.Context, host string) (int, error)
	// ForgetForgePulls deletes what is older, up to a limit.
	ForgetForgePulls(ctx context.Context, before time.Time, most int) error

	// ForgeAnswers are the latest answers to commands in comments on a pull request, the latest last.
	ForgeAnswers(ctx context.Context, name string, number int64, most int) ([]Answered, error)

	// LockForgeHooks keeps others from adding hooks until the transaction ends.
	LockForgeHooks(ctx context.Context) error
	AddForgeHook(ctx context.Context, h Hook) (Hook, error)
	RemoveForgeHook(ctx context.Context, id int64, at time.Time) (Hook, error)
	// ForgeHookByKey keeps it from being removed until the transaction ends.
	ForgeHookByKey(ctx context.Context, key string) (Hook, error)
	// LockForgeCommit keeps others from recording reports about a commit, or version sets that come from it, until the transaction ends.
	LockForgeCommit(ctx context.Context, sha string) error
	// SaveForgeReport records a report; false if a later one of its kind, or the same, is known. One of no kind has that of the latest.
	SaveForgeReport(ctx context.Context, r Received) (bool, error)
	// ForgeReports are those about commits of hooks that were not removed, of each kind the latest last.
	ForgeReports(ctx context.Context, commits []string) ([]Received, error)
	SaveForgeCommit(ctx context.Context, application, set int64, sha string) error
	// KeepForgeReports keeps what was reported about commits from being forgotten.
	KeepForgeReports(ctx context.Context, commits []string) error
	// MarkForgeRollouts marks the version sets that are being rolled out, and MarkForgeCommit those of them that come from a commit.
	MarkForgeCommit(ctx context.Context, sha string) error
	MarkForgeRollouts(ctx context.Context) error
	// ForgetForgeReports deletes what has not changed since and is not kept, up to a limit.
	ForgetForgeReports(ctx context.Context, before time.Time, most int) error
	ChecksByRollout(ctx context.Context, organization int64, rollouts []int64) (map[int64][]core.PinnedCheck, error)
	AddCheckReport(ctx context.Context, r core.CheckReport) (core.CheckReport, error)
	// ScheduleReview has a rollout's passages evaluated at an instant. It is idempotent.
	ScheduleReview(ctx context.Context, rollout int64, due time.Time) error
	// ClaimAll is for the receipt that the sender of events waits for.
	ClaimAll(ctx context.Context, all []core.Inbound) (firsts []bool, err error)
}

// Engine runs what publishes statuses.
type Engine interface {
	// Start submits a run; the same again answers the same.
	Start(ctx context.Context, w handoff.Workflow) (ref string, err error)
	// WorkflowByID is a run with its state and what its program reports.
	WorkflowByID(ctx context.Context, organization int64, id string) (handoff.WorkflowRun, error)
}

// Checks evaluates the checks of rollouts.
type Checks interface {
	// RolloutChecks are all checks of rollouts with what they have come to; no key for a rollout without checks.
	RolloutChecks(ctx context.Context, organization int64, rollouts []int64) (map[int64][]core.CheckState, error)
}

// Deps is what UseCases needs.
type Deps struct {
	Store  Store
	Engine Engine
	Checks Checks
	Plans  Plans
	// Pipelines says what environments are deployed from.
	Pipelines Pipelines
	// Secrets gives hooks their secrets.
	Secrets Secrets
	Clock   clock.Clock
	// URL is the address of the console, which statuses link to; empty for no links.
	URL string
	// Wake is called when something is to be done, and Review when passages are to be evaluated; they may be nil.
	Wake, Review func()
}

// UseCases publishes statuses. It is safe for concurrent use.
//
// Errors have the classes of pkg/fault: Invalid with the fields at fault, NotFound, Refused, Denied.
type UseCases struct {
	store     Store
	engine    Engine
	checks    Checks
	plans     Plans
	pipelines Pipelines
	secrets   Secrets
	clock     clock.Clock
	url       string
	wake      func()
	review    func()
	// served is the organization whose turn was last.
	served atomic.Int64
	counts counts
}

// New makes the use cases over their dependencies.
func New(d Deps) *UseCases {
	if d.Wake == nil {
		d.Wake = func() {}
	}
	if d.Review == nil {
		d.Review = func() {}
	}
	return &UseCases{
		store: d.Store, engine: d.Engine, checks: d.Checks, plans: d.Plans, pipelines: d.Pipelines, secrets: d.Secrets,
		clock: d.Clock, url: d.URL, wake: d.Wake, review: d.Review,
	}
}

// counts counts what this process has done, for the metrics.
type counts struct {
	statuses, pulls                attempts
	answers                        attempts
	deployments                    attempts
	pullsIgnored                   atomic.Int64
	rendered, unrendered, unlooked atomic.Int64
	taken, old, ignored            atomic.Int64
}

// attempts counts what became of attempts.
type attempts struct{ sent, retried, failed, limited, away atomic.Int64 }

func (a *attempts) read() map[string]int64 {
	return map[string]int64{
		"sent": a.sent.Load(), "retried": a.retried.Load(), "failed": a.failed.Load(), "limited": a.limited.Load(), "away": a.away.Load(),
	}
}

// Reported returns what became of statuses that forges have reported to this process, by outcome.
func (u *UseCases) Reported() map[string]int64 {
	return map[string]int64{"taken": u.counts.taken.Load(), "old": u.counts.old.Load(), "ignored": u.counts.ignored.Load()}
}

// Counts returns what became of attempts in this process, by outcome.
func (u *UseCases) Counts() map[string]int64 { return u.counts.statuses.read() }

// DeploymentCounts returns what became of attempts to publish deployments in this process, by outcome.
func (u *UseCases) DeploymentCounts() map[string]int64 { return u.counts.deployments.read() }

// of counts the attempts of a kind.
func (c *counts) of(k Published) *attempts {
	if k == PublishedDeployment {
		return &c.deployments
	}
	return &c.statuses
}

// AnswerCounts returns what became of answers in comments in this process, by outcome.
func (u *UseCases) AnswerCounts() map[string]int64 { return u.counts.answers.read() }

// Wake has what is due done now.
func (u *UseCases) Wake() { u.wake() }

// PullCounts returns what became of plans in comments in this process, by outcome.
func (u *UseCases) PullCounts() map[string]int64 {
	all := u.counts.pulls.read()
	all["ignored"] = u.counts.pullsIgnored.Load()
	return all
}

// RenderCounts returns what became of overlays and charts that pull requests change, in this process, by outcome.
func (u *UseCases) RenderCounts() map[string]int64 {
	return map[string]int64{
		"rendered": u.counts.rendered.Load(), "failed": u.counts.unrendered.Load(), "left_out": u.counts.unlooked.Load(),
	}
}
