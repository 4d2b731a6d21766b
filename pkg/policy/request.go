package policy

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/cedar-policy/cedar-go"
	"github.com/cedar-policy/cedar-go/types"

	"github.com/lockstep-cd/lockstep/pkg/provenance"
)

// PrincipalKind is who requested a rollout.
type PrincipalKind string

// The kinds, as policies name them.
const (
	User    PrincipalKind = "User"
	Machine PrincipalKind = "Machine"
	System  PrincipalKind = "System"
)

// Principal is who requested the rollout.
type Principal struct {
	Kind PrincipalKind `json:"kind"`
	// ID is the number of a member, or policy, schedule or system.
	ID   string `json:"id"`
	Name string `json:"name,omitempty"`
	// Groups are the names of those it belongs to.
	Groups []string `json:"groups,omitempty"`
}

// Environment is one, by its name.
type Environment struct {
	Name string `json:"name"`
	Tier string `json:"tier"`
	// Labels are by key.
	Labels map[string]string `json:"labels,omitempty"`
	// Driver is that of its present configuration, name@major; empty where it is not known. Agents are those that the configuration names.
	Driver string  `json:"driver,omitempty"`
	Agents []Agent `json:"agents,omitempty"`
}

// Agent is one, by its name.
type Agent struct {
	Name   string            `json:"name"`
	Labels map[string]string `json:"labels,omitempty"`
}

// Rollout is one that exists.
type Rollout struct {
	ID         int64 `json:"id"`
	Rollback   bool  `json:"rollback,omitempty"`
	Automatic  bool  `json:"automatic,omitempty"`
	MinutesOld int   `json:"minutes_old"`
}

// Change is what an environment would get that differs from what is live there.
type Change struct {
	Services []string `json:"services,omitempty"`
	// First reports whether nothing is live there yet.
	First bool `json:"first,omitempty"`
	// Files and Lines are how many files change, and how many lines are added or removed; nil where that is not known.
	Files *int `json:"files,omitempty"`
	Lines *int `json:"lines,omitempty"`
}

// VersionSet is what would be deployed.
type VersionSet struct {
	Name         string   `json:"name"`
	Versions     []string `json:"versions,omitempty"`
	Services     []string `json:"services,omitempty"`
	Repositories []string `json:"repositories,omitempty"`
	// Artifacts are the digests of its versions.
	Artifacts  []string `json:"artifacts,omitempty"`
	MinutesOld int      `json:"minutes_old"`
}

// Previous is the environment before the one that is entered.
type Previous struct {
	Environment Environment `json:"environment"`
	MinutesLive int         `json:"minutes_live"`
	Degraded    bool        `json:"degraded"`
	// Error is the reason of the last failure there; empty for none.
	Error string `json:"error,omitempty"`
}

// Approvals are those that a passage has so far.
type Approvals struct {
	People int      `json:"people"`
	Groups []string `json:"groups,omitempty"`
}

