package chat

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/freeze"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/rollout"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/view"
)

// What is answered in a comment is seen by everybody who sees the pull request: no names of members, and nothing that they gave as reasons.

// about reads the applications and version sets of rollouts.
func (u *UseCases) about(
	ctx context.Context, organization int64, all []core.Rollout,
) (map[int64]core.Application, map[int64]core.VersionSet, error) {
	var applications, sets []int64
	for _, r := range all {
		applications, sets = append(applications, r.ApplicationID), append(sets, r.VersionSetID)
	}
	names, err := u.View.ApplicationsByID(ctx, organization, core.Distinct(applications))
	if err != nil {
		return nil, nil, err
	}
	versions, err := u.View.VersionSetsByID(ctx, organization, core.Distinct(sets))
	return names, versions, err
}

// standing shows where the rollouts of a pull request are, and what they wait for.
func (u *UseCases) standing(ctx context.Context, c commented, s *reply) error {
	all := c.rollouts[:min(len(c.rollouts), maxRollouts)]
	names, versions, err := u.about(ctx, c.organization, all)
	if err != nil {
		return err
	}
	var ids, applications []int64
	for _, r := range all {
		ids, applications = append(ids, r.ID), append(applications, r.ApplicationID)
	}
	waits, err := u.View.Waits(ctx, c.organization, ids)
	if err != nil {
		return err
	}
	cells, err := u.View.CellsByApplication(ctx, c.organization, core.Distinct(applications))
	if err != nil {
		return err
	}
	for _, r := range all {
		s.add("%s of %s brings %s: %s, since %s.", named(r), names[r.ApplicationID].Name, versions[r.VersionSetID].Name, words(r), moment(r.CreatedAt))
		if c.order.verb == verbStatus {
			places := cells[r.ApplicationID]
			for _, cell := range places[:min(len(places), maxLines)] {
				live := "nothing yet"
				if cell.Live != nil {
					live = cell.Live.Name
				}
				s.add("- %s has %s.", core.ShownName(cell.Environment.Name, cell.Environment.DisplayName), live)
			}
		}
		of := waits[r.ID]
		for _, w := range of[:min(len(of), maxLines)] {
			s.add("- It waits for %s.", plainWait(w))
		}
		if left := len(of) - maxLines; left > 0 {
			s.add("- and %s more", strconv.Itoa(left))
		}
		if len(of) == 0 {
			s.add("It waits for nothing.")
		}
		s.rollout(u.URL, r)
	}
	return nil
}

// plainWait is a condition without the people behind it.
func plainWait(w view.Wait) string {
	text := strings.ReplaceAll(string(w.Kind), "_", " ")
	if w.Subject != "" {
		text += " " + w.Subject
	}
	var given []string
	for _, r := range w.Requirements {
		of := "those who may approve"
		if r.Group != "" {
			of = r.Group
		}
		given = append(given, fmt.Sprintf("%d of %d from %s", r.Given, r.Quorum, of))
	}
	text += ": " + cmp.Or(strings.Join(given, ", "), string(w.Status))
	if w.Until != nil {
		text += ", until " + moment(*w.Until)
	}
	return text
}

// asking are the open questions of the rollouts of a pull request.
func (u *UseCases) asking(ctx context.Context, c commented) (open []core.Gate, err error) {
	var ids []int64
	for _, r := range c.rollouts {
		if r.FinishedAt == nil {
			ids = append(ids, r.ID)
		}
	}
	if len(ids) == 0 {
		return nil, fault.New(fault.Refused, "the rollout of this change is over, so nothing asks for approval")
	}
	gates, err := u.View.OpenGates(ctx, c.organization, ids)
	for _, id := range ids {
		open = append(open, gates[id]...)
	}
	if err == nil && len(open) == 0 {
		err = fault.New(fault.Refused, "the rollout of this change asks for no approval now")
	}
	return open, err
}

// nameless is an error of a rule as everybody may read it: what the rule says names the member whose account it is.
func nameless(err error) error {
	switch {
	case fault.Is(err, fault.Refused):
		return fault.New(fault.Refused, "the rules do not let this account do it now; Lockstep shows whose answer is asked for")
	case fault.Is(err, fault.Denied):
		return fault.New(fault.Denied, "the member whose account this is has no permission for it")
	}
	return err
}

