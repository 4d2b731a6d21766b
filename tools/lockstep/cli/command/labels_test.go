package command_test

import (
	"maps"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/lockstep-cd/lockstep/tools/lockstep/cli/command"
)

// D49: each label of a scope is given once, as a key with a value, and a flag that is given narrows the scope.
func TestFlagsOfAScope(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		args []string
		want map[string]string
		err  string
	}{
		"none":               {},
		"labels":             {args: []string{"--label", "tier=critical,team=web", "--label", "on=a=b"}, want: map[string]string{"tier": "critical", "team": "web", "on": "a=b"}},
		"a key twice":        {args: []string{"--label", "region=eu,region=us"}, err: "found region twice; expected each key once"},
		"a key in two flags": {args: []string{"--label", "region=eu", "--label", "region=us"}, err: "found region twice"},
		"an empty label":     {args: []string{"--label", ""}, err: `found ""; expected key=value`},
		"no value":           {args: []string{"--label", "region"}, err: `found "region"; expected key=value`},
		"an empty name":      {args: []string{"--environment", ""}, err: "environment: found no word"},
		"one empty of two":   {args: []string{"--environment", "eu-1,"}, err: "environment: found no word"},
		"a name":             {args: []string{"--environment", "eu-1"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var got map[string]string
			cmd := &cobra.Command{}
			cmd.Flags().StringSlice("environment", nil, "")
			command.LabelsFlag(cmd, &got, "label", "a label")
			err := cmd.ParseFlags(c.args)
			if err == nil {
				err = command.RefuseEmpty(cmd, "environment", "application")
			}
			if (err != nil) != (c.err != "") || err != nil && !strings.Contains(err.Error(), c.err) || err == nil && !maps.Equal(got, c.want) {
				t.Errorf("found %v (%v); expected %v (%s)", got, err, c.want, c.err)
			}
		})
	}
}
