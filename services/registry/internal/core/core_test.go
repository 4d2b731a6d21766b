package core_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/pkg/source"
	"github.com/lockstep-cd/lockstep/services/registry/internal/core"
)

const (
	digest = "sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"
	other  = "sha256:0000000000000000000000000000000000000000000000000000000000000000"
)

func valid() core.Notification {
	return core.Notification{
		Source: "/ci", ID: "1", Image: "registry.example.com/shop/api", Digest: digest, Tag: "1.4.0", PublishedAt: "2026-03-25T10:00:00Z",
		Names: core.Names{
			Source: "source", ID: "id", Correlation: "correlationid", Image: "data.image", Digest: "data.digest",
			Tag: "data.tag", PublishedAt: "data.published_at",
		},
	}
}

func TestCheck(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name   string
		change func(*core.Notification)
		want   []string // parts of the only problem; none: accepted
	}{
		{"everything", func(*core.Notification) {}, nil},
		{"only what is required", func(n *core.Notification) { n.Tag, n.PublishedAt = "", "" }, nil},
		{"no host", func(n *core.Notification) { n.Image = "shop/api" }, nil},
		{"host with port", func(n *core.Notification) { n.Image = "127.0.0.1:5000/shop/api" }, nil},
		{"IPv6 host", func(n *core.Notification) { n.Image = "[::1]:5000/api" }, nil},
		{"sha512", func(n *core.Notification) { n.Digest = "sha512:" + strings.Repeat("ab", 64) }, nil},
		{"no digest", func(n *core.Notification) { n.Digest = "" }, []string{"data.digest", "missing; expected sha256:"}},
		{"digest in capitals", func(n *core.Notification) { n.Digest = strings.ToUpper(digest) }, []string{"data.digest", `found "SHA256:9F`}},
		{"short digest", func(n *core.Notification) { n.Digest = digest[:60] }, []string{"data.digest"}},
		{"no image", func(n *core.Notification) { n.Image = "" }, []string{"data.image", "missing; expected a repository"}},
		{
			"image with tag", func(n *core.Notification) { n.Image += ":1.4.0" },
			[]string{"data.image", `found "registry.example.com/shop/api:1.4.0"`},
		},
		{"image with digest", func(n *core.Notification) { n.Image += "@" + digest }, []string{"data.image"}},
		{"image in capitals", func(n *core.Notification) { n.Image = "r.example.com/Shop/api" }, []string{"data.image"}},
		{"port out of range", func(n *core.Notification) { n.Image = "r.example.com:70000/api" }, []string{"data.image"}},
		{"image with a scheme", func(n *core.Notification) { n.Image = "https://r.example.com/api" }, []string{"data.image"}},
		{"endless image", func(n *core.Notification) { n.Image = strings.Repeat("a", 2000) }, []string{"data.image", "… (2000 bytes)"}},
		{"tag of the wrong form", func(n *core.Notification) { n.Tag = "a b" }, []string{"data.tag", `found "a b"; expected up to 128`}},
		{"time of the wrong form", func(n *core.Notification) { n.PublishedAt = "yesterday" }, []string{"data.published_at", "RFC 3339"}},
		{"no id", func(n *core.Notification) { n.ID = "" }, []string{"id", "missing"}},
		{"control characters", func(n *core.Notification) { n.ID = "1\r\nX: y" }, []string{"id", `found "1\r\nX: y"`}},
		{"correlation of the wrong form", func(n *core.Notification) { n.Correlation = "\x00" }, []string{"correlationid"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			n := valid()
			tt.change(&n)
			_, problems := core.Check(n)
			if len(tt.want) == 0 {
				if len(problems) != 0 {
					t.Fatalf("refused: %v", problems)
				}
				return
			}
			if len(problems) != 1 {
				t.Fatalf("%d problems, want one: %v", len(problems), problems)
			}
			if problems[0].Name != tt.want[0] {
				t.Errorf("field is %q, want %q", problems[0].Name, tt.want[0])
			}
			for _, part := range tt.want[1:] {
				if !strings.Contains(problems[0].Problem, part) {
					t.Errorf("problem %q does not say %q", problems[0].Problem, part)
				}
			}
		})
	}
}

