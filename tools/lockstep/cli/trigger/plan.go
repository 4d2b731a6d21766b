package trigger

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/url"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/tools/lockstep/cli/command"
	"github.com/lockstep-cd/lockstep/tools/lockstep/client"
)

// planFlags say which change is planned.
type planFlags struct {
	folder, base, head  string
	repository, message string
	paths               []string
	strict              bool
	set                 string
}

// plan is the command that says what the change of a checkout would roll out.
func (c commands) plan() *cobra.Command {
	var f planFlags
	cmd := c.Asking("plan", "Show what a change of a Git repository would roll out, by which strategy, and what it would have to pass",
		"  lockstep plan --repo . --base main\n  lockstep plan --base main --strict -o json    # in CI: exit code 4 if a rollout would be refused\n"+
			"  lockstep plan --repository git.example.com/shop/config --base main --path deploy/api.yaml    # without a checkout\n"+
			"  lockstep plan --set versionset_7    # what a rollout of that set would change",
		command.Exactly(0),
		func(cmd *cobra.Command, api *client.Client, _ []string) error {
			if f.set != "" {
				return c.previewSet(cmd.Context(), api, f.set)
			}
			change, err := f.change(cmd.Context())
			if err != nil {
				return err
			}
			plan, err := api.PlanPreview(cmd.Context(), change)
			if err != nil {
				return err
			}
			if err := c.Print(plan, func(w io.Writer) { planTable(w, plan) }); err != nil {
				return err
			}
			return f.judge(plan)
		})
	cmd.GroupID = "objects"
	cmd.Flags().StringVar(&f.folder, "repo", ".", "a `folder` of the checkout")
	cmd.Flags().StringVar(&f.base, "base", "main", "the `branch` that the change goes to")
	cmd.Flags().StringVar(&f.head, "head", "HEAD", "the last `commit` of the change; what is not committed does not count")
	cmd.Flags().StringVar(&f.repository, "repository", "", "the `URL` of the repository, as sources of applications name it; by default that of the remote origin")
	cmd.Flags().StringArrayVar(&f.paths, "path", nil, "a changed `file`, instead of those of the checkout; repeatable")
	cmd.Flags().StringVar(&f.message, "message", "", "the `message` of the commit, instead of that of the checkout")
	cmd.Flags().BoolVar(&f.strict, "strict", false, "end with exit code 4 if the rollout of an application would be refused")
	cmd.Flags().StringVar(&f.set, "set", "", "the `id` of a version set: what a rollout of it would change now, instead of a change of a repository")
	cmd.MarkFlagsMutuallyExclusive("set", "path")
	cmd.MarkFlagsMutuallyExclusive("set", "message")
	return cmd
}

// previewSet has the drivers say what a rollout of a version set would change, and waits for them.
func (c commands) previewSet(ctx context.Context, api *client.Client, set string) error {
	p, err := api.PreviewRollout(ctx, set)
	for err == nil && p.State == "PENDING" {
		if err = clock.Sleep(ctx, c.Clock, command.WatchPause); err == nil {
			p, err = api.Preview(ctx, p.ID)
		}
	}
	if err != nil {
		return err
	}
	if p.State == "FAILED" {
		return fault.New(fault.Refused, "the drivers could not say what a rollout would change: %s", p.Reason)
	}
	return c.Print(client.Plan{Applications: []client.PlannedApplication{}, Preview: &p}, func(w io.Writer) { previewTable(w, p) })
}

// previewTable prints what a rollout would change.
func previewTable(w io.Writer, p client.Preview) {
	for _, e := range p.Environments {
		command.Row(w, e.Environment.Name)
		if e.Reason != "" {
			command.Row(w, "  not known: "+e.Reason)
		}
		if c := e.Compared; c != nil {
			if c.Reason != "" {
				command.Row(w, "  the manifests could not be compared: "+c.Reason)
			}
			for _, t := range c.Things {
				line := fmt.Sprintf("  %s: %s %s", strings.ToLower(strings.ReplaceAll(t.Kind, "_", " ")), t.Object, t.Action)
				if t.Detail != "" {
					line += " (" + t.Detail + ")"
				}
				command.Row(w, line)
			}
			if c.Reason == "" && c.Commit != "" {
				command.Row(w, "  compared at "+c.Commit)
			}
			if c.Reason == "" && len(c.Things) == 0 {
				command.Row(w, "  nothing that runs would change")
			}
		}
		for _, change := range e.Changes {
			command.Row(w, "  changed: "+change.Path)
		}
	}
}

// judge is the error of a plan with which --strict ends.
func (f planFlags) judge(plan client.Plan) error {
	var refused []string
	for _, a := range plan.Applications {
		if a.Refused != "" {
			refused = append(refused, a.Application.Name)
		}
	}
	if !f.strict || len(refused) == 0 {
		return nil
	}
	return fault.New(fault.Refused, "the rollouts of these applications would be refused: %s", strings.Join(refused, ", "))
}

