package git

import (
	"context"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/httpx"
	"github.com/lockstep-cd/lockstep/pkg/sealing"
	"github.com/lockstep-cd/lockstep/pkg/sealing/book"
	"github.com/lockstep-cd/lockstep/pkg/sshkey"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/activity"
)

// sshServer is a server of SSH that runs Git's own programs, for one key and in one repository.
type sshServer struct {
	*server
	listener net.Listener
	host     ssh.Signer
	// value is the key that it accepts, and known the line of known_hosts.
	value, known string
	// once makes a connection end with its first command, readOnly refuses pushes as forges do.
	// silent makes it swallow the report of a push.
	once, readOnly, silent atomic.Bool
	connections            atomic.Int32
	mu                     sync.Mutex
	commands               []string
	// meanwhile runs before a push.
	meanwhile func()
}

func newKey(t *testing.T, passphrase string) (value string, signer ssh.Signer) {
	t.Helper()
	_, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	var block *pem.Block
	if passphrase == "" {
		block, err = ssh.MarshalPrivateKey(private, "")
	} else {
		block, err = ssh.MarshalPrivateKeyWithPassphrase(private, "", []byte(passphrase))
	}
	if err != nil {
		t.Fatal(err)
	}
	if signer, err = ssh.NewSignerFromSigner(private); err != nil {
		t.Fatal(err)
	}
	return sshkey.Join(passphrase, string(pem.EncodeToMemory(block))), signer
}

// setupSSH serves a repository over SSH; what is done to the server before it accepts is change's.
func setupSSH(t *testing.T) *sshServer {
	t.Helper()
	s := &sshServer{server: setup(t)}
	var accepted ssh.Signer
	s.value, accepted = newKey(t, "correct horse")
	_, s.host = newKey(t, "")
	var err error
	if s.listener, err = (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.listener.Close() })
	port := s.listener.Addr().(*net.TCPAddr).Port
	s.known = fmt.Sprintf("[127.0.0.1]:%d %s", port, ssh.MarshalAuthorizedKey(s.host.PublicKey()))
	s.url = fmt.Sprintf("ssh://git@127.0.0.1:%d/team/shop.git", port)
	s.forge.dial = (&net.Dialer{}).DialContext
	config := &ssh.ServerConfig{PublicKeyCallback: func(meta ssh.ConnMetadata, key ssh.PublicKey) (*ssh.Permissions, error) {
		if meta.User() != "git" || string(key.Marshal()) != string(accepted.PublicKey().Marshal()) {
			return nil, errors.New("not this one")
		}
		return &ssh.Permissions{}, nil
	}}
	config.AddHostKey(s.host)
	go func() {
		for {
			conn, err := s.listener.Accept()
			if err != nil {
				return
			}
			s.connections.Add(1)
			go s.serve(conn, config)
		}
	}()
	s.own(s.value, s.known, fmt.Sprintf("ssh://127.0.0.1:%d/team", port))
	return s
}

// own gives the organization 1 a key in place of all other credentials.
func (s *sshServer) own(value, known string, prefixes ...string) {
	s.forge.credentials = credentials{own: book.NewBook(book.Deps{
		Store: kindBook{ownBook{book.Credential{Sealed: []byte("x"), Terms: sealing.Terms{
			Organization: 1, Name: "deploy", Version: 1, Kind: sealing.Git, URLPrefixes: prefixes,
			Proof: sealing.Proof{SSHKey: sealing.SSHKey{KnownHosts: known}},
		}}}},
		Open: func(context.Context, []byte, sealing.Terms) (string, error) { return value, nil },
	})}
}

func (s *sshServer) prefix() string {
	return strings.TrimSuffix(strings.Replace(s.url, "git@", "", 1), "/shop.git")
}

