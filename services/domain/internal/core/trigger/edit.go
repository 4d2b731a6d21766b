package trigger

import (
	"cmp"
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/id"
	"github.com/lockstep-cd/lockstep/pkg/sealing"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/handoff"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/rollout"
)

// editProgram edits files.
//
//go:embed edit.star
var editProgram []byte

// Engine runs the program that edits files.
type Engine interface {
	// Start submits a run; the same again answers the same.
	Start(ctx context.Context, w handoff.Workflow) (ref string, err error)
	// WorkflowByID is a run with its state and what its program reports.
	WorkflowByID(ctx context.Context, organization int64, id string) (handoff.WorkflowRun, error)
	// Cancel asks a run to stop.
	Cancel(ctx context.Context, organization int64, id, reason string) error
}

const (
	// editCall bounds one call of the engine, and editLease is how long a worker may be silent before another one repeats the call.
	editCall  = 10 * time.Second
	editLease = 30 * time.Second
	// editGlance is how soon a run is looked at.
	editGlance = 2 * time.Second
	// maxEdits is how many runs are begun for one edit, and firstEditPause doubles with each.
	maxEdits = 5
	// maxLooks is how many more only look for a commit before an edit is given up.
	maxLooks       = 3
	firstEditPause = 10 * time.Second
	// firstAwayPause is the pause if the forge is away; it is four times as long with each run.
	firstAwayPause = time.Minute
	// editPatience is how long a run may take: all its steps with all their timeouts, and some more.
	editPatience = 30 * time.Minute
	// editAsked is for how long the answer counts that a rollout would not be refused: a run that commits later asks again.
	editAsked = 5 * time.Minute
	// maxLate is for how long, and mostLate how often, runs of an edit may begin too late; longestLatePause is between two of them.
	maxLate          = 24 * time.Hour
	mostLate         = 300
	longestLatePause = 10 * time.Minute
	maxEditedFiles   = 10
	maxEditValue     = 1024
)

// edit is the rewriting of files that an event makes (R4-28).
type edit struct {
	Repository  string       `json:"repository"`
	Branch      string       `json:"branch"`
	Files       []editedFile `json:"files"`
	Message     string       `json:"message,omitempty"`
	PullRequest bool         `json:"pull_request,omitempty"`
	Credential  string       `json:"credential,omitempty"`
	PerHour     *int         `json:"per_hour,omitempty"`
	// Commit is the member of the event's data that names what was built; empty if any member may.
	Commit string `json:"commit,omitempty"`
}

// editedFile is one value of a file: where it stands, and the member of the event's data that it becomes.
type editedFile struct {
	Path  string `json:"path"`
	YAML  string `json:"yaml,omitempty"`
	JSON  string `json:"json,omitempty"`
	HCL   string `json:"hcl,omitempty"`
	Regex string `json:"regex,omitempty"`
	From  string `json:"from"`
}

