package command_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/lockstep-cd/lockstep/tools/lockstep/cli/command"
)

// Inputs are given one by one or in a file, and what is JSON is read as JSON (R4-09).
func TestInputFlags(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "inputs.yaml")
	if err := os.WriteFile(file, []byte("region: eu\ncount: 3\nhosts: [a, b]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		args          []string
		in, want, err string
	}{
		"none":                       {},
		"single ones":                {args: []string{"--input", "region=eu", "--input", "count=3", "--input", `release="3"`, "--input", "dry_run=false"}, want: `{"count":3,"dry_run":false,"region":"eu","release":"3"}`},
		"an equals sign":             {args: []string{"--input", "query=a=b"}, want: `{"query":"a=b"}`},
		"a file":                     {args: []string{"--inputs", file, "--input", "region=us"}, want: `{"count":3,"hosts":["a","b"],"region":"us"}`},
		"standard input":             {args: []string{"--inputs", "-"}, in: `{"region":"eu"}`, want: `{"region":"eu"}`},
		"no value":                   {args: []string{"--input", "region"}, err: `--input: found "region"; expected name=value`},
		"twice":                      {args: []string{"--input", "a=1", "--input", "a=2"}, err: `found "a=2"; expected name=value, each name once`},
		"no object":                  {args: []string{"--inputs", "-"}, in: "[1]", err: "not a YAML or JSON object"},
		"a file that does not exist": {args: []string{"--inputs", file + "x"}, err: "no such file"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var f command.InputFlags
			cmd := &cobra.Command{}
			f.Add(cmd)
			if err := cmd.ParseFlags(c.args); err != nil {
				t.Fatal(err)
			}
			got, err := f.JSON(strings.NewReader(c.in))
			if string(got) != c.want || (err != nil) != (c.err != "") || err != nil && !strings.Contains(err.Error(), c.err) {
				t.Errorf("inputs: found %s (%v); expected %s (%s)", got, err, c.want, c.err)
			}
		})
	}
}