func (s *sshServer) serve(wire net.Conn, config *ssh.ServerConfig) {
	defer wire.Close() //nolint:errcheck // of a test
	conn, channels, requests, err := ssh.NewServerConn(wire, config)
	if err != nil {
		return
	}
	go ssh.DiscardRequests(requests)
	for each := range channels {
		channel, requests, err := each.Accept()
		if err != nil {
			return
		}
		run := func() {
			for r := range requests {
				if r.Type != "exec" {
					_ = r.Reply(false, nil)
					continue
				}
				_ = r.Reply(true, nil)
				status := s.exec(string(r.Payload[4:]), channel)
				_, _ = channel.SendRequest("exit-status", false, ssh.Marshal(struct{ Status uint32 }{status}))
				_ = channel.Close()
			}
		}
		if s.once.Load() {
			run()
			_ = conn.Close()
			return
		}
		go run()
	}
}

// exec runs a command as a forge does: the two programs of Git, in its own repositories.
func (s *sshServer) exec(command string, channel ssh.Channel) uint32 {
	s.mu.Lock()
	s.commands = append(s.commands, command)
	s.mu.Unlock()
	program, path, _ := strings.Cut(command, " ")
	path = strings.Trim(path, "'")
	if !strings.HasSuffix(path, "team/shop.git") {
		_, _ = io.WriteString(channel.Stderr(), "remote: \nremote: =====\nERROR: The project you were looking for could not be found.\n")
		return 1
	}
	if program == "git-receive-pack" {
		if s.readOnly.Load() {
			_, _ = io.WriteString(channel.Stderr(), "ERROR: The key you are authenticating with has been marked as read only.\n")
			return 1
		}
		if s.meanwhile != nil {
			s.meanwhile()
		}
	}
	cmd := exec.Command(program, s.dir)
	var asked atomic.Bool
	cmd.Env, cmd.Stderr = hermetic(), channel.Stderr()
	cmd.Stdout = writer(func(p []byte) (int, error) {
		if asked.Load() && s.silent.Load() && program == "git-receive-pack" {
			return len(p), nil
		}
		return channel.Write(p)
	})
	in, err := cmd.StdinPipe()
	if err != nil || cmd.Start() != nil {
		return 1
	}
	go func() {
		_, _ = io.Copy(in, beginning{channel, &asked})
		_ = in.Close()
	}()
	if cmd.Wait() != nil {
		return 1
	}
	return 0
}

type writer func([]byte) (int, error)

func (w writer) Write(p []byte) (int, error) { return w(p) }

// beginning notes that something is read, before anybody gets it.
type beginning struct {
	io.Reader
	begun *atomic.Bool
}

func (b beginning) Read(p []byte) (int, error) {
	n, err := b.Reader.Read(p)
	b.begun.Store(true)
	return n, err
}

func (s *sshServer) change(files map[string]string) activity.CommitRequest {
	c := s.request(files)
	c.Organization = 1
	return c
}

// D56: with the key of the organization a repository is read and written over SSH, by each of the spellings of its URL, also where a server
// runs one command with each connection.
func TestARepositoryOverSSH(t *testing.T) {
	t.Parallel()
	for name, once := range map[string]bool{"one connection": false, "one command with each": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := setupSSH(t)
			s.once.Store(once)
			base := s.add(t, "main", map[string]string{"staging/api.yaml": "old\n", "other": "x"})
			content, sha, err := s.forge.ReadFile(t.Context(), 1, s.url, "main", "staging/api.yaml")
			if err != nil || string(content) != "old\n" || sha != base {
				t.Fatalf("found %q at %s, %v", content, sha, err)
			}
			made, err := s.forge.Commit(t.Context(), s.change(map[string]string{"staging/api.yaml": "new\n"}))
			if err != nil || made != s.rev(t, "main") {
				t.Fatalf("found %s, %v; want %s", made, err, s.rev(t, "main"))
			}
			again, err := s.forge.Commit(t.Context(), s.change(map[string]string{"staging/api.yaml": "new\n"}))
			if err != nil || again != made {
				t.Errorf("found %s, %v; want the commit of before", again, err)
			}
			if content, _, err := s.forge.ReadFile(t.Context(), 1, s.url, made, "staging/api.yaml"); err != nil || string(content) != "new\n" {
				t.Errorf("found %q, %v", content, err)
			}
			info, err := s.forge.ReadCommit(t.Context(), 1, strings.Replace(s.url, "git@", "", 1), "main")
			if err != nil || info.SHA != made {
				t.Errorf("found %+v, %v", info, err)
			}
			if n := s.connections.Load(); !once && n != 5 {
				t.Errorf("found %d connections for five operations", n)
			}
			if !strings.Contains(strings.Join(s.commands, "\n"), "git-receive-pack '/team/shop.git'") {
				t.Errorf("found the commands %q", s.commands)
			}
		})
	}
}

