package gitfetch

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"

	"github.com/go-git/go-git/v5/plumbing/format/pktline"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp/capability"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp/sideband"
	"github.com/go-git/go-git/v5/plumbing/transport"
	"golang.org/x/crypto/ssh"

	"github.com/lockstep-cd/lockstep/pkg/fault"
)

// sshSession runs a command of Git at the server, anew for each exchange: a server serves one fetch and one push with each.
type sshSession struct {
	of      *SSH
	command string
	// idle has sent its refs and waits for a request; nil for none.
	idle *sshExchange
}

// sshExchange is one run of a command.
type sshExchange struct {
	session  *ssh.Session
	conn     *sshConn
	in       io.WriteCloser
	out      io.Reader
	reported *tail
	refs     *packp.AdvRefs
}

// Close ends the command.
func (x *sshExchange) Close() error {
	_ = x.session.Close() // which is io.EOF for one that has ended by itself
	return nil
}

// Read implements io.Reader.
func (x *sshExchange) Read(p []byte) (int, error) { return x.out.Read(p) }

// counted is what the server answers, within the share of the operation.
func (x *sshExchange) counted(ctx context.Context) (io.ReadCloser, error) {
	share, ok := ctx.Value(shareKey{}).(*Share)
	if !ok {
		return nil, errWithoutShare
	}
	stream, _ := ctx.Value(streamKey{}).(*stream)
	return &body{ReadCloser: x, share: share, stream: stream}, nil
}

// tail keeps the beginning of what a command reports beside its answer, and closes the connection to a server that reports without end.
type tail struct {
	share *Share
	close func()

	mu   sync.Mutex
	kept []byte
	all  int
}

const (
	// maxReported is how many bytes of it are kept, and mostReported how many may come.
	maxReported, mostReported = 2000, 64 << 10
	// sshWindow is what a server may send before it is read: the library keeps so much of each command.
	sshWindow = 2 << 20
)

// Write implements io.Writer.
func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.kept = append(t.kept, p[:min(len(p), maxReported-len(t.kept))]...)
	t.all += len(p)
	err := t.share.transfer(int64(len(p)))
	if err == nil && t.all > mostReported {
		err = t.share.refuse("messages", "the server sends messages of %d bytes or more beside its answer, expected at most %d", t.all, mostReported)
	}
	if err != nil {
		t.close()
		return 0, err
	}
	return len(p), nil
}

// text is what was reported in one line, without rulers and empty lines.
func (t *tail) text() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	var all []string
	for line := range strings.SplitSeq(string(t.kept), "\n") {
		line = strings.TrimSpace(strings.TrimPrefix(strings.TrimSpace(printable(line)), "remote:"))
		if strings.Trim(line, "= ") != "" {
			all = append(all, line)
		}
	}
	const most = 300
	text := strings.Join(all, " ")
	if len(text) > most {
		text = strings.ToValidUTF8(text[:most], "")
	}
	return text
}

// begin runs the command, and reads the refs that it begins with.
func (s *sshSession) begin(ctx context.Context) (*sshExchange, error) {
	s.end()
	share, ok := ctx.Value(shareKey{}).(*Share)
	if !ok {
		return nil, errWithoutShare
	}
	if err := s.of.account(share); err != nil {
		return nil, err
	}
	conn, used, err := s.of.connect(ctx, false)
	if err != nil {
		return nil, err
	}
	x, err := s.run(conn, share)
	if err != nil && used && ctx.Err() == nil { // some servers run one command with each connection
		if conn, _, err = s.of.connect(ctx, true); err != nil {
			return nil, err
		}
		x, err = s.run(conn, share)
	}
	if err != nil {
		return nil, err
	}
	from, err := x.counted(ctx)
	if err != nil {
		_ = x.Close()
		return nil, err
	}
	x.refs = packp.NewAdvRefs()
	if err := x.refs.Decode(from); err != nil && (!errors.Is(err, packp.ErrEmptyAdvRefs) || s.command == transport.UploadPackServiceName) {
		err = s.refused(x, err)
		_ = x.Close()
		return nil, err
	}
	transport.FilterUnsupportedCapabilities(x.refs.Capabilities)
	return x, nil
}

// run begins the command.
func (s *sshSession) run(conn *sshConn, share *Share) (*sshExchange, error) {
	conn.within(RequestTimeout)
	session, err := conn.client.NewSession()
	if err != nil {
		return nil, sshError(fault.Unavailable, err, "%s opens no session", s.of.server())
	}
	x := &sshExchange{session: session, conn: conn, reported: &tail{share: share, close: func() { _ = conn.wire.Close() }}}
	session.Stderr = x.reported
	x.in, err = session.StdinPipe()
	if err == nil {
		x.out, err = session.StdoutPipe()
	}
	if err == nil {
		err = session.Start(s.command + " " + quote(s.of.Path))
	}
	if err != nil {
		_ = session.Close()
		return nil, sshError(fault.Unavailable, err, "%s does not run %s", s.of.server(), s.command)
	}
	return x, nil
}

