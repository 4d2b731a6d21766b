package reference

import (
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/lockstep-cd/lockstep/tools/lockstep/cli"
)

// commandLine is the page of all commands.
func commandLine(string) ([]*page, error) {
	p, err := newPage("cli.md", "the commands in tools/lockstep/cli")
	if err != nil {
		return nil, err
	}
	root := cli.Command("")
	p.heading(2, "Flags of all commands")
	p.table(flagHeader(), flagRows(root.PersistentFlags()))
	p.heading(2, "Exit codes")
	p.table([]string{"Code", "Meaning"}, exitCodes(root.Long))
	p.heading(2, "Commands")
	p.table([]string{"Command", "Purpose"}, commandRows(root))
	for _, sub := range visible(root) {
		writeCommand(p, sub)
	}
	return []*page{p}, nil
}

// exitCodes are the rows of the exit codes in the help of the program.
func exitCodes(help string) [][]string {
	_, list, _ := strings.Cut(help, "Exit codes:\n")
	var rows [][]string
	for line := range strings.Lines(list) {
		if found := exitCode.FindStringSubmatch(line); found != nil {
			rows = append(rows, []string{code(found[1]), prose(sentence(found[2]))})
		}
	}
	return rows
}

var exitCode = regexp.MustCompile(`^  (\d+) +(.*)\n?$`)

// visible are the subcommands that help lists.
func visible(cmd *cobra.Command) []*cobra.Command {
	return slices.DeleteFunc(slices.Clone(cmd.Commands()), func(sub *cobra.Command) bool { return sub.Hidden || sub.Name() == "help" })
}

// commandRows are all commands that do something, with what they do.
func commandRows(cmd *cobra.Command) [][]string {
	var rows [][]string
	for _, sub := range visible(cmd) {
		if sub.HasSubCommands() {
			rows = append(rows, commandRows(sub)...)
		} else {
			rows = append(rows, []string{code(sub.CommandPath()), prose(sentence(sub.Short))})
		}
	}
	return rows
}

// writeCommand is the section of a command, followed by those of its subcommands.
func writeCommand(p *page, cmd *cobra.Command) {
	p.heading(2, cmd.CommandPath())
	p.paragraph(prose(sentence(cmd.Short)))
	for paragraph := range strings.SplitSeq(cmd.Long, "\n\n") {
		if aligned.MatchString(paragraph) {
			p.code("", paragraph)
		} else if title := strings.TrimLeft(paragraph, "#"); title != paragraph {
			p.paragraph("**" + prose(strings.TrimSpace(title)) + "**")
		} else {
			p.paragraph(prose(strings.Join(strings.Fields(paragraph), " ")))
		}
	}
	p.code("", usageOf(cmd))
	if len(cmd.Aliases) > 0 {
		p.paragraph("Also: " + code(strings.Join(cmd.Aliases, "`, `")) + ".")
	}
	rows := flagRows(cmd.LocalFlags())
	p.table(flagHeader(), rows)
	if cmd.Example != "" {
		p.code("sh", outdent(cmd.Example))
	}
	for _, sub := range visible(cmd) {
		writeCommand(p, sub)
	}
}

// aligned is what has columns, which only a block of code keeps.
var aligned = regexp.MustCompile(`(?m)\S {2,}\S`)

// usageOf is how a command is written. What only groups others is followed by one of them.
func usageOf(cmd *cobra.Command) string {
	if cmd.HasSubCommands() && !cmd.Runnable() {
		return cmd.CommandPath() + " COMMAND [flags]"
	}
	return cmd.UseLine()
}

func flagHeader() []string { return []string{"Flag", "Default", "Meaning"} }

func flagRows(flags *pflag.FlagSet) [][]string {
	var rows [][]string
	flags.VisitAll(func(f *pflag.Flag) {
		if f.Hidden || f.Name == "help" {
			return
		}
		value, usage := pflag.UnquoteUsage(f)
		name := "--" + f.Name
		if value != "" {
			name += " " + value
		}
		if f.Shorthand != "" {
			name = "-" + f.Shorthand + ", " + name
		}
		fallback := f.DefValue
		if slices.Contains([]string{"", "[]", "false", "0", "0s"}, fallback) {
			fallback = ""
		}
		rows = append(rows, []string{code(name), code(fallback), prose(sentence(usage))})
	})
	return rows
}

// outdent removes what all lines begin with.
func outdent(text string) string {
	var lines []string
	for line := range strings.Lines(text) {
		lines = append(lines, strings.TrimPrefix(strings.TrimRight(line, "\n"), "  "))
	}
	return strings.Join(lines, "\n")
}
