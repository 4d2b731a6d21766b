package function

import (
	"fmt"
	"strings"

	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/activity"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/function/manifest"
)

const (
	// mostInText bounds the differences in the text of a pull request, in bytes: Bitbucket takes no more than 32 KiB of text, GitHub 64 KiB.
	mostInText = 16 << 10
	// leastFence is the length of a fence of Markdown.
	leastFence = 3
)

// showDifference is the difference of a proposal in Markdown, file by file, for the text of its pull request. It is made of the files
// without what looks like a secret.
func showDifference(files []activity.ChangedFile) string {
	if len(files) == 0 {
		return ""
	}
	var text strings.Builder
	text.WriteString("What it changes:\n")
	left, named, unnamed := mostInText, 0, 0
	for _, f := range files {
		if left <= 0 || f.Unread && named >= activity.MostShownFiles {
			unnamed++
			continue
		}
		named++
		part := showFile(f, left)
		left -= len(part)
		text.WriteString("\n" + part)
	}
	if unnamed > 0 {
		fmt.Fprintf(&text, "\nFiles that are not shown here: %d. The commit has all of them.\n", unnamed)
	}
	return strings.TrimSpace(text.String())
}

// showFile is the difference of one file within so many bytes, about.
func showFile(f activity.ChangedFile, most int) string {
	head := "- `" + strings.NewReplacer("`", "'", "\n", " ", "\r", " ").Replace(f.Path) + "`"
	if f.Unread {
		return head + ": not shown here, since it is too large or no text. The commit has it.\n"
	}
	changes, err := manifest.DiffShown([]manifest.Revision{{Path: f.Path, Before: string(f.Before), After: string(f.After)}}, most)
	if err != nil || len(changes) == 0 {
		return head + ": not shown here. The commit has it.\n"
	}
	note := ""
	if changes[0].Redacted {
		note += " Values that look like secrets are left out."
	}
	if changes[0].Truncated {
		note += " The difference is cut here; the commit has all of it."
	}
	if note != "" {
		note = "\n" + strings.TrimSpace(note) + "\n"
	}
	return head + "\n\n" + fenced(changes[0].Diff) + note
}

// fenced is a text as a block of code, with a fence that is longer than any in the text. Nothing in it ends the block, and no line of it
// begins with what a forge takes for a command.
func fenced(text string) string {
	longest, run := 0, 0
	for _, r := range text {
		if run++; r != '`' {
			run = 0
		}
		longest = max(longest, run)
	}
	fence := strings.Repeat("`", max(leastFence, longest+1))
	return fence + "diff\n" + strings.TrimRight(strings.ReplaceAll(text, "\r", ""), "\n") + "\n" + fence + "\n"
}
