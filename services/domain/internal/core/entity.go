package core

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/provenance"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/planner"
)

// A rollback goes only where it changes something, and only where it was asked to go. The environments of the pipeline that it leaves out
// are skipped together with what the pipeline asks before them: they have no rollout environment, and the journal says why. What decides is
// the record, not the program: a skipped environment is not in its inputs.

// SkipCause is why a rollback does not go to an environment of its pipeline.
type SkipCause string

// The causes.
const (
	// SkipUnchanged means that the version set to go back to is live there, and nothing has been changed since.
	SkipUnchanged SkipCause = "unchanged"
	// SkipExcluded means that the requester of the rollback left the environment out.
	SkipExcluded SkipCause = "excluded"
)

// SkippedEnvironment is an environment of its pipeline that a rollout does not go to.
type SkippedEnvironment struct {
	RolloutID, EnvironmentID int64
	Cause                    SkipCause
}

// BoundEnvironment is an environment and its latest driver binding.
type BoundEnvironment struct {
	Environment
	Binding DriverBinding
}

// Began reports whether it has started, also where only its end was heard of. One that was cancelled before it started has not.
func (d Deployment) Began() bool {
	return d.StartedAt != nil || d.State != DeploymentPending && d.State != DeploymentCancelled
}

// Deleting is archiving: nothing is purged (R51), and nothing in any cluster is touched. What is archived is in no list any
// more, and nothing new is made of it; by its name, its identifier and from its rollouts it is found for ever.

// Archiving is a row of the log of what was archived and restored. It is only ever added to (R39).
type Archiving struct {
	ID int64
	// One of these is 0.
	ApplicationID, EnvironmentID int64
	// Archived is false when it was restored.
	Archived bool
	Principal
	Reason    string
	CreatedAt time.Time
}

// Break-glass passes the approvals of one rollout, those that are open and those that come, for a person who is alone with a production
// that has to be taken back. It is a permission of its own, a person's alone, needs a reason, and is seen: in the journal as an action of
// its own, on the rollout permanently, in the metrics lockstep_break_glass_* and their alert. A pause, an abort and a gate's soak stay what
// they are.

// BrokenGlass records that the approvals of a rollout were passed by break-glass.
type BrokenGlass struct {
	Principal
	Reason string
	At     time.Time
}

// Organization owns everything.
type Organization struct {
	ID        int64
	Name      string
	CreatedAt time.Time
}

// Application is a named group of services that ship together.
type Application struct {
	ID          int64
	Name        string
	Description string
	CreatedAt   time.Time
	// ArchivedAt is since when nothing is rolled out any more; nil while it lives.
	ArchivedAt *time.Time
}

// Details are what people keep about an application, an environment or a service beside its description.
type Details struct {
	// Labels are what chains, policies and notifications select by.
	Labels map[string]string
	// Owner answers for it; it gives no permission.
	Owner string
	// Links are addresses by title.
	Links map[string]string
}

// Detailed is what has details: an application, an environment or a service.
type Detailed struct {
	Kind AccessKind
	ID   int64
}

// Service is one deployable unit of an application.
type Service struct {
	ID            int64
	ApplicationID int64
	// Name is what it was made with: everything goes by it, for ever.
	Name string
	// DisplayName is what people are shown, and may write in its place; the name where there is no other (D57).
	DisplayName string
	Description string
	CreatedAt   time.Time
	// RetiredAt is since when it is in no new version set, and no new rollout deploys it; nil while it is in service.
	RetiredAt *time.Time
}

// ArtifactSource points at where artifacts of a service come from. Ref names the kind of source and its version, Config
// is that kind's (R7).
type ArtifactSource struct {
	ID        int64
	ServiceID int64
	Ref       string
	Config    json.RawMessage
	CreatedAt time.Time
	// DisabledAt is since when it takes no versions; RemovedAt since when it is in no new version set, which is final. Nil for a state that
	// it is not in.
	DisabledAt, RemovedAt *time.Time
	// ReplacedBy is the source that was made in its place; 0 for none.
	ReplacedBy int64
}

