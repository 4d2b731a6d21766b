package events_test

import (
	"slices"
	"testing"

	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/pkg/event"
	"github.com/lockstep-cd/lockstep/services/registry/internal/core"
	"github.com/lockstep-cd/lockstep/services/registry/internal/events"
)

// R4-26: the event of a commit has the files and the messages of all that is new, an empty message as well; none where they are not known.
func TestTheEventOfACommitHasWhatIsNew(t *testing.T) {
	t.Parallel()
	for messages, want := range map[string][]string{"docs: a\n\nb\x00feat: c": {"docs: a\n\nb", "feat: c"}, "docs: a\x00": {"docs: a", ""}, "": nil} {
		a, problems := core.Check(core.Notification{
			Source: "git", ID: "1", Image: "git:git.example.com/shop/config#main", Digest: "0123456789abcdef0123456789abcdef01234567", Message: "docs: a",
			Since: "1123456789abcdef0123456789abcdef01234567", Files: "a\nb", Messages: messages,
		})
		if len(problems) > 0 {
			t.Fatal(problems)
		}
		sealed, err := events.NewEncoder(clock.System()).Encode(a)
		if err != nil {
			t.Fatal(err)
		}
		e, err := sealed.Event()
		if err != nil {
			t.Fatal(err)
		}
		data, err := event.Decode[event.ArtifactPublished](e)
		if err != nil || !slices.Equal(data.ChangedMessages, want) || !slices.Equal(data.ChangedFiles, []string{"a", "b"}) {
			t.Errorf("%q: found %+v, %v; want the messages %q", messages, data, err, want)
		}
	}
}
