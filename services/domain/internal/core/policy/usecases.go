// Package policy holds the use cases of policies: putting versions of policy sets, trying them out on recorded decisions, and deciding
// about rollouts by those that concern them (D51).
//
// What a policy is, and how it is evaluated, is in pkg/policy. When a decision is taken is for package rollout.
package policy

import (
	"context"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/policy"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
)

// Store keeps what this package needs. Its errors have the classes of pkg/fault.
type Store interface {
	core.Transactions[Tx]
	Reads
	// OrganizationsWithPolicySets are those behind one, in their order, at most so many.
	OrganizationsWithPolicySets(ctx context.Context, behind int64, most int) ([]int64, error)
	// OrganizationsStoppedBy are those in which passages are stopped by a kind of control.
	OrganizationsStoppedBy(ctx context.Context, kind core.StopKind) ([]int64, error)
	// PoliciesReviewed is the digest of the sets of the installation by which everything was evaluated again last; empty before the first
	// time.
	PoliciesReviewed(ctx context.Context) (string, error)
	SavePoliciesReviewed(ctx context.Context, digest string) error
}

// Reads are what is looked up, also outside of transactions of changes.
type Reads interface {
	CallReads
	// PolicySets are all of the organization in their latest versions, by name.
	PolicySets(ctx context.Context, organization int64) ([]core.PolicySet, error)
	// PolicySetVersions are the versions of one set, the latest first; at most 100, and none for a name that is not taken.
	PolicySetVersions(ctx context.Context, organization int64, name string) ([]core.PolicySet, error)
	// PolicyNames are what policies of the organization may name.
	PolicyNames(ctx context.Context, organization int64) (Names, error)
	// PolicyDecisionsByID has no key for one that the organization does not have.
	PolicyDecisionsByID(ctx context.Context, organization int64, ids []int64) (map[int64]core.PolicyDecision, error)
	// PolicyDecisionsByRollout are the latest of each rollout first, at most 100.
	PolicyDecisionsByRollout(ctx context.Context, organization int64, rollouts []int64) (map[int64][]core.PolicyDecision, error)
	// ControlDecisions are the latest about changes of controls first, at most 100.
	ControlDecisions(ctx context.Context, organization int64) ([]core.PolicyDecision, error)
	// PolicyDecisionsSince is a page of them, the latest first: at most 200 that come after a place in this order.
	PolicyDecisionsSince(ctx context.Context, organization int64, since time.Time, after SincePlace) ([]core.PolicyDecision, error)
}

// Names are what policies of an organization may name.
type Names struct {
	Groups []string
	// Members are the kinds of all that are not removed, by number.
	Members map[int64]core.PrincipalType
	// Applications and Environments are by number, without archived ones, and Labels those of the applications.
	Applications, Environments map[int64]string
	Labels                     map[int64]map[string]string
	// Agents are those that are not revoked, Services those in service of any application, and Drivers those that are installed, as
	// name@major; nil where that is not known.
	Agents, Services, Drivers []string
}

// Tx is what a use case may do in its transaction.
type Tx interface {
	core.ChangeTx
	core.TargetReads
	PolicySets(ctx context.Context, organization int64) ([]core.PolicySet, error)
	PolicyNames(ctx context.Context, organization int64) (Names, error)
	// LockPolicySet keeps others from changing a set until the transaction ends; a no-op for a new one.
	LockPolicySet(ctx context.Context, name string) error
	// AddPolicySet adds the first version of a set. Conflict if the name is taken meanwhile.
	AddPolicySet(ctx context.Context, s core.PolicySet) (core.PolicySet, error)
	// AddPolicyVersion adds the next version of a set.
	AddPolicyVersion(ctx context.Context, s core.PolicySet) error
	CallTx
	// AnnouncePolicySet publishes a version of a set for the engine, with the text that is about calls.
	AnnouncePolicySet(ctx context.Context, s core.PolicySet) error
	// RolloutsByID has no key for one that the organization does not have.
	RolloutsByID(ctx context.Context, organization int64, ids []int64) (map[int64]core.Rollout, error)
	// ReviewStopped has the passages evaluated again that a control has stopped.
	ReviewStopped(ctx context.Context, kind core.StopKind, control int64, at time.Time) error
}

