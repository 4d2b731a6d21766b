package forge

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/lockstep-cd/lockstep/services/domain/internal/core/rollout"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/trigger"
)

const (
	// maxComment is how many bytes a comment has: GitHub accepts no more than 65,536 characters.
	maxComment = 55_000
	// maxLine is where a line is cut, in characters; shownFiles is how many files of an application are listed.
	maxLine    = 300
	shownFiles = 20
)

// marker is the first line of the comment of an organization, by which it is found again.
func marker(organization int64) string {
	return fmt.Sprintf("<!-- lockstep plan o%d -->", organization)
}

// answersMarker is the first line of the comment with the answers of an organization.
func answersMarker(organization int64) string {
	return fmt.Sprintf("<!-- lockstep answers o%d -->", organization)
}

// answers is the comment with answers to commands, the latest last. In a block of code nothing is a link, so the pages of the console that
// an answer names are below it; console is the address of the console, empty for none.
func answers(all []Answered, console string) string {
	var b strings.Builder
	b.WriteString("### Lockstep\n\nThe latest answers to commands in comments. `/lockstep help` in a comment shows what can be asked.\n")
	for _, a := range all {
		b.WriteString("\n" + fence + "text\n")
		b.WriteString(line(fmt.Sprintf("%s, %s: %s", a.Author, a.At.UTC().Format("2006-01-02 15:04 MST"), a.Command)) + "\n")
		for text := range strings.SplitSeq(a.Answer, "\n") {
			b.WriteString("  " + line(text) + "\n")
		}
		b.WriteString(fence + "\n")
		for text := range strings.SplitSeq(a.Answer, "\n") {
			if isPage(text, console) {
				b.WriteString("\n" + text + "\n")
			}
		}
	}
	return b.String()
}

// isPage is whether a line of an answer is the address of a rollout in the console, and nothing else.
func isPage(text, console string) bool {
	number, of := strings.CutPrefix(text, strings.TrimSuffix(console, "/")+"/rollouts/rollout_")
	_, err := strconv.ParseUint(number, 10, 63)
	return console != "" && of && err == nil
}

// comment is the plan of a pull request as everybody reads it who may see the pull request: without names of people, reasons that they
// gave, and contents of files. All that comes from elsewhere is in a block of code, in which nothing is markup, a mention or a command.
func comment(r reading, all []trigger.Touched, more bool) string {
	var b strings.Builder
	b.WriteString("### Lockstep plan\n\n")
	head := strings.Map(func(c rune) rune {
		if strings.ContainsRune("0123456789abcdef", c) {
			return c
		}
		return -1
	}, r.Head)
	fmt.Fprintf(&b, "What commit %.12s would roll out, as things are now. `/lockstep plan` in a comment plans it again.\n", head)
	if len(all) == 0 && !more && r.differing() == 0 {
		b.WriteString("\nThe change touches no application.\n")
	}
	left := 0
	for _, t := range all {
		block := lines(t, r.Head)
		if b.Len()+len(block) > maxComment-1000 {
			left++
			continue
		}
		b.WriteString("\n" + block)
	}
	if left > 0 {
		fmt.Fprintf(&b, "\nThere are %d more applications, which are not shown.\n", left)
	}
	if more {
		b.WriteString("\nThe change touches more applications than are shown.\n")
	}
	if r.More {
		b.WriteString("\nIt changes more files than were read: it may touch other applications as well.\n")
	}
	if block := resources(r.Resources); len(all) > 0 && block != "" && b.Len()+len(block) < maxComment-keptForRendered {
		b.WriteString("\n" + block)
	}
	b.WriteString(renderedBlocks(r, maxComment-b.Len()))
	if len(all) > 0 {
		b.WriteString(diffs(r.Diffs, maxComment-b.Len()))
	}
	return b.String()
}

// keptForRendered is how many bytes are kept for what is always said of overlays and charts: their numbers.
const keptForRendered = 800

// shownWithheld is how many environments are named that their configuration keeps from being rendered.
const shownWithheld = 10

