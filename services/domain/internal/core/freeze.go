package core

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/policy"
)

// A passage also waits for controls that people set from outside of a pipeline: freezes, vetoes of versions, and pins of environments
// (D49). None of them is pinned with a rollout: they stop rollouts under way at their next passage.

// The bounds of a freeze.
const (
	// MaxFreeze is how long a freeze may last, counted from when it starts, or from when its end was chosen last.
	MaxFreeze = 30 * 24 * time.Hour
	// MaxFreezeAhead is how far ahead the start of a freeze may be.
	MaxFreezeAhead = 366 * 24 * time.Hour
	// MaxFreezes is how many freezes an organization may have that are in force or to come. Members whose permission is limited by a grant
	// set none beyond half of them.
	MaxFreezes = 200
	// MaxFreezeScope is how many environments, and how many applications, one freeze may name.
	MaxFreezeScope = 100
	// MaxIncident is how long the name of an incident is, in bytes.
	MaxIncident = 100
)

// Author is who set a control, and what they were called then.
type Author struct {
	Principal
	Name string
}

// AuthorOf is an actor as the author of a control.
func AuthorOf(a Actor) Author { return Author{a.Principal(), a.DisplayName()} }

// Freeze stops the passages within its scope while it is in force.
type Freeze struct {
	ID int64
	// Tiers, EnvironmentIDs and ApplicationIDs are the scope: a passage is within it if every list that is not empty has its own, and if it
	// has the labels. Without any, the scope is the organization.
	Tiers                          []Tier
	EnvironmentIDs, ApplicationIDs []int64
	// EnvironmentLabels and ApplicationLabels are those that the environment and the application of a passage have to have, each as a part
	// of the scope of its own; empty limits nothing.
	EnvironmentLabels, ApplicationLabels map[string]string
	// Rollbacks reports whether it stops rollbacks, too.
	Rollbacks bool
	Reason    string
	// Incident is what the incident is called that it is for; empty for none. It is open while the freeze is in force.
	Incident string
	// StartsAt and EndsAt are when it is in force, and BoundedFrom is where MaxFreeze is counted from.
	StartsAt, EndsAt, BoundedFrom time.Time
	// EndedAt is when it was ended early; nil if it was not.
	EndedAt   *time.Time
	Author    Author
	CreatedAt time.Time
}

// InForce reports whether it stops passages at an instant. One that began when it was made is in force since, whatever the clock says of
// who looks: it had its effect before who started it was answered.
func (f Freeze) InForce(at time.Time) bool {
	begun := !at.Before(f.StartsAt) || !f.StartsAt.After(f.CreatedAt)
	return f.EndedAt == nil && begun && at.Before(f.EndsAt)
}

// Over reports whether it will stop no passage any more.
func (f Freeze) Over(at time.Time) bool { return f.EndedAt != nil || !at.Before(f.EndsAt) }

// ByLabel reports whether its scope asks of labels.
func (f Freeze) ByLabel() bool { return len(f.EnvironmentLabels)+len(f.ApplicationLabels) > 0 }

// LabelWords say which labels of applications and environments the scope asks of.
func (f Freeze) LabelWords() (words []string) {
	if len(f.EnvironmentLabels) > 0 {
		words = append(words, "environments with "+Selector(f.EnvironmentLabels))
	}
	if len(f.ApplicationLabels) > 0 {
		words = append(words, "applications with "+Selector(f.ApplicationLabels))
	}
	return words
}

// AsksOf reports whether the scope includes something with some labels, as far as it asks of the labels of its kind.
func (f Freeze) AsksOf(kind AccessKind, labels map[string]string) bool {
	switch kind {
	case ChangedApplication:
		return HasLabels(labels, f.ApplicationLabels)
	case ChangedEnvironment:
		return HasLabels(labels, f.EnvironmentLabels)
	default:
		return false
	}
}

// Names reports whether an application or an environment may be in the scope, whatever its labels are. The tier is that of an environment.
func (f Freeze) Names(of Detailed, tier Tier) bool {
	if of.Kind == ChangedApplication {
		return len(f.ApplicationIDs) == 0 || slices.Contains(f.ApplicationIDs, of.ID)
	}
	return (len(f.EnvironmentIDs) == 0 || slices.Contains(f.EnvironmentIDs, of.ID)) && (len(f.Tiers) == 0 || slices.Contains(f.Tiers, tier))
}

