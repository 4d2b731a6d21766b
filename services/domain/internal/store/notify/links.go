package notify

import (
	"context"

	"github.com/lockstep-cd/lockstep/pkg/pg"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/notify"
	"github.com/lockstep-cd/lockstep/services/domain/internal/store/query"
)

// AnsweredGate notes on the links to a gate that the member who answers had opened them: with the transaction that q is of.
func AnsweredGate(ctx context.Context, q *query.Queries, organization int64, r core.Transition) error {
	if r.PrincipalType != core.PrincipalUser {
		return nil
	}
	return pg.Classify(q.AnswerNotificationLinks(ctx, query.AnswerNotificationLinksParams{
		OrganizationID: organization, MemberID: r.PrincipalID, RolloutID: &r.Subject.ID, GateID: r.GateID, At: &r.CreatedAt,
	}), "keep that links to gate %q of rollout %d led to an answer", r.GateID, r.Subject.ID)
}

// AnsweredCall is AnsweredGate for a call request.
func AnsweredCall(ctx context.Context, q *query.Queries, organization, request int64, a core.CallAnswer) error {
	if a.Author.Type != core.PrincipalUser {
		return nil
	}
	return pg.Classify(q.AnswerNotificationLinksOfCall(ctx, query.AnswerNotificationLinksOfCallParams{
		OrganizationID: organization, MemberID: a.Author.ID, RequestID: request, At: &a.At,
	}), "keep that links to call request %d led to an answer", request)
}

// AddOfCall is Add for a moment of a call request, which is the subject.
func AddOfCall(ctx context.Context, q *query.Queries, organization int64, n core.Notification) error {
	by := string(n.By.Type)
	if by == "" {
		by = string(core.PrincipalSystem)
	}
	return pg.Classify(q.InsertCallNotification(ctx, query.InsertCallNotificationParams{
		OrganizationID: organization, ID: n.SubjectID, Moment: string(n.Moment), Cause: n.Cause, At: n.At, Subject: n.Subject, PrincipalType: by,
		PrincipalID: n.By.ID, Reason: n.Reason,
	}), "store a notification of %s", n.Moment)
}

func opening(r query.NotificationLink) core.NotificationOpening {
	return core.NotificationOpening{
		MessageID: r.MessageID, Run: int(r.Run),
		Question: core.Question{RolloutID: orZero(r.RolloutID), GateID: r.GateID, RequestID: r.RequestID},
		MemberID: r.MemberID, Member: r.MemberName, OpenedAt: r.OpenedAt, AnsweredAt: r.AnsweredAt,
	}
}

// NotificationOpenings implements notify.Reads.
func (r Reads) NotificationOpenings(
	ctx context.Context, organization int64, messages []int64,
) (map[int64][]core.NotificationOpening, error) {
	all := map[int64][]core.NotificationOpening{}
	err := r.Run(ctx, organization, func(q *query.Queries) error {
		clear(all) // the transaction may run again
		rows, err := q.NotificationLinks(ctx, organization, messages)
		for _, row := range rows {
			all[row.MessageID] = append(all[row.MessageID], opening(row))
		}
		return pg.Classify(err, "read who opened links of messages")
	})
	return all, err
}

// OpenNotificationLink implements notify.Tx.
func (w Writes) OpenNotificationLink(ctx context.Context, o core.NotificationOpening) (core.NotificationOpening, bool, error) {
	ids, err := w.Q.InsertNotificationLink(ctx, query.InsertNotificationLinkParams{
		OrganizationID: w.Entered, MessageID: o.MessageID, Run: int32(o.Run), RequestID: o.RequestID, RolloutID: orNull(o.RolloutID),
		GateID: o.GateID, MemberID: o.MemberID, MemberName: o.Member, OpenedAt: o.OpenedAt,
	})
	if err != nil || len(ids) > 0 {
		return o, len(ids) > 0, pg.Classify(err, "keep that a link of message %d was opened", o.MessageID)
	}
	row, err := w.Q.NotificationLink(ctx, w.Entered, o.MessageID, int32(o.Run))
	return opening(row), false, missing(err, "link of message", o.MessageID)
}

var _ notify.Reads = Reads{}
