package function

import (
	"context"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/id"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/activity"
)

// readFile is git.read_file: content and sha, the commit that it was read at.
func readFile(forge activity.Forge) *Function {
	return &Function{
		spec: Spec{
			Name: "git.read_file", Location: activity.InProcess, Retry: RetryUnavailable, Idempotent: true, Effect: activity.Reads,
			Doc: "Reads a text file of a Git repository. Answers `{content, sha}`: the text, and the commit that it was read from.",
			Arguments: []Field{
				{Name: "repo_url", Doc: "The repository's URL, `https://…`, or `ssh://…` with an SSH key.", Type: Text, Required: true},
				{Name: "ref", Doc: "A branch, tag or commit.", Type: Text, Required: true},
				{Name: "path", Doc: "The file's path in the repository.", Type: Text, Required: true},
				gitCredentialField(),
			},
		},
		do: func(ctx context.Context, call activity.Call) (any, error) {
			ctx, path := withLogin(ctx, call), text(call.Args, "path")
			content, sha, err := forge.ReadFile(ctx, call.Organization, text(call.Args, "repo_url"), text(call.Args, "ref"), path)
			if err != nil {
				return nil, err
			}
			// It would not survive JSON: every byte that is no text comes back as another.
			if !utf8.Valid(content) {
				return nil, fault.InvalidFields(fault.Field{Name: "path", Problem: fmt.Sprintf("found %q, which is not UTF-8 text", path)})
			}
			return map[string]any{"content": string(content), "sha": sha}, nil
		},
	}
}

// mostMessage is where the message of a commit is cut, in bytes.
const mostMessage = 64 << 10

// readCommit is git.read_commit.
func readCommit(forge activity.Forge) *Function {
	return &Function{
		spec: Spec{
			Name: "git.read_commit", Location: activity.InProcess, Retry: RetryUnavailable, Idempotent: true, Effect: activity.Reads,
			Doc: "Reads a commit of a Git repository. Answers `{sha, subject, body, author, committer, trailers}`. `author` and `committer` are\n" +
				"`{name, email, time}`, which is what the commit claims. `trailers` are the lines `Key: value` that its message ends with: the values by\n" +
				"key, as lists. Of a message of more than 64 KiB the rest is left out, with its trailers.\n" +
				"With `edit`, it is the latest of the last commits of the branch that Lockstep has made with that value as the trailer `Lockstep-Edit`; its `sha` is\n" +
				"empty if there is none.",
			Arguments: []Field{
				{Name: "repo_url", Doc: "The repository's URL, `https://…`, or `ssh://…` with an SSH key.", Type: Text, Required: true},
				{Name: "ref", Doc: "A branch, tag or commit.", Type: Text, Required: true},
				{Name: "edit", Doc: "The value of a trailer `Lockstep-Edit`; `ref` is a branch then.", Type: Text},
				gitCredentialField(),
			},
		},
		do: func(ctx context.Context, call activity.Call) (any, error) {
			var c activity.CommitInfo
			var err error
			if edit := text(call.Args, "edit"); edit != "" {
				repository, branch := text(call.Args, "repo_url"), text(call.Args, "ref")
				c, err = forge.FindCommit(withLogin(ctx, call), call.Organization, repository, branch, editTrailer, edit)
			} else {
				c, err = forge.ReadCommit(withLogin(ctx, call), call.Organization, text(call.Args, "repo_url"), text(call.Args, "ref"))
			}
			if err != nil {
				return nil, err
			}
			message := strings.ToValidUTF8(c.Message[:min(len(c.Message), mostMessage)], "\uFFFD")
			subject, body := splitMessage(message)
			return map[string]any{
				"sha": c.SHA, "subject": subject, "body": body, "author": signature(c.Author), "committer": signature(c.Committer),
				"trailers": trailers(message),
			}, nil
		},
	}
}

func signature(s activity.Signature) map[string]any {
	return map[string]any{
		"name": strings.ToValidUTF8(s.Name, "\uFFFD"), "email": strings.ToValidUTF8(s.Email, "\uFFFD"), "time": s.At.Format(time.RFC3339),
	}
}

// splitMessage separates a message's first paragraph, as one line, from the rest, as Git does.
func splitMessage(message string) (subject, body string) {
	message = strings.Trim(strings.ReplaceAll(message, "\r\n", "\n"), "\n")
	subject, body, _ = strings.Cut(message, "\n\n")
	return strings.ReplaceAll(subject, "\n", " "), strings.Trim(body, "\n")
}

// trailer is a line of a message's last paragraph.
var trailer = regexp.MustCompile(`^([A-Za-z0-9][A-Za-z0-9-]{0,99}): *(.*)$`)

// trailers are those of a message, the values by key. Only a paragraph that has no other lines is one of trailers, and never the first: a
// sentence with a colon is none.
func trailers(message string) map[string]any {
	_, body := splitMessage(message)
	paragraphs := strings.Split(strings.TrimSpace(body), "\n\n")
	found := map[string]any{}
	var last string
	for line := range strings.SplitSeq(paragraphs[len(paragraphs)-1], "\n") {
		switch m := trailer.FindStringSubmatch(line); {
		case m != nil:
			last = m[1]
			values, _ := found[last].([]any)
			found[last] = append(values, strings.TrimSpace(m[2]))
		case last != "" && strings.HasPrefix(line, " "): // it continues the one before
			values, _ := found[last].([]any)
			joined, _ := values[len(values)-1].(string)
			values[len(values)-1] = joined + " " + strings.TrimSpace(line)
		default:
			return map[string]any{}
		}
	}
	return found
}

