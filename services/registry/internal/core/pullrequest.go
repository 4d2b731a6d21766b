package core

import (
	"strconv"
	"strings"
	"unicode"

	"github.com/lockstep-cd/lockstep/pkg/fault"
)

// PullRequest says that a pull request at a forge, or merge request, may have changed, or that its plan was asked for. What it is, the
// forge is asked for.
type PullRequest struct {
	// ID is that of the event, derived from the content: the same report is the same event, however often it is delivered.
	ID string
	// Organization and Hook are the hook that received it.
	Organization int64
	Hook         string
	// Repository is the address of the one that it is to be merged into, and Number its number there.
	Repository string
	Number     int64
	// AskedBy is who has asked by a comment, as the forge knows them; empty where nobody has.
	AskedBy string
	// Cause distinguishes what happened to it: a push from the next one, a comment from another one.
	Cause string
	// Names are the fields as the forge wrote them, for error messages.
	Names PullRequestNames
}

// PullRequestNames are the paths of the fields of a pull request in its request.
type PullRequestNames struct{ Repository, Number, AskedBy string }

// maxAskedBy bounds the name of who has asked.
const maxAskedBy = 255

// checkPull returns a pull request with its identity, or its problems.
func checkPull(p PullRequest) (PullRequest, []fault.Field) {
	var problems []fault.Field
	check := func(name, value string, ok bool, expected string) {
		if !ok {
			problems = append(problems, fault.Field{Name: name, Problem: "found " + quote(value) + "; expected " + expected})
		}
	}
	check(p.Names.Repository, p.Repository, len(p.Repository) <= maxImage && repositoryAddress(p.Repository),
		"the http or https address of a repository, without credentials or control characters")
	check(p.Names.Number, strconv.FormatInt(p.Number, 10), p.Number > 0, "the number of a pull request")
	check(p.Names.AskedBy, p.AskedBy, p.AskedBy == "" || validIdentity(p.AskedBy) && len(p.AskedBy) <= maxAskedBy,
		"at most 255 bytes without control characters")
	p.ID = Identify(StatusHook{Organization: p.Organization, Key: p.Hook}.Sender(),
		"pull request\n"+p.Repository+"\n"+strconv.FormatInt(p.Number, 10)+"\n"+p.AskedBy+"\n"+p.Cause)
	return p, problems
}

// PullComment is a comment on a pull request with a command in its first line, as it was made.
type PullComment struct {
	// ID is that of the event, derived from the comment's number: however often it is delivered, it is the same event.
	ID string
	// Organization and Hook are the hook that received it.
	Organization int64
	Hook         string
	// Repository is the address of the one that the pull request is to be merged into, and Number its number there.
	Repository string
	Number     int64
	// CommentID is the forge's number of the comment, AuthorID that of who has written it, and Author the name.
	CommentID, AuthorID int64
	Author, Text        string
	// MadeAt is when it was made, RFC 3339.
	MadeAt string
	// MaybeApp is that the forge does not say whether an App has written it for the user.
	MaybeApp bool
	// Names are the fields as the forge wrote them, for error messages.
	Names PullCommentNames
}

// PullCommentNames are the paths of the fields of a comment in its request.
type PullCommentNames struct{ Repository, Number, CommentID, AuthorID, Author, MadeAt, Text string }

// maxCommand bounds the line with a command, in bytes.
const maxCommand = 2000

// checkComment returns a comment with its identity, or its problems.
func checkComment(c PullComment) (PullComment, []fault.Field) {
	var problems []fault.Field
	check := func(name, value string, ok bool, expected string) {
		if !ok {
			problems = append(problems, fault.Field{Name: name, Problem: "found " + quote(value) + "; expected " + expected})
		}
	}
	number := func(name string, value int64, expected string) {
		check(name, strconv.FormatInt(value, 10), value > 0, expected)
	}
	check(c.Names.Repository, c.Repository, len(c.Repository) <= maxImage && repositoryAddress(c.Repository),
		"the http or https address of a repository, without credentials or control characters")
	number(c.Names.Number, c.Number, "the number of a pull request")
	number(c.Names.CommentID, c.CommentID, "the number of a comment")
	number(c.Names.AuthorID, c.AuthorID, "the number of a user")
	check(c.Names.Author, c.Author, c.Author != "" && validIdentity(c.Author) && len(c.Author) <= maxAskedBy, "1 to 255 bytes without control characters")
	check(c.Names.MadeAt, c.MadeAt, c.MadeAt != "", "the time at which the comment was made")
	c.Text = strings.TrimSpace(strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(c.Text, "\uFFFD")))
	check(c.Names.Text, c.Text, len(c.Text) <= maxCommand, "a command of at most 2000 bytes")
	c.ID = Identify(StatusHook{Organization: c.Organization, Key: c.Hook}.Sender(),
		"comment\n"+c.Repository+"\n"+strconv.FormatInt(c.Number, 10)+"\n"+strconv.FormatInt(c.CommentID, 10))
	return c, problems
}
