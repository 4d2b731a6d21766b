package gitfetch

import (
	"regexp"
	"strings"
)

// ourTrailer is a line that a driver of Lockstep, or the workflow service itself, ends a message with. Anybody who may push can write one.
var ourTrailer = regexp.MustCompile(`^(Lockstep-[A-Za-z0-9-]{1,50}): ([[:print:]]{1,200})$`)

// Trailers returns those of Lockstep in the last paragraph of a commit message: a commit without any was not made by Lockstep.
func Trailers(message string) map[string]string {
	paragraphs := strings.Split(strings.TrimSpace(strings.ReplaceAll(message, "\r\n", "\n")), "\n\n")
	found := map[string]string{}
	for line := range strings.SplitSeq(paragraphs[len(paragraphs)-1], "\n") {
		if m := ourTrailer.FindStringSubmatch(line); m != nil {
			found[m[1]] = m[2]
		}
	}
	return found
}

// Own reports whether a commit was made by Lockstep for a rollout, by its trailers, so that it begins no other one. A proposal counts
// only if it names its rollout: once people have merged another one, such as an edit of a trigger, it is new (R4-28).
func Own(message string) bool {
	trailers := Trailers(message)
	_, proposed := trailers["Lockstep-Proposal"]
	_, rollout := trailers["Lockstep-Rollout"]
	return len(trailers) > 0 && (!proposed || rollout)
}
