package config

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/lockstep-cd/lockstep/pkg/fault"
)

type credentials struct {
	URLPrefix   string `koanf:"url_prefix"`
	PasswordRef string `koanf:"password_ref"`
	Password    string `koanf:"password" secret:"true"`
}

type sample struct {
	DatabaseURL    string        `yaml:"database_url" secret:"true"`
	NATSURL        string        `default:"nats://127.0.0.1:4222"`
	LeaseDuration  time.Duration `koanf:"lease_duration" default:"5s"`
	Agents         []int64
	Tokens         []string `secret:"true"`
	Workers        int      `default:"4"`
	Small          int8
	Limit          uint16
	Ratio          float64
	Debug          bool
	TLS            tlsFiles
	GitCredentials []credentials
	Labels         map[string]string
	Optional       *int
	Ignored        string `koanf:"-"`
}

type tlsFiles struct {
	CertFile string
}

func (s sample) Validate() error {
	if s.Workers < 1 {
		return fmt.Errorf("workers: found %d, expected a number above zero", s.Workers)
	}
	return nil
}

func TestLoad(t *testing.T) {
	t.Parallel()
	base := sample{NATSURL: "nats://127.0.0.1:4222", LeaseDuration: 5 * time.Second, Workers: 4}
	with := func(change func(*sample)) sample { s := base; change(&s); return s }
	seven := 7
	tests := []struct {
		name string
		file string
		env  []string
		args []string
		want sample
	}{
		{name: "defaults", want: base},
		{
			name: "each layer beats the one before", file: "lease_duration: 1s\nworkers: 5\nsmall: 1\n",
			env: []string{"LOCKSTEP_WORKFLOW_WORKERS=6", "LOCKSTEP_WORKFLOW_SMALL=2"}, args: []string{"--set", "small=3"},
			want: with(func(s *sample) { s.LeaseDuration = time.Second; s.Workers = 6; s.Small = 3 }),
		},
		{
			name: "shared variables", env: []string{"LOCKSTEP_DATABASE_URL=postgres:///shared", "LOCKSTEP_NATS_URL=nats://shared"},
			want: with(func(s *sample) { s.DatabaseURL = "postgres:///shared"; s.NATSURL = "nats://shared" }),
		},
		{
			name: "own variables beat shared ones", env: []string{"LOCKSTEP_WORKFLOW_DATABASE_URL=own", "LOCKSTEP_DATABASE_URL=shared"},
			want: with(func(s *sample) { s.DatabaseURL = "own" }),
		},
		{
			name: "variables of other services are none of ours",
			env: []string{
				"LOCKSTEP_DOMAIN_WORKERS=9", "PATH=/bin", "LOCKSTEP_WORKFLOW_SERVICE_HOST=10.0.0.1",
				"LOCKSTEP_WORKFLOW_PORT_9090_TCP_ADDR=10.0.0.1", "LOCKSTEP_WORKFLOW_PORT=tcp://10.0.0.1:9090",
			},
			want: base,
		},
		{
			name: "lists as text", env: []string{"LOCKSTEP_WORKFLOW_AGENTS=42, 43", "LOCKSTEP_WORKFLOW_TOKENS=[\"a,b\", c]"},
			want: with(func(s *sample) { s.Agents = []int64{42, 43}; s.Tokens = []string{"a,b", "c"} }),
		},
		{
			name: "an empty list", args: []string{"--set", "agents="},
			want: with(func(s *sample) { s.Agents = []int64{} }),
		},
		{
			name: "nested keys", env: []string{"LOCKSTEP_WORKFLOW_TLS_CERT_FILE=/tls.crt"},
			want: with(func(s *sample) { s.TLS.CertFile = "/tls.crt" }),
		},
		{
			name: "structured values in a file",
			file: "git_credentials:\n- url_prefix: https://git\n  password_ref: env:PW\nlabels: {a: b}\noptional: 7\nratio: 1\nagents: [1]\ntls:\n  cert_file: x\n",
			want: with(func(s *sample) {
				s.GitCredentials = []credentials{{URLPrefix: "https://git", PasswordRef: "env:PW"}}
				s.Labels, s.Optional, s.Ratio, s.Agents, s.TLS.CertFile = map[string]string{"a": "b"}, &seven, 1, []int64{1}, "x"
			}),
		},
		{
			name: "structured values as text", args: []string{
				"--set", `git_credentials=[{url_prefix: "https://git"}]`, "--set", "labels.a=b",
				"--set", "debug=true", "--set", "ratio=0.5",
			},
			want: with(func(s *sample) {
				s.GitCredentials = []credentials{{URLPrefix: "https://git"}}
				s.Labels, s.Debug, s.Ratio = map[string]string{"a": "b"}, true, 0.5
			}),
		},
		{
			name: "text is never reinterpreted", args: []string{"--set", "database_url=123", "--set", "tls.cert_file=a=b: c"},
			want: with(func(s *sample) { s.DatabaseURL = "123"; s.TLS.CertFile = "a=b: c" }),
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got, err := load[sample]("workflow", withFile(t, tt.file, tt.args), environ(tt.env))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("configuration (-want +got):\n%s", diff)
			}
		})
	}
}