// Request is what a decision is about, with everything that policies may ask of. It is stored with decisions, so fields are only added.
type Request struct {
	Action      Action    `json:"action"`
	Principal   Principal `json:"principal"`
	Application string    `json:"application"`
	// Labels and Owner are those of the application.
	Labels map[string]string `json:"labels,omitempty"`
	Owner  string            `json:"owner,omitempty"`
	// Rollout is the one that the request is about; nil while it is only planned.
	Rollout *Rollout `json:"rollout,omitempty"`
	// Passed are the environments in which any rollout has completed the version set.
	Passed []Environment `json:"passed,omitempty"`
	// Change is what the environment would get; nil where it is not known.
	Change *Change `json:"change,omitempty"`
	// Environment is what would be entered, or is being passed through; only for EnterEnvironment and PassGate.
	Environment *Environment `json:"environment,omitempty"`
	// Environments are those of the rollout; only for CreateRollout and Rollback.
	Environments []Environment `json:"environments,omitempty"`
	Gate         string        `json:"gate,omitempty"`
	Weight       int           `json:"weight,omitempty"`
	Rollback     bool          `json:"rollback,omitempty"`
	Automatic    bool          `json:"automatic,omitempty"`
	VersionSet   VersionSet    `json:"version_set"`
	// Strategy is quick or pipeline; empty for rollouts that were not planned.
	Strategy string `json:"strategy,omitempty"`
	// Inputs are what the rollout was given when it was created, an object of JSON; empty for none.
	Inputs json.RawMessage `json:"inputs,omitempty"`
	// Facts is what is known of where the images come from.
	Facts     provenance.Facts `json:"facts,omitzero"`
	Completed []Environment    `json:"completed,omitempty"`
	Previous  *Previous        `json:"previous,omitempty"`
	// Incidents are the names of those that are open for the application in the environment, or in one of those of a rollout as a whole.
	Incidents []string `json:"incidents,omitempty"`
	// RolloutsLastDay counts those of the application.
	RolloutsLastDay int       `json:"rollouts_last_day"`
	Approvals       Approvals `json:"approvals"`
	// Degraded reports whether a service is degraded that the rollout has deployed; only for CompleteRollout.
	Degraded bool `json:"degraded,omitempty"`
	// Freezes are the names of those that are bypassed, and OwnRollout whether the principal has requested the rollout; only for BypassFreeze.
	Freezes    []string `json:"freezes,omitempty"`
	OwnRollout bool     `json:"own_rollout,omitempty"`
	// Reason is the one that was given; only for BypassFreeze and ChangeControl.
	Reason string `json:"reason,omitempty"`
	// Control is what is changed; only for ChangeControl.
	Control *Control  `json:"control,omitempty"`
	At      time.Time `json:"at"`
	// Given are the required approvals (Ruling.Approval) that have been given.
	Given []string `json:"given,omitempty"`
}

func actionUID(a Action) types.EntityUID { return types.NewEntityUID("Action", types.String(a)) }

// world is a request as Cedar evaluates it.
type world struct {
	entities types.EntityMap
	// own is an entity beside them, which this request alone has.
	own     types.Entity
	base    cedar.Request
	context cedar.RecordMap
	at      time.Time
	zones   map[string]cedar.Request
	// calls means that the entities are those of the schema of calls, which has fewer attributes.
	calls bool
	// detailed are the environments whose details are known.
	detailed map[types.EntityUID]bool
}

// Get implements types.EntityGetter.
func (w *world) Get(uid types.EntityUID) (types.Entity, bool) {
	if uid == w.own.UID {
		return w.own, true
	}
	e, found := w.entities[uid]
	return e, found
}

