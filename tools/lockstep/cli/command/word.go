package command

import (
	"encoding/csv"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/lockstep-cd/lockstep/pkg/text"
)

// Where only some words will do, they are the command line's own, in lower case: they are checked before anything is asked, shells complete
// them, and errors and help say them. The API has the same words in capitals.

// words is a flag, or an argument, that takes one of some words, or several.
type words struct {
	known []string
	// one and many are where the choice goes, as the API spells it; exactly one of them is set.
	one  *string
	many *[]string
	// given reports whether many has been set by a flag, so that the next one adds to it.
	given bool
}

var _ pflag.Value = (*words)(nil)

// WordFlag is a flag that takes one word; usage is followed by the list of them.
func WordFlag(cmd *cobra.Command, to *string, name, standard, usage string, known []string) {
	*to = apiWord(standard)
	cmd.Flags().Var(&words{known: known, one: to}, name, usage+": "+list(known))
}

// WordsFlag is a flag that takes several, separated by commas or by giving it again.
func WordsFlag(cmd *cobra.Command, to *[]string, name, usage string, known []string) {
	cmd.Flags().Var(&words{known: known, many: to}, name, usage+": "+list(known))
}

// Set implements pflag.Value.
func (w *words) Set(text string) error {
	if w.one != nil {
		word, err := Chosen(w.known, text)
		*w.one = word
		return err
	}
	parts, err := csv.NewReader(strings.NewReader(text)).Read()
	if err != nil {
		return fmt.Errorf("found %q; expected words separated by commas", text)
	}
	if !w.given {
		*w.many, w.given = nil, true
	}
	for _, part := range parts {
		word, err := Chosen(w.known, part)
		if err != nil {
			return err
		}
		*w.many = append(*w.many, word)
	}
	return nil
}

// String implements pflag.Value: what help shows as the default.
func (w *words) String() string {
	switch {
	case w.one != nil:
		return strings.ToLower(*w.one)
	case w.many != nil:
		return strings.ToLower(strings.Join(*w.many, ","))
	}
	return ""
}

// Type implements pflag.Value: what help calls the value.
func (w *words) Type() string {
	if w.many != nil {
		return "words"
	}
	return "word"
}

// Chosen is a word as the API spells it.
func Chosen(known []string, given string) (string, error) {
	word := strings.ReplaceAll(strings.ToLower(strings.TrimSpace(given)), "-", "_")
	if slices.Contains(known, word) {
		return apiWord(word), nil
	}
	meant := ""
	for _, one := range text.Nearest(word, slices.Clone(known)) {
		if text.Distance(word, one) <= max(1, len(word)/3) {
			meant = "; did you mean " + strconv.Quote(one) + "?"
			break
		}
	}
	return "", fmt.Errorf("found %q; expected %s%s", given, list(known), meant)
}

func apiWord(word string) string { return strings.ToUpper(word) }

// list is words for people: "a, b or c".
func list(known []string) string {
	if len(known) < 2 {
		return strings.Join(known, "")
	}
	last := len(known) - 1
	return strings.Join(known[:last], ", ") + " or " + known[last]
}

// CompleteWords has shells complete every flag that takes words, of a command and of those below it.
func CompleteWords(cmd *cobra.Command) {
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if w, ok := f.Value.(*words); ok {
			// an error means that there is one already
			_ = cmd.RegisterFlagCompletionFunc(f.Name, cobra.FixedCompletions(w.known, cobra.ShellCompDirectiveNoFileComp))
		}
	})
	for _, sub := range cmd.Commands() {
		CompleteWords(sub)
	}
}