// D56: a push over SSH is a compare-and-swap as over HTTP: the commit of another is kept, and ours is made again on top of it.
func TestAPushOverSSHThatIsTooLate(t *testing.T) {
	t.Parallel()
	s := setupSSH(t)
	s.add(t, "main", map[string]string{"staging/api.yaml": "old\n"})
	var others string
	var first sync.Once
	s.meanwhile = func() {
		first.Do(func() { others = s.add(t, "main", map[string]string{"other": "hers\n"}) })
	}
	made, err := s.forge.Commit(t.Context(), s.change(map[string]string{"staging/api.yaml": "new\n"}))
	if err != nil || s.rev(t, "main") != made || s.rev(t, "main^") != others {
		t.Errorf("found %s, %v; want a commit on top of %s", made, err, others)
	}
}

// D56: what cannot be reached, or must not be, is refused with what was found, what was expected and where; nothing of the key is in it.
func TestWhatIsRefusedOverSSH(t *testing.T) {
	t.Parallel()
	_, stranger := newKey(t, "")
	otherKey, _ := newKey(t, "")
	curve, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	ofCurve, err := ssh.NewSignerFromSigner(curve)
	if err != nil {
		t.Fatal(err)
	}
	line := func(s *sshServer, key ssh.PublicKey) string {
		return strings.Fields(s.known)[0] + " " + string(ssh.MarshalAuthorizedKey(key))
	}
	for name, tt := range map[string]struct {
		change func(s *sshServer)
		want   []string
		class  fault.Class
		silent bool // the server is not spoken to
	}{
		"another host key": {
			func(s *sshServer) { s.own(s.value, line(s, stranger.PublicKey()), s.prefix()) },
			[]string{"is not trusted", "found the host key SHA256:", "expected " + ssh.FingerprintSHA256(stranger.PublicKey())},
			fault.Refused, false,
		},
		"a fingerprint of another": {
			func(s *sshServer) { s.own(s.value, ssh.FingerprintSHA256(stranger.PublicKey()), s.prefix()) },
			[]string{"is not trusted", "expected " + ssh.FingerprintSHA256(stranger.PublicKey())},
			fault.Refused, false,
		},
		"a host key of another kind": {
			func(s *sshServer) { s.own(s.value, line(s, ofCurve.PublicKey()), s.prefix()) },
			[]string{"host key", "found ssh-ed25519", "expected one of ecdsa-sha2-nistp256"},
			fault.Refused, false,
		},
		"a host key that is revoked": {
			func(s *sshServer) { s.own(s.value, s.known+"@revoked "+s.known, s.prefix()) },
			[]string{"is not trusted", "which line 2 of the known hosts has revoked"},
			fault.Refused, false,
		},
		"a key that is not accepted": {
			func(s *sshServer) { s.own(otherKey, s.known, s.prefix()) },
			[]string{"does not accept the key SHA256:", `the user "git"`},
			fault.Unauthenticated, false,
		},
		"a wrong passphrase": {
			func(s *sshServer) {
				s.own(strings.Replace(s.value, "correct horse", "battery staple", 1), s.known, s.prefix())
			},
			[]string{`the credential "deploy" has no key`, "found a passphrase that the key is not encrypted with"},
			fault.Unauthenticated, true,
		},
		"no passphrase": {
			func(s *sshServer) { _, key := sshkey.Split(s.value); s.own(key, s.known, s.prefix()) },
			[]string{"found a key that is encrypted, and no passphrase"},
			fault.Unauthenticated, true,
		},
		"a key for another server": {
			func(s *sshServer) { s.own(s.value, s.known, "ssh://git.example.com/team") },
			[]string{"the organization has none for 127.0.0.1:"},
			fault.Unauthenticated, true,
		},
		"a key for another port": {
			func(s *sshServer) { s.own(s.value, s.known, "ssh://127.0.0.1/team") },
			[]string{"the organization has none for 127.0.0.1:"},
			fault.Unauthenticated, true,
		},
		"a key for another path": {
			func(s *sshServer) { s.own(s.value, s.known, s.prefix()+"mate") },
			[]string{"the organization has none for"},
			fault.Unauthenticated, true,
		},
		"another user": {
			func(s *sshServer) { s.url = strings.Replace(s.url, "git@", "root@", 1) },
			[]string{`names the user "root"`, `logs in as "git"`},
			fault.Unauthenticated, true,
		},
		"no such repository": {
			func(s *sshServer) { s.url = strings.Replace(s.url, "/shop", "/gone", 1) },
			[]string{"there is no repository", "could not be found"},
			fault.NotFound, false,
		},
		"a password in the URL": {
			func(s *sshServer) { s.url = strings.Replace(s.url, "git@", "git:hunter2@", 1) },
			[]string{"found a password"},
			fault.Invalid, true,
		},
		"a network that may not be reached": {
			func(s *sshServer) {
				guard, err := httpx.New(httpx.Config{})
				if err != nil {
					panic(err)
				}
				s.forge.dial = guard.Dial
			},
			[]string{"may not be reached"},
			fault.Refused, true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := setupSSH(t)
			s.add(t, "main", map[string]string{"a": "b"})
			tt.change(s)
			_, _, err := s.forge.ReadFile(t.Context(), 1, s.url, "main", "a")
			if !fault.Is(err, tt.class) {
				t.Errorf("found %v of class %s; want %s", err, fault.ClassOf(err), tt.class)
			}
			for _, want := range tt.want {
				if !strings.Contains(fault.Public(err), want) {
					t.Errorf("found %q; want …%s…", fault.Public(err), want)
				}
			}
			for _, secret := range []string{"correct horse", "battery", "hunter2", "PRIVATE KEY"} {
				if err != nil && strings.Contains(err.Error(), secret) {
					t.Errorf("found %q in %v", secret, err)
				}
			}
			if n := s.connections.Load(); tt.silent && n != 0 {
				t.Errorf("found %d connections; want none", n)
			}
		})
	}
}