// world makes the entities and the context of a request. It refuses one that is too large or not of the schema.
func (r Request) world() (*world, error) {
	encoded, err := json.Marshal(r)
	if err != nil {
		return nil, fmt.Errorf("encode the request: %w", err)
	}
	if len(encoded) > MaxRequest {
		return nil, fmt.Errorf("found a request of %d bytes; expected at most %d", len(encoded), MaxRequest)
	}
	w := &world{detailed: map[types.EntityUID]bool{}, entities: types.EntityMap{}, at: r.At, zones: map[string]cedar.Request{}}
	if w.base.Principal, err = w.principal(r.Principal); err != nil {
		return nil, err
	}
	application := w.application(r)
	w.base.Action = actionUID(r.Action)
	w.context = cedar.RecordMap{
		"automatic": types.Boolean(r.Automatic), "rolloutsLastDay": types.Long(r.RolloutsLastDay),
		"versionSet": cedar.NewRecord(cedar.RecordMap{
			"name": types.String(r.VersionSet.Name), "versions": texts(r.VersionSet.Versions), "services": texts(r.VersionSet.Services),
			"repositories": texts(r.VersionSet.Repositories), "artifacts": w.versions(r.VersionSet.Artifacts),
			"minutesOld": types.Long(r.VersionSet.MinutesOld),
		}),
		"facts": facts(r.Facts, r.At), "incidents": texts(r.Incidents),
	}
	// Every input is short enough for arguments to leave none out (pkg/flow).
	inputs, err := argumentsOf(r.Inputs)
	if err != nil {
		return nil, fmt.Errorf("inputs: %w", err)
	}
	if len(inputs.omitted) > 0 {
		return nil, fmt.Errorf("found inputs that are longer than policies compare: %v", inputs.omitted)
	}
	w.context["inputs"] = texts(inputs.all)
	if r.Strategy != "" {
		w.context["strategy"] = types.String(r.Strategy)
	}
	switch r.Action {
	case CreateRollout, Rollback:
		w.base.Resource = application
		w.context["environments"] = w.environments(r.Environments)
		w.context["passed"] = w.environments(r.Passed)
		return w, nil
	case CompleteRollout, BypassFreeze, ChangeControl:
		return w, w.control(r)
	case EnterEnvironment, PassGate:
	default:
		return nil, fmt.Errorf("found the action %.80q; expected one of %v", r.Action, Actions())
	}
	if r.Environment == nil {
		return nil, fmt.Errorf("found no environment; expected the one of %s", r.Action)
	}
	w.base.Resource = w.environment(*r.Environment)
	w.context["application"] = application
	w.context["gate"] = types.String(r.Gate)
	w.context["weight"] = types.Long(r.Weight)
	w.context["rollback"] = types.Boolean(r.Rollback)
	w.context["completed"] = w.environments(r.Completed)
	w.context["passed"] = w.environments(r.Passed)
	w.rollout(r)
	if c := r.Change; c != nil {
		change := cedar.RecordMap{"services": texts(c.Services), "count": types.Long(len(c.Services)), "first": types.Boolean(c.First)}
		if c.Files != nil {
			change["files"] = types.Long(*c.Files)
		}
		if c.Lines != nil {
			change["lines"] = types.Long(*c.Lines)
		}
		w.context["change"] = cedar.NewRecord(change)
	}
	w.context["approvals"] = cedar.NewRecord(cedar.RecordMap{"people": types.Long(r.Approvals.People), "groups": texts(r.Approvals.Groups)})
	if p := r.Previous; p != nil {
		previous := cedar.RecordMap{
			"environment": w.environment(p.Environment), "minutesLive": types.Long(p.MinutesLive), "degraded": types.Boolean(p.Degraded),
		}
		if p.Error != "" {
			previous["error"] = types.String(p.Error)
		}
		w.context["previous"] = cedar.NewRecord(previous)
	}
	return w, nil
}

// facts is what is known; what is not is absent.
func facts(f provenance.Facts, at time.Time) cedar.Record {
	known := cedar.RecordMap{}
	for name, list := range map[cedar.String][]string{
		"signedBy": f.SignedBy, "builders": f.Builders, "repositories": f.Repositories, "revisions": f.Revisions, "sbomFormats": f.SBOMFormats,
	} {
		if len(list) > 0 {
			known[name] = texts(list)
		}
	}
	if f.BuildLevel > 0 {
		known["buildLevel"] = types.Long(f.BuildLevel)
	}
	if f.Components != nil {
		known["components"] = types.Long(*f.Components)
	}
	if f.Scanned {
		known["critical"], known["high"] = texts(f.Critical), texts(f.High)
	}
	if f.ScannedAt != nil {
		known["hoursSinceScan"] = types.Long(at.Sub(*f.ScannedAt) / time.Hour)
	}
	return cedar.NewRecord(known)
}

func (w *world) entity(kind types.EntityType, id string, attributes cedar.RecordMap, parents ...types.EntityUID) types.EntityUID {
	uid := types.NewEntityUID(kind, types.String(id))
	w.entities[uid] = types.Entity{UID: uid, Parents: types.NewEntityUIDSet(parents...), Attributes: cedar.NewRecord(attributes)}
	return uid
}

