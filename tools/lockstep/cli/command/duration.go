package command

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// Lengths that Go has no constants for; a day has 24 hours.
const (
	Day  = 24 * time.Hour
	week = 7 * Day
)

// duration is a flag that takes what time.ParseDuration does, and before it weeks and days: 90d, 1w, 1d12h.
type duration time.Duration

var _ pflag.Value = (*duration)(nil)

// DurationFlag gives a command a flag that takes a duration.
func DurationFlag(cmd *cobra.Command, into *time.Duration, name string, otherwise time.Duration, usage string) {
	*into = otherwise
	cmd.Flags().Var((*duration)(into), name, usage)
}

// Set implements pflag.Value.
func (d *duration) Set(text string) error {
	parsed, err := ParseDuration(text)
	*d = duration(parsed)
	return err
}

// String implements pflag.Value: the largest unit that it is a whole number of.
func (d *duration) String() string {
	of := time.Duration(*d)
	for _, unit := range []struct {
		length time.Duration
		name   string
	}{{Day, "d"}, {time.Hour, "h"}, {time.Minute, "m"}} {
		if of > 0 && of%unit.length == 0 && (unit.length != Day || of > Day) {
			return strconv.FormatInt(int64(of/unit.length), 10) + unit.name
		}
	}
	return of.String()
}

// Type is what the help calls it.
func (*duration) Type() string { return "duration" }

// longUnits are the weeks and days that a duration begins with.
var longUnits = regexp.MustCompile(`^(?:(\d{1,4})w)?(?:(\d{1,5})d)?`)

// ParseDuration reads a duration that may begin with weeks and days.
func ParseDuration(text string) (time.Duration, error) {
	refused := fmt.Errorf("found %q; expected a duration such as 30s, 5m, 12h, 90d or 1d12h", text)
	parts := longUnits.FindStringSubmatch(text)
	rest := strings.TrimPrefix(text, parts[0])
	weeks, _ := strconv.Atoi(parts[1]) // none is 0
	days, _ := strconv.Atoi(parts[2])
	long := time.Duration(weeks)*week + time.Duration(days)*Day
	if rest == "" {
		if parts[0] == "" {
			return 0, refused
		}
		return long, nil
	}
	short, err := time.ParseDuration(rest)
	if err != nil || parts[0] != "" && (strings.ContainsAny(rest[:1], "+-") || long+short < long) {
		return 0, refused
	}
	return long + short, nil
}