// D56: one organization's key logs no other in, and a server that refuses a push says why.
func TestWhoseKeyItIsOverSSH(t *testing.T) {
	t.Parallel()
	s := setupSSH(t)
	s.add(t, "main", map[string]string{"a": "b"})
	if _, _, err := s.forge.ReadFile(t.Context(), 2, s.url, "main", "a"); !fault.Is(err, fault.Unauthenticated) || s.connections.Load() != 0 {
		t.Errorf("found %v, and %d connections", err, s.connections.Load())
	}
	s.readOnly.Store(true)
	_, err := s.forge.Commit(t.Context(), s.change(map[string]string{"a": "c"}))
	if !fault.Is(err, fault.Denied) || !strings.Contains(fault.Public(err), "marked as read only") {
		t.Errorf("found %v; want what the server says", err)
	}
	_, err = s.forge.Propose(t.Context(), activity.ProposalRequest{Commit: s.change(map[string]string{"a": "c"}), Branch: "lockstep/x"})
	if _, none := errors.AsType[activity.NoForgeError](err); !none || !strings.Contains(fault.Public(err), "https URL") {
		t.Errorf("found %v; want that pull requests need an https URL", err)
	}
}

// D56: a server that says nothing is given up after the time for a handshake, and one that ends with the operation.
func TestAServerOfSSHThatHangs(t *testing.T) {
	t.Parallel()
	s := setupSSH(t)
	hangs, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = hangs.Close() })
	s.forge.dial = func(ctx context.Context, network, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, network, hangs.Addr().String())
	}
	s.forge.handshake = 50 * time.Millisecond
	_, _, err = s.forge.ReadFile(t.Context(), 1, s.url, "main", "a")
	if !fault.Is(err, fault.Unavailable) || !strings.Contains(fault.Public(err), "has not answered within 50ms") {
		t.Errorf("found %v", err)
	}
	s.forge.handshake = time.Hour
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() {
		_, _, err := s.forge.ReadFile(ctx, 1, s.url, "main", "a")
		done <- err
	}()
	if _, err := hangs.Accept(); err != nil { // of the first
		t.Fatal(err)
	}
	if _, err := hangs.Accept(); err != nil {
		t.Fatal(err)
	}
	cancel()
	if err := <-done; !fault.Is(err, fault.Unavailable) {
		t.Errorf("found %v", err)
	}
}