func TestLoadRefuses(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		file string
		env  []string
		args []string
		want []string // parts of the message
	}{
		{
			name: "unknown key in the file", file: "lease_duraton: 5s\n",
			want: []string{"lease_duraton: unknown key in ", "config.yaml", `did you mean "lease_duration"?`},
		},
		{name: "unknown key far from any", file: "zzzzzzzzzzz: 1\n", want: []string{"known keys are agents, database_url, debug"}},
		{name: "unknown nested key", file: "tls: {cert: x}\n", want: []string{"tls.cert: unknown key"}},
		{
			name: "unknown variable", env: []string{"LOCKSTEP_WORKFLOW_WORKER=1"},
			want: []string{"worker: unknown key in LOCKSTEP_WORKFLOW_WORKER", `did you mean "workers"?`},
		},
		{name: "unknown --set", args: []string{"--set", "agent=1"}, want: []string{"agent: unknown key in --set"}},
		{name: "all mistakes at once", file: "workers: many\ndebug: 3\n", want: []string{
			`workers: found "many" in `, "expected a whole number of 64 bits", "debug: found 3 in ", "expected true or false",
		}},
		{
			name: "wrong type in a variable", env: []string{"LOCKSTEP_WORKFLOW_LEASE_DURATION=5"},
			want: []string{`lease_duration: found "5" in LOCKSTEP_WORKFLOW_LEASE_DURATION, expected a duration such as 1m30s`},
		},
		{name: "overflow", args: []string{"--set", "small=300"}, want: []string{`small: found 300 in --set, expected a whole number of 8 bits`}},
		{name: "negative", args: []string{"--set", "limit=-1"}, want: []string{`expected a whole number of 16 bits, not negative`}},
		{name: "wrong item", args: []string{"--set", "agents=1,x"}, want: []string{`agents[1]: found "x" in --set, expected a whole number`}},
		{name: "a list where one value belongs", file: "nats_url: [a]\n", want: []string{"nats_url: found a list in "}},
		{
			name: "one value where a list belongs", file: "agents: 42\n",
			want: []string{"agents: found 42 in ", "expected a list, each item a whole number"},
		},
		{
			name: "unknown key in a list", file: "git_credentials: [{url: x}]\n",
			want: []string{"git_credentials[0].url: found an unknown key in ", "expected one of url_prefix, password_ref, password"},
		},
		{name: "a value where keys belong", file: "tls: 3\n", want: []string{"tls: unknown key in "}},
		{name: "not YAML", file: "a: [\n", want: []string{"not a YAML mapping"}},
		{name: "Validate", args: []string{"--set", "workers=0"}, want: []string{"configuration of workflow: workers: found 0"}},
		{name: "unknown flag", args: []string{"--port=1"}, want: []string{"-port", "expected --config FILE or --set key=value"}},
		{name: "argument", args: []string{"serve"}, want: []string{`found argument "serve"`}},
		{name: "malformed --set", args: []string{"--set", "x"}, want: []string{`found "x", expected key=value`}},
		{name: "missing file", args: []string{"--config", "/nonexistent/x.yaml"}, want: []string{"configuration file: open /nonexistent/x.yaml"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			_, err := load[sample]("workflow", withFile(t, tt.file, tt.args), environ(tt.env))
			if !fault.Is(err, fault.Invalid) {
				t.Fatalf("error %v is not invalid", err)
			}
			for _, want := range tt.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("error %q does not say %q", err, want)
				}
			}
		})
	}
}

