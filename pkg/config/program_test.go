package config_test

import (
	"context"
	"strings"
	"testing"

	"github.com/lockstep-cd/lockstep/pkg/config"
	"github.com/lockstep-cd/lockstep/pkg/fault"
)

type greeting struct {
	Greeting string `koanf:"greeting" default:"hello"`
}

// TestAProgramDoesWhatItsFirstArgumentNames, with the configuration of the others.
func TestAProgramDoesWhatItsFirstArgumentNames(t *testing.T) {
	t.Parallel()
	var did []string
	does := func(what string) func(context.Context, greeting) error {
		return func(_ context.Context, c greeting) error {
			did = append(did, what+" "+c.Greeting)
			return nil
		}
	}
	p := config.Program[greeting]{Service: "greeter", Run: does("run"), Subcommands: map[string]func(context.Context, greeting) error{
		"migrate": does("migrate"),
	}}
	for _, args := range [][]string{nil, {"--set", "greeting=hi"}, {"migrate"}, {"migrate", "--set", "greeting=hi"}} {
		if err := p.Start(t.Context(), args); err != nil {
			t.Errorf("%q: %v", args, err)
		}
	}
	if found, want := strings.Join(did, ", "), "run hello, run hi, migrate hello, migrate hi"; found != want {
		t.Errorf("it did %q; expected %q", found, want)
	}
	for _, args := range [][]string{{"migrat"}, {"migrate", "migrate"}, {"--set", "greeting=hi", "migrate"}} {
		if err := p.Start(t.Context(), args); !fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), "found argument") {
			t.Errorf("%q: found %v; expected a refusal of the argument", args, err)
		}
	}
}

// A command has arguments before the flags, and all of them are required.
func TestACommandHasArguments(t *testing.T) {
	t.Parallel()
	did := ""
	p := config.Program[greeting]{Service: "greeter", Commands: map[string]config.Command[greeting]{
		"greet": {Arguments: []string{"NAME", "REASON"}, Run: func(_ context.Context, c greeting, arguments []string) error {
			did = c.Greeting + " " + strings.Join(arguments, ", ")
			return nil
		}},
	}}
	err := p.Start(t.Context(), []string{"greet", "Ann", "she is here", "--set", "greeting=hi"})
	if err != nil || did != "hi Ann, she is here" {
		t.Errorf("it did %q: %v", did, err)
	}
	for _, args := range [][]string{{"greet"}, {"greet", "Ann"}, {"greet", "Ann", "--set", "greeting=hi"}} {
		if err := p.Start(t.Context(), args); !fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), "greet NAME REASON") {
			t.Errorf("%q: found %v; expected a refusal that names the arguments", args, err)
		}
	}
	if err := p.Start(t.Context(), []string{"greet", "Ann", "here", "more"}); !fault.Is(err, fault.Invalid) {
		t.Errorf("found %v; expected a refusal of one argument too many", err)
	}
}
