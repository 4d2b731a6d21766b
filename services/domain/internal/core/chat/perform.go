package chat

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/freeze"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/rollout"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/view"
)

const (
	// maxLines is how many lines of one kind an answer has, maxLine how long each is, in characters.
	maxLines = 10
	maxLine  = 300
)

// everything are how a freeze of all applications is asked for. No application has such a name. Some keyboards make one dash of two.
func everything() []string { return []string{"--all", "—all", "–all"} }

// View is what commands show.
type View interface {
	ApplicationByName(ctx context.Context, organization int64, name string) (core.Application, error)
	ApplicationsByID(ctx context.Context, organization int64, ids []int64) (map[int64]core.Application, error)
	CellsByApplication(ctx context.Context, organization int64, applications []int64) (map[int64][]core.Cell, error)
	ActiveRollouts(ctx context.Context, organization int64, applications []int64) (map[int64]core.Rollout, error)
	Rollouts(ctx context.Context, organization int64, f core.RolloutFilter, p core.Page) (core.Slice[core.Rollout], error)
	VersionSetsByID(ctx context.Context, organization int64, ids []int64) (map[int64]core.VersionSet, error)
	NewestVersionSets(ctx context.Context, organization int64, applications []int64) (map[int64]core.VersionSet, error)
	VersionSetsByApplication(
		ctx context.Context, organization int64, applications []int64, p core.Page,
	) (map[int64]core.Slice[core.VersionSet], error)
	OpenGates(ctx context.Context, organization int64, rollouts []int64) (map[int64][]core.Gate, error)
	Waits(ctx context.Context, organization int64, rollouts []int64) (map[int64][]view.Wait, error)
}

// Freezes sets freezes.
type Freezes interface {
	StartFreeze(ctx context.Context, a core.Actor, n freeze.NewFreeze) (core.Freeze, error)
}

// reply makes the lines of an answer. Everything that comes from elsewhere is text there: no markup, no link, no mention.
type reply struct {
	kind         core.NotificationKind
	lines, links []string
}

// add adds a line; its arguments are texts.
func (s *reply) add(format string, args ...string) {
	shown := make([]any, len(args))
	for i, a := range args {
		shown[i] = asText(s.kind, oneLine(a))
	}
	s.lines = append(s.lines, fmt.Sprintf(format, shown...))
}

// rollout adds the link to a rollout, where the address of the console is known.
func (s *reply) rollout(url string, r core.Rollout) {
	if url != "" {
		link := fmt.Sprintf("%s/rollouts/rollout_%d", strings.TrimSuffix(url, "/"), r.ID)
		s.lines, s.links = append(s.lines, link), append(s.links, link)
	}
}

func (s *reply) text() string { return strings.Join(s.lines, "\n") }

// oneLine is a text in one line, with an end.
func oneLine(text string) string {
	text = strings.Join(strings.Fields(text), " ")
	if utf8.RuneCountInString(text) > maxLine {
		return string([]rune(text)[:maxLine-1]) + "…"
	}
	return text
}

// perform performs a command by the rules of the console. The error is that it could not be performed now; what is not allowed is a text.
func (u *UseCases) perform(ctx context.Context, a core.Actor, p Press, o order, taken *Taken) (err error) {
	s := &reply{kind: p.Kind}
	switch err = o.wrong; {
	case err != nil:
	case o.verb == verbStatus:
		err = u.status(ctx, a, o, s)
	case o.verb == verbWhy:
		err = u.why(ctx, a, o, s)
	case o.verb == verbApprove, o.verb == verbReject:
		err = u.resolve(ctx, a, p, o, s)
	case o.verb == verbRollout:
		err = u.begin(ctx, a, p, o, s)
	case o.verb == verbFreeze:
		err = u.freeze(ctx, a, p, o, s)
	default:
		err = fault.New(fault.Invalid, "found %.50q; expected one of %s", o.verb, strings.Join(verbs(), ", "))
	}
	return s.finish(err, taken)
}

// finish makes an answer of the lines, or of why there is none.
func (s *reply) finish(err error, taken *Taken) error {
	taken.Outcome = "answered"
	switch {
	case err == nil:
	case fault.Is(err, fault.Refused), fault.Is(err, fault.Denied), fault.Is(err, fault.Invalid), fault.Is(err, fault.NotFound):
		s.lines, s.links, taken.Outcome = nil, nil, "refused"
		s.add("Nothing was done: %s.", reasonOf(err))
	default:
		return err
	}
	taken.Text, taken.Links = s.text(), s.links
	return nil
}

// reasonOf is why something is not possible, with what is wrong with the input.
func reasonOf(err error) string {
	var all []string
	for _, f := range fault.FieldsOf(err) {
		all = append(all, strings.TrimPrefix(f.Name, "/")+": "+f.Problem)
	}
	return cmp.Or(strings.Join(all, "; "), fault.Public(err))
}

// application is the one that a command names first.
func (u *UseCases) application(ctx context.Context, a core.Actor, o order) (core.Application, error) {
	if len(o.args) == 0 {
		return core.Application{}, fault.New(fault.Invalid, "found no application; expected /lockstep %s APPLICATION", o.verb)
	}
	return u.View.ApplicationByName(ctx, a.Organization, o.args[0])
}

