package rollout

import (
	"context"
	"fmt"
	"slices"

	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
)

// mostCommits is how many commits may have come since what is live: of more it is not known what they change.
const mostCommits = 100

// skipSteps leaves those pauses and jobs out of the program that the pipeline wants left out because of what is new (R4-26). What is not known
// to be covered is done. A rollback leaves nothing out.
func (p *plan) skipSteps(ctx context.Context, tx Tx, organization int64, w wish) error {
	if p.flow.Skip == nil || w.commit != nil || p.back != nil && !p.back.forward {
		return nil
	}
	news, err := p.news(ctx, tx, organization, w)
	if err != nil {
		return err
	}
	program, left, err := p.flow.Skip(p.program, news)
	if err != nil {
		return fmt.Errorf("skip steps of flow definition %d: %w", p.definition.ID, err)
	}
	if len(left) > 0 {
		p.program, p.left = program, left
	}
	return nil
}

// news are the commits between what is live and what would be, in all environments that the rollout goes to; zero if something else is new
// as well, or if a commit is not known. Messages do not decide about what was requested (R4-22).
func (p *plan) news(ctx context.Context, tx Tx, organization int64, w wish) (core.News, error) {
	var news core.News
	messages, files := w.triggered, true
	for _, s := range p.stops {
		live, err := tx.EntriesByVersionSet(ctx, organization, []int64{p.live[s.environment.ID]})
		if err != nil {
			return core.News{}, err
		}
		for _, e := range p.entries {
			ran := slices.IndexFunc(live[p.live[s.environment.ID]], func(l core.VersionSetEntry) bool { return l.ArtifactSourceID == e.ArtifactSourceID })
			if ran < 0 {
				return core.News{}, nil // nothing of it is live there
			}
			from := live[p.live[s.environment.ID]][ran].VersionID
			if from == e.VersionID {
				continue
			}
			commits, known, err := p.between(ctx, tx, organization, from, e.VersionID)
			if err != nil || !known {
				return core.News{}, err
			}
			for _, c := range commits {
				news.Messages, news.Files = append(news.Messages, c.CommitMessage), append(news.Files, c.Change.Files...)
				messages, files = messages && c.CommitMessage != "", files && c.Change.Since != ""
			}
		}
	}
	if !messages {
		news.Messages = nil
	}
	if !files {
		news.Files = nil
	}
	return news, nil
}

// between are the commits that came after one version of a source, up to another one; known is false where they are not, and for images.
func (p *plan) between(ctx context.Context, tx Tx, organization, from, to int64) (commits []core.Version, known bool, err error) {
	if p.versions[to].IsImage() {
		return nil, false, nil
	}
	live, err := tx.VersionsByID(ctx, organization, []int64{from})
	if err != nil {
		return nil, false, err
	}
	commits, err = tx.CommitsSince(ctx, to, live[from].Digest, mostCommits)
	if err != nil || len(commits) == 0 {
		return nil, false, err
	}
	return commits, commits[len(commits)-1].Change.Since == live[from].Digest, nil
}