func TestABrokenTraceIsDropped(t *testing.T) {
	t.Parallel()
	n := valid()
	n.TraceParent = "00-xyz"
	if a, problems := core.Check(n); len(problems) != 0 || a.TraceParent != "" {
		t.Errorf("trace = %q, problems %v; want neither", a.TraceParent, problems)
	}
}

func TestIdentity(t *testing.T) {
	t.Parallel()
	id := core.Identify("/ci", "1")
	if id != core.Identify("/ci", "1") {
		t.Error("the same notification has two identities")
	}
	if id == core.Identify("/ci1", "") || id == core.Identify("/ci", "2") || id == core.Identify("/c", "i1") {
		t.Error("different notifications share an identity")
	}
	if len(id) != 36 || id[14] != '8' {
		t.Errorf("%q is not a version 8 UUID", id)
	}
}

// recorder is an outbox in memory.
type recorder struct {
	artifacts []core.Artifact
	hints     []core.Hint
	refusals  []core.Refusal
	err       error
}

func (r *recorder) Put(_ context.Context, _ string, a []core.Artifact, h []core.Hint, refusals []core.Refusal) error {
	r.artifacts, r.hints, r.refusals = append(r.artifacts, a...), append(r.hints, h...), append(r.refusals, refusals...)
	return r.err
}

// TestOnePartDoesNotSpoilTheOthers: a part that breaks a rule is left out of a delivery and recorded.
func TestOnePartDoesNotSpoilTheOthers(t *testing.T) {
	t.Parallel()
	good, bad, second := valid(), valid(), valid()
	bad.ID, bad.Digest = "2", "latest"
	second.ID = "3"
	out := &recorder{}
	intake := core.NewIntake(out, nil, naming(), clock.System())

	receipt, err := intake.Accept(t.Context(), core.Token{}, []core.Notification{good, bad, second, good}, nil)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{core.Identify("/ci", "1"), core.Identify("/ci", "3")}
	if diff := cmp.Diff(want, receipt.Events); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
	if len(out.refusals) != 1 || out.refusals[0].What != "registry.example.com/shop/api:1.4.0@latest" ||
		!strings.Contains(out.refusals[0].Reason, `found "latest"`) {
		t.Errorf("recorded %+v", out.refusals)
	}
	if a, b := out.artifacts[0].Correlation, out.artifacts[1].Correlation; a == "" || a != b {
		t.Errorf("correlations %q and %q of one delivery differ or are empty", a, b)
	}
}

func TestOneIdentityWithTwoContentsIsRefused(t *testing.T) {
	t.Parallel()
	again := valid()
	again.Digest = other
	out := &recorder{}
	receipt, err := core.NewIntake(out, nil, naming(), clock.System()).Accept(t.Context(), core.Token{},
		[]core.Notification{valid(), again}, nil)
	if err != nil || len(receipt.Events) != 1 || len(receipt.Refused) != 1 ||
		!strings.Contains(receipt.Refused[0].Reason, "a second time with other contents") {
		t.Errorf("%+v, %v", receipt, err)
	}
}

func TestAnEmptyDeliveryStoresNothing(t *testing.T) {
	t.Parallel()
	out := &recorder{err: errors.New("asked to store nothing")}
	if _, err := core.NewIntake(out, nil, naming(), clock.System()).Accept(t.Context(), core.Token{}, nil, nil); err != nil {
		t.Error(err)
	}
}

func TestManyRefusalsStayReadable(t *testing.T) {
	t.Parallel()
	receipt, err := core.NewIntake(&recorder{}, nil, naming(), clock.System()).Accept(t.Context(), core.Token{},
		make([]core.Notification, 100), nil)
	if n := len(receipt.Refused); err != nil || n != 20 || receipt.Refused[19].What != "…" {
		t.Errorf("%d refusals, %v; want 19 and one for the others", n, err)
	}
}

