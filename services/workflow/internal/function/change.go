package function

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/activity"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/history"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/function/manifest"
)

const (
	// mostShown is how many objects of a change are named.
	mostShown = 100
	// mostSubject is where the message of a change is cut, in bytes.
	mostSubject = 4096
	// mostAsking is how many people are looked up at the forge.
	mostAsking = 10
	// mostComment is how many bytes a comment may have: GitHub accepts no more than 65,536 characters.
	mostComment = 60_000
)

// pullFields name a pull request.
func pullFields(more ...Field) []Field {
	return append([]Field{
		{Name: "repo_url", Doc: "The repository's URL, `https://…`.", Type: Text, Required: true},
		{Name: "number", Doc: "The number of the pull request.", Type: Number, Least: 1, Required: true},
	}, append(more, gitCredentialField())...)
}

// readChange is git.read_change.
func readChange(forge activity.Forge) *Function {
	return &Function{
		spec: Spec{
			Name: "git.read_change", Location: activity.InProcess, Retry: RetryUnavailable, Idempotent: true, Effect: activity.Reads,
			Doc: "Reads what a pull request, or merge request, would change. Answers `{result, why, wait, quota, url, state, into, base, head, message,\n" +
				"refused, paths, more, resources, diffs}`: `result` is `read`, or `limited` if the forge accepts no more requests for now, with `why`, `wait` and `quota` as\n" +
				"of `git.set_status`. `state` is `open`, `merged` or `closed`. `base` is the commit that `head` is compared with; it is empty where contents\n" +
				"are not to be shown, as of a pull request from a fork. `paths` are the files that it changes, and `more` whether there are others.\n" +
				"`resources` are the objects that differ in the first 20 manifests among them, such as `changed Deployment shop/api`. Those of files of\n" +
				"more than 128 KiB, of what is beyond 1 MiB together, and of files with YAML's aliases are counted, and not named. `diffs` are what\n" +
				"differs in the first of them, `{object, diff, truncated}`, in the form and order of `kubectl diff`: keys in order, without comments. Of\n" +
				"secrets there are the keys whose values differ, and no values. There are none of a pull request from a fork.\n\n" +
				"Of one that comes from a fork nothing is read unless one of `asked_by` may write to the repository: `refused` says so. One of no branch\n" +
				"counts as from a fork: Gitea and Forgejo let everybody who may read push to `refs/for/main`. While GitLab is still preparing a merge\n" +
				"request, the error is `conflict`.\n\n" +
				"The repository needs a credential with a `forge`.",
			Arguments: pullFields(Field{
				Name: "asked_by", Type: List, Element: &Field{Type: Text, Required: true},
				Doc: "Who has asked for it, at most ten, by the name at GitHub, Gitea and Forgejo, and by the number of the user at GitLab.",
			}),
			Check: func(args map[string]any) []fault.Field {
				if n := len(list(args, "asked_by")); n > mostAsking {
					return []fault.Field{{Name: "asked_by", Problem: fmt.Sprintf("found %d names, expected at most %d", n, mostAsking)}}
				}
				return nil
			},
		},
		do: func(ctx context.Context, call activity.Call) (any, error) {
			number, _ := whole(call.Args["number"])
			c, err := forge.ReadChange(withLogin(ctx, call), activity.ChangeRequest{
				Organization: call.Organization, RepoURL: text(call.Args, "repo_url"), Number: number, AskedBy: list(call.Args, "asked_by"),
			})
			if err != nil {
				return nil, withoutForge(err)
			}
			message := c.Message[:min(len(c.Message), mostSubject)]
			resources, diffs, err := resourcesOf(ctx, c)
			if err != nil {
				return nil, fault.Because(err, fault.Unavailable, "what the pull request changes was not read to its end")
			}
			answer := limitAnswer(c.Limit, "read")
			answer["url"], answer["state"], answer["into"], answer["head"] = c.URL, c.State, c.Into, c.Head
			answer["message"], answer["refused"] = strings.ToValidUTF8(message, ""), c.Refused
			answer["paths"], answer["more"], answer["resources"] = anyOf(c.Paths), c.More, anyOf(resources)
			answer["diffs"], answer["base"] = diffs, ""
			if !c.Fork {
				answer["base"] = c.Base
			}
			return answer, nil
		},
	}
}