// editSchema describes an edit.
func editSchema() string {
	text := func(name, description string) string {
		return property(name, fmt.Sprintf(`"type":"string","minLength":1,"maxLength":500,"description":%q`, description))
	}
	files := strings.TrimPrefix(string(object(
		`"path","from"`,
		text("path", "The file."),
		text("yaml", "The dotted path of a value in YAML, such as api.image.tag."),
		text("json", "The dotted path of a member in JSON."),
		text("hcl", "An attribute in HCL: the blocks around it and its name, such as module.api.image."),
		text("regex", "A regular expression (RE2) with one group, which is replaced in every match."),
		property("from", `"type":"string","pattern":"`+strings.ReplaceAll(memberPattern, `\`, `\\`)+`",`+
			`"description":"The member of the event's data that becomes the value, such as build.tag."`),
	)), `{"$schema":"https://json-schema.org/draft/2020-12/schema",`)
	files = `"oneOf":[{"required":["yaml"]},{"required":["json"]},{"required":["hcl"]},{"required":["regex"]}],` + files
	own := strings.TrimPrefix(string(object(
		`"repository","branch","files"`,
		property("repository", `"type":"string","maxLength":500,"pattern":"^(https?://|ssh://([A-Za-z0-9_][A-Za-z0-9._+-]*@)?)[^@?#]+$",`+
			`"description":"The URL of the repository, without password. With ssh:// it is reached with an SSH key of the organization."`),
		text("branch", "The branch that is changed."),
		property("files", fmt.Sprintf(
			`"type":"array","minItems":1,"maxItems":%d,"description":"The values that change. Each has one of yaml, json, hcl and regex.","items":{%s`,
			maxEditedFiles, files,
		)),
		property("message", `"type":"string","maxLength":200,"description":"The first line of the commit's message."`),
		property("pull_request", `"type":"boolean","default":false,`+
			`"description":"Propose the change by a pull request. Then nothing is rolled out before it is merged."`),
		text("credential", "The name of a credential; without it, the one whose URL fits best."),
		property("commit", `"type":"string","pattern":"`+strings.ReplaceAll(memberPattern, `\`, `\\`)+`",`+
			`"description":"The member of the event's data that has the full hash of the commit that was built, such as build.sha. `+
			`An event about a commit that the trigger has made edits nothing. Without it, that is so if the event names that hash and no other."`),
		property("per_hour", fmt.Sprintf(`"type":"integer","minimum":0,"maximum":%d,"default":%d,`+
			`"description":"How many edits begin within an hour; the newest later event waits for its turn. 0 is no limit."`, mostPerHour, defaultPerHour)),
	)), `{"$schema":"https://json-schema.org/draft/2020-12/schema",`)
	return property("edit", `"description":"Changes files of a repository first: the rollout begins once they are committed.",`+strings.TrimSuffix(own, "}"))
}

// check finds what is wrong with an edit.
func (e *edit) check() (found []fault.Field) {
	wrong := func(field, format string, args ...any) {
		found = append(found, fault.Field{Name: "/config/edit/" + field, Problem: fmt.Sprintf(format, args...)})
	}
	_, overSSH, err := sealing.ParseSSH(e.Repository)
	overSSH = overSSH && err == nil && strings.HasPrefix(e.Repository, sealing.SchemeSSH+"://")
	if overSSH && e.PullRequest {
		wrong("repository", "found %.100q with pull_request; expected its https URL: pull requests are made by the interface of its forge", e.Repository)
	}
	overHTTP := strings.HasPrefix(e.Repository, "https://") || strings.HasPrefix(e.Repository, "http://")
	if !overSSH && (!overHTTP || strings.ContainsAny(e.Repository, "@?#")) || len(e.Repository) > 500 {
		wrong("repository", "found %.100q; expected a URL such as https://git.example.com/shop/config.git, without user, password and parameters",
			e.Repository)
	}
	if e.Branch == "" || len(e.Branch) > 250 {
		wrong("branch", "found %.100q; expected the name of a branch", e.Branch)
	}
	if len(e.Message) > 200 || strings.ContainsAny(e.Message, "\r\n") {
		wrong("message", "found %d bytes; expected one line of at most 200", len(e.Message))
	}
	if n := e.perHour(); n < 0 || n > mostPerHour {
		wrong("per_hour", "found %d; expected 0 to %d", n, mostPerHour)
	}
	if e.Commit != "" && !memberPath.MatchString(e.Commit) {
		wrong("commit", "found %.100q; expected the path of a member of the event's data, such as build.sha", e.Commit)
	}
	if len(e.Files) == 0 || len(e.Files) > maxEditedFiles {
		wrong("files", "found %d; expected 1 to %d", len(e.Files), maxEditedFiles)
	}
	for i, f := range e.Files {
		at := fmt.Sprintf("files/%d", i)
		places := slices.DeleteFunc([]string{f.YAML, f.JSON, f.HCL, f.Regex}, func(s string) bool { return s == "" })
		if len(places) != 1 || len(places[0]) > 500 {
			wrong(at, "found %d places; expected one of yaml, json, hcl and regex, of at most 500 bytes", len(places))
		}
		if expression, err := regexp.Compile(f.Regex); f.Regex != "" && (err != nil || expression.NumSubexp() != 1) {
			wrong(at+"/regex", "found %.100q; expected a regular expression (RE2) with one group, which is replaced", f.Regex)
		}
		if f.Path == "" || len(f.Path) > 500 || strings.HasPrefix(f.Path, "/") {
			wrong(at+"/path", "found %.100q; expected a file, from the top of the repository", f.Path)
		}
		if !memberPath.MatchString(f.From) {
			wrong(at+"/from", "found %.100q; expected the path of a member of the event's data, such as build.tag", f.From)
		}
	}
	return found
}

// prepare returns the edit that an event makes; the error says which member of its data is missing or no value.
func (e *edit) prepare(t core.Trigger, of Event, data map[string]any) (*core.TriggerEdit, error) {
	type place struct {
		YAML  string `json:"yaml,omitempty"`
		JSON  string `json:"json,omitempty"`
		HCL   string `json:"hcl,omitempty"`
		Regex string `json:"regex,omitempty"`
		Value string `json:"value"`
	}
	type file struct {
		Path  string  `json:"path"`
		Edits []place `json:"edits"`
	}
	var files []file
	for _, f := range e.Files {
		value, exists := member(data, f.From)
		if !exists || value == "" || len(value) > maxEditValue || strings.ContainsAny(value, "\x00\r\n") {
			return nil, fmt.Errorf("the data of the event has no %s that is one line of text of at most %d bytes", f.From, maxEditValue)
		}
		at := slices.IndexFunc(files, func(one file) bool { return one.Path == f.Path })
		if at < 0 {
			files, at = append(files, file{Path: f.Path}), len(files)
		}
		files[at].Edits = append(files[at].Edits, place{YAML: f.YAML, JSON: f.JSON, HCL: f.HCL, Regex: f.Regex, Value: value})
	}
	inputs, err := json.Marshal(map[string]any{
		"repo_url": e.Repository, "branch": e.Branch, "files": files, "proposal": e.PullRequest, "credential": e.Credential,
		"message": cmp.Or(e.Message, fmt.Sprintf("Update %s by trigger %s", strings.Join(paths(e.Files), ", "), t.Name)),
		"trailers": map[string]string{
			"Lockstep-Trigger": t.Name, "Lockstep-Event-Type": printable(of.Type), "Lockstep-Event-Source": printable(of.Source),
			"Lockstep-Event-Id": printable(of.ID),
		},
	})
	if err != nil {
		return nil, fmt.Errorf("write the edit: %w", err)
	}
	return &core.TriggerEdit{Inputs: inputs}, nil
}

func paths(files []editedFile) []string {
	var all []string
	for _, f := range files {
		if !slices.Contains(all, f.Path) {
			all = append(all, f.Path)
		}
	}
	return all[:min(len(all), 3)]
}

// printable is a text as a trailer may have it.
func printable(text string) string {
	text = strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' {
			return '?'
		}
		return r
	}, text)
	return text[:min(len(text), 200)]
}