// active is the rollout of an application that is under way, with its version set; false for none.
func (u *UseCases) active(ctx context.Context, a core.Actor, app core.Application) (
	r core.Rollout, set core.VersionSet, is bool, err error,
) {
	all, err := u.View.ActiveRollouts(ctx, a.Organization, []int64{app.ID})
	if r, is = all[app.ID]; err != nil || !is {
		return r, set, false, err
	}
	sets, err := u.View.VersionSetsByID(ctx, a.Organization, []int64{r.VersionSetID})
	return r, sets[r.VersionSetID], true, err
}

// status reply what runs where, or what is under way.
func (u *UseCases) status(ctx context.Context, a core.Actor, o order, s *reply) error {
	if len(o.args) == 0 {
		return u.underWay(ctx, a, s)
	}
	app, err := u.application(ctx, a, o)
	if err != nil {
		return err
	}
	cells, err := u.View.CellsByApplication(ctx, a.Organization, []int64{app.ID})
	if err != nil {
		return err
	}
	for i, c := range cells[app.ID] {
		if i == maxLines {
			s.add("and %s more environments", strconv.Itoa(len(cells[app.ID])-i))
			break
		}
		live, health := "nothing yet", ""
		if c.Live != nil && c.LiveSince != nil {
			live = c.Live.Name + " since " + moment(*c.LiveSince)
		}
		if c.Health != "" && c.Health != core.HealthUnknown {
			health = ", " + string(c.Health)
		}
		s.add("%s: %s%s", core.ShownName(c.Environment.Name, c.Environment.DisplayName), live, health)
	}
	r, set, is, err := u.active(ctx, a, app)
	if err != nil {
		return err
	}
	if !is {
		s.add("No rollout of %s is under way.", app.Name)
		return nil
	}
	s.add("%s of %s is %s, since %s.", named(r), set.Name, words(r), moment(r.CreatedAt))
	return u.waits(ctx, a, r, s)
}

// underWay are the newest rollouts that are not over.
func (u *UseCases) underWay(ctx context.Context, a core.Actor, s *reply) error {
	found, err := u.View.Rollouts(ctx, a.Organization, core.RolloutFilter{
		States: []core.RolloutState{core.RolloutPending, core.RolloutInProgress, core.RolloutPaused},
	}, core.Page{First: maxLines})
	if err != nil {
		return err
	}
	if len(found.Nodes) == 0 {
		s.add("No rollout is under way.")
		return nil
	}
	var applications, sets []int64
	for _, r := range found.Nodes {
		applications, sets = append(applications, r.ApplicationID), append(sets, r.VersionSetID)
	}
	names, err := u.View.ApplicationsByID(ctx, a.Organization, core.Distinct(applications))
	if err != nil {
		return err
	}
	versions, err := u.View.VersionSetsByID(ctx, a.Organization, core.Distinct(sets))
	if err != nil {
		return err
	}
	for _, r := range found.Nodes {
		s.add("%s: %s of %s is %s, since %s", names[r.ApplicationID].Name, named(r), versions[r.VersionSetID].Name, words(r), moment(r.CreatedAt))
	}
	if len(found.Nodes) == maxLines {
		s.add("These are the newest %s.", strconv.Itoa(maxLines))
	}
	return nil
}

// why reply what the rollout of an application waits for.
func (u *UseCases) why(ctx context.Context, a core.Actor, o order, s *reply) error {
	app, err := u.application(ctx, a, o)
	if err != nil {
		return err
	}
	r, set, is, err := u.active(ctx, a, app)
	if err != nil {
		return err
	}
	if !is {
		s.add("No rollout of %s is under way, so none waits.", app.Name)
		return nil
	}
	s.add("%s of %s, with %s, is %s.", named(r), app.Name, set.Name, words(r))
	return u.waits(ctx, a, r, s)
}

func (u *UseCases) waits(ctx context.Context, a core.Actor, r core.Rollout, s *reply) error {
	found, err := u.View.Waits(ctx, a.Organization, []int64{r.ID})
	if err != nil {
		return err
	}
	all := found[r.ID]
	for i, w := range all {
		if i == maxLines {
			s.add("and %s more", strconv.Itoa(len(all)-i))
			break
		}
		until := ""
		if w.Until != nil {
			until = ", until " + moment(*w.Until)
		}
		s.add("- %s%s. Who or what ends it: %s", w.Detail, until, cmp.Or(w.Resolver, "nobody; it ends by itself"))
	}
	if len(all) == 0 {
		s.add("It waits for nothing.")
	}
	s.rollout(u.URL, r)
	return nil
}