// UseCases puts policies and tries them out. It is safe for concurrent use.
type UseCases struct {
	store  Store
	engine *Engine
	clock  clock.Clock
	wake   func()
	// installation are the sets that the operator has given.
	installation []core.PolicySet
	// drivers are those that are installed; nil where that is not known.
	drivers func() []string
}

// Engine decides by stored policies.
type Engine = core.PolicyEngine

// New makes the use cases. Wake is called when something is to be evaluated now.
func New(store Store, engine *Engine, c clock.Clock, wake func()) *UseCases {
	return &UseCases{store: store, engine: engine, clock: c, wake: wake}
}

// With makes the sets known that the operator has given, before anything else is called.
func (u *UseCases) With(installation []core.PolicySet) *UseCases {
	u.installation = installation
	return u
}

// WithDrivers makes known which drivers are installed, as name@major, before anything else is called.
func (u *UseCases) WithDrivers(installed func() []string) *UseCases {
	u.drivers = installed
	return u
}

// InstallationPolicies are the sets that the operator has given.
func (u *UseCases) InstallationPolicies() []core.PolicySet { return u.installation }

// NewPolicySet asks for a version of a policy set.
type NewPolicySet struct {
	Name string
	// ApplicationID, EnvironmentID or Labels is the scope of a new set, without any the organization. The scope of a set never changes.
	ApplicationID, EnvironmentID int64
	Labels                       map[string]string
	// Text are the policies; empty for those of the latest version, to change the mode or the time zone alone.
	Text string
	// Mode is that of the latest version if it is empty, and PolicyDryRun for a new set.
	Mode core.PolicyMode
	// TimeZone is that of the latest version if it is empty, and UTC for a new set.
	TimeZone string
	Reason   string
}

// nameForm is the form of the name of a set.
var nameForm = regexp.MustCompile(`^[a-z0-9][a-z0-9-]{0,62}$`)

func (n NewPolicySet) check() error {
	var found []fault.Field
	wrong := func(field, format string, args ...any) {
		found = append(found, fault.Field{Name: field, Problem: fmt.Sprintf(format, args...)})
	}
	if !nameForm.MatchString(n.Name) {
		wrong("/name", "found %.100q; expected 1 to 63 lower-case letters, digits and hyphens", n.Name)
	}
	if n.ApplicationID != 0 && n.EnvironmentID != 0 {
		wrong("/environment", "found an application as well; expected one of them, or none for the organization")
	}
	if n.Labels != nil && (n.ApplicationID != 0 || n.EnvironmentID != 0 || len(n.Labels) == 0) {
		wrong("/applicationLabels", "found %d labels, or another scope as well; expected labels, an application, an environment, or none of them", len(n.Labels))
	}
	found = append(found, core.CheckLabels("/applicationLabels", n.Labels)...)
	switch n.Mode {
	case "", core.PolicyEnforced, core.PolicyDryRun, core.PolicyOff:
	default:
		wrong("/mode", "found %.100q; expected enforce, dry_run or off", string(n.Mode))
	}
	if _, err := time.LoadLocation(n.TimeZone); err != nil || len(n.TimeZone) > 100 || n.TimeZone == "Local" {
		wrong("/timeZone", "found %.100q; expected a time zone such as Europe/Berlin", n.TimeZone)
	}
	if strings.TrimSpace(n.Reason) == "" {
		wrong("/reason", "found none; expected why: it is kept with the version")
	}
	if len(n.Reason) > core.MaxReason {
		wrong("/reason", "found %d bytes; expected at most %d", len(n.Reason), core.MaxReason)
	}
	if len(found) > 0 {
		return fault.InvalidFields(found...)
	}
	return nil
}

// PutPolicySet adds a version of a policy set, and the set if it is new. Rollouts under way keep those that they were created with, and the
// new version counts for them as well. What policies have stopped is evaluated again at once.
func (u *UseCases) PutPolicySet(ctx context.Context, a core.Actor, n NewPolicySet) (core.PolicySet, error) {
	if err := n.check(); err != nil {
		return core.PolicySet{}, err
	}
	a = a.Proposing(n)
	var made core.PolicySet
	err := core.Within(ctx, u.store, a, core.ActionPutPolicySet, func(ctx context.Context, tx Tx) error {
		var err error
		made, err = u.put(ctx, tx, a, n)
		return err
	})
	u.wake()
	return made, err
}