// edits has the edits of a trigger's signals made, one at a time and in their order; false if all are. Nothing is decided before.
func (d *decision) edits(ctx context.Context, all []core.TriggerSignal) (core.TriggerSignal, bool, error) {
	at := slices.IndexFunc(all, func(s core.TriggerSignal) bool { return s.Edit != nil && s.Edit.State == core.EditPending })
	if at < 0 {
		return core.TriggerSignal{}, false, nil
	}
	first := all[at]
	// What came before it has been edited: it is decided about without waiting for what comes after it.
	earlier := slices.DeleteFunc(slices.Clone(d.signals), func(s core.TriggerSignal) bool { return s.ID >= first.ID })
	if len(earlier) > 0 {
		d.signals = earlier
		return core.TriggerSignal{}, false, nil
	}
	if first.DueAt.After(d.now) {
		why := "an earlier event's edit is made first"
		if first.Edit.Begun == 0 && first.Outcome == core.TriggerWaits {
			why = core.Because(why, first.Reason)
		}
		return d.waits(first.DueAt, "%s", why), true, nil
	}
	d.editing = &first
	if !d.config.Edit.makes(first.Edit.Inputs) {
		d.stopping = "the trigger was saved without this edit"
		return d.waits(d.now.Add(editLease), "its edit is stopped: %s", d.stopping), true, nil
	}
	if first.Edit.Begun <= first.Edit.Attempt || unanswered(*first.Edit) {
		if s, begins, err := d.beginEdit(ctx, first); err != nil || !begins {
			return s, true, err
		}
	}
	why := "its files are being edited"
	if refused := d.editing.Edit.Refused; refused != "" {
		why = "an attempt may have committed, and its commit is searched for; nothing is edited any more: " + refused
	} else if first.Edit.Why != "" {
		why = fmt.Sprintf("its files are edited again; attempt %d failed: %s", first.Edit.Attempt-1, first.Edit.Why)
	}
	return d.waits(d.now.Add(editLease), "%s", why), true, nil
}