// refused is the error of a command that has sent no refs.
func (s *sshSession) refused(x *sshExchange, err error) error {
	if errors.Is(err, packp.ErrEmptyAdvRefs) {
		return transport.ErrEmptyRemoteRepository
	}
	if line, ok := errors.AsType[*pktline.ErrorLine](err); ok {
		return s.reports(fault.NotFound, err, printable(line.Text))
	}
	if !errors.Is(err, packp.ErrEmptyInput) {
		return err
	}
	ended := x.session.Wait()
	reported := x.reported.text()
	if _, missing := errors.AsType[*ssh.ExitMissingError](ended); (missing || ended == nil) && reported == "" {
		return sshError(fault.Unavailable, err, "%s has ended the connection", s.of.server())
	}
	if s.command == transport.ReceivePackServiceName {
		return s.reports(fault.Denied, err, reported)
	}
	return s.reports(fault.NotFound, err, reported)
}

// reports is an error with what the server has reported.
func (s *sshSession) reports(class fault.Class, cause error, reported string) error {
	what := "there is no repository %q at %s, or the key may not read it"
	if class == fault.Denied {
		what = "the key may not write to the repository %q at %s"
	}
	text := fmt.Sprintf(what, s.of.Path, s.of.server())
	if reported != "" {
		text += fmt.Sprintf("; the server reports %.300q", reported)
	}
	return sshError(class, cause, "%s", text)
}

// take is the exchange that waits, or a new one.
func (s *sshSession) take(ctx context.Context) (*sshExchange, error) {
	if x := s.idle; x != nil {
		s.idle = nil
		x.conn.within(RequestTimeout)
		return x, nil
	}
	return s.begin(ctx)
}

// end ends the exchange that waits.
func (s *sshSession) end() {
	if s.idle != nil {
		_, _ = s.idle.in.Write(pktline.FlushPkt) // which says that nothing is wanted
		_ = s.idle.Close()
		s.idle = nil
	}
}

// AdvertisedReferences implements transport.Session.
func (s *sshSession) AdvertisedReferences() (*packp.AdvRefs, error) {
	return s.AdvertisedReferencesContext(context.Background())
}

// AdvertisedReferencesContext implements transport.Session. It asks anew each time.
func (s *sshSession) AdvertisedReferencesContext(ctx context.Context) (*packp.AdvRefs, error) {
	x, err := s.begin(ctx)
	if err != nil {
		return nil, err
	}
	s.idle = x
	return x.refs, nil
}

// Close implements transport.Session.
func (s *sshSession) Close() error {
	s.end()
	return nil
}

type sshUpload struct{ sshSession }

// UploadPack implements transport.UploadPackSession.
func (s *sshUpload) UploadPack(ctx context.Context, req *packp.UploadPackRequest) (*packp.UploadPackResponse, error) {
	if req.IsEmpty() {
		return nil, transport.ErrEmptyUploadPackRequest
	}
	if err := req.Validate(); err != nil {
		return nil, fmt.Errorf("check a request: %w", err)
	}
	x, err := s.take(ctx)
	if err != nil {
		return nil, err
	}
	from, err := x.counted(ctx)
	if err == nil {
		err = ask(x.in, req)
	}
	if err != nil {
		_ = x.Close()
		return nil, sshError(fault.Unavailable, err, "%s has ended the connection", s.of.server())
	}
	answer := packp.NewUploadPackResponse(req)
	if err := answer.Decode(from); err != nil {
		_ = x.Close()
		return nil, fmt.Errorf("read the answer of %s: %w", s.of.server(), err)
	}
	return answer, nil
}

// ask writes all of a request at once: what is asked depends on no answer.
func ask(to io.WriteCloser, req *packp.UploadPackRequest) error {
	if err := req.UploadRequest.Encode(to); err != nil {
		return fmt.Errorf("write what is wanted: %w", err)
	}
	if err := req.UploadHaves.Encode(to, false); err != nil {
		return fmt.Errorf("write what is known: %w", err)
	}
	if err := pktline.NewEncoder(to).Encodef("done\n"); err != nil {
		return fmt.Errorf("end a request: %w", err)
	}
	return to.Close()
}

type sshReceive struct{ sshSession }

// ReceivePack implements transport.ReceivePackSession.
func (s *sshReceive) ReceivePack(ctx context.Context, req *packp.ReferenceUpdateRequest) (*packp.ReportStatus, error) {
	x, err := s.take(ctx)
	if err != nil {
		return nil, err
	}
	defer x.Close() //nolint:errcheck // the report has been read
	from, err := x.counted(ctx)
	if err != nil {
		return nil, err
	}
	if err := req.Encode(x.in); err != nil {
		return nil, s.ended(x, err)
	}
	if err := x.in.Close(); err != nil {
		return nil, s.ended(x, err)
	}
	reports := io.Reader(from)
	var bands *sideband.Demuxer
	switch {
	case req.Capabilities.Supports(capability.Sideband64k):
		bands = sideband.NewDemuxer(sideband.Sideband64k, from)
	case req.Capabilities.Supports(capability.Sideband):
		bands = sideband.NewDemuxer(sideband.Sideband, from)
	}
	if bands != nil {
		bands.Progress = req.Progress
		reports = bands
	}
	report := packp.NewReportStatus()
	if err := report.Decode(reports); err != nil {
		return nil, s.ended(x, err)
	}
	if err := report.Error(); err != nil {
		return report, err
	}
	return report, nil
}

// ended is the error of a push whose report did not come: whether the branch has moved is open.
func (s *sshReceive) ended(x *sshExchange, err error) error {
	if reported := x.reported.text(); reported != "" {
		return sshError(fault.Unavailable, err, "%s has not confirmed the push; it reports %.300q", s.of.server(), reported)
	}
	return sshError(fault.Unavailable, err, "%s has not confirmed the push", s.of.server())
}
