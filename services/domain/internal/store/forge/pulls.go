package forge

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/pg"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/forge"
	"github.com/lockstep-cd/lockstep/services/domain/internal/store/query"
)

func pull(r query.ForgePull) forge.Pull {
	return forge.Pull{
		ID: r.ID, HookID: r.HookID, Name: r.Name, Repository: r.Repository, Host: r.Host, Number: r.Number, AskedBy: r.AskedBy,
		Revision: int(r.Revision), BegunRevision: int(r.BegunRevision), Step: forge.Step(r.Step), Reading: r.Reading, Head: r.Head, Link: r.Link,
		Outcome: r.Outcome, Answers: int(r.Answers), AnswersBegun: int(r.AnswersBegun), AnswersWritten: int(r.AnswersWritten),
		AnswersLink: r.AnswersLink,
		Delivery: forge.Delivery{
			State: forge.State(r.State), DueAt: r.DueAt, Attempts: int(r.Attempts), Run: int(r.Run), Started: r.Started, Inputs: r.Inputs,
			Error: r.Error, SentAt: r.SentAt, AwaySince: r.AwaySince, SpentAt: r.SpentAt,
		},
	}
}

// ForgePulls implements forge.Reads.
func (r Reads) ForgePulls(ctx context.Context, organization, before int64, most int) (all []forge.Pull, err error) {
	err = r.Run(ctx, organization, func(q *query.Queries) error {
		rows, err := q.ForgePulls(ctx, organization, before, int32(most))
		all = make([]forge.Pull, len(rows))
		for i, row := range rows {
			all[i] = pull(query.ForgePull{
				ID: row.ID, HookID: row.HookID, Name: row.Name, Number: row.Number, Repository: row.Repository, Host: row.Host, AskedBy: row.AskedBy,
				Revision: row.Revision, BegunRevision: row.BegunRevision, Step: row.Step, Head: row.Head, Link: row.Link, Outcome: row.Outcome,
				State: row.State, DueAt: row.DueAt, Attempts: row.Attempts, Run: row.Run, Started: row.Started, AwaySince: row.AwaySince,
				Error: row.Error, SentAt: row.SentAt,
			})
		}
		return pg.Classify(err, "read pull requests")
	})
	return all, err
}

// MergeForgePull implements forge.Tx.
func (w Writes) MergeForgePull(ctx context.Context, p forge.Pull, most int, pause time.Duration) (bool, error) {
	n, err := w.Q.MergeForgePull(ctx, query.MergeForgePullParams{
		OrganizationID: w.Entered, HookID: p.HookID, Name: p.Name, Number: p.Number, Repository: p.Repository, Host: p.Host, AskedBy: p.AskedBy,
		DueAt: p.DueAt, Most: int64(most), Asked: len(p.AskedBy) > 0, MostAsked: int64(most / 2), PauseSeconds: pause.Seconds(),
	})
	return n > 0, pg.Classify(err, "note pull request %d of %s", p.Number, p.Name)
}

// DueForgePull implements forge.Tx.
func (w Writes) DueForgePull(ctx context.Context, at, since time.Time, wait time.Duration, rate, together int) (forge.Pull, bool, error) {
	row, err := w.Q.DueForgePull(ctx, query.DueForgePullParams{
		OrganizationID: w.Entered, At: at, WindowAt: since, ResetsBy: at.Add(wait), Rate: int64(rate), Together: int64(together),
	})
	if errors.Is(err, pgx.ErrNoRows) {
		return forge.Pull{}, false, nil
	}
	return pull(row), err == nil, pg.Classify(err, "find a pull request that is due")
}

// LockForgePull implements forge.Tx.
func (w Writes) LockForgePull(ctx context.Context, id int64) (forge.Pull, error) {
	row, err := w.Q.LockForgePull(ctx, w.Entered, id)
	if errors.Is(err, pgx.ErrNoRows) {
		return forge.Pull{}, fault.Because(err, fault.NotFound, "pull request %d does not exist", id)
	}
	return pull(row), pg.Classify(err, "read pull request %d", id)
}

// SaveForgePull implements forge.Tx.
func (w Writes) SaveForgePull(ctx context.Context, p forge.Pull) error {
	err := w.Q.SaveForgePull(ctx, query.SaveForgePullParams{
		OrganizationID: w.Entered, ID: p.ID, State: string(p.State), DueAt: p.DueAt, Attempts: int32(p.Attempts), Run: int32(p.Run),
		Started: p.Started, Inputs: p.Inputs, BegunRevision: int32(p.BegunRevision),
		AnswersBegun: int32(p.AnswersBegun), AnswersWritten: int32(p.AnswersWritten), Step: string(p.Step), Reading: p.Reading, Head: p.Head,
		Link: p.Link, AnswersLink: p.AnswersLink, Outcome: p.Outcome, Error: p.Error, SentAt: p.SentAt, AwaySince: p.AwaySince,
		AskedBy: p.AskedBy, SpentAt: p.SpentAt,
	})
	return pg.Classify(err, "save pull request %d", p.ID)
}