// Targets are where who starts, extends or ends it has to have the right to: labels leave out none of them, since they may change.
func (f Freeze) Targets(environments map[int64]Environment) (all []Target) {
	applications := f.ApplicationIDs
	if len(applications) == 0 {
		applications = []int64{0}
	}
	for _, application := range applications {
		switch {
		case len(f.EnvironmentIDs) > 0:
			for _, id := range f.EnvironmentIDs {
				all = append(all, environments[id].Target(application))
			}
		case len(f.Tiers) > 0:
			for _, tier := range f.Tiers {
				all = append(all, Target{ApplicationID: application, Tier: tier})
			}
		default:
			all = append(all, Target{ApplicationID: application})
		}
	}
	return all
}

// Name is what people call it.
func (f Freeze) Name() string { return fmt.Sprintf("freeze_%d", f.ID) }

// Veto means that a version, or a version set, is never deployed.
type Veto struct {
	ID int64
	// VersionID or VersionSetID is what it is about; the other one is 0.
	VersionID, VersionSetID int64
	Reason                  string
	Author                  Author
	// LiftedAt is since when it no longer holds; nil while it does.
	LiftedAt  *time.Time
	CreatedAt time.Time
}

// Name is what people call it.
func (v Veto) Name() string { return fmt.Sprintf("veto_%d", v.ID) }

// RefuseVetoed is why a version set is not deployed; nil without a veto.
func RefuseVetoed(set VersionSet, vetoes []Veto) error {
	if len(vetoes) == 0 {
		return nil
	}
	v := vetoes[0]
	what := set.Name + " is"
	if v.VersionID != 0 {
		what = fmt.Sprintf("%s has version_%d, which is", set.Name, v.VersionID)
	}
	return fault.New(fault.Refused, "%s vetoed by %s (%s): %s; lift the veto first", what, v.Author.Name, v.Name(), v.Reason)
}

// Pin means that only people change what runs in an environment.
type Pin struct {
	EnvironmentID int64
	Reason        string
	Since         time.Time
	Author        Author
}

// Automatic reports whether a principal is no person: a pinned environment is not for it to change.
func (t PrincipalType) Automatic() bool { return t != PrincipalUser }

// RefusePinned is why automation does not change an environment.
func RefusePinned(environment string, p Pin) error {
	return fault.New(
		fault.Refused, "environment %q is pinned by %s: %s; only people change what runs there", environment, p.Author.Name, p.Reason,
	)
}

// StopKind is what kind of control stops a passage.
type StopKind string

// The kinds.
const (
	StopFreeze StopKind = "freeze"
	StopVeto   StopKind = "veto"
	StopPin    StopKind = "pin"
	// StopPolicy means that policies deny the passage (D51).
	StopPolicy StopKind = "policy"
)

// Stop is a control that stops a passage.
type Stop struct {
	Kind StopKind
	// ID is the freeze, the veto, or the environment that is pinned.
	ID     int64
	Reason string
	Author Author
	Since  time.Time
	// Until is when it ends by itself; nil where it does not.
	Until *time.Time
	// Policies is what policies decided, and Decision its number; nil and 0 for other kinds. The ID is 0 then.
	Policies *policy.Decision
	Decision int64
}

// Sentence says for people what stops the passage.
func (s Stop) Sentence() string {
	switch s.Kind {
	case StopFreeze:
		return fmt.Sprintf("freeze_%d by %s stops it until %s: %s", s.ID, s.Author.Name, s.Until.UTC().Format(time.RFC3339), s.Reason)
	case StopVeto:
		return fmt.Sprintf("veto_%d by %s stops it: %s", s.ID, s.Author.Name, s.Reason)
	case StopPolicy:
		return s.Policies.Sentence()
	default:
		return fmt.Sprintf("environment_%d is pinned by %s, so automation does not change it: %s", s.ID, s.Author.Name, s.Reason)
	}
}

// Subject is the control: freeze_7, veto_3, or the environment that is pinned.
func (s Stop) Subject() string {
	kind := string(s.Kind)
	if s.Kind == StopPin {
		kind = "environment"
	}
	return fmt.Sprintf("%s_%d", kind, s.ID)
}