// Version is one artifact on a source, identified by its digest.
type Version struct {
	ID               int64
	ArtifactSourceID int64
	Name             string
	Digest           string
	// Reference is how the artifact is fetched: image@digest.
	Reference string
	// CommitMessage is the beginning of the message of a commit; empty for an image, and where it is not known.
	CommitMessage string
	// Change is what a commit changes. It is written with a new version; CommitChanges reads it.
	Change CommitChange
	// PublishedAt is when it was published first, as far as is known; CreatedAt is only when it was heard of.
	PublishedAt time.Time
	CreatedAt   time.Time
}

// CommitChange is what a commit changes.
type CommitChange struct {
	// Since is the commit that was the newest one of its source before it; empty if what it changes is not known.
	Since string
	// Files are those of the source that differ between the two.
	Files []string
	// Messages are the beginnings of the messages of all commits after the one up to the other; none if not all are known.
	Messages []string
}

// IsImage reports whether a version is a container image; a commit is none.
func (v Version) IsImage() bool { return !IsOfGit(v.Reference) }

// IsOfGit reports whether the reference of a version is a commit, or the match key of a source is one of commits.
func IsOfGit(reference string) bool { return strings.HasPrefix(reference, "git:") }

// Origin is what is known of where a version comes from (D52).
type Origin struct {
	VersionID int64
	// Report is what verified evidence states; nil before the first lookup. Since is from when on that has been known.
	Report *provenance.Report
	Since  time.Time
	// LookedAt is when the last lookup succeeded, NextAt when the next one is; nil for none.
	LookedAt, NextAt *time.Time
	// Problem is why the last lookup failed; empty if it succeeded.
	Problem string
}

// Whereabouts is where a version is live.
type Whereabouts struct {
	ApplicationID, EnvironmentID, ServiceID, VersionID int64
	Since                                              time.Time
	// Component is the one that was searched for; zero for a search by digest.
	Component provenance.Component
}

// VersionSet is a fixed set of versions, one for each source of an application. It never changes (E8).
type VersionSet struct {
	ID            int64
	ApplicationID int64
	Name          string
	// EntriesDigest is the same for sets of the same content; an application has each content once (R9).
	EntriesDigest string
	// Curated reports whether a person put it together before its sources had come to it (D57).
	Curated   bool
	CreatedAt time.Time
}

// OlderThan reports whether it was made before another set of the application. A set that a person has put together may have any versions,
// and is neither older nor newer than another one.
func (s VersionSet) OlderThan(other VersionSet) bool {
	return !s.Curated && !other.Curated && s.ID < other.ID
}

// VersionSetEntry is one version in a set, with the source and the service it belongs to.
type VersionSetEntry struct {
	VersionSetID     int64
	ServiceID        int64
	ArtifactSourceID int64
	VersionID        int64
}

// Tier classes environments by what is at stake.
type Tier string

// The tiers.
const (
	TierDevelopment Tier = "development"
	TierQA          Tier = "qa"
	TierStaging     Tier = "staging"
	TierProduction  Tier = "production"
)

// Readiness says whether something may be deployed to (E59).
type Readiness string

// The readinesses. Pending: not looked at yet, or being looked at.
const (
	ReadinessPending Readiness = "pending"
	ReadinessReady   Readiness = "ready"
	ReadinessNot     Readiness = "not_ready"
)

// Environment is a named deployment target.
type Environment struct {
	ID int64
	// Name is what it was made with: gates, pipelines, policies and programs go by it, for ever.
	Name string
	// DisplayName is what people are shown, and may write in its place; the name where there is no other (D57).
	DisplayName string
	Description string
	Tier        Tier
	Readiness   Readiness
	// ReadinessReason says why it is not ready; empty when it is.
	ReadinessReason string
	// OnboardingAttempt counts the onboardings submitted.
	OnboardingAttempt int
	CreatedAt         time.Time
	// ArchivedAt is since when nothing is rolled out there any more; nil while it lives.
	ArchivedAt *time.Time
}

// DriverBinding is one version of an environment's driver and its configuration; append-only (R12).
type DriverBinding struct {
	ID            int64
	EnvironmentID int64
	Version       int
	DriverRef     string
	DriverConfig  json.RawMessage
	// Fleet is which agents the targets are, and in which waves they are deployed; nil for an environment of one cluster (D61).
	Fleet     json.RawMessage
	CreatedAt time.Time
}

