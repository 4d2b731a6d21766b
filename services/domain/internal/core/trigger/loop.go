package trigger

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
)

const (
	// defaultPerHour is how many edits of a trigger begin within an hour, and mostPerHour what a trigger may have instead.
	defaultPerHour, mostPerHour = 30, 1000
	// givesWay is how many events give way to a newer one at once.
	givesWay = 100
)

// perHour is how many edits of the trigger begin within an hour; 0 for no limit.
func (e *edit) perHour() int {
	if e.PerHour == nil {
		return defaultPerHour
	}
	return *e.PerHour
}

// mentions are the full hashes of commits that an event names anywhere, one of each length at most: of several, which also payloads of
// pushes and of pull requests have, it is not known which was built, so that none counts. Digests of images are longer than most hashes.
func (e Event) mentions() (found []string) {
	of := map[int][]string{}
	add := func(text string) {
		for _, word := range strings.FieldsFunc(text, func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) }) {
			word = strings.ToLower(word)
			if isHash(word) && len(of[len(word)]) < 2 && !slices.Contains(of[len(word)], word) {
				of[len(word)] = append(of[len(word)], word)
			}
		}
	}
	add(e.Subject)
	add(e.Source)
	add(e.ID)
	tokens := json.NewDecoder(bytes.NewReader(e.Data))
	tokens.UseNumber()
	for {
		token, err := tokens.Token()
		if err != nil {
			break
		}
		switch t := token.(type) {
		case string: // a name or a value
			add(t)
		case json.Number: // a hash may have no letters
			add(t.String())
		}
	}
	for _, length := range slices.Sorted(maps.Keys(of)) {
		if len(of[length]) == 1 {
			found = append(found, of[length][0])
		}
	}
	return found
}

// built is the hash of the commit that an event says was built, where the trigger says which member that is; empty if there is none.
func (e *edit) built(data map[string]any) []string {
	value, _ := member(data, e.Commit)
	if value = strings.ToLower(strings.TrimSpace(value)); isHash(value) {
		return []string{value}
	}
	return nil
}

// isHash reports whether a word has the form of a full hash, by SHA-1 or SHA-256.
func isHash(word string) bool {
	if len(word) != 40 && len(word) != 64 {
		return false
	}
	_, err := hex.DecodeString(word)
	return err == nil
}

// comesBack is why an event is about what the trigger has edited itself: CI has built the commit of one of its edits. It would have that
// built again, without end. Only what is recorded counts. Edits are made in the order of the events, so each commit that an event can be
// about is recorded when the event is decided about.
func (d *decision) comesBack(ctx context.Context, e core.TriggerEdit) (string, error) {
	if len(e.Mentions) == 0 {
		return "", nil
	}
	causes, err := d.tx.EditsOfCommits(ctx, d.trigger.ID, e.Mentions)
	if err != nil {
		return "", err
	}
	for _, commit := range slices.Sorted(maps.Keys(causes)) {
		return fmt.Sprintf("it names commit %.12s, which is the trigger's own edit because of %s: it edits nothing again, and begins no rollout",
			commit, causes[commit]), nil
	}
	return "", nil
}

// full is why no other edit begins yet, and when that is looked at again; an empty reason if one may. What changed nothing does not count.
func (d *decision) full(ctx context.Context) (until time.Time, why string, err error) {
	most := d.config.Edit.perHour()
	if most <= 0 {
		return until, "", nil
	}
	begun, exists, err := d.tx.EditBegun(ctx, d.trigger.ID, most, d.now.Add(-time.Hour), d.now)
	if err != nil || !exists {
		return until, "", err
	}
	free := begun.Add(time.Hour)
	// It is true of all that wait.
	why = fmt.Sprintf("the limit of edits is reached: at most %d begin within an hour (per_hour of the trigger); the next one begins at %s, for the newest event",
		most, stamp(free))
	if until = d.now.Add(retry); free.Before(until) { // another limit may be saved meanwhile
		until = free
	}
	return until, why, nil
}