func (u *UseCases) put(ctx context.Context, tx Tx, a core.Actor, n NewPolicySet) (made core.PolicySet, err error) {
	if err := tx.LockPolicySet(ctx, n.Name); err != nil {
		return made, err
	}
	all, err := tx.PolicySets(ctx, a.Organization)
	if err != nil {
		return made, err
	}
	names, err := tx.PolicyNames(ctx, a.Organization)
	if err != nil {
		return made, err
	}
	at := slices.IndexFunc(all, func(s core.PolicySet) bool { return s.Name == n.Name })
	made = core.PolicySet{
		Name: n.Name, ApplicationID: n.ApplicationID, EnvironmentID: n.EnvironmentID, Labels: n.Labels, Mode: core.PolicyDryRun,
		TimeZone: "UTC",
	}
	var before any
	var earlier core.PolicySet
	if at >= 0 {
		made, earlier, before = all[at], all[at], state(all[at])
	}
	if err := refuse(all, made, n, at < 0); err != nil {
		return made, err
	}
	made.Version++
	made.Reason, made.Author, made.CreatedAt = n.Reason, core.AuthorOf(a), u.clock.Now()
	override(&made.Text, n.Text)
	override(&made.TimeZone, n.TimeZone)
	if n.Mode != "" {
		made.Mode = n.Mode
	}
	change, err := u.scope(ctx, tx, a, made, names)
	if err != nil {
		return made, err
	}
	if made.Mode != core.PolicyOff { // one that names what was archived since can always be switched off
		if err := u.valid(made.Text, names); err != nil {
			return made, err
		}
	}
	if at < 0 {
		if made, err = tx.AddPolicySet(ctx, made); fault.Is(err, fault.Conflict) {
			return made, fault.Because(err, fault.Refused, "a policy set %q was made at the same time; read it, and put it again", n.Name)
		}
	}
	if err == nil {
		err = tx.AddPolicyVersion(ctx, made)
	}
	if err == nil {
		err = u.announce(ctx, tx, earlier, made)
	}
	if err == nil {
		err = tx.ReviewStopped(ctx, core.StopPolicy, 0, made.CreatedAt)
	}
	if err != nil {
		return made, err
	}
	change.Subject = core.AccessSubject{Kind: core.ChangedPolicySet, ID: made.ID, Name: made.Name}
	return made, core.Record(ctx, tx, a, change, before, state(made))
}

func override(old *string, by string) {
	if by != "" {
		*old = by
	}
}

// refuse is why the present sets do not allow a version.
func refuse(all []core.PolicySet, present core.PolicySet, n NewPolicySet, isNew bool) error {
	moved := n.ApplicationID != 0 && n.ApplicationID != present.ApplicationID ||
		n.EnvironmentID != 0 && n.EnvironmentID != present.EnvironmentID || n.Labels != nil && !maps.Equal(n.Labels, present.Labels)
	switch {
	case moved:
		return fault.New(fault.Refused, "the policy set %q has another scope, which never changes; choose another name", n.Name)
	case isNew && len(all) >= core.MaxPolicySets:
		return fault.New(fault.Refused, "found %d policy sets; expected at most %d in an organization", len(all), core.MaxPolicySets)
	case isNew && n.Text == "":
		return fault.InvalidFields(fault.Field{Name: "/text", Problem: "found none; expected the policies of a new set"})
	}
	return nil
}