// FlowDefinition is one version of an application's pipeline; append-only (R13).
type FlowDefinition struct {
	ID            int64
	ApplicationID int64
	Version       int
	Definition    json.RawMessage
	CreatedAt     time.Time
	// Unchanged reports whether a request to make it found it in force already; only the answer to that request says so.
	Unchanged bool
}

// ApplicationEnvironment is what the driver knows of one application in one environment. Its configuration is not here:
// it is embedded in the flow definition (E51).
type ApplicationEnvironment struct {
	ID              int64
	ApplicationID   int64
	EnvironmentID   int64
	Readiness       Readiness
	ReadinessReason string
	// Discovered is what the driver found and wants back at every deploy; opaque; nil before.
	Discovered json.RawMessage
	// SetupAttempt counts the setups submitted.
	SetupAttempt int
	// SetupWanted is true while a setup waits for its environment to be ready.
	SetupWanted bool
	CreatedAt   time.Time
}

// Rollout promotes a version set through environments. What it pins never changes (R3).
type Rollout struct {
	ID               int64
	ApplicationID    int64
	VersionSetID     int64
	FlowDefinitionID int64
	// WorkflowRef is the handle of the workflow that drives it; empty until it has been handed over.
	WorkflowRef string
	State       RolloutState
	// RollbackOf is the rollout that it takes back; 0 for none.
	RollbackOf int64
	// Plan reports whether it stops at weights, and why; zero for rollouts of earlier releases.
	Plan planner.Decision
	// Inputs are what it was given when it was made, an object of JSON.
	Inputs json.RawMessage
	// Passages reports whether nothing of it advances beyond a passage that was not granted (D46); false for rollouts of earlier releases.
	Passages bool
	// IsRollback, AwaitingApproval, PauseRequested, Aborted, Glass and RolledBackBy are derived (R18, R38); only reads fill them in.
	IsRollback       bool
	AwaitingApproval bool
	PauseRequested   bool
	// Aborted reports whether an abort was requested, and no retry since; false for one that has ended.
	Aborted bool
	// Glass is who has passed its approvals by break-glass; nil for nobody.
	Glass *BrokenGlass
	// RolledBackBy is the newest rollout that takes it back; 0 for none.
	RolledBackBy int64
	CreatedAt    time.Time
	StartedAt    *time.Time
	FinishedAt   *time.Time
}

// ServiceSource is an artifact source with the application and the service that it belongs to.
type ServiceSource struct {
	ID, ApplicationID, ServiceID int64
	// Service is the name of the service.
	Service string
	Ref     string
	Config  json.RawMessage
}

// RolloutEnvironment is a version set landing in one environment within a rollout.
type RolloutEnvironment struct {
	ID            int64
	RolloutID     int64
	EnvironmentID int64
	// Position counts from 1, in the order of promotion.
	Position        int
	DriverBindingID int64
	// DriverDigest pins the bundle to the byte (D7).
	DriverDigest string
	// PreviousVersionSetID is what was live before; 0 when nothing was (R15).
	PreviousVersionSetID int64
	// Weights are those at which the pipeline stops here, rising.
	Weights []Weight
	// SkipsWeights is why the rollout will not stop at them, so that their conditions apply at the entrance; empty if it will.
	SkipsWeights WeightSkip
	// Follows are the environments whose active checks guard its entrance; nil for the one before it.
	Follows []int64
	// NeedsHealth reports whether it is entered only while nothing is known to be unhealthy that the rollout has deployed to those.
	NeedsHealth bool
	State       RolloutState
	StartedAt   *time.Time
	FinishedAt  *time.Time
}

// Deployment actuates one service within a rollout environment.
type Deployment struct {
	ID                   int64
	RolloutEnvironmentID int64
	ServiceID            int64
	State                DeploymentState
	StartedAt            *time.Time
	FinishedAt           *time.Time
}