// resolveByComment answers a question, unless that was interrupted before: then a refusal may be for what this comment has done itself.
func (u *UseCases) resolveByComment(ctx context.Context, c commented, s *reply) error {
	err := u.resolveOnce(ctx, c, s)
	if !c.interrupted || len(c.order.args) == 0 || !fault.Is(err, fault.Refused) && !fault.Is(err, fault.Denied) {
		return err
	}
	s.lines, s.links = nil, nil
	s.add("Lockstep was interrupted while it performed this. It may have been done before: see")
	for _, r := range c.rollouts[:min(len(c.rollouts), maxRollouts)] {
		s.add("- %s", named(r))
		s.rollout(u.URL, r)
	}
	return nil
}

// resolveOnce answers a question by its number. Without a number it shows what asks: nobody approves what was not shown.
func (u *UseCases) resolveOnce(ctx context.Context, c commented, s *reply) error {
	open, err := u.asking(ctx, c)
	if err != nil {
		return err
	}
	if len(c.order.args) == 0 {
		return u.askInComment(ctx, c, open, s)
	}
	number, err := strconv.ParseInt(c.order.args[0], 10, 64)
	i := slices.IndexFunc(open, func(g core.Gate) bool { return g.RequestID == number })
	if err != nil || i < 0 {
		return fault.New(fault.Refused, "that is no question of this change that is open now; /lockstep %s shows those that are", c.order.verb)
	}
	decision, decide := "approved", u.Rollouts.ApproveGate
	if c.order.verb == verbReject {
		decision, decide = "rejected", u.Rollouts.RejectGate
	}
	_, err = decide(ctx, c.who, rollout.Resolution{
		RolloutID: open[i].RolloutID, GateID: open[i].GateID, RequestID: number,
		Reason: core.Because(decision+" "+c.where(), strings.Join(c.order.args[1:], " ")),
	})
	if err != nil {
		return nameless(err)
	}
	s.add("%s %s of rollout_%s.", decision, open[i].GateID, strconv.FormatInt(open[i].RolloutID, 10))
	return nil
}

// askInComment shows what asks for approval, with how to answer it.
func (u *UseCases) askInComment(ctx context.Context, c commented, open []core.Gate, s *reply) error {
	names, versions, err := u.about(ctx, c.organization, c.rollouts)
	if err != nil {
		return err
	}
	for _, g := range open[:min(len(open), maxLines)] {
		i := slices.IndexFunc(c.rollouts, func(r core.Rollout) bool { return r.ID == g.RolloutID })
		r := c.rollouts[i]
		until := ""
		if at := g.ExpiresAt(); at != nil {
			until = ", until " + moment(*at)
		}
		s.add("%s of %s brings %s. %s asks for approval since %s%s.", named(r), names[r.ApplicationID].Name, versions[r.VersionSetID].Name, g.GateID,
			moment(g.RequestedAt), until)
		number := strconv.FormatInt(g.RequestID, 10)
		s.add("  To approve it: /lockstep approve %s", number)
		s.add("  To reject it, which cancels the rollout: /lockstep reject %s", number)
		s.rollout(u.URL, r)
	}
	return nil
}

// freezeByComment stops the rollouts of the application of a pull request for a time.
func (u *UseCases) freezeByComment(ctx context.Context, c commented, s *reply) error {
	if len(c.order.args) < 2 {
		return fault.New(fault.Invalid, "found %d words after freeze; expected /lockstep freeze DURATION REASON, such as freeze 2h incident 7", len(c.order.args))
	}
	lasts, err := duration(c.order.args[0])
	if err != nil {
		return fault.New(fault.Invalid, "the first word after freeze is no duration; expected one such as 30m, 2h or 1d")
	}
	all := c.rollouts // those under way come first; what is over counts only if none is
	if i := slices.IndexFunc(all, func(r core.Rollout) bool { return r.FinishedAt != nil }); i > 0 {
		all = all[:i]
	}
	names, _, err := u.about(ctx, c.organization, all)
	if err != nil {
		return err
	}
	if len(names) != 1 {
		return fault.New(fault.Refused, "this pull request is of %d applications; freeze one in Lockstep", len(names))
	}
	now := u.Clock.Now()
	id := c.rollouts[0].ApplicationID
	made, err := u.Freezes.StartFreeze(ctx, c.who, freeze.NewFreeze{
		StartsAt: now, EndsAt: now.Add(lasts), ApplicationIDs: []int64{id},
		Reason: fmt.Sprintf("%s (%s)", strings.Join(c.order.args[1:], " "), c.where()),
	})
	if err != nil {
		return nameless(err)
	}
	s.add("%s stops the rollouts of %s until %s, but no rollbacks. End it in Lockstep.", made.Name(), names[id].Name, moment(made.EndsAt))
	return nil
}