func TestWithDefaults(t *testing.T) {
	t.Parallel()
	loaded, err := load[sample]("workflow", nil, environ(nil))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(loaded, WithDefaults(sample{})); diff != "" {
		t.Errorf("a literal has other defaults than what was loaded (-loaded +literal):\n%s", diff)
	}
	if got := WithDefaults(sample{Workers: 7}).Workers; got != 7 {
		t.Errorf("workers: 7 became %d", got)
	}
	type broken struct {
		Workers int `default:"many"`
	}
	defer func() {
		if recover() == nil {
			t.Error("a default that does not fit its field went unnoticed")
		}
	}()
	WithDefaults(broken{})
}

func TestErrorsKeepSecrets(t *testing.T) {
	t.Parallel()
	for _, file := range []string{
		"tokens: {hunter2: hunter2}\n", "tokens: [[hunter2]]\n", "git_credentials: [{password: [hunter2]}]\n",
		"database_url: [hunter2]\n",
	} {
		_, err := load[sample]("workflow", withFile(t, file, nil), environ(nil))
		if err == nil || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%q: error is %v", file, err)
		}
	}
}

func TestHelpListsKeys(t *testing.T) {
	t.Parallel()
	_, err := Load[sample]("workflow", []string{"--help"})
	if !errors.Is(err, flag.ErrHelp) {
		t.Fatalf("error = %v, want help", err)
	}
	for _, want := range []string{"lease_duration", "LOCKSTEP_WORKFLOW_TLS_CERT_FILE", "a duration such as 1m30s, default 5s"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("help does not mention %q:\n%v", want, err)
		}
	}
}

func TestRedacted(t *testing.T) {
	t.Parallel()
	two := 2
	got := Redacted(sample{
		DatabaseURL: "postgres://cd:hunter2@db", NATSURL: "nats://cd:hunter2@nats:4222", LeaseDuration: time.Minute, Tokens: []string{"hunter2"},
		GitCredentials: []credentials{{URLPrefix: "https://git", Password: "hunter2"}}, Labels: map[string]string{"a": "b"}, Optional: &two,
	})
	want := `database_url: "***"
nats_url: "nats://cd:xxxxx@nats:4222"
lease_duration: "1m0s"
agents: []
tokens: "***"
workers: 0
small: 0
limit: 0
ratio: 0
debug: false
tls.cert_file: ""
git_credentials: [{"password":"***","password_ref":"","url_prefix":"https://git"}]
labels: {"a":"b"}
optional: 2
`
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("redacted (-want +got):\n%s", diff)
	}
	if got := Redacted(&sample{}); !strings.HasPrefix(got, `database_url: ""`) {
		t.Errorf("an unset secret looks set:\n%s", got)
	}
}

func TestSnake(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{
		"DatabaseURL": "database_url", "NATSURL": "nats_url", "NATSUser": "nats_user", "HTTPAddress": "http_address",
		"GRPCAddress": "grpc_address", "Agents": "agents", "TLS": "tls",
	} {
		if got := snake(name); got != want {
			t.Errorf("snake(%q) = %q, want %q", name, got, want)
		}
	}
}

func withFile(t *testing.T, content string, args []string) []string {
	t.Helper()
	if content == "" {
		return args
	}
	path := filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return append([]string{"--config", path}, args...)
}

func environ(vars []string) func() []string { return func() []string { return vars } }