// D56: a key is not sent as a password, whatever repository the credential is bound to, and a password not to a server of SSH.
func TestAKeyIsNoPassword(t *testing.T) {
	t.Parallel()
	s := setupSSH(t)
	https, err := parseURL("repo_url", "https://git.example.com/team/shop", false)
	if err != nil {
		t.Fatal(err)
	}
	s.own(s.value, s.known, "https://git.example.com/team")
	found, err := s.forge.credentials.of(t.Context(), 1, https)
	if err != nil || found == nil {
		t.Fatal(found, err)
	}
	if login, err := s.forge.credentials.with(t.Context(), found, https); login != nil || !fault.Is(err, fault.Unauthenticated) {
		t.Errorf("found %v, %v; want no login", login, err)
	}
	if err := (Credential{URLPrefix: "ssh://git.example.com/", PasswordRef: "env:A"}).check(); err == nil || !strings.Contains(err.Error(), "credentials of organizations") {
		t.Errorf("found %v; want that operators' credentials are not for SSH", err)
	}
}

// D56: a push whose report was lost is found again by the next attempt, and not made twice.
func TestAPushOverSSHWhoseReportIsLost(t *testing.T) {
	t.Parallel()
	s := setupSSH(t)
	base := s.add(t, "main", map[string]string{"staging/api.yaml": "old\n"})
	s.silent.Store(true)
	_, err := s.forge.Commit(t.Context(), s.change(map[string]string{"staging/api.yaml": "new\n"}))
	if !fault.Is(err, fault.Unavailable) || !strings.Contains(fault.Public(err), "has not confirmed the push") {
		t.Fatalf("found %v; want that it is open", err)
	}
	s.silent.Store(false)
	made, err := s.forge.Commit(t.Context(), s.change(map[string]string{"staging/api.yaml": "new\n"}))
	if err != nil || made != s.rev(t, "main") || s.rev(t, "main^") != base {
		t.Errorf("found %s, %v; want the one commit on top of %s", made, err, base)
	}
}

// D56: the next use of a credential has its rotated key, and a revoked one connects to nothing.
func TestARotatedAndARevokedKeyOfSSH(t *testing.T) {
	t.Parallel()
	s := setupSSH(t)
	s.add(t, "main", map[string]string{"a": "b"})
	read := func() error {
		_, _, err := s.forge.ReadFile(t.Context(), 1, s.url, "main", "a")
		return err
	}
	if err := read(); err != nil {
		t.Fatal(err)
	}
	other, _ := newKey(t, "")
	s.own(other, s.known, s.prefix())
	if err := read(); !fault.Is(err, fault.Unauthenticated) {
		t.Errorf("found %v; want the rotated key to be used, which the server does not know", err)
	}
	s.own(s.value, s.known, s.prefix())
	if err := read(); err != nil {
		t.Error(err)
	}
	before := s.connections.Load()
	s.forge.credentials = credentials{own: book.NewBook(book.Deps{
		Store: kindBook{ownBook{book.Credential{Revoked: true, Terms: sealing.Terms{
			Organization: 1, Name: "deploy", Version: 2, Kind: sealing.Git, URLPrefixes: []string{s.prefix()},
			Proof: sealing.Proof{SSHKey: sealing.SSHKey{KnownHosts: s.known}},
		}}}},
	})}
	err := read()
	if !fault.Is(err, fault.Unauthenticated) || !strings.Contains(fault.Public(err), "was revoked") || s.connections.Load() != before {
		t.Errorf("found %v, and %d connections more; want that it was revoked", err, s.connections.Load()-before)
	}
}