// TestWhatATokenMayReport: organization and repositories are limited to the token's, whatever the sender reports.
func TestWhatATokenMayReport(t *testing.T) {
	t.Parallel()
	token := core.Token{Name: "shop-ci", Scope: core.Scope{
		Organization: 2,
		Repositories: []string{"registry.example.com/shop/*", "docker.io/library/nginx", "registry_1:5000/**"},
	}}
	for name, tt := range map[string]struct {
		change func(*core.Notification)
		want   string // part of the reason; empty: accepted
	}{
		"within":                    {func(*core.Notification) {}, ""},
		"its own organization":      {func(n *core.Notification) { n.Organization = 2 }, ""},
		"upper case":                {func(n *core.Notification) { n.Image = "Registry.Example.com:443/shop/api" }, ""},
		"Docker's library":          {func(n *core.Notification) { n.Image = "nginx" }, ""},
		"any path":                  {func(n *core.Notification) { n.Image = "registry_1:5000/a/b/c" }, ""},
		"another organization":      {func(n *core.Notification) { n.Organization = 3 }, "organizationid: found 3; expected 2"},
		"another repository":        {func(n *core.Notification) { n.Image = "registry.example.com/bank/api" }, "registry.example.com/shop/*"},
		"a deeper path":             {func(n *core.Notification) { n.Image = "registry.example.com/shop/api/debug" }, "may report"},
		"the path alone":            {func(n *core.Notification) { n.Image = "registry.example.com/shop" }, "may report"},
		"a host that looks alike":   {func(n *core.Notification) { n.Image = "registry.example.com.evil.test/shop/api" }, "may report"},
		"a dot that is no wildcard": {func(n *core.Notification) { n.Image = "registry-example.com/shop/api" }, "may report"},
		"Docker Hub's shop":         {func(n *core.Notification) { n.Image = "shop/api" }, "may report"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := valid()
			tt.change(&n)
			out := &recorder{}
			receipt, err := core.NewIntake(out, nil, naming(), clock.System()).Accept(t.Context(), token, []core.Notification{n}, nil)
			if err != nil {
				t.Fatal(err)
			}
			if tt.want == "" {
				if len(out.artifacts) != 1 || out.artifacts[0].Organization != 2 || out.artifacts[0].ID == core.Identify("/ci", "1") {
					t.Errorf("stored %+v, refused %+v", out.artifacts, receipt.Refused)
				}
				return
			}
			if len(out.artifacts) != 0 || len(out.refusals) != 1 || !out.refusals[0].Denied || !strings.Contains(out.refusals[0].Reason, tt.want) {
				t.Errorf("stored %+v, refused %+v; want a refusal with %q", out.artifacts, out.refusals, tt.want)
			}
		})
	}
	for _, bad := range []string{
		"", "*", "**", "shop", "*/shop", "registry.example.com", "registry.example.com/", "a b/c",
		"registry.example.com:443/a", "registry.example.com:99999/a", "Registry.example.com/a", "r.example.com/a(b",
	} {
		if core.CheckPattern(naming(), bad) == nil {
			t.Errorf("%q is taken for a pattern", bad)
		}
	}
}

// TestNoTokenUsesUpAnothersIdentifiers: the same source and identifier with another token is another event.
func TestNoTokenUsesUpAnothersIdentifiers(t *testing.T) {
	t.Parallel()
	ids := map[string]bool{}
	for _, name := range []string{"", "a", "b"} {
		out := &recorder{}
		receipt, err := core.NewIntake(out, nil, naming(), clock.System()).Accept(t.Context(), core.Token{Name: name},
			[]core.Notification{valid()}, nil)
		if err != nil || len(receipt.Events) != 1 {
			t.Fatalf("%+v, %v", receipt, err)
		}
		ids[receipt.Events[0]] = true
	}
	if len(ids) != 3 {
		t.Errorf("three tokens made %d events", len(ids))
	}
}

// TestRefusalsHoldNoPasswords: stored refusals contain no credentials and no control characters.
func TestRefusalsHoldNoPasswords(t *testing.T) {
	t.Parallel()
	n := valid()
	n.Image = "user:s3cret@registry.example.com/shop/api\x1b[2J"
	out := &recorder{}
	if _, err := core.NewIntake(out, nil, naming(), clock.System()).Accept(t.Context(), core.Token{}, []core.Notification{n},
		nil); err != nil || len(out.refusals) != 1 {
		t.Fatalf("refused %+v, %v", out.refusals, err)
	}
	if text := out.refusals[0].What + out.refusals[0].Reason; strings.Contains(text, "s3cret") || strings.Contains(text, "\x1b") ||
		!strings.Contains(text, "registry.example.com/shop/api") {
		t.Errorf("kept %q", text)
	}
}

// naming returns the canonical names of sources.
func naming() core.Naming {
	return core.Naming{Host: source.NormalizeHost, Image: source.NormalizeImage}
}