// scope checks that the actor may configure wherever the set counts, and begins the row of the journal of changes.
func (u *UseCases) scope(ctx context.Context, tx Tx, a core.Actor, s core.PolicySet, names Names) (core.Change, error) {
	change := core.Change{
		Action: core.ActionPutPolicySet, ApplicationID: s.ApplicationID, EnvironmentID: s.EnvironmentID, Reason: s.Reason,
		Detail: fmt.Sprintf("version %d, %s", s.Version, strings.ReplaceAll(string(s.Mode), "_", " ")),
	}
	switch {
	case s.ApplicationID != 0:
		// A set of an application that was archived since can be switched off, and nothing else.
		if _, exists := names.Applications[s.ApplicationID]; !exists && (s.Version == 1 || s.Mode != core.PolicyOff) {
			return change, fault.New(fault.NotFound, "application %d does not exist", s.ApplicationID)
		}
		targets, err := core.ApplicationTargets(ctx, tx, a.Organization, s.ApplicationID)
		if err != nil {
			return change, err
		}
		return change, a.MayIn(core.ActionPutPolicySet, targets...)
	case s.EnvironmentID != 0:
		environments, err := tx.EnvironmentsByID(ctx, a.Organization, []int64{s.EnvironmentID})
		if err != nil {
			return change, err
		}
		e, exists := environments[s.EnvironmentID]
		if !exists {
			return change, fault.New(fault.NotFound, "environment %d does not exist", s.EnvironmentID)
		}
		return change, a.MayIn(core.ActionPutPolicySet, e.Target(0))
	}
	if err := a.MayIn(core.ActionPutPolicySet); err != nil {
		return change, err
	}
	controlled, err := tx.ControlledEnvironments(ctx)
	for id := range controlled { // the organization's policies concern every environment
		change.Environments = append(change.Environments, id)
	}
	slices.Sort(change.Environments)
	return change, err
}

// valid is what is wrong with a text, as fields of the request.
func (u *UseCases) valid(text string, names Names) error {
	problems, _ := u.problems(text, names)
	fields := make([]fault.Field, len(problems))
	for i, p := range problems {
		fields[i] = fault.Field{Name: "/text", Problem: p.String()}
	}
	if len(fields) > 0 {
		return fault.InvalidFields(fields...)
	}
	return nil
}

// problems are what is wrong with a text, and what its author may not have meant.
func (u *UseCases) problems(text string, names Names) (problems, warnings []policy.Problem) {
	read := u.engine.Read(text)
	if len(read.Problems) > 0 {
		return read.Problems, nil
	}
	names = u.installed(names)
	for _, r := range read.Document.References() {
		if doubt := names.doubt(r); doubt != "" {
			warnings = append(warnings, policy.Problem{Line: r.Line, Column: r.Column, Policy: r.Policy, Message: doubt})
		}
		known := map[policy.ReferenceKind]bool{
			policy.ReferenceGroup:       slices.Contains(names.Groups, r.Name),
			policy.ReferenceApplication: contains(names.Applications, r.Name),
			policy.ReferenceEnvironment: contains(names.Environments, r.Name),
		}
		if exists, named := known[r.Kind]; named && !exists {
			problems = append(problems, policy.Problem{
				Line: r.Line, Column: r.Column, Policy: r.Policy,
				Message: fmt.Sprintf("found the %s %q, which the organization does not have", strings.ToLower(string(r.Kind)), r.Name),
			})
		}
	}
	for _, action := range read.Document.Unpermitted() {
		warnings = append(warnings, policy.Problem{Message: fmt.Sprintf(
			"no policy of the set permits %s: unless another set of the same scope does, it is denied", action,
		)})
	}
	return problems, warnings
}

// doubt is why what a policy names may not be what its author meant, although it is stored: Functions come with workers, and members,
// agents, drivers and services come and go while policies name them. It is empty for what the organization has.
func (n Names) doubt(r policy.Reference) string {
	known, named := map[policy.ReferenceKind][]string{
		policy.ReferenceAgent: n.Agents, policy.ReferenceService: n.Services, policy.ReferenceDriver: n.Drivers,
	}[r.Kind]
	switch {
	case !named:
	case slices.Contains(known, r.Name) || r.Kind == policy.ReferenceDriver && known == nil:
		return ""
	case r.Kind == policy.ReferenceDriver:
		return fmt.Sprintf("no driver %q is installed; expected one of %s", r.Name, strings.Join(known, ", "))
	default:
		return fmt.Sprintf("the organization has no %s %q", strings.ToLower(string(r.Kind)), r.Name)
	}
	kind := map[policy.ReferenceKind]core.PrincipalType{
		policy.ReferenceUser: core.PrincipalUser, policy.ReferenceMachine: core.PrincipalAgent,
	}[r.Kind]
	switch number, err := strconv.ParseInt(r.Name, 10, 64); {
	case r.Kind == policy.ReferenceFunction && !slices.Contains(policy.Functions(), r.Name):
		return fmt.Sprintf("the engine has no Function %q; unless a worker of yours has it, nothing calls it", r.Name)
	case kind == "":
		return ""
	case err != nil || policy.MemberID(number) != r.Name:
		return fmt.Sprintf("found %s %q; expected the number of a member, as in %s::\"12\": it is nobody", r.Kind, r.Name, r.Kind)
	case n.Members[number] == "":
		return fmt.Sprintf("the organization has no member %s: %s %q is nobody", r.Name, r.Kind, r.Name)
	case n.Members[number] != kind:
		return fmt.Sprintf("member %s is no %s: %s %q is nobody", r.Name, r.Kind, r.Kind, r.Name)
	}
	return ""
}