// resolve answers a question by its number. Without a number it shows what asks: nobody approves what was not shown.
func (u *UseCases) resolve(ctx context.Context, a core.Actor, p Press, o order, s *reply) error {
	app, err := u.application(ctx, a, o)
	if err != nil {
		return err
	}
	r, set, is, err := u.active(ctx, a, app)
	if err != nil {
		return err
	}
	if !is {
		return fault.New(fault.Refused, "no rollout of %s is under way, so nothing asks for approval", app.Name)
	}
	gates, err := u.View.OpenGates(ctx, a.Organization, []int64{r.ID})
	if err != nil {
		return err
	}
	open := gates[r.ID]
	if len(open) == 0 {
		return fault.New(fault.Refused, "%s of %s asks for no approval now", named(r), app.Name)
	}
	if len(o.args) == 1 {
		return u.questions(ctx, a, app, r, set, open, s)
	}
	number, err := strconv.ParseInt(o.args[1], 10, 64)
	i := slices.IndexFunc(open, func(g core.Gate) bool { return g.RequestID == number })
	if err != nil || i < 0 {
		return fault.New(fault.Refused, "found %.30q, which is no question of %s that is open now; /lockstep %s %s shows those that are",
			o.args[1], app.Name, o.verb, app.Name)
	}
	decision, decide := "approved", u.Rollouts.ApproveGate
	if o.verb == verbReject {
		decision, decide = "rejected", u.Rollouts.RejectGate
	}
	_, err = decide(ctx, a, rollout.Resolution{
		RolloutID: r.ID, GateID: open[i].GateID, RequestID: number,
		Reason: core.Because(decision+" "+p.where(p.Channel), strings.Join(o.args[2:], " ")),
	})
	if err != nil {
		return err
	}
	s.add("You %s %s of %s with %s, as %s.", decision, open[i].GateID, named(r), set.Name, a.DisplayName())
	return nil
}

// where is where a user has answered, for the journal.
func (p Press) where(channel string) string {
	return fmt.Sprintf("in %s (channel %s) as %s", p.Kind.Title(), channel, p.Name)
}

// questions shows what asks for approval, with how to answer it.
func (u *UseCases) questions(
	ctx context.Context, a core.Actor, app core.Application, r core.Rollout, set core.VersionSet, open []core.Gate, s *reply,
) error {
	cells, err := u.View.CellsByApplication(ctx, a.Organization, []int64{app.ID})
	if err != nil {
		return err
	}
	s.add("%s brings %s.", named(r), set.Name)
	for _, c := range cells[app.ID][:min(len(cells[app.ID]), maxLines)] {
		if c.Live != nil {
			s.add("%s has %s now.", core.ShownName(c.Environment.Name, c.Environment.DisplayName), c.Live.Name)
		}
	}
	for _, g := range open[:min(len(open), maxLines)] {
		until := ""
		if at := g.ExpiresAt(); at != nil {
			until = ", until " + moment(*at)
		}
		s.add("- %s, asked for at %s%s, has %s.", core.Because(g.GateID, g.Reason), moment(g.RequestedAt), until, g.Progress(g.Approvals))
		number := strconv.FormatInt(g.RequestID, 10)
		s.add("  To approve it: /lockstep approve %s %s", app.Name, number)
		s.add("  To reject it, which cancels the rollout: /lockstep reject %s %s", app.Name, number)
	}
	s.rollout(u.URL, r)
	return nil
}

// freeze stops the rollouts of an application, or of all, for a time.
func (u *UseCases) freeze(ctx context.Context, a core.Actor, p Press, o order, s *reply) error {
	if len(o.args) < 3 {
		return fault.New(fault.Invalid, "found %d words after freeze; expected /lockstep freeze APPLICATION DURATION REASON, such as freeze shop 2h incident 7",
			len(o.args))
	}
	lasts, err := duration(o.args[1])
	if err != nil {
		return err
	}
	now := u.Clock.Now()
	n := freeze.NewFreeze{StartsAt: now, EndsAt: now.Add(lasts), Reason: fmt.Sprintf("%s (%s)", strings.Join(o.args[2:], " "), p.where(p.Channel))}
	what := "all applications"
	if !slices.Contains(everything(), o.args[0]) {
		app, err := u.application(ctx, a, o)
		if err != nil {
			return err
		}
		n.ApplicationIDs, what = []int64{app.ID}, app.Name
	}
	made, err := u.Freezes.StartFreeze(ctx, a, n)
	if err != nil {
		return err
	}
	s.add("%s stops the rollouts of %s until %s, but no rollbacks. End it in Lockstep.", made.Name(), what, moment(made.EndsAt))
	return nil
}

// duration reads how long, such as 30m, 2h or 3d.
func duration(text string) (time.Duration, error) {
	if days, is := strings.CutSuffix(text, "d"); is {
		n, err := strconv.Atoi(days)
		if err == nil && n > 0 && n <= 366 {
			return time.Duration(n) * 24 * time.Hour, nil
		}
	} else if d, err := time.ParseDuration(text); err == nil && d > 0 {
		return d, nil
	}
	return 0, fault.New(fault.Invalid, "found %.30q; expected how long, such as 30m, 2h or 3d", text)
}

func named(r core.Rollout) string { return fmt.Sprintf("rollout_%d", r.ID) }

func words(r core.Rollout) string { return strings.ReplaceAll(string(r.Status()), "_", " ") }

func moment(at time.Time) string { return at.UTC().Format("2006-01-02 15:04 MST") }
