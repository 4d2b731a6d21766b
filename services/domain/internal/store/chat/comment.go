package chat

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/id"
	"github.com/lockstep-cd/lockstep/pkg/pg"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/chat"
	"github.com/lockstep-cd/lockstep/services/domain/internal/store/query"
)

// RolloutsOfPage implements chat.Tx.
func (w Writes) RolloutsOfPage(ctx context.Context, page string, most int) ([]int64, error) {
	ids, err := w.Q.RolloutsOfPage(ctx, w.Entered, page, int32(most))
	return ids, pg.Classify(err, "find the rollouts of %.200s", page)
}

// AddComment implements chat.Tx.
func (w Writes) AddComment(ctx context.Context, c chat.Comment) (chat.Comment, error) {
	err := w.Q.InsertForgeComment(ctx, query.InsertForgeCommentParams{
		OrganizationID: w.Entered, HookID: c.HookID, Name: c.Name, Number: c.Number, CommentID: c.CommentID, AuthorID: c.AuthorID,
		Author:  c.Author,
		Command: c.Command, Digest: c.Digest, ReceivedAt: c.ReceivedAt,
	})
	if err != nil {
		return c, pg.Classify(err, "keep %s of %s", id.OfComment(c.CommentID), c.Name)
	}
	r, err := w.Q.LockForgeComment(ctx, query.LockForgeCommentParams{
		OrganizationID: w.Entered, Name: c.Name, CommentID: c.CommentID, HookID: c.HookID,
	})
	return chat.Comment{
		ID: r.ID, HookID: r.HookID, Name: r.Name, Number: r.Number, CommentID: r.CommentID, AuthorID: r.AuthorID, Author: r.Author,
		Command: r.Command, Digest: r.Digest,
		ReceivedAt: r.ReceivedAt, BegunAt: r.BegunAt, Outcome: r.Outcome, Answer: r.Answer,
	}, pg.Classify(err, "lock %s of %s", id.OfComment(c.CommentID), c.Name)
}

// BeginComment implements chat.Tx.
func (w Writes) BeginComment(ctx context.Context, c chat.Comment, at time.Time) error {
	p := query.BeginForgeCommentParams{OrganizationID: w.Entered, ID: c.ID, At: &at}
	if c.Member != 0 {
		p.MemberID = &c.Member
	}
	err := w.Q.BeginForgeComment(ctx, p)
	return pg.Classify(err, "begin %s of %s", id.OfComment(c.CommentID), c.Name)
}

// CommentAtOtherHook implements chat.Tx.
func (w Writes) CommentAtOtherHook(ctx context.Context, c chat.Comment) (bool, error) {
	if err := w.Q.LockForgeCommentAtHooks(ctx, c.Name, c.CommentID, w.Entered); err != nil {
		return false, pg.Classify(err, "lock %s of %s", id.OfComment(c.CommentID), c.Name)
	}
	is, err := w.Q.ForgeCommentAtOtherHook(ctx, query.ForgeCommentAtOtherHookParams{
		OrganizationID: w.Entered, Name: c.Name, CommentID: c.CommentID, HookID: c.HookID, AuthorID: c.AuthorID, Digest: c.Digest,
		MemberID: c.Member,
	})
	return is, pg.Classify(err, "look for %s of %s at other hooks", id.OfComment(c.CommentID), c.Name)
}

// SettleComment implements chat.Tx.
func (w Writes) SettleComment(ctx context.Context, c chat.Comment) (bool, error) {
	p := query.SettleForgeCommentParams{OrganizationID: w.Entered, ID: c.ID, Outcome: c.Outcome, Answer: c.Answer}
	if c.Member != 0 {
		p.MemberID = &c.Member
	}
	n, err := w.Q.SettleForgeComment(ctx, p)
	return n > 0, pg.Classify(err, "keep the outcome of %s of %s", id.OfComment(c.CommentID), c.Name)
}

// TooManyComments implements chat.Tx.
func (w Writes) TooManyComments(ctx context.Context, c chat.Comment, since time.Time) (bool, error) {
	many, err := w.Q.TooManyForgeComments(ctx, query.TooManyForgeCommentsParams{
		OrganizationID: w.Entered, AuthorID: c.AuthorID, Since: since, Host: c.Host(), HookID: c.HookID, Name: c.Name, Number: c.Number,
		MostOfAuthor: chat.PerMinute, MostOfHook: chat.PerHook, MostOfPull: chat.PerPull,
	})
	return many, pg.Classify(err, "count the comments of %d at hook %d", c.AuthorID, c.HookID)
}

// ForgetComments implements chat.Tx.
func (w Writes) ForgetComments(ctx context.Context, before time.Time, most int) error {
	_, err := w.Q.ForgetForgeComments(ctx, before, int32(most))
	return pg.Classify(err, "forget comments")
}

// PutForgeCode implements chat.Tx.
func (w Writes) PutForgeCode(ctx context.Context, c chat.Code) error {
	err := w.Q.PutForgeCode(ctx, query.PutForgeCodeParams{
		OrganizationID: w.Entered, HookID: c.HookID, MemberID: c.MemberID, Account: c.Account, Permissions: int16(c.Permissions),
		Digest:    c.Digest,
		ExpiresAt: c.ExpiresAt,
	})
	return pg.Classify(err, "keep a code for hook %d", c.HookID)
}

// LockForgeCode implements chat.Tx.
func (w Writes) LockForgeCode(ctx context.Context, digest []byte) (chat.Code, error) {
	r, err := w.Q.LockForgeCode(ctx, w.Entered, digest)
	if errors.Is(err, pgx.ErrNoRows) {
		return chat.Code{}, fault.New(fault.NotFound, "the code does not exist")
	}
	return chat.Code{
		ID: r.ID, HookID: r.HookID, MemberID: r.MemberID, Account: r.Account, Permissions: core.Permissions(r.Permissions), Digest: r.Digest,
		ExpiresAt: r.ExpiresAt, UsedAt: r.UsedAt,
	}, pg.Classify(err, "read a code")
}

// UseForgeCode implements chat.Tx.
func (w Writes) UseForgeCode(ctx context.Context, id int64, at time.Time) error {
	return pg.Classify(w.Q.UseForgeCode(ctx, &at, w.Entered, id), "keep that code %d was used", id)
}
