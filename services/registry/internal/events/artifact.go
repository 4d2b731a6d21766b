// Package events converts accepted artifacts to the registry service's own events, and defines the stream that they are published on.
//
// It neither stores nor sends them.
package events

import (
	"fmt"
	"strings"

	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/pkg/event"
	"github.com/lockstep-cd/lockstep/pkg/id"
	"github.com/lockstep-cd/lockstep/services/registry/internal/core"
)

// Source is the registry service's name in its events.
const Source = event.SourceRegistry

// Encoder encodes events.
type Encoder struct{ clock clock.Clock }

// NewEncoder returns an encoder that takes the time of events from a clock.
func NewEncoder(c clock.Clock) Encoder { return Encoder{clock: c} }

// EncodeStatus returns the event for a status of a commit. The error is Invalid.
func (c Encoder) EncodeStatus(s core.CommitStatus) (event.Sealed, error) {
	header := event.Header{ID: s.ID, Source: Source, Organization: s.Organization, Time: c.clock.Now().UTC()}
	e, err := event.Make(header, event.CommitStatusReported{
		Hook: s.Hook, Repository: s.Repository, Commit: s.Commit, Kind: s.Kind, Context: s.Context, Phase: s.Phase, Description: s.Description,
		Link: s.Link, ObservedAt: s.ObservedAt, Sequence: s.Sequence,
	})
	if err != nil {
		return event.Sealed{}, fmt.Errorf("encode a status of commit %s: %w", s.Commit, err)
	}
	return e, nil
}

// EncodePull returns the event for a pull request. The error is Invalid.
func (c Encoder) EncodePull(p core.PullRequest) (event.Sealed, error) {
	header := event.Header{ID: p.ID, Source: Source, Organization: p.Organization, Time: c.clock.Now().UTC()}
	e, err := event.Make(header, event.PullRequestReported{Hook: p.Hook, Repository: p.Repository, Number: p.Number, AskedBy: p.AskedBy})
	if err != nil {
		return event.Sealed{}, fmt.Errorf("encode pull request %d of %s: %w", p.Number, p.Repository, err)
	}
	return e, nil
}

// EncodeComment returns the event for a comment or a review with a command. The error is Invalid.
func (c Encoder) EncodeComment(of core.PullComment) (event.Sealed, error) {
	header := event.Header{ID: of.ID, Source: Source, Organization: of.Organization, Time: c.clock.Now().UTC()}
	var data event.Data = event.PullRequestCommented{
		Hook: of.Hook, Repository: of.Repository, Number: of.Number, CommentID: of.CommentID, AuthorID: of.AuthorID, Author: of.Author,
		MadeAt: of.MadeAt, Text: of.Text,
	}
	if of.CommentID >= id.ReviewComments {
		data = event.PullRequestReviewed{
			Hook: of.Hook, Repository: of.Repository, Number: of.Number, CommentID: of.CommentID, AuthorID: of.AuthorID, Author: of.Author,
			MadeAt: of.MadeAt, Text: of.Text, MaybeApp: of.MaybeApp,
		}
	}
	e, err := event.Make(header, data)
	if err != nil {
		return event.Sealed{}, fmt.Errorf("encode %s on pull request %d of %s: %w", id.OfComment(of.CommentID), of.Number, of.Repository, err)
	}
	return e, nil
}

// Encode returns the event for an artifact. The error is Invalid.
func (c Encoder) Encode(a core.Artifact) (event.Sealed, error) {
	// The event keeps the artifact's id, by which the outbox and the domain drop duplicates. Time is that of this event; the time of
	// publication comes from the sender and is in the data (R48).
	header := event.Header{
		ID: a.ID, Source: Source, Organization: a.Organization,
		Correlation: a.Correlation, Causation: a.Cause, Trace: a.TraceParent, Time: c.clock.Now().UTC(),
	}
	if a.Deleted {
		e, err := event.Make(header, event.ArtifactDeleted{Image: a.Image, Digest: a.Digest, Tag: a.Tag, DeletedAt: a.PublishedAt})
		if err != nil {
			return event.Sealed{}, fmt.Errorf("encode the deletion of artifact %s: %w", a.Image, err)
		}
		return e, nil
	}
	data := event.ArtifactPublished{Image: a.Image, Digest: a.Digest, Tag: a.Tag, PublishedAt: a.PublishedAt, CommitMessage: a.Message}
	if data.ChangedSince = a.Since; a.Files != "" {
		data.ChangedFiles = strings.Split(a.Files, "\n")
	}
	if a.Messages != "" {
		data.ChangedMessages = strings.Split(a.Messages, "\x00")
	}
	if a.Seen != core.SeenUnknown {
		data.DigestSeen = new(a.Seen == core.SeenYes)
	}
	e, err := event.Make(header, data)
	if err != nil {
		return event.Sealed{}, fmt.Errorf("encode artifact %s: %w", a.Image, err)
	}
	return e, nil
}
