// Package events consumes the events that concern the domain: those of registries and those of workflows. It decodes them and calls
// the core; it stores nothing, and knows neither tables nor what a change leads to.
package events

import (
	"context"
	"strings"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/bus"
	"github.com/lockstep-cd/lockstep/pkg/event"
	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/chat"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/forge"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/intake"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/rollout"
)

// Source is the source of the domain's own events, which come back to it on the domain path.
const Source = event.SourceDomain

// Intake records published and deleted artifacts.
type Intake interface {
	PublishArtifacts(ctx context.Context, all []intake.Publication) []error
	DeleteArtifacts(ctx context.Context, all []intake.Publication) []error
}

// Rollouts applies what workflows report.
type Rollouts interface {
	ApplyAll(ctx context.Context, organization int64, all []rollout.Arrival) []error
}

// Forges records what forges report of commits and pull requests.
type Forges interface {
	ReportStatuses(ctx context.Context, all []forge.Report) []error
	ReportPulls(ctx context.Context, all []forge.PullReport) []error
}

// Comments takes commands in comments on pull requests.
type Comments interface {
	ReportComments(ctx context.Context, all []chat.CommentReport) []error
}

var (
	_ Intake   = (*intake.UseCases)(nil)
	_ Rollouts = (*rollout.UseCases)(nil)
	_ Forges   = (*forge.UseCases)(nil)
)

// Inbox knows what has come before an event, and records what can never be applied, so that nobody sends it for ever.
type Inbox interface {
	Ready(ctx context.Context, all []event.Event) ([]bool, error)
	Reject(ctx context.Context, e event.Event, reason string) error
}

// Topology is what the domain makes on the bus: the streams it reads, whichever service starts first, and its consumers.
func Topology() bus.Topology {
	return bus.Topology{
		Streams:   []bus.Stream{bus.RegistryStream(), bus.DomainStream()},
		Consumers: []bus.Consumer{RegistryConsumer(), DomainConsumer()},
	}
}

// RegistryConsumer reads what registries report: the events that are available are taken together, up to a batch. The order does not
// matter, since the selection of the source decides, and then the time of publication, so every replica takes what it gets.
func RegistryConsumer() bus.Consumer {
	return bus.Consumer{Stream: bus.StreamRegistry, Durable: "domain", MaxAckPending: batch, MaxDeliver: maxDeliver, Backoff: backoff()}
}

// DomainConsumer reads what workflows report, in order: the events that are available are taken together, up to a batch, and the next only
// when these are processed. What the bus has lost or repeated, and what another replica has taken, the inbox puts in order. The state
// machine would absorb late events; in the right order nothing has to be absorbed, and the journal has everything as it happened.
func DomainConsumer() bus.Consumer {
	return bus.Consumer{
		Stream: bus.StreamDomain, Durable: "domain", MaxAckPending: batch, MaxDeliver: maxDeliver, Backoff: backoff(),
	}
}

// backoff is short, because what comes next waits for what is tried again.
func backoff() []time.Duration {
	return []time.Duration{200 * time.Millisecond, time.Second, 2 * time.Second, 5 * time.Second}
}

// batch is how many events are brought into the tables together at most: enough that a commit costs little for each, and
// few enough that nobody waits long for the rollouts and applications that it holds.
const batch = 128

// maxDeliver is how often an event is tried that fails for no reason of its own. A database that is away does not count.
const maxDeliver = 8

// Handlers are the two consumers' handlers.
type Handlers struct {
	intake   Intake
	rollouts Rollouts
	forges   Forges
	comments Comments
	inbox    Inbox
}

// New makes handlers that pass events on to use cases.
func New(i Intake, r Rollouts, f Forges, c Comments, inbox Inbox) *Handlers {
	return &Handlers{intake: i, rollouts: r, forges: f, comments: c, inbox: inbox}
}

// Registry handles events of the registry path, together. An error decides what happens to its event by its class: it is
// tried again, or Rejected is called.
func (h *Handlers) Registry(ctx context.Context, all []bus.Delivery) []error {
	errs := make([]error, len(all))
	// The order of these does not matter. What is of no known type is refused as a publication.
	deleted := func(t string) bool { return t == event.TypeArtifactDeleted }
	reported := func(t string) bool { return t == event.TypeCommitStatusReported }
	changed := func(t string) bool { return t == event.TypePullRequestReported }
	commented := func(t string) bool { return t == event.TypePullRequestCommented }
	reviewed := func(t string) bool { return t == event.TypePullRequestReviewed }
	published := func(t string) bool {
		return !deleted(t) && !reported(t) && !changed(t) && !commented(t) && !reviewed(t)
	}
	together(ctx, all, errs, published, publication, h.intake.PublishArtifacts)
	together(ctx, all, errs, deleted, deletion, h.intake.DeleteArtifacts)
	together(ctx, all, errs, reported, statusReport, h.forges.ReportStatuses)
	together(ctx, all, errs, changed, pullReport, h.forges.ReportPulls)
	together(ctx, all, errs, commented, commentReport, h.comments.ReportComments)
	together(ctx, all, errs, reviewed, reviewReport, h.comments.ReportComments)
	return errs
}