func contains(names map[int64]string, name string) bool {
	for _, one := range names {
		if one == name {
			return true
		}
	}
	return false
}

// Checked is what is wrong with the text of a policy set.
type Checked struct {
	// Problems keep it from being stored; Warnings do not.
	Problems, Warnings []policy.Problem
}

// CheckPolicies validates a text as PutPolicySet would, and stores nothing.
func (u *UseCases) CheckPolicies(ctx context.Context, a core.Actor, text string) (Checked, error) {
	names, err := u.store.PolicyNames(ctx, a.Organization)
	if err != nil {
		return Checked{}, err
	}
	var c Checked
	c.Problems, c.Warnings = u.problems(text, names)
	return c, nil
}

// PolicyNames are what policies of the organization may name.
func (u *UseCases) PolicyNames(ctx context.Context, a core.Actor) (Names, error) {
	names, err := u.store.PolicyNames(ctx, a.Organization)
	return u.installed(names), err
}

// installed are the names with those of the drivers, which are not stored.
func (u *UseCases) installed(names Names) Names {
	if u.drivers != nil {
		names.Drivers = u.drivers()
	}
	return names
}

// PolicySets are all of the organization in their latest versions, by name.
func (u *UseCases) PolicySets(ctx context.Context, a core.Actor) ([]core.PolicySet, error) {
	return u.store.PolicySets(ctx, a.Organization)
}

// PolicySetVersions are the versions of one set, the latest first.
func (u *UseCases) PolicySetVersions(ctx context.Context, a core.Actor, name string) ([]core.PolicySet, error) {
	return u.store.PolicySetVersions(ctx, a.Organization, name)
}

// PolicySetsByID are sets in their latest versions.
func (u *UseCases) PolicySetsByID(ctx context.Context, organization int64, ids []int64) (map[int64]core.PolicySet, error) {
	all, err := u.store.PolicySets(ctx, organization)
	found := map[int64]core.PolicySet{}
	for _, s := range all { // there are few
		if slices.Contains(ids, s.ID) {
			found[s.ID] = s
		}
	}
	return found, err
}

// PolicyDecisionsByID are decisions with what they were asked.
func (u *UseCases) PolicyDecisionsByID(ctx context.Context, organization int64, ids []int64) (map[int64]core.PolicyDecision, error) {
	return u.store.PolicyDecisionsByID(ctx, organization, ids)
}

// ControlDecisions are the latest about changes of controls first, at most 100.
func (u *UseCases) ControlDecisions(ctx context.Context, a core.Actor) ([]core.PolicyDecision, error) {
	return u.store.ControlDecisions(ctx, a.Organization)
}

// PolicyDecisionsByRollout are the latest of each rollout first, at most 100.
func (u *UseCases) PolicyDecisionsByRollout(
	ctx context.Context, organization int64, rollouts []int64,
) (map[int64][]core.PolicyDecision, error) {
	return u.store.PolicyDecisionsByRollout(ctx, organization, rollouts)
}

// state is what the journal of changes keeps of a version.
func state(s core.PolicySet) map[string]any {
	return map[string]any{"version": s.Version, "mode": s.Mode, "time_zone": s.TimeZone, "text": s.Text}
}