// resourcesOf are the objects that a change is about, as far as its manifests were read, and what differs in them.
func resourcesOf(ctx context.Context, c activity.Change) (names []string, diffs []any, err error) {
	var files []manifest.Revision
	unread := 0
	for _, f := range c.Files {
		if f.Unread {
			unread++
			continue
		}
		files = append(files, manifest.Revision{Path: f.Path, Before: string(f.Before), After: string(f.After)})
	}
	all, unnamed, err := manifest.Resources(ctx, files)
	if err != nil {
		return nil, nil, err
	}
	more := max(0, len(all)-mostShown)
	all = all[:len(all)-more]
	for _, one := range all {
		names = append(names, one.String())
	}
	if more > 0 {
		names = append(names, fmt.Sprintf("and %d more", more))
	}
	if unread += unnamed; unread > 0 {
		names = append(names, fmt.Sprintf("and those in %d manifests that are too large, or have aliases or a key twice", unread))
	}
	if c.Fork {
		return names, []any{}, nil
	}
	shown, err := manifest.ResourceDiffs(ctx, files, all)
	return names, diffsOf(shown), err
}

func anyOf(texts []string) []any {
	all := make([]any, len(texts))
	for i, t := range texts {
		all[i] = t
	}
	return all
}

// CodeNotConfigured is a call for whose repository no forge is configured: nothing was sent.
const CodeNotConfigured = "not_configured"

// withoutForge gives the error of a repository without a forge a code of its own, by which its caller knows that no account was used.
func withoutForge(err error) error {
	if _, is := errors.AsType[activity.NoForgeError](err); is {
		return &history.FunctionError{Code: CodeNotConfigured, Message: fault.Public(err)}
	}
	return err
}

// limitAnswer is what a forge says about its limits, and the result if it accepts the request.
func limitAnswer(l activity.Limit, result string) map[string]any {
	answer := map[string]any{"result": result, "why": l.Limited, "wait": int64(math.Ceil(l.Wait.Seconds())), "quota": nil, "shared": l.Shared}
	if l.Limited != "" {
		answer["result"] = "limited"
	}
	if q := l.Quota; q != nil {
		answer["quota"] = map[string]any{"limit": q.Limit, "remaining": q.Remaining, "resets_at": q.ResetsAt.Format(time.RFC3339)}
	}
	return answer
}

// writeComment is git.comment.
func writeComment(forge activity.Forge) *Function {
	return &Function{
		spec: Spec{
			Name: "git.comment", Location: activity.InProcess, Retry: RetryUnavailable, Idempotent: true,
			Effect: activity.Publishes, Touches: touchesRepository,
			Doc: "Has a pull request, or merge request, have a comment of which there is one. Answers `{result, why, wait, quota, shared, url, held}` as\n" +
				"`git.set_status` does; `url` is empty if there is none.\n\n" +
				"The comment is found again by `marker`, its first line, among those of the credential's own account; others with the line are left alone.\n" +
				"Of several that are its own the oldest stays. If it has none, the comment at `known` is changed, also one of another account; where the\n" +
				"forge does not permit that, `held` says so, and no other comment is made.\n\nThe repository needs a credential with a `forge`.",
			Arguments: pullFields(
				Field{Name: "marker", Doc: "The first line of the comment, such as `<!-- mine -->`.", Type: Text, Required: true},
				Field{Name: "body", Doc: "The rest of it, in Markdown; at most 60,000 bytes.", Type: Text, Required: true},
				Field{Name: "known", Doc: "The `url` of an earlier answer, by which the comment is found after the account has changed.", Type: Text},
				Field{Name: "only_known", Doc: "Whether only a comment that exists is changed, and none is made.", Type: Flag},
			),
			Check: func(args map[string]any) []fault.Field {
				if body := text(args, "body"); len(body) > mostComment || !utf8.ValidString(body) {
					return []fault.Field{{Name: "body", Problem: fmt.Sprintf("found %d bytes, expected at most %d of UTF-8", len(body), mostComment)}}
				}
				return nil
			},
		},
		do: func(ctx context.Context, call activity.Call) (any, error) {
			number, _ := whole(call.Args["number"])
			only, _ := call.Args["only_known"].(bool)
			r, err := forge.Comment(withLogin(ctx, call), activity.CommentRequest{
				Organization: call.Organization, RepoURL: text(call.Args, "repo_url"), Number: number, Marker: text(call.Args, "marker"),
				Body: text(call.Args, "body"), OnlyKnown: only, Known: text(call.Args, "known"),
			})
			if err != nil {
				return nil, withoutForge(err)
			}
			answer := limitAnswer(r.Limit, "set")
			answer["url"], answer["held"] = r.URL, r.Held
			return answer, nil
		},
	}
}