// beginEdit notes that a run of an edit begins. If none does, it answers why: nothing is edited for that event, and nothing rolled out.
func (d *decision) beginEdit(ctx context.Context, s core.TriggerSignal) (why core.TriggerSignal, begins bool, err error) {
	e := *s.Edit
	refused := ""
	again := e.Begun > e.Attempt // no begin of the present run was answered: it may have begun nevertheless
	if e.Begun == 0 {
		refused, err = d.comesBack(ctx, e)
		d.returned = refused != ""
	}
	if refused = cmp.Or(refused, e.Last); err == nil && refused == "" {
		refused, err = d.refuseEdit(ctx, s)
	}
	if err != nil {
		return why, false, err
	}
	if again { // if the earlier begin has arrived, that run continues as it began
		until := d.now.Add(editAsked)
		e.NotAfter, e.Refused = &until, refused
		d.editing.Edit = &e
		return why, true, d.tx.SaveSignalEdit(ctx, s.ID, e.Attempt, e, d.now.Add(editLease))
	}
	if refused != "" && !mayHavePushed(e) {
		d.editing, d.signals = nil, []core.TriggerSignal{s}
		e.State, e.Why = core.EditFailed, refused
		return d.declines("%s", refused), false, d.tx.SaveSignalEdit(ctx, s.ID, e.Attempt, e, d.now)
	}
	if e.Begun == 0 {
		if why, limited, err := d.limit(ctx, s); err != nil || limited {
			return why, false, err
		}
		e.FirstBegun = &d.now
	}
	// A run that has failed may have committed, and only its answer was lost: the next one looks for its commit, whatever refuses it now.
	e.Begun, e.Refused, e.NotAfter = e.Attempt+1, refused, nil
	if !d.config.Edit.PullRequest {
		until := d.now.Add(editAsked)
		e.NotAfter = &until
	}
	d.editing.Edit = &e
	return why, true, d.tx.SaveSignalEdit(ctx, s.ID, e.Attempt, e, d.now.Add(editLease))
}

// unanswered reports whether no begin of the present run of an edit was answered, so that it is asked again what would refuse its rollout.
func unanswered(e core.TriggerEdit) bool { return e.NotAfter != nil && e.Started < e.Begun }

// mayHavePushed reports whether a run of an edit has ended that may have committed, and only its answer was lost: those that were late
// have not.
func mayHavePushed(e core.TriggerEdit) bool { return e.Attempt > e.Late }

// refuseEdit is why the files of an event are not edited. What a rollout would be refused for keeps its files from being edited, too: where
// others deploy a commit at once, it would be too late afterwards.
func (d *decision) refuseEdit(ctx context.Context, s core.TriggerSignal) (refused string, err error) {
	if d.config.Edit.PullRequest { // people merge it
		return "", nil
	}
	if exists, err := d.newest(ctx); err != nil || !exists {
		return noVersionSet, err
	}
	n := d.automatic(rollout.Automatic{Until: d.config.Until, Inputs: d.config.Inputs, Again: true}, s)
	return d.u.rollouts.Refused(ctx, d.tx, d.organization, n)
}

