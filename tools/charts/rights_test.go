package main

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats-server/v2/server"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"

	"github.com/lockstep-cd/lockstep/pkg/bus"
	"github.com/lockstep-cd/lockstep/pkg/certs"
	"github.com/lockstep-cd/lockstep/pkg/certs/certstest"
)

// The public keys of an authority that does not exist.
const (
	issuer        = "ABJVY34OWUI7LWLGUGYHEXPZF27SOUKPVOUULS55NGHCHLDSYQLVOVW3"
	authorityUser = "UACPRGLNU5R3PKLJWEBI5YYAOVU6V45GGVEG3WVSCHKRFSC3TX4PW42R"
	// seedOfNobody is a well-formed seed of such an authority: it grants nothing.
	seedOfNobody = "SAAHGMAIOH2EYFUOPSKJ3YWHKDTAYLE3XD7VGAAXYWRGOI2OTS2NXDQH3M"
)

func itoa(n int32) string { return strconv.Itoa(int(n)) }

// TestAccountsOfNATS loads the published configurations into the real server, and compares what each account may do with the table that the
// services are tested with (E13).
func TestAccountsOfNATS(t *testing.T) {
	for _, user := range []string{"REGISTRY", "DOMAIN", "WORKFLOW", "RELAY_1", "RELAY_2"} {
		t.Setenv("NATS_PASSWORD_"+user, "p4ssword-of-"+user)
	}
	t.Setenv("NATS_AUTHORITY_ISSUER", issuer)
	t.Setenv("NATS_AUTHORITY_USER", authorityUser)
	files := map[string][]string{
		filepath.Join(root, "deploy/nats/nats.conf"): {"domain", "registry", "workflow"},
		bundled(t, "evaluation"):                     {"domain", "registry", "relay-1", "relay-2", "workflow"},
		bundled(t, "encrypted"):                      {"domain", "registry", "workflow"},
	}
	for file, want := range files {
		options, err := server.ProcessConfigFile(file)
		if err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		if encrypted := filepath.Base(file) == "encrypted.conf"; encrypted != (options.TLSConfig != nil) {
			t.Errorf("%s: takes encrypted connections only: %t", file, options.TLSConfig != nil)
		}
		if !options.JetStream || !options.SyncAlways || options.MaxPayload != 8<<20 {
			t.Errorf("%s: JetStream %t, every write synced %t, payloads of %d; expected true, true, 8 MiB (D44)", file, options.JetStream,
				options.SyncAlways, options.MaxPayload)
		}
		if c := options.AuthCallout; (c == nil) != slices.Contains(want, "relay-1") {
			t.Errorf("%s: asks about agents: %t", file, c != nil)
		} else if c != nil && (c.Issuer != issuer || !slices.Contains(c.AuthUsers, authorityUser) || len(options.Nkeys) != 1 ||
			options.Nkeys[0].Nkey != authorityUser) {
			t.Errorf("%s: the authority is %+v, %+v", file, c, options.Nkeys)
		}
		users := map[string]*server.User{}
		for _, u := range options.Users {
			users[u.Username] = u
		}
		if diff := cmp.Diff(want, slices.Sorted(maps.Keys(users))); diff != "" {
			t.Errorf("%s: users (-want +got):\n%s", file, diff)
		}
		for name, u := range users {
			publish, subscribe := bus.Permissions(name)
			if diff := cmp.Diff([][]string{publish, subscribe}, [][]string{u.Permissions.Publish.Allow, u.Permissions.Subscribe.Allow}); diff != "" {
				t.Errorf("%s: permissions of %s (-want +got):\n%s", file, name, diff)
			}
			if r := u.Permissions.Response; r == nil || r.MaxMsgs != 1 || r.Expires != bus.AnswerWithin {
				t.Errorf("%s: %s may answer with %+v, expected one message within %s", file, name, r, bus.AnswerWithin)
			}
			if suffix := strings.ToUpper(strings.ReplaceAll(name, "-", "_")); u.Password != "p4ssword-of-"+suffix {
				t.Errorf("%s: the password of %s is not that of its variable", file, name)
			}
		}
	}
}

// bundled returns a file with the configuration of the bundled NATS for a case, with generated certificates.
func bundled(t *testing.T, name string) string {
	t.Helper()
	dir := t.TempDir()
	certstest.New(t).Write(t, certs.Files{Cert: filepath.Join(dir, "tls.crt"), Key: filepath.Join(dir, "tls.key")})
	for _, o := range mustRender(t, "lockstep", cases(t, "lockstep")[name]) {
		if m, ok := o.Typed.(*corev1.ConfigMap); ok && m.Data["nats.conf"] != "" {
			file := filepath.Join(dir, name+".conf")
			if err := os.WriteFile(file, []byte(strings.ReplaceAll(m.Data["nats.conf"], "/etc/nats-tls", dir)), 0o600); err != nil {
				t.Fatal(err)
			}
			return file
		}
	}
	t.Fatalf("%s has no bundled NATS", name)
	return ""
}

// TestRightsOfTheRelay: the chart grants exactly the rights that the end-to-end scenarios run with, so every scenario tests the chart's
// roles, and no right is superfluous.
func TestRightsOfTheRelay(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join(root, "tools/e2e/cluster/manifests/relay.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var played, tasks, objects rbacv1.ClusterRole
	documents := strings.Split(string(text), "\n---\n")
	if err := utilyaml.UnmarshalStrict([]byte(documents[0]), &played); err != nil {
		t.Fatal(err)
	}
	if err := utilyaml.UnmarshalStrict([]byte(documents[1]), &tasks); err != nil {
		t.Fatal(err)
	}
	if err := utilyaml.UnmarshalStrict([]byte(documents[2]), &objects); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string][]string{"minimal": {"ClusterRole"}, "full": {"Role", "Role"}, "open": nil} {
		var kinds []string
		for _, o := range mustRender(t, "lockstep-relay", cases(t, "lockstep-relay")[name]) {
			var rules []rbacv1.PolicyRule
			switch role := o.Typed.(type) {
			case *rbacv1.ClusterRole:
				rules = role.Rules
			case *rbacv1.Role:
				rules = role.Rules
			default:
				continue
			}
			kinds = append(kinds, o.Kind)
			want := played.Rules
			if name == "full" { // has an additional rule at the end, namespaces for Workflows and Jobs, and resources to apply
				rules = rules[:len(rules)-1]
				want = slices.Concat(want, tasks.Rules, objects.Rules)
			}
			if diff := cmp.Diff(want, rules); diff != "" {
				t.Errorf("%s: rules of %s %s (-scenarios +chart):\n%s", name, o.Kind, o.Name, diff)
			}
		}
		if diff := cmp.Diff(want, kinds); diff != "" {
			t.Errorf("%s: roles (-want +got):\n%s", name, diff)
		}
	}
}