// together reads the deliveries of some types and applies them together.
func together[T any](
	ctx context.Context, all []bus.Delivery, errs []error, of func(eventType string) bool, read func(event.Event) (T, error),
	apply func(context.Context, []T) []error,
) {
	var some []T
	var places []int
	for i, d := range all {
		if !of(d.Event.Type()) {
			continue
		}
		one, err := read(d.Event)
		if errs[i] = err; err == nil {
			some, places = append(some, one), append(places, i)
		}
	}
	if len(some) == 0 {
		return
	}
	tried := apply(ctx, some)
	for n, i := range places {
		if errs[i] = bus.ErrBehind; n < len(tried) {
			errs[i] = tried[n]
		}
	}
}

// statusReport reads a status of a commit.
func statusReport(e event.Event) (forge.Report, error) {
	data, err := event.Decode[event.CommitStatusReported](e)
	if err != nil {
		return forge.Report{}, err
	}
	in, err := inbound(e)
	if err != nil {
		return forge.Report{}, err
	}
	at, err := instantOf(e, "observed_at", data.ObservedAt)
	return forge.Report{
		In: in, Hook: data.Hook, Repository: data.Repository, Commit: data.Commit, Kind: data.Kind, Context: data.Context,
		Phase: core.CheckPhase(data.Phase), Description: data.Description, Link: data.Link, ObservedAt: at, Sequence: data.Sequence,
	}, err
}

// pullReport reads a report of a pull request.
func pullReport(e event.Event) (forge.PullReport, error) {
	data, err := event.Decode[event.PullRequestReported](e)
	if err != nil {
		return forge.PullReport{}, err
	}
	in, err := inbound(e)
	return forge.PullReport{In: in, Hook: data.Hook, Repository: data.Repository, Number: data.Number, AskedBy: data.AskedBy}, err
}

// commentReport reads a comment with a command.
func commentReport(e event.Event) (chat.CommentReport, error) {
	data, err := event.Decode[event.PullRequestCommented](e)
	if err != nil {
		return chat.CommentReport{}, err
	}
	return commandReport(e, event.PullRequestReviewed{
		Hook: data.Hook, Repository: data.Repository, Number: data.Number, CommentID: data.CommentID, AuthorID: data.AuthorID,
		Author: data.Author,
		MadeAt: data.MadeAt, Text: data.Text,
	})
}

// reviewReport reads a review with a command.
func reviewReport(e event.Event) (chat.CommentReport, error) {
	data, err := event.Decode[event.PullRequestReviewed](e)
	if err != nil {
		return chat.CommentReport{}, err
	}
	return commandReport(e, data)
}

// commandReport is a command in a comment or a review.
func commandReport(e event.Event, data event.PullRequestReviewed) (chat.CommentReport, error) {
	in, err := inbound(e)
	if err != nil {
		return chat.CommentReport{}, err
	}
	at, err := instantOf(e, "made_at", data.MadeAt)
	return chat.CommentReport{
		In: in, Hook: data.Hook, Repository: data.Repository, Number: data.Number, CommentID: data.CommentID, AuthorID: data.AuthorID,
		Author: data.Author, MadeAt: at, Text: data.Text, MaybeApp: data.MaybeApp,
	}, err
}

// publication reads an event of the registry path.
func publication(e event.Event) (intake.Publication, error) {
	data, err := event.Decode[event.ArtifactPublished](e)
	if err != nil {
		return intake.Publication{}, err
	}
	in, err := inbound(e)
	if err != nil {
		return intake.Publication{}, err
	}
	published, err := instantOf(e, "published_at", data.PublishedAt)
	if err != nil {
		return intake.Publication{}, err
	}
	// Where the registry was queried, the digest existed when the event was made.
	alive := published
	if data.DigestSeen != nil && *data.DigestSeen && e.Time().After(alive) {
		alive = e.Time()
	}
	return intake.Publication{In: in, Artifact: intake.Artifact{
		CommitMessage: data.CommitMessage, Image: data.Image, Digest: data.Digest, Tag: data.Tag, PublishedAt: published, AnnouncedAt: e.Time(),
		DigestSeen: data.DigestSeen, AliveAt: alive, Change: changeOf(data),
	}}, nil
}

// maxChangedFiles is how many bytes of changed files are kept, as the registry service bounds them: more is as if it were not known.
const maxChangedFiles = 32 << 10

// maxChangedMessages is the same of the messages of commits.
const maxChangedMessages = 32 << 10