// makes reports whether the edit still changes what a prepared one does, with whatever message.
func (e *edit) makes(inputs json.RawMessage) bool {
	var in struct {
		Repository string `json:"repo_url"`
		Branch     string `json:"branch"`
		Proposal   bool   `json:"proposal"`
		Credential string `json:"credential"`
		Files      []struct {
			Path  string       `json:"path"`
			Edits []editedFile `json:"edits"`
		} `json:"files"`
	}
	if e == nil || json.Unmarshal(inputs, &in) != nil || in.Repository != e.Repository || in.Branch != e.Branch ||
		in.Proposal != e.PullRequest || in.Credential != e.Credential {
		return false
	}
	places := map[editedFile]int{}
	for _, f := range in.Files {
		for _, p := range f.Edits {
			p.Path = f.Path
			places[p]++
		}
	}
	for _, f := range e.Files {
		f.From = ""
		places[f]--
	}
	return !slices.ContainsFunc(slices.Collect(maps.Values(places)), func(n int) bool { return n != 0 })
}

// ends declines everything permanently, once the edit that may be under way is stopped.
func (d *decision) ends(ctx context.Context, format string, args ...any) (core.TriggerSignal, error) {
	s := d.declines(format, args...)
	stopped := func(one core.TriggerSignal) bool { return one.Edit != nil && one.Edit.Why == s.Reason }
	at := slices.IndexFunc(d.all, func(one core.TriggerSignal) bool { return one.Edit != nil && one.Edit.State == core.EditPending })
	if at < 0 || slices.ContainsFunc(d.all, stopped) {
		return s, d.endChains(ctx, s.Reason)
	}
	first := d.all[at]
	if first.DueAt.After(d.now) { // a call that begins it may be under way
		return d.waits(first.DueAt, "its edit is stopped: %s", s.Reason), nil
	}
	d.editing, d.stopping = &first, s.Reason
	return d.waits(d.now.Add(editLease), "its edit is stopped: %s", s.Reason), nil
}

// landed reports whether an edit has changed the branch. What is unchanged after a failed attempt was committed by that one, and only its
// answer was lost.
func landed(e core.TriggerEdit) bool {
	var in struct {
		Proposal bool `json:"proposal"`
	}
	return e.State == core.EditCommitted ||
		e.State == core.EditUnchanged && mayHavePushed(e) && json.Unmarshal(e.Inputs, &in) == nil && !in.Proposal
}

// edited declines what an edit leaves nothing to roll out for; empty if a rollout is to begin.
func (d *decision) edited() string {
	declined, begins := "", false
	for _, s := range d.signals {
		switch {
		case s.Edit == nil:
			begins = true
		case landed(*s.Edit):
			begins, d.again = true, true
		case s.Edit.State == core.EditProposed:
			declined = "the change is proposed, and nothing is rolled out before it is merged: " + s.Edit.Link
		case s.Edit.State == core.EditUnchanged:
			declined = "the files have these values already"
		case s.Edit.Refused != "" && s.Edit.Why == s.Edit.Refused:
			declined = s.Edit.Why
		default:
			declined = "the files could not be edited: " + s.Edit.Why
		}
	}
	if begins {
		return ""
	}
	return declined
}

// carryOut makes what a decision wants of the engine.
func (u *UseCases) carryOut(ctx context.Context, d Decided) error {
	called, cancel := context.WithTimeout(ctx, editCall)
	defer cancel()
	if d.stopping != "" {
		return u.stopEdit(ctx, called, d.Organization, *d.editing, d.stopping)
	}
	return u.makeEdit(ctx, called, d.Organization, *d.editing)
}

// stopEdit stops the run of an edit, which is not made again.
func (u *UseCases) stopEdit(ctx, called context.Context, organization int64, s core.TriggerSignal, why string) error {
	if err := u.stopRun(called, organization, id.TriggerEditRun(s.ID, s.Edit.Attempt+1), why); err != nil {
		return err
	}
	e := *s.Edit
	e.State, e.Why = core.EditFailed, why
	return u.saveEdit(ctx, organization, s, e, u.clock.Now())
}