// renderedBlocks are the environments whose overlays and charts differ once they are rendered: first all objects, then what differs in
// them, as far as there is room, for each environment alike. What is not shown is counted.
func renderedBlocks(r reading, room int) string {
	named := append(slices.Clone(r.Rendered), r.Withheld[:min(len(r.Withheld), shownWithheld)]...)
	if len(named)+r.Unrendered+r.Broken == 0 {
		return ""
	}
	var b strings.Builder
	b.WriteString("\nOverlays and charts, rendered before and after the change:\n")
	unnamed := 0
	var shown []rendered
	for _, one := range named {
		block := "\n" + fence + "text\n" + strings.Join(renderedLines(one), "\n") + "\n" + fence + "\n"
		if b.Len()+len(block) > room-keptForRendered {
			unnamed++
			continue
		}
		b.WriteString(block)
		shown = append(shown, one)
	}
	for _, of := range []struct {
		n    int
		text string
	}{
		{unnamed, "There are %d more environments, for which there is no room here."},
		{max(0, len(r.Withheld)-shownWithheld), "There are %d more environments that are not rendered because of their configuration."},
		{r.Unrendered, "There are %d more environments whose overlays or charts the change may touch, which are not shown."},
		{r.Broken, "Environments that cannot be rendered, before the change either: %d."},
	} {
		if of.n > 0 {
			fmt.Fprintf(&b, "\n"+of.text+"\n", of.n)
		}
	}
	if b.Len() > room {
		return fmt.Sprintf("\nOverlays and charts of %d environments: there is no room for them here.\n", len(named)+unnamedOf(r))
	}
	for i, one := range shown {
		for at, d := range one.Diffs {
			d.Object = one.Application + ", " + one.Environment + ": " + d.Object
			one.Diffs[at] = d
		}
		b.WriteString(diffs(one.Diffs, (room-b.Len())/(len(shown)-i)))
	}
	return b.String()
}

// unnamedOf counts the environments that are never named.
func unnamedOf(r reading) int {
	return r.Unrendered + r.Broken + len(r.Withheld) - min(len(r.Withheld), shownWithheld)
}

// renderedLines say what differs in an environment.
func renderedLines(r rendered) []string {
	all := []string{line(r.Application + ", " + r.Environment)}
	add := func(text string) { all = append(all, "  "+line(text)) }
	if r.Why != "" {
		add("not rendered: " + r.Why)
		return all
	}
	if r.Before != "" {
		add("all objects count as added; before the change it cannot be rendered: " + r.Before)
	}
	for _, one := range r.Resources {
		add(one)
	}
	if len(r.Resources) == 0 {
		add("no object differs")
	}
	return all
}

// shownDiffs is how many objects of a change have their differences in a comment.
const shownDiffs = 40

// diffs are what differs in objects, as far as there is room, each folded.
func diffs(all []diff, room int) string {
	var b strings.Builder
	left := 0
	for i, d := range all {
		if strings.TrimSpace(d.Diff) == "" {
			continue
		}
		var one strings.Builder
		// Within the fence nothing is markup. The name of the object is in it, too.
		one.WriteString("\n<details><summary>What differs</summary>\n\n" + fence + "diff\n# " + line(d.Object) + "\n")
		for text := range strings.Lines(d.Diff) {
			one.WriteString(diffLine(text) + "\n")
		}
		if d.Truncated {
			one.WriteString("# the rest is left out\n")
		}
		one.WriteString(fence + "\n\n</details>\n")
		if i >= shownDiffs || b.Len()+one.Len() > room-200 {
			left++
			continue
		}
		b.WriteString(one.String())
	}
	if rest := fmt.Sprintf("\nWhat differs in %d more objects is not shown.\n", left); left > 0 && b.Len()+len(rest) <= room {
		b.WriteString(rest)
	}
	return b.String()
}

// diffLine is a line of a diff. One that none of a diff begins with is none, and could be a command.
func diffLine(text string) string {
	if text = line(strings.TrimRight(text, "\r\n")); !strings.ContainsAny(text[:min(1, len(text))], " +-@\\") {
		return " " + text
	}
	return text
}

// planStatus is the name of the status of a commit whose plan is in a comment. Those of environments have three parts and more.
const planStatus = "lockstep/plan"

// shownStatus is how many characters of a status forges show.
const shownStatus = 140