// change is the change that the flags name.
func (f planFlags) change(ctx context.Context) (client.Change, error) {
	n := client.Change{Branch: strings.TrimPrefix(strings.TrimPrefix(f.base, "refs/heads/"), "origin/"), Paths: f.paths, Message: f.message}
	var err error
	if n.Repository, err = f.named(ctx); err != nil || len(f.paths) > 0 {
		slices.Sort(n.Paths)
		return n, err
	}
	base := n.Branch
	if _, err := f.git(ctx, "rev-parse", "--verify", "--quiet", "--end-of-options", base+"^{commit}"); err != nil {
		base = "origin/" + n.Branch // a checkout in CI often has no branches of its own
	}
	changed, err := f.git(ctx, "diff", "--name-only", "--no-renames", "-z", "--end-of-options", base+"..."+f.head, "--")
	if err != nil {
		return n, err
	}
	n.Paths = slices.DeleteFunc(strings.Split(changed, "\x00"), func(p string) bool { return p == "" })
	slices.Sort(n.Paths)
	last, err := f.git(ctx, "log", "-1", "--format=%H%x00%B", "--end-of-options", f.head, "--")
	if err != nil {
		return n, err
	}
	sha, message, _ := strings.Cut(last, "\x00")
	n.SHA = strings.TrimSpace(sha)
	if n.Message == "" {
		n.Message = strings.TrimSpace(message)
	}
	return n, nil
}

// named is the repository that is planned for.
func (f planFlags) named(ctx context.Context) (string, error) {
	if f.repository != "" {
		return repositoryOf(f.repository), nil
	}
	remote, err := f.git(ctx, "remote", "get-url", "origin")
	if err != nil {
		return "", fault.Because(err, fault.Invalid, "--repository: found no remote origin in %s (%s); expected the URL of the repository", f.folder, fault.Public(err))
	}
	return repositoryOf(strings.TrimSpace(remote)), nil
}

// scpLike is the form user@host:path of a remote.
var scpLike = regexp.MustCompile(`^(?:[^@/:]+@)?([^/:]+):([^/].*)$`)

// repositoryOf is a remote as host and path, which sources are compared with: without scheme, user and port of SSH.
func repositoryOf(remote string) string {
	if u, err := url.Parse(remote); err == nil && u.Host != "" {
		host := u.Host
		if u.Scheme == "ssh" {
			host = u.Hostname()
		}
		return host + "/" + strings.Trim(u.EscapedPath(), "/")
	}
	if m := scpLike.FindStringSubmatch(remote); m != nil {
		return m[1] + "/" + strings.Trim(m[2], "/")
	}
	return remote
}

// git runs git in the checkout.
func (f planFlags) git(ctx context.Context, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "git", append([]string{"-C", f.folder}, args...)...) //nolint:gosec // arguments, and none is taken for an option
	var out, problem bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &problem
	if err := cmd.Run(); err != nil {
		text := strings.TrimSpace(problem.String())
		if text == "" {
			text = err.Error()
		}
		return "", fault.New(fault.Invalid, "git %s: %s", args[0], text)
	}
	return out.String(), nil
}

// planTable prints a plan.
func planTable(w io.Writer, plan client.Plan) {
	if len(plan.Applications) == 0 {
		command.Row(w, "The change touches no application.")
	}
	for i, a := range plan.Applications {
		if i > 0 {
			fmt.Fprintln(w)
		}
		command.Row(w, a.Application.Name+": "+a.Begins)
		if a.StrategyReason != "" {
			command.Row(w, "  "+map[string]string{"QUICK": "quick sync", "PIPELINE": "pipeline"}[a.Strategy]+": "+a.StrategyReason)
		}
		if a.Refused != "" {
			command.Row(w, "  REFUSED as things are: "+a.Refused)
		}
		for _, f := range a.Files {
			command.Row(w, "  changed: "+f)
		}
		if more := a.FileCount - len(a.Files); more > 0 {
			command.Row(w, fmt.Sprintf("  changed: %d more", more))
		}
		for _, e := range a.Environments {
			command.Row(w, "  "+e.Environment.Name)
			for _, n := range e.Needs {
				command.Row(w, "    "+needLine(n))
			}
			if len(e.Needs) == 0 {
				command.Row(w, "    nothing is required")
			}
			if d := e.Deadline; d != nil {
				command.Row(w, "    "+deadlineLine(*d))
			}
		}
	}
	if plan.More {
		fmt.Fprintln(w)
		command.Row(w, "The change touches more applications than are shown.")
	}
}

// deadlineLine is how long a rollout may take in an environment, in one line.
func deadlineLine(d client.PlannedDeadline) string {
	line := "deadline: " + (time.Duration(d.Seconds) * time.Second).String()
	if d.AtWork {
		line += " at work"
	}
	return line + ", then " + map[string]string{"FAIL": "it fails", "ABORT": "it is aborted"}[d.Action]
}

// needLine is a condition in one line.
func needLine(n client.PlanNeed) string {
	line := strings.ToLower(n.Kind)
	if n.Subject != "" {
		line += " " + n.Subject
	}
	line += ": " + n.Detail
	var who []string
	for _, r := range n.Requirements {
		if r.Group == "" {
			who = append(who, fmt.Sprintf("%d of those who may approve", r.Quorum))
		} else {
			who = append(who, fmt.Sprintf("%d of %s", r.Quorum, r.Group))
		}
	}
	if len(who) > 0 {
		line += "; by " + strings.Join(who, " and ")
	}
	if len(n.Approvers) > 0 {
		line += " (" + strings.Join(n.Approvers, ", ") + ")"
	}
	return line
}