// stopRun stops a run; one that has ended, or was never begun, is stopped.
func (u *UseCases) stopRun(called context.Context, organization int64, run, why string) error {
	err := u.engine.Cancel(called, organization, run, why)
	if err != nil && !fault.Is(err, fault.NotFound) && !fault.Is(err, fault.Refused) && !fault.Is(err, fault.Conflict) {
		return fmt.Errorf("stop the run of an edit: %w", err) // it is tried again after the lease
	}
	return nil
}

// saveEdit stores how far an edit has come; it is decided about at once if due is now.
func (u *UseCases) saveEdit(ctx context.Context, organization int64, s core.TriggerSignal, e core.TriggerEdit, due time.Time) error {
	err := u.store.In(ctx, organization, func(ctx context.Context, tx Tx) error {
		return tx.SaveSignalEdit(ctx, s.ID, s.Edit.Attempt, e, due)
	})
	if err == nil {
		u.edited.add(s.Edit.Attempt, e)
	}
	if e.State != core.EditPending {
		u.wake()
	}
	return err
}

// editCounts count what came of edits in this process, for the metrics.
type editCounts struct{ committed, proposed, unchanged, failed, again, limited, returned atomic.Int64 }

func (c *editCounts) add(attempt int, e core.TriggerEdit) {
	switch e.State {
	case core.EditCommitted:
		c.committed.Add(1)
	case core.EditProposed:
		c.proposed.Add(1)
	case core.EditUnchanged:
		c.unchanged.Add(1)
	case core.EditFailed:
		c.failed.Add(1)
	case core.EditPending:
		if e.Attempt > attempt {
			c.again.Add(1)
		}
	}
}

// addDecided counts what kept an edit from beginning.
func (c *editCounts) addDecided(d Decided) {
	c.limited.Add(int64(d.limited))
	if d.returned {
		c.returned.Add(1)
	}
}

// Edits are the edits of files that this process has seen end, by outcome.
func (u *UseCases) Edits() map[string]int64 {
	c := &u.edited
	return map[string]int64{
		"committed": c.committed.Load(), "proposed": c.proposed.Load(), "unchanged": c.unchanged.Load(), "failed": c.failed.Load(),
		"again": c.again.Load(), "limited": c.limited.Load(), "returned": c.returned.Load(),
	}
}

// makeEdit begins the run of an edit, or looks at it. What calls the engine is outside of any transaction: a crash before the answer has
// the call repeated, with the same id and inputs.
func (u *UseCases) makeEdit(ctx, called context.Context, organization int64, s core.TriggerSignal) error {
	e, now := *s.Edit, u.clock.Now()
	run := id.TriggerEditRun(s.ID, e.Attempt+1)
	due := now.Add(editGlance)
	inputs, err := runInputs(organization, s)
	if err != nil {
		return err
	}
	_, err = u.engine.Start(called, handoff.Workflow{
		Organization: organization, ID: run, Program: handoff.Program{Source: editProgram}, Inputs: inputs,
		Labels: map[string]string{"subject": fmt.Sprintf("trigger_%d", s.TriggerID), "program": "edit"},
	})
	switch {
	case err == nil || fault.Is(err, fault.Conflict): // begun by another release: its id is that of this attempt alone
		e.Started = e.Attempt + 1
		found, err := u.engine.WorkflowByID(called, organization, run)
		if err != nil && !fault.Is(err, fault.NotFound) {
			return fmt.Errorf("look at the run of an edit: %w", err)
		}
		due = take(&e, found, now, due)
		if e.State == core.EditPending && e.Attempt == s.Edit.Attempt && !found.CreatedAt.IsZero() && now.Sub(found.CreatedAt) > editPatience {
			e.Why = core.Because(fmt.Sprintf("its run has not ended within %s and was stopped", editPatience), found.Error)
			if err := u.stopRun(called, organization, run, e.Why); err != nil {
				return err
			}
			e.Attempt++
			due = giveUp(&e, e.Why, now)
		}
	case handoff.RefusedPermanently(err):
		e.State, e.Why = core.EditFailed, "the engine refused to run it: "+fault.Public(err)
		due = now
	default:
		return fmt.Errorf("begin the run of an edit: %w", err) // it is tried again after the lease
	}
	return u.saveEdit(ctx, organization, s, e, due)
}