// Condition is the stop as a row of the journal has it.
func (s Stop) Condition() Condition {
	return Condition{Kind: ConditionKind(s.Kind), ControlID: s.ID + s.Decision, Until: s.Until, Policies: s.Policies}
}

// PassagePoint is what decides which controls concern a passage.
type PassagePoint struct {
	ApplicationID int64
	// EnvironmentID and Tier are what it enters or is in; 0 and empty for a step after the last environment.
	EnvironmentID int64
	Tier          Tier
	// Rollback reports whether the rollout takes an earlier one back, to what has run in the environment before.
	Rollback bool
	// Automatic reports whether no person has requested the rollout.
	Automatic bool
	// Entrance reports whether it enters the environment: a pin stops nothing that has entered already.
	Entrance bool
	// Bypassed are the freezes that do not stop the rollout.
	Bypassed map[int64]bool
}

// Controls are those that may stop a passage.
type Controls struct {
	Freezes []Freeze
	// Vetoes are those of the rollout's version set and of its versions.
	Vetoes []Veto
	// Pins are by environment.
	Pins map[int64]Pin
	// Details are those of what Labelled answers. While they are nil, every freeze by label counts as if all had its labels.
	Details map[Detailed]Details
}

// Labelled is whose labels decide about passages of applications in environments; none where no freeze asks of labels.
func (c Controls) Labelled(applications, environments []int64) (all []Detailed) {
	if !slices.ContainsFunc(c.Freezes, Freeze.ByLabel) {
		return nil
	}
	for _, id := range Distinct(applications) {
		all = append(all, Detailed{ChangedApplication, id})
	}
	for _, id := range Distinct(environments) {
		if id != 0 {
			all = append(all, Detailed{ChangedEnvironment, id})
		}
	}
	return all
}

// labelled reports whether a passage has the labels that a freeze asks of.
func (c Controls) labelled(f Freeze, p PassagePoint) bool {
	if c.Details == nil {
		return true
	}
	application, environment := Detailed{ChangedApplication, p.ApplicationID}, Detailed{ChangedEnvironment, p.EnvironmentID}
	return (len(f.ApplicationLabels) == 0 || HasLabels(c.Details[application].Labels, f.ApplicationLabels)) &&
		(len(f.EnvironmentLabels) == 0 || p.EnvironmentID != 0 && HasLabels(c.Details[environment].Labels, f.EnvironmentLabels))
}

// covers reports whether a freeze concerns a passage, whatever labels it asks of.
func (f Freeze) covers(p PassagePoint) bool {
	switch {
	case p.Bypassed[f.ID], p.Rollback && !f.Rollbacks:
		return false
	case len(f.Tiers) > 0 && !slices.Contains(f.Tiers, p.Tier):
		return false
	case len(f.EnvironmentIDs) > 0 && !slices.Contains(f.EnvironmentIDs, p.EnvironmentID):
		return false
	default:
		return len(f.ApplicationIDs) == 0 || slices.Contains(f.ApplicationIDs, p.ApplicationID)
	}
}

// Stopping are the controls that stop a passage at an instant.
func (c Controls) Stopping(p PassagePoint, at time.Time) []Stop {
	var all []Stop
	for _, f := range c.Freezes {
		if f.InForce(at) && f.covers(p) && c.labelled(f, p) {
			all = append(all, Stop{Kind: StopFreeze, ID: f.ID, Reason: f.Reason, Author: f.Author, Since: f.StartsAt, Until: &f.EndsAt})
		}
	}
	for _, v := range c.Vetoes {
		all = append(all, Stop{Kind: StopVeto, ID: v.ID, Reason: v.Reason, Author: v.Author, Since: v.CreatedAt})
	}
	if pin, pinned := c.Pins[p.EnvironmentID]; pinned && p.Automatic && p.Entrance {
		all = append(all, Stop{Kind: StopPin, ID: pin.EnvironmentID, Reason: pin.Reason, Author: pin.Author, Since: pin.Since})
	}
	return all
}

// DescribeStops says for people what stops a passage.
func DescribeStops(all []Stop) string {
	parts := make([]string, len(all))
	for i, s := range all {
		parts[i] = s.Sentence()
	}
	return strings.Join(parts, "; ")
}

// FreezeFilter narrows a list of freezes.
type FreezeFilter struct {
	// InForceAt is an instant at which those that are over are left out; the zero value leaves none out.
	InForceAt time.Time
}
