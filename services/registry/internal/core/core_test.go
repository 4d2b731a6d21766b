package core_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/pkg/fault"
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
		{"image with tag", func(n *core.Notification) { n.Image += ":1.4.0" }, []string{"data.image", `found "registry.example.com/shop/api:1.4.0"`}},
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
	err       error
}

func (r *recorder) Put(_ context.Context, a []core.Artifact) error {
	r.artifacts = append(r.artifacts, a...)
	return r.err
}

func TestAcceptIsAllOrNothing(t *testing.T) {
	t.Parallel()
	good, bad, second := valid(), valid(), valid()
	bad.ID, bad.Digest = "2", "latest"
	second.ID = "3"
	out := &recorder{}
	intake := core.NewIntake(out, clock.System())

	_, err := intake.Accept(t.Context(), []core.Notification{good, bad, second})
	if !fault.Is(err, fault.Invalid) || len(out.artifacts) != 0 {
		t.Fatalf("error = %v with %d artifacts stored; want an invalid one and none", err, len(out.artifacts))
	}

	events, err := intake.Accept(t.Context(), []core.Notification{good, second, good})
	if err != nil {
		t.Fatal(err)
	}
	want := []string{core.Identify("/ci", "1"), core.Identify("/ci", "3")}
	if diff := cmp.Diff(want, events); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
	if a, b := out.artifacts[0].Correlation, out.artifacts[1].Correlation; a == "" || a != b {
		t.Errorf("correlations %q and %q of one delivery differ or are empty", a, b)
	}
}

func TestOneIdentityWithTwoContentsIsRefused(t *testing.T) {
	t.Parallel()
	again := valid()
	again.Digest = other
	_, err := core.NewIntake(&recorder{}, clock.System()).Accept(t.Context(), []core.Notification{valid(), again})
	if !fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), "a second time with other contents") {
		t.Errorf("error = %v", err)
	}
}

func TestAnEmptyDeliveryStoresNothing(t *testing.T) {
	t.Parallel()
	out := &recorder{err: errors.New("asked to store nothing")}
	if _, err := core.NewIntake(out, clock.System()).Accept(t.Context(), nil); err != nil {
		t.Error(err)
	}
}

func TestManyProblemsStayReadable(t *testing.T) {
	t.Parallel()
	_, err := core.NewIntake(&recorder{}, clock.System()).Accept(t.Context(), make([]core.Notification, 100))
	if n := len(fault.FieldsOf(err)); n != 51 {
		t.Errorf("%d fields are named, want 50 and a count", n)
	}
}