// commit is git.commit: the id of the commit that has the files. The call's id is the commit's activity, so that a repeat
// finds it.
func commit(forge activity.Forge) *Function {
	return &Function{
		// Tried again even though the answer to a push may be what got lost: the activity finds the commit (E24).
		spec: Spec{
			Name: "git.commit", Location: activity.InProcess, Retry: RetryUnavailable, Idempotent: false,
			Effect: activity.Changes, Touches: touchesFiles,
			Doc: "Commits files to a branch, and answers the id of the commit. It takes either one file, as `path` and `content`, or several, as\n" +
				"`files`. If nothing would change, the answer is the branch's current commit.",
			Arguments: []Field{
				{Name: "repo_url", Doc: "The repository's URL, `https://…`, or `ssh://…` with an SSH key.", Type: Text, Required: true},
				{Name: "branch", Doc: "The branch to commit to.", Type: Text, Required: true},
				{Name: "base", Doc: "The commit that the files were made from. If one of them has changed since, the commit is refused.", Type: Text},
				{Name: "path", Doc: "The path of the one file.", Type: Text},
				{Name: "content", Doc: "The text of the one file.", Type: Text},
				{Name: "files", Doc: "Several files.", Type: List, Element: &Field{Type: Object, Fields: []Field{
					{Name: "path", Doc: "The file's path in the repository.", Type: Text, Required: true},
					{Name: "content", Doc: "The file's text.", Type: Text, Required: true, Empty: true},
				}}},
				{
					Name: "message", Type: Text, Required: true,
					Doc: "The commit's message. No line begins with `Lockstep-Activity:`, `Lockstep-Proposal:` or `Lockstep-Merged:`.",
				},
				{Name: "trailers", Doc: "Trailers of the message: letters, digits and hyphens as keys.", Type: Texts},
				gitCredentialField(),
			},
		},
		do: func(ctx context.Context, call activity.Call) (any, error) {
			files, err := filesOf(call.Args)
			if err != nil {
				return nil, err
			}
			sha, err := forge.Commit(withLogin(ctx, call), activity.CommitRequest{
				Organization: call.Organization,
				RepoURL:      text(call.Args, "repo_url"), Branch: text(call.Args, "branch"), Base: text(call.Args, "base"),
				Files: files, Message: text(call.Args, "message"), Trailers: texts(call.Args, "trailers"), Activity: call.ID,
				Shared: sharedTrailer(call.Workflow),
			})
			if err != nil {
				return nil, err
			}
			return sha, nil
		},
	}
}

// editTrailer is what the domain service has the commits of one edit have in common.
const editTrailer = "Lockstep-Edit"

// sharedTrailer is the key of the trailer by which a run finds the commit of another one. The attempts of an edit that an event makes are
// several runs, and the answer of one that has committed may be lost.
func sharedTrailer(run string) string {
	if _, attempt := id.TriggerEdit(run); attempt > 0 {
		return editTrailer
	}
	return ""
}

// gitCredentialField names a credential.
func gitCredentialField() Field {
	return Field{
		Name: "credential", Type: Text,
		Doc: "The name of a credential of the organization, or of one that an operator has configured for it (`git_credentials`), " +
			"for this repository; or of " +
			"one of the run's `secrets` with the same reference; by default the credential with the longest matching URL.",
	}
}

// withLogin has the Forge use the credential that a call names.
func withLogin(ctx context.Context, call activity.Call) context.Context {
	return activity.WithLogin(ctx, activity.Login{Name: text(call.Args, "credential"), Secrets: call.Secrets})
}

// touchesFiles are the files that a commit changes; none where the arguments are refused.
func touchesFiles(args map[string]any) []activity.Place {
	files, err := filesOf(args)
	if err != nil {
		return nil
	}
	var touched []activity.Place
	for _, path := range slices.Sorted(maps.Keys(files)) {
		touched = append(touched, activity.Place{Repository: text(args, "repo_url"), Branch: text(args, "branch"), Path: path})
	}
	return touched
}

// filesOf reads the one file given as path and content, or the several given as files.
func filesOf(args map[string]any) (map[string][]byte, error) {
	files := map[string][]byte{}
	list, isList := args["files"].([]any)
	_, isPath := args["path"].(string)
	content, isContent := args["content"].(string)
	if isList == isPath || isPath != isContent || (isList && len(list) == 0) {
		return nil, fault.InvalidFields(fault.Field{Name: "files", Problem: "expected either path and content, or files that are not empty"})
	}
	if isPath {
		files[text(args, "path")] = []byte(content)
	}
	for i, f := range list {
		file, _ := f.(map[string]any)
		path := text(file, "path")
		if _, twice := files[path]; twice {
			return nil, fault.InvalidFields(fault.Field{
				Name:    fmt.Sprintf("files[%d].path", i),
				Problem: fmt.Sprintf("found %q a second time", path),
			})
		}
		files[path] = []byte(text(file, "content"))
	}
	return files, nil
}

// text is a string argument that was checked; "" where it was not given.
func text(args map[string]any, name string) string {
	s, _ := args[name].(string)
	return s
}

func texts(args map[string]any, name string) map[string]string {
	m, _ := args[name].(map[string]any)
	out := make(map[string]string, len(m))
	for _, key := range slices.Sorted(maps.Keys(m)) {
		out[key] = text(m, key)
	}
	return out
}