func (w *world) principal(p Principal) (types.EntityUID, error) {
	var groups []types.EntityUID
	for _, g := range p.Groups {
		groups = append(groups, w.entity("Group", g, nil))
	}
	switch p.Kind {
	case User, Machine:
		return w.entity(types.EntityType(p.Kind), p.ID, cedar.RecordMap{"name": types.String(p.Name)}, groups...), nil
	case System:
		return w.entity(types.EntityType(p.Kind), p.ID, nil), nil
	default:
		return types.EntityUID{}, fmt.Errorf("found a principal of kind %.80q; expected %s, %s or %s", p.Kind, User, Machine, System)
	}
}

// environment is one as an entity, with its driver and its agents.
func (w *world) environment(e Environment) types.EntityUID {
	if w.calls {
		return w.entity("Environment", e.Name, cedar.RecordMap{"tier": types.String(e.Tier)})
	}
	if uid := types.NewEntityUID("Environment", types.String(e.Name)); w.detailed[uid] {
		return uid // a request has the details of an environment once
	}
	if len(e.Labels)+len(e.Agents) > 0 || e.Driver != "" {
		w.detailed[types.NewEntityUID("Environment", types.String(e.Name))] = true
	}
	agents := make([]types.Value, len(e.Agents))
	for i, a := range e.Agents {
		agents[i] = w.entity("Agent", a.Name, cedar.RecordMap{"labels": labels(a.Labels)})
	}
	attributes := cedar.RecordMap{"tier": types.String(e.Tier), "labels": labels(e.Labels), "agents": types.NewSet(agents...)}
	if e.Driver != "" {
		name, _, _ := strings.Cut(e.Driver, "@")
		attributes["driver"] = w.entity("Driver", e.Driver, cedar.RecordMap{"name": types.String(name)})
	}
	return w.entity("Environment", e.Name, attributes)
}

// application is that of a request as an entity.
func (w *world) application(r Request) types.EntityUID {
	return w.entity("Application", r.Application, cedar.RecordMap{"labels": labels(r.Labels), "owner": types.String(r.Owner)})
}

// versions are those of a version set as entities.
func (w *world) versions(digests []string) types.Set {
	values := make([]types.Value, len(digests))
	for i, digest := range digests {
		values[i] = w.entity("Version", digest, nil)
	}
	return types.NewSet(values...)
}

// rollout adds the rollout of a request to the context, where it exists.
func (w *world) rollout(r Request) {
	if r.Rollout == nil {
		return
	}
	w.context["rollout"] = w.entity("Rollout", MemberID(r.Rollout.ID), cedar.RecordMap{
		"rollback": types.Boolean(r.Rollout.Rollback), "automatic": types.Boolean(r.Rollout.Automatic), "minutesOld": types.Long(r.Rollout.MinutesOld),
	})
}

// labels are key=value, each.
func labels(all map[string]string) types.Set {
	values := make([]types.Value, 0, len(all))
	for key, value := range all {
		values = append(values, types.String(key+"="+value))
	}
	return types.NewSet(values...)
}

func (w *world) environments(all []Environment) types.Set {
	values := make([]types.Value, len(all))
	for i, e := range all {
		values[i] = w.environment(e)
	}
	return types.NewSet(values...)
}

func texts(all []string) types.Set {
	values := make([]types.Value, len(all))
	for i, s := range all {
		values[i] = types.String(s)
	}
	return types.NewSet(values...)
}

// request is the request with the time in a zone.
func (w *world) request(zone *time.Location) cedar.Request {
	if zone == nil {
		zone = time.UTC
	}
	if known, ok := w.zones[zone.String()]; ok {
		return known
	}
	at := w.at.In(zone)
	weekday := int(at.Weekday())
	if weekday == 0 { // Sunday
		weekday = 7
	}
	w.context["time"] = cedar.NewRecord(cedar.RecordMap{
		"date": types.String(at.Format(time.DateOnly)), "weekday": types.Long(weekday), "hour": types.Long(at.Hour()),
		"minute": types.Long(at.Minute()), "at": types.NewDatetime(w.at),
	})
	request := w.base
	request.Context = cedar.NewRecord(w.context) // which copies it
	w.zones[zone.String()] = request
	return request
}

// MemberID is the ID of a principal that is a member.
func MemberID(number int64) string { return strconv.FormatInt(number, 10) }