// ForgePullsSending implements forge.Tx.
func (w Writes) ForgePullsSending(ctx context.Context, host string) (int, error) {
	n, err := w.Q.ForgePullsSending(ctx, w.Entered, host)
	return int(n), pg.Classify(err, "count the pull requests under way at %s", host)
}

// ForgetForgePulls implements forge.Tx.
func (w Writes) ForgetForgePulls(ctx context.Context, before time.Time, most int) error {
	_, err := w.Q.ForgetForgePulls(ctx, before, int32(most))
	return pg.Classify(err, "delete old pull requests")
}

// HurryForgePull implements rollout.Tx.
func (w Writes) HurryForgePull(ctx context.Context, id int64, run int, at time.Time) error {
	err := w.Q.HurryForgePull(ctx, query.HurryForgePullParams{OrganizationID: w.Entered, ID: id, Run: int32(run), At: at})
	return pg.Classify(err, "hurry pull request %d", id)
}

// SaveForgePullReading implements rollout.Tx.
func (w Writes) SaveForgePullReading(ctx context.Context, id int64, run int, reading []byte, at time.Time) error {
	err := w.Q.SaveForgePullReading(ctx, query.SaveForgePullReadingParams{
		OrganizationID: w.Entered, ID: id, Run: int32(run), Reading: reading, At: at,
	})
	return pg.Classify(err, "store what was read of pull request %d", id)
}

// MergeForgeAnswer implements chat.Tx.
func (w Writes) MergeForgeAnswer(ctx context.Context, p forge.Pull, most int, pause time.Duration) (bool, error) {
	n, err := w.Q.MergeForgeAnswer(ctx, query.MergeForgeAnswerParams{
		OrganizationID: w.Entered, HookID: p.HookID, Name: p.Name, Number: p.Number, Repository: p.Repository, Host: p.Host, DueAt: p.DueAt,
		Most: int64(most), MostAsked: int64(most / 2), PauseSeconds: pause.Seconds(),
	})
	return n > 0, pg.Classify(err, "note an answer on pull request %d of %s", p.Number, p.Name)
}

// ForgeAnswers implements forge.Tx.
func (w Writes) ForgeAnswers(ctx context.Context, name string, number int64, most int) ([]forge.Answered, error) {
	rows, err := w.Q.ForgeAnswers(ctx, query.ForgeAnswersParams{OrganizationID: w.Entered, Name: name, Number: number, Most: int32(most)})
	all := make([]forge.Answered, len(rows))
	for i, r := range rows {
		all[len(rows)-1-i] = forge.Answered{Author: r.Author, Command: r.Command, Answer: r.Answer, At: r.ReceivedAt}
	}
	return all, pg.Classify(err, "read the answers on pull request %d of %s", number, name)
}

// UnreadPipelines implements forge.Tx.
func (w Writes) UnreadPipelines(ctx context.Context, most, bytes int) ([]forge.Pipeline, error) {
	rows, err := w.Q.UnreadPipelines(ctx, w.Entered, int32(most), int64(bytes))
	all := make([]forge.Pipeline, len(rows))
	for i, r := range rows {
		all[i] = forge.Pipeline{ApplicationID: r.ApplicationID, Version: int(r.Version), Definition: json.RawMessage(r.Definition)}
	}
	return all, pg.Classify(err, "read pipelines for what they say of repositories")
}

// SaveForgePlaces implements forge.Tx.
func (w Writes) SaveForgePlaces(ctx context.Context, p forge.Pipeline, all []forge.Place) error {
	if all == nil {
		all = []forge.Place{}
	}
	text, err := json.Marshal(all)
	if err != nil {
		return fault.Because(err, fault.Invalid, "what the pipeline of application %d says of repositories cannot be stored", p.ApplicationID)
	}
	_, err = w.Q.SaveForgePlaces(ctx, p.ApplicationID, int32(p.Version), text)
	return pg.Classify(err, "store what the pipeline of application %d says of repositories", p.ApplicationID)
}

// ForgePlaces implements forge.Tx.
func (w Writes) ForgePlaces(ctx context.Context, name, portless string, most int) ([]forge.Place, error) {
	rows, err := w.Q.ForgePlaces(ctx, query.ForgePlacesParams{OrganizationID: w.Entered, Name: name, Portless: portless, Most: int32(most)})
	all := make([]forge.Place, len(rows))
	for i, r := range rows {
		all[i] = forge.Place{ApplicationID: r.ApplicationID, Application: r.Application, Environment: r.Environment, Target: r.Target}
	}
	return all, pg.Classify(err, "find what is deployed from %s", name)
}

// MayHaveForgePlaces implements forge.Tx.
func (w Writes) MayHaveForgePlaces(ctx context.Context, name, portless string) (bool, error) {
	may, err := w.Q.MayHaveForgePlaces(ctx, w.Entered, name, portless)
	return may, pg.Classify(err, "find whether something is deployed from %s", name)
}