// limit keeps an edit from beginning while the limit is reached. It gives way, with all before the newest event that sets the same places,
// to that one, so that the newest value is never behind others.
func (d *decision) limit(ctx context.Context, s core.TriggerSignal) (why core.TriggerSignal, limited bool, err error) {
	until, reason, err := d.full(ctx)
	if err != nil || reason == "" {
		return why, false, err
	}
	d.editing = nil
	older, newest, err := d.newer(ctx, s)
	if err != nil {
		return why, true, err
	}
	if len(older) == 0 {
		e := *s.Edit
		if e.Limited {
			return d.waits(until, "%s", reason), true, nil
		}
		d.limited++
		e.Limited = true
		return d.waits(until, "%s", reason), true, d.tx.SaveSignalEdit(ctx, s.ID, e.Attempt, e, until)
	}
	why = d.declines("it waited for the limit of edits (at most %d within an hour), and gives way to the newer event %s, which sets the same values",
		d.config.Edit.perHour(), strings.TrimPrefix(newest, "event:"))
	d.signals = older
	for _, one := range older {
		e := *one.Edit
		if !e.Limited {
			d.limited++
		}
		e.State, e.Why, e.Limited = core.EditFailed, why.Reason, true
		if err := d.tx.SaveSignalEdit(ctx, one.ID, e.Attempt, e, d.now); err != nil {
			return why, true, err
		}
	}
	return why, true, nil
}

// newer finds the newest event that sets the same places as the one whose edit is next, and what is before it, that one first; nothing if
// there is no newer one. One that is about an edit of the trigger sets nothing.
func (d *decision) newer(ctx context.Context, s core.TriggerSignal) (older []core.TriggerSignal, cause string, err error) {
	var commits []string
	for _, one := range d.all {
		if one.ID > s.ID && d.sameEdit(one) {
			commits = append(commits, one.Edit.Mentions...)
		}
	}
	own := map[string]string{}
	if len(commits) > 0 { // one question for all that wait
		if own, err = d.tx.EditsOfCommits(ctx, d.trigger.ID, commits); err != nil {
			return nil, "", err
		}
	}
	for _, one := range slices.Backward(d.all) {
		if one.ID == s.ID {
			return nil, "", nil
		}
		if !d.sameEdit(one) || slices.ContainsFunc(one.Edit.Mentions, func(commit string) bool { return own[commit] != "" }) {
			continue
		}
		for _, before := range d.all {
			if before.ID >= s.ID && before.ID < one.ID && d.sameEdit(before) && len(older) < givesWay {
				older = append(older, before)
			}
		}
		return older, one.Cause, nil
	}
	return nil, "", nil
}

// sameEdit reports whether the edit of a signal has not begun, and sets the places of the trigger as it is.
func (d *decision) sameEdit(s core.TriggerSignal) bool {
	return s.Edit != nil && s.Edit.State == core.EditPending && s.Edit.Begun == 0 && d.config.Edit.makes(s.Edit.Inputs)
}

// runInputs are those of the present run of an edit: what was prepared when the event came, and what its run has to know.
func runInputs(organization int64, s core.TriggerSignal) (json.RawMessage, error) {
	all := map[string]any{}
	if err := json.Unmarshal(s.Edit.Inputs, &all); err != nil {
		return nil, fmt.Errorf("read the edit of signal %d: %w", s.ID, err)
	}
	if proposal, _ := all["proposal"].(bool); proposal || s.Edit.NotAfter == nil { // also one that an earlier release has begun
		return s.Edit.Inputs, nil
	}
	// No other installation that writes to the same branch has the same.
	key := fmt.Sprintf("%x", sha256.Sum256(fmt.Appendf(nil, "%d\x00%d\x00%d\x00%d\x00%s", organization, s.TriggerID, s.ID, s.At.UnixMicro(), s.Cause)))[:32]
	if trailers, is := all["trailers"].(map[string]any); is {
		trailers["Lockstep-Edit"] = key
	}
	all["edit"], all["again"], all["look"], all["not_after"] = key, s.Edit.Attempt > s.Edit.Late, s.Edit.Refused != "", s.Edit.NotAfter.Unix()
	inputs, err := json.Marshal(all)
	if err != nil {
		return nil, fmt.Errorf("write the edit of signal %d: %w", s.ID, err)
	}
	return inputs, nil
}