// Snapshot is what exactly was deployed (E46, D15).
type Snapshot struct {
	DeploymentID   int64
	CommitSHA      string
	ManifestDigest string
	// DriverDigest is that of the bundle that the rollout has pinned; derived on reading.
	DriverDigest string
	Parameters   json.RawMessage
	// Changes are what the commit changed, file by file.
	Changes []FileChange
	// ReportedAt is when its program reported it: the latest attempt is what is deployed.
	CreatedAt, ReportedAt time.Time
}

// DeploymentLink is what a deployment is outside of Lockstep, such as a pull request, as its program has reported it last (D53).
type DeploymentLink struct {
	DeploymentID int64
	// Name is what it is called there. Namespace, URL and Status are empty where there is none.
	Name, Namespace, URL, Status string
}

// DeploymentGate is what the journal of a deployment says of one gate. One of the instants may be missing: the gate
// is ahead of the other, or its word has not come.
type DeploymentGate struct {
	DeploymentID int64
	// GateID is <environment>/<weight>.
	GateID              string
	ReachedAt, PassedAt *time.Time
}

// Driver is a deploy driver that this installation carries, as far as anybody outside it may know it.
type Driver struct {
	// Ref is name@major.
	Ref            string
	Digest         string
	SupportedSteps []string
	// Gates reports whether it stops at the weights of a pipeline.
	Gates bool
	// Origin is where it comes from: built-in, folder or the reference of an OCI artifact.
	Origin string
	// ArtifactDigest is that of the OCI artifact that it was in; empty for any other.
	ArtifactDigest string
	// Previews reports whether it can say beforehand what a rollout would change.
	Previews bool
	// Combines reports whether it can be one of several drivers in a pipeline, and CombinesPreview whether such a pipeline can be previewed.
	Combines, CombinesPreview bool
	// Plans reports whether it can list which kinds of things a rollout would change, and CombinesPlan whether it can in such a pipeline.
	Plans, CombinesPlan bool
	// FindsDrift reports whether its plan, given what was deployed, lists what differs now; Fleets whether it deploys to many clusters (D61).
	FindsDrift, Fleets bool
	// The schemas, for reflection.
	EnvironmentSchema            json.RawMessage
	ApplicationEnvironmentSchema json.RawMessage
}

// DriverOrigin is where drivers of this installation come from.
type DriverOrigin struct {
	// Origin is built-in, folder or the reference of an OCI artifact, oci://registry/repository:tag.
	Origin string
	// Digest is that of the OCI artifact in force; empty for any other, and until one has been pulled.
	Digest string
	// Drivers are the references of the drivers from there.
	Drivers []string
	// CheckedAt is when a replica last heard from the registry that this is the present content; nil for all but artifacts, and until one has.
	CheckedAt *time.Time
	// Problem is why the present content is not in force, with file and line where those are at fault; empty when all is well.
	Problem string
	// Trouble is what kind of problem that is; empty when all is well.
	Trouble DriverTrouble
}

// DriverTrouble is what kind of problem keeps drivers from being in force: it says who can do something about it.
type DriverTrouble string

// The kinds of trouble.
const (
	// TroubleNotPulled: no replica has heard of the artifact yet.
	TroubleNotPulled DriverTrouble = "not_pulled"
	// TroubleUnreachable: the registry does not answer, or not as one.
	TroubleUnreachable DriverTrouble = "unreachable"
	// TroubleDenied: the registry, or the rule about what may be reached, refuses.
	TroubleDenied DriverTrouble = "denied"
	// TroubleNotFound: the registry has nothing under that reference.
	TroubleNotFound DriverTrouble = "not_found"
	// TroubleAltered: the content is not that of its digest.
	TroubleAltered DriverTrouble = "altered"
	// TroubleBroken: it is no driver, or one that is at fault, or has a name that another one has.
	TroubleBroken DriverTrouble = "broken"
)

// DriverArtifact is an OCI artifact with a driver, as it was pulled.
type DriverArtifact struct {
	// Reference is as it is configured, and Digest is what it named.
	Reference, Digest string
	// Drivers are the references of the drivers inside, and Content is the layer that has them; empty where only its name is known.
	Drivers []string
	Content []byte
	// AskedAt is when the registry was asked, by the database's clock: of two answers the later question's counts.
	AskedAt time.Time
}

