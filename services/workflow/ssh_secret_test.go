package workflow_test

import (
	"crypto/ed25519"
	"crypto/rand"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"testing"

	"golang.org/x/crypto/ssh"

	"github.com/lockstep-cd/lockstep/pkg/sealing"
	"github.com/lockstep-cd/lockstep/pkg/sshkey"
	autoflowv1 "github.com/lockstep-cd/lockstep/proto/lockstep/autoflow/v1"
	"github.com/lockstep-cd/lockstep/services/workflow"
)

// useKey runs a program that logs in with a key of SSH whose passphrase is the canary (D56). The server sends the canary back, refuses the
// first connection, and another server answers the last one.
func useKey(t *testing.T) (s *service, w *autoflowv1.Workflow, canary, file string) {
	t.Helper()
	canary = rand.Text()
	_, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	block, err := ssh.MarshalPrivateKeyWithPassphrase(private, "", []byte(canary))
	if err != nil {
		t.Fatal(err)
	}
	host, err := ssh.NewSignerFromSigner(private) // any
	if err != nil {
		t.Fatal(err)
	}
	var asked atomic.Int32
	config := &ssh.ServerConfig{PublicKeyCallback: func(ssh.ConnMetadata, ssh.PublicKey) (*ssh.Permissions, error) {
		if asked.Add(1) == 1 {
			return nil, fmt.Errorf("not with %s", canary)
		}
		return &ssh.Permissions{}, nil
	}}
	config.AddHostKey(host)
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			wire, err := listener.Accept()
			if err != nil {
				return
			}
			go sendBack(wire, config, canary)
		}
	}()
	address := listener.Addr().String()
	name, port, _ := strings.Cut(address, ":")
	v := newVault(t, func(*vault, *workflow.Config) {})
	report := func(name, known string, sequence int64) {
		terms := sealing.Terms{
			Organization: organization, Name: name, Version: 1, Kind: sealing.Git, URLPrefixes: []string{"ssh://" + address + "/team"},
			Proof: sealing.Proof{SSHKey: sealing.SSHKey{KnownHosts: known}},
		}
		e := v.sealed(terms, sshkey.Join(canary, string(pem.EncodeToMemory(block))), sequence)
		if e.Proof, err = json.Marshal(terms.Proof); err != nil {
			t.Fatal(err)
		}
		v.report(organization, e)
	}
	report("deploy", "["+name+"]:"+port+" "+string(ssh.MarshalAuthorizedKey(host.PublicKey())), 1)
	report("stranger", "SHA256:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA", 1)
	_, err = v.StartWorkflow(t.Context(), &autoflowv1.StartWorkflowRequest{
		OrganizationId: organization, WorkflowId: "secret", Starlark: []byte(`
for name in ["deploy", "deploy", "stranger"]:
    r = run("git.read_file", {"repo_url": "ssh://git@` + address + `/team/x.git", "ref": "main", "path": "a", "credential": name}, retry = False, on_error = "return")
    print(r.ok, r.code, r.error)
run("git.read_file", {"repo_url": "ssh://git@` + address + `/team/x.git", "ref": "main", "path": "a", "credential": "deploy"}, retry = False)
`),
	})
	if err != nil {
		t.Fatal(err)
	}
	w = v.await("secret", autoflowv1.WorkflowState_WORKFLOW_STATE_FAILED)
	if n := asked.Load(); n < 3 || !strings.Contains(w.GetError(), "there is no repository") {
		t.Fatalf("found %d logins and %s; want the key used", n, w.GetError())
	}
	return v.service, w, canary, v.file
}

// sendBack is a server of SSH that has no repository, and reports that with a secret.
func sendBack(wire net.Conn, config *ssh.ServerConfig, canary string) {
	defer wire.Close() //nolint:errcheck // of a test
	_, channels, requests, err := ssh.NewServerConn(wire, config)
	if err != nil {
		return
	}
	go ssh.DiscardRequests(requests)
	for each := range channels {
		channel, requests, err := each.Accept()
		if err != nil {
			return
		}
		for r := range requests {
			_ = r.Reply(r.Type == "exec", nil)
			_, _ = io.WriteString(channel.Stderr(), "no repository for "+canary+"\n")
			_, _ = channel.SendRequest("exit-status", false, ssh.Marshal(struct{ Status uint32 }{1}))
			_ = channel.Close()
		}
	}
}
