package git

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/activity"
)

// R4-27: the account of the credential changes, and there are never two comments: the one that is known is changed in its place. Where the
// forge does not permit that, it stays, which is reported, and none is made, however often it is tried. Once it is deleted there is a new
// one. What others have written with the marker is not it.
func TestTheCommentOfAnEarlierAccountIsTheOne(t *testing.T) {
	t.Parallel()
	everyForge(t, func(t *testing.T, s *server, f *pullForge) {
		t.Helper()
		f.note(eve, marker+"\nevil")
		known := ""
		comment := func(body string) activity.CommentReport {
			t.Helper()
			got, err := s.forge.Comment(t.Context(), activity.CommentRequest{
				Organization: 1, RepoURL: s.url, Number: 3, Marker: marker, Body: body, Known: known,
			})
			if err != nil {
				t.Fatal(err)
			}
			return got
		}
		known = comment("old").URL
		f.mu.Lock()
		f.all[1].author = other // as if another credential had made it
		f.mu.Unlock()
		if got := comment("new"); got.URL != known || got.Held != "" {
			t.Errorf("found %+v; want %s changed", got, known)
		}
		f.mu.Lock()
		f.strict = true
		f.mu.Unlock()
		for range 2 {
			if got := comment("newer"); got.URL != known || !strings.Contains(got.Held, "another account") {
				t.Errorf("found %+v; want that it is held", got)
			}
		}
		if diff := cmp.Diff([][]string{{marker + "\nnew"}, nil, {marker + "\nevil"}}, [][]string{f.of(other), f.of(bot), f.of(eve)}); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		f.mu.Lock()
		f.all = slices.DeleteFunc(f.all, func(n noted) bool { return n.author == other })
		f.mu.Unlock()
		for range 2 {
			if got := comment("newest"); got.URL == known || got.Held != "" {
				t.Errorf("found %+v; want another comment", got)
			}
		}
		if diff := cmp.Diff([]string{marker + "\nnewest"}, f.of(bot)); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	})
}

// R4-27: that a comment may not be changed is the fault of another account only where another has written it, and it is known whose the
// credential is: otherwise it is an error, which says what the credential lacks.
func TestAChangeThatIsDeniedForAnotherReasonIsAnError(t *testing.T) {
	t.Parallel()
	everyForge(t, func(t *testing.T, s *server, f *pullForge) {
		t.Helper()
		f.note(other, marker+"\nold")
		h := func(me int64) (held string, err error) {
			err = s.forge.propose(t.Context(), 1, s.url, func(ctx context.Context, h *hosted) error {
				all, err := h.comments(ctx, 3)
				if err != nil {
					return err
				}
				_, held, _, err = h.knownComment(ctx, activity.CommentRequest{Number: 3, Marker: marker, Known: all[0].url}, me, marker+"\nnew")
				return err
			})
			return held, err
		}
		f.mu.Lock()
		f.strict = true
		f.mu.Unlock()
		if held, err := h(0); !fault.Is(err, fault.Denied) || held != "" {
			t.Errorf("found %q, %v; want the error, as it is not known whose the credential is", held, err)
		}
		if held, err := h(bot); err != nil || held == "" {
			t.Errorf("found %q, %v; want that another account has written it", held, err)
		}
	})
}