// SourceInSet is what decides whether a source of an application is in the application's next version set, and with which version.
type SourceInSet struct {
	ServiceID, SourceID int64
	// Disabled and Removed are its state; ReplacedBy is the source that was made in its place, or 0.
	Disabled, Removed bool
	ReplacedBy        int64
	// Newest is the newest of its versions that count; 0 if none does. HasVersions reports whether it has any.
	Newest      int64
	HasVersions bool
}

// MissingReason is why a source is not in a version set.
type MissingReason string

// The reasons.
const (
	// MissingFirst is a source that never had a version.
	MissingFirst MissingReason = "no_version_yet"
	// MissingMatch is a source that has versions, none of which its selection takes or its registry has.
	MissingMatch MissingReason = "no_version_counts"
	// MissingDisabled is a disabled source without a version to keep.
	MissingDisabled MissingReason = "disabled"
)

// MissingSource is a source that the next version set goes without, or waits for.
type MissingSource struct {
	ServiceID, SourceID int64
	Reason              MissingReason
	// Blocks reports whether no version set is made before it has a version, is disabled or is removed.
	Blocks bool
}

// Composition is what the next version set of an application consists of, in the order of sources.
type Composition struct {
	Entries []VersionSetEntry
	Missing []MissingSource
}

// Whole reports whether a version set can be made of it.
func (c Composition) Whole() bool {
	return len(c.Entries) > 0 && !slices.ContainsFunc(c.Missing, func(m MissingSource) bool { return m.Blocks })
}

// Compose is what the next version set of an application consists of (D57): the newest version of every source of the services that are in
// service. A disabled source keeps its last version, and one that replaces another has the last version of that one until it has its own. A
// source that never had a version is awaited for the first set of the application, and is left out of later ones: it was added since. One
// whose versions do not count any longer is awaited, since a service that was deployed does not leave the sets by itself.
func Compose(sources []SourceInSet, hasSets bool) Composition {
	var c Composition
	for _, s := range sources {
		if s.Removed {
			continue // where another one replaces it, that one asks it
		}
		if from := withVersion(sources, s); from.Newest != 0 {
			c.Entries = append(c.Entries, VersionSetEntry{ServiceID: s.ServiceID, ArtifactSourceID: from.SourceID, VersionID: from.Newest})
			continue
		}
		missing := MissingSource{ServiceID: s.ServiceID, SourceID: s.SourceID}
		switch {
		case s.Disabled:
			missing.Reason = MissingDisabled
		case s.HasVersions:
			missing.Reason, missing.Blocks = MissingMatch, true
		default:
			missing.Reason, missing.Blocks = MissingFirst, !hasSets
		}
		c.Missing = append(c.Missing, missing)
	}
	return c
}

// withVersion is the source itself if it has a version, or the latest of those before it that has one.
func withVersion(sources []SourceInSet, s SourceInSet) SourceInSet {
	for s.Newest == 0 {
		before := slices.IndexFunc(sources, func(p SourceInSet) bool { return p.Removed && p.ReplacedBy == s.SourceID })
		if before < 0 {
			break
		}
		s = sources[before] // a source is replaced by one that was made after it, so that this ends
	}
	return s
}

// Curated is that a person, or who acts for one, has put a version set together. A set of the same versions is the same set, and may have
// been put together several times.
type Curated struct {
	ID            int64
	ApplicationID int64
	VersionSetID  int64
	// FromSetID is the set that it was begun with; 0 for none.
	FromSetID int64
	// Name is what the set is called beside its own name; empty for nothing.
	Name, Reason string
	Principal
	PrincipalName string
	CreatedAt     time.Time
}

// EntriesDigest identifies the content of a version set: SHA-256 over its (source, version) pairs in the order of sources.
func EntriesDigest(entries []VersionSetEntry) string {
	sorted := slices.Clone(entries)
	slices.SortFunc(sorted, func(a, b VersionSetEntry) int { return int(a.ArtifactSourceID - b.ArtifactSourceID) })
	h := sha256.New()
	for _, e := range sorted {
		// Digests are stored and compared for ever: another form would make every set a new one (R9).
		fmt.Fprintf(h, "%d:%d\n", e.ArtifactSourceID, e.VersionID)
	}
	return "sha256:" + hex.EncodeToString(h.Sum(nil))
}
