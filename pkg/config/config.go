// Package config reads a service's configuration into its typed struct from four layers, each over the one before:
// the defaults of the struct, a YAML file, environment variables, flags. Every mistake in any layer is reported at once,
// by key, with what was found and what was expected.
//
// It does not reload: a process has one configuration, and a new one is a new process.
package config

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"

	yamlparser "github.com/knadh/koanf/parsers/yaml"
	"github.com/knadh/koanf/providers/confmap"
	"github.com/knadh/koanf/providers/file"
	"github.com/knadh/koanf/v2"

	"github.com/lockstep-cd/lockstep/pkg/fault"
)

// Load reads the configuration of a service (its name as in "workflow") as T, a struct. The key of a field is its tag
// koanf or yaml, else its name in snake_case; fields that are structs hold keys of their own, joined by dots. More tags:
// default:"5s" is the lowest layer, and secret:"true" keeps the value out of errors and out of Redacted.
//
//	--config FILE               a YAML file
//	LOCKSTEP_<SERVICE>_<KEY>    one key, dots as underscores; lists as a,b or as YAML
//	LOCKSTEP_DATABASE_URL, LOCKSTEP_NATS_URL   for database_url and nats_url, where the service's own are not set
//	--set key=value             one key, repeatable
//
// If T has a method Validate() error, it is called last. Errors are Invalid, except flag.ErrHelp for --help, whose text
// is then the list of keys.
func Load[T any](service string, args []string) (T, error) {
	return load[T](service, args, os.Environ)
}

func load[T any](service string, args []string, environ func() []string) (T, error) {
	var target T
	s := schemaOf(&target)
	options, err := parseArgs(service, args, s)
	if err != nil {
		return target, err
	}
	layers := []layer{s.defaults()}
	if options.file != "" {
		fromFile, err := readFile(options.file)
		if err != nil {
			return target, err
		}
		layers = append(layers, fromFile)
	}
	layers = append(layers, sharedEnvironment(s, environ), serviceEnvironment(service, s, environ), options.layer())

	merged := koanf.New(".")
	var problems []fault.Field
	for _, l := range layers {
		problems = append(problems, s.check(l)...)
		if err := merged.Load(confmap.Provider(l.values, ""), nil); err != nil {
			return target, fmt.Errorf("merge %s: %w", l.name, err)
		}
	}
	if len(problems) > 0 {
		return target, fmt.Errorf("configuration of %s: %w", service, fault.InvalidFields(problems...))
	}
	s.assign(merged.Raw())
	return target, validate(service, &target)
}

// WithDefaults returns c with the default tags of Load applied to all fields that have their zero value. It is for configurations written
// as Go literals; Load has applied the defaults already. It panics if a tag does not fit its field, which Load reports as an error.
func WithDefaults[T any](c T) T {
	s := schemaOf(&c)
	for _, f := range s.leaves {
		if f.fallback == "" || !f.target.IsZero() {
			continue
		}
		v, mismatches := convert(f.fallback, f.target.Type(), true)
		if len(mismatches) > 0 {
			panic(fmt.Sprintf("config: default %q of %s: expected %s", f.fallback, f.key, mismatches[0].expected))
		}
		f.target.Set(v)
	}
	return c
}

// validate calls the method Validate of the value or of a pointer to it.
func validate(service string, target any) error {
	v, ok := target.(interface{ Validate() error })
	if !ok {
		return nil
	}
	err := v.Validate()
	if err == nil {
		return nil
	}
	if fault.ClassOf(err) == fault.Internal {
		err = fault.New(fault.Invalid, "%w", err)
	}
	return fmt.Errorf("configuration of %s: %w", service, err)
}

// layer holds the values of one origin, nested by key.
type layer struct {
	// name says where the values come from.
	name   string
	values map[string]any
	// text means that scalars are given as text and lists may be written a,b.
	text bool
	// origins names the origin of single keys, where the layer has several.
	origins map[string]string
}

func (l layer) origin(key string) string {
	if o, ok := l.origins[key]; ok {
		return o
	}
	return l.name
}

// readFile reads a YAML file. A named file that cannot be read is an error, never an empty layer.
func readFile(path string) (layer, error) {
	k := koanf.New(".")
	if err := k.Load(file.Provider(path), yamlparser.Parser()); err != nil {
		if errors.Is(err, os.ErrNotExist) || errors.Is(err, os.ErrPermission) {
			return layer{}, fault.New(fault.Invalid, "configuration file: %w", err)
		}
		return layer{}, fault.New(fault.Invalid, "configuration file %s: not a YAML mapping: %w", path, err)
	}
	return layer{name: path, values: k.Raw()}, nil
}

// options holds the parsed command line.
type options struct {
	file string
	sets []string
}

// parseArgs parses the command line and refuses anything unknown.
func parseArgs(service string, args []string, s *schema) (options, error) {
	var o options
	flags := flag.NewFlagSet(service, flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	flags.StringVar(&o.file, "config", "", "YAML `file` to read")
	flags.Func("set", "`key=value`, repeatable", func(v string) error {
		if key, _, ok := strings.Cut(v, "="); !ok || key == "" {
			return fmt.Errorf("found %q, expected key=value", v)
		}
		o.sets = append(o.sets, v)
		return nil
	})
	err := flags.Parse(args)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return o, helpError(s.usage(service))
	case err != nil:
		return o, fault.New(fault.Invalid, "%w; expected --config FILE or --set key=value", err)
	case flags.NArg() > 0:
		return o, fault.New(fault.Invalid, "found argument %q; expected only --config FILE and --set key=value", flags.Arg(0))
	}
	return o, nil
}

// layer returns the values given by --set.
func (o options) layer() layer {
	l := layer{name: "--set", values: map[string]any{}, text: true}
	for _, s := range o.sets {
		key, value, _ := strings.Cut(s, "=")
		put(l.values, key, value)
	}
	return l
}

// helpError is the usage text as an error that matches flag.ErrHelp.
type helpError string

// Error returns the whole text, so printing the error prints the help.
func (e helpError) Error() string { return string(e) }

// Is matches flag.ErrHelp, which callers check for.
func (helpError) Is(target error) bool { return target == flag.ErrHelp }