// changeOf is what a commit changes.
func changeOf(data event.ArtifactPublished) core.CommitChange {
	bytes := 0
	for _, f := range data.ChangedFiles {
		if bytes += len(f) + 1; f == "" || strings.ContainsAny(f, "\n\x00") || bytes > maxChangedFiles {
			return core.CommitChange{}
		}
	}
	change := core.CommitChange{Since: data.ChangedSince, Files: data.ChangedFiles, Messages: data.ChangedMessages}
	if size(change.Messages) > maxChangedMessages {
		change.Messages = nil // nothing is skipped by them
	}
	return change
}

// size is that of texts, in bytes.
func size(texts []string) (bytes int) {
	for _, t := range texts {
		bytes += len(t)
	}
	return bytes
}

// deletion reads the deletion of an artifact, as a publication of the instant of the deletion.
func deletion(e event.Event) (intake.Publication, error) {
	data, err := event.Decode[event.ArtifactDeleted](e)
	if err != nil {
		return intake.Publication{}, err
	}
	in, err := inbound(e)
	if err != nil {
		return intake.Publication{}, err
	}
	at, err := instantOf(e, "deleted_at", data.DeletedAt)
	return intake.Publication{In: in, Artifact: intake.Artifact{Image: data.Image, Digest: data.Digest, Tag: data.Tag, PublishedAt: at}}, err
}

// instantOf is the registry's own instant, which is better than that of the event, which may be a relay's or a poll's.
func instantOf(e event.Event, field, value string) (time.Time, error) {
	if value == "" {
		return e.Time(), nil
	}
	at, err := time.Parse(time.RFC3339, value)
	if err != nil {
		return time.Time{}, fault.InvalidFields(fault.Field{Name: "data." + field, Problem: "expected an instant, RFC 3339"})
	}
	return at, nil
}

// Domain handles events of the domain path, those of each organization together and in their order. It ignores its own events, and leaves
// those whose predecessors are missing to come again.
// An error decides what happens to its event by its class: it is tried again, or Rejected is called.
func (h *Handlers) Domain(ctx context.Context, all []bus.Delivery) []error {
	errs := make([]error, len(all))
	received := make([]event.Event, len(all))
	for i, d := range all {
		received[i] = d.Event
	}
	ready, err := h.inbox.Ready(ctx, received)
	if err != nil {
		for i := range errs {
			errs[i] = err
		}
		return errs
	}
	arrivals, places, organizations := map[int64][]rollout.Arrival{}, map[int64][]int{}, []int64{}
	for i, d := range all {
		// Not claimed either: the outbox waits for the workflow service's receipt alone, so no mark stops here. And an event
		// that is not ready is sent again, after the missing ones before it.
		if d.Event.Source() == Source || !ready[i] {
			continue
		}
		a, err := arrival(d.Event)
		if err != nil {
			errs[i] = err
			continue
		}
		of := a.In.Organization
		if _, known := arrivals[of]; !known {
			organizations = append(organizations, of)
		}
		arrivals[of], places[of] = append(arrivals[of], a), append(places[of], i)
	}
	for _, organization := range organizations {
		tried := h.rollouts.ApplyAll(ctx, organization, arrivals[organization])
		for n, i := range places[organization] {
			if errs[i] = bus.ErrBehind; n < len(tried) {
				errs[i] = tried[n]
			}
		}
	}
	return errs
}

// arrival reads an event of the domain path.
func arrival(e event.Event) (rollout.Arrival, error) {
	in, err := inbound(e)
	if err != nil {
		return rollout.Arrival{}, err
	}
	// Only a registry may leave it out, because an artifact belongs to everybody who points at it (R48). What a workflow
	// says is about one organization's rows.
	if in.Organization == 0 {
		return rollout.Arrival{}, fault.InvalidFields(fault.Field{
			Name:    event.ExtensionOrganization,
			Problem: "missing; expected on every domain event",
		})
	}
	ch, err := change(e)
	return rollout.Arrival{In: in, Change: ch}, err
}

// Rejected records an event that will not come again, with the reason, for the receipt. Should that fail, the sender sends
// it again, and it ends here again.
func (h *Handlers) Rejected(ctx context.Context, d bus.Delivery, reason error) {
	if d.Event.ID() == "" || d.Event.Source() == "" {
		return // it could not even be read: no sender waits for a receipt
	}
	_ = h.inbox.Reject(ctx, d.Event, fault.Public(reason)) // the bus has logged the reason
}

// inbound reads what every event has. Its source has to be that of an emitter of its type (D47): the bus separates accounts by subjects,
// and several emitters may publish on one.
func inbound(e event.Event) (core.Inbound, error) {
	if err := event.CheckSource(e.Type(), e.Source()); err != nil {
		return core.Inbound{}, err
	}
	organization, err := event.Organization(e)
	if err != nil {
		return core.Inbound{}, err
	}
	return core.Inbound{
		Organization: organization, ID: e.ID(), Type: e.Type(), Correlation: event.Extension(e, event.ExtensionCorrelation), At: e.Time(),
		Envelope: e,
	}, nil
}