// summary is a plan in a few words. It is never a failure: what is refused now may be permitted when the change is merged, and nobody looks
// again before the next push.
func summary(r reading, all []trigger.Touched, more bool) string {
	if len(all) == 0 && !more {
		text := "touches no application"
		if n := r.differing(); n > 0 {
			text += fmt.Sprintf("; environments whose overlays or charts differ: %d", n)
		}
		if n := r.failing(); n > 0 {
			text += fmt.Sprintf("; not rendered: %d", n)
		}
		return text
	}
	var parts []string
	conditions, refused := 0, 0
	applications := map[int64]bool{}
	for _, t := range all {
		applications[t.Application.ID] = true
		parts = append(parts, fmt.Sprintf("%s (%s)", t.Application.Name, t.Plan.Strategy.Words()))
		for _, e := range t.Environments {
			conditions += len(e.Needs)
		}
		if t.Refused != "" {
			refused++
		}
	}
	tail := fmt.Sprintf("; conditions to pass: %d", conditions)
	if refused > 0 {
		tail += fmt.Sprintf("; refused as things are: %d", refused)
	}
	head := line(strings.Join(parts, ", "))
	if more || len(head)+len(tail) > shownStatus {
		head = fmt.Sprintf("applications: %d", len(applications))
		if more {
			head = fmt.Sprintf("applications: more than %d", len(applications))
		}
	}
	return head + tail
}

// fence is around what comes from elsewhere. A line cannot contain it.
const fence = "```"

// line is a text as one line of a block of code.
func line(text string) string {
	text = strings.Map(func(c rune) rune {
		switch {
		case c == '`': // it could end the block
			return '\''
		case unicode.IsControl(c), unicode.Is(unicode.Cf, c), c == '\u2028', c == '\u2029': // also those that change the direction of text
			return ' '
		default:
			return c
		}
	}, strings.ToValidUTF8(text, "\uFFFD"))
	return cut(text, maxLine)
}

// lines are what is known of one application. Other commits than the head may be of repositories that not everybody sees who sees this one.
func lines(t trigger.Touched, head string) string {
	var b strings.Builder
	b.WriteString(fence + "text\n")
	add := func(indent int, text string) { b.WriteString(strings.Repeat("  ", indent) + line(text) + "\n") }
	add(0, t.Application.Name+": "+t.Begins)
	why := t.Plan.Why
	if t.Plan.SHA != head {
		why = t.Plan.WithoutCommit()
	}
	if why != "" {
		add(1, t.Plan.Strategy.Words()+": "+why)
	}
	if t.Refused != "" { // the reason may be what a member wrote
		add(1, "REFUSED as things are; lockstep plan says why")
	}
	for _, f := range t.Files[:min(len(t.Files), shownFiles)] {
		add(1, "changed: "+f)
	}
	if left := t.FileCount - min(len(t.Files), shownFiles); left > 0 {
		add(1, fmt.Sprintf("changed: %d more", left))
	}
	for _, e := range t.Environments {
		add(1, e.Environment.Name)
		for _, n := range e.Needs {
			add(2, needLine(n))
		}
		if len(e.Needs) == 0 {
			add(2, "nothing is required")
		}
	}
	b.WriteString(fence + "\n")
	return b.String()
}

// needLine is a condition without the people behind it, and without what they wrote.
func needLine(n rollout.Need) string {
	text := string(n.Kind)
	if n.Subject != "" {
		text += " " + n.Subject
	}
	switch n.Kind {
	case rollout.NeedControl:
		return text + ": it stops the rollout as things are"
	case rollout.NeedPolicy:
		return text + ": policies deny it as things are"
	case rollout.NeedApproval:
		var who []string
		for _, r := range n.Requirements {
			if r.Group == "" {
				who = append(who, fmt.Sprintf("%d of those who may approve", r.Quorum))
			} else {
				who = append(who, fmt.Sprintf("%d of %s", r.Quorum, r.Group))
			}
		}
		return text + ": by " + strings.Join(who, " and ")
	case rollout.NeedCheck:
	}
	return text + ": " + n.Detail
}

// resources are the objects that a change is about.
func resources(all []string) string {
	if len(all) == 0 {
		return ""
	}
	var b strings.Builder
	b.WriteString("Objects in the first of the changed manifests:\n\n" + fence + "text\n")
	for _, r := range all {
		b.WriteString(line(r) + "\n")
	}
	b.WriteString(fence + "\n")
	return b.String()
}
