// Package proof verifies exports of journals without a server: that rows fit their blocks, blocks their chain, and the file its
// signature. It imports nothing but the standard library, so that it can be read and trusted by itself. docs/reference/journal-export.md
// describes the format.
package proof

import (
	"bufio"
	"bytes"
	"crypto/ed25519"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"hash"
	"io"
	"time"
)

// Format is the value of the header's member format.
const Format = "lockstep-journal-1"

// blockForm is the first line of what a block's digest is made of.
const blockForm = "lockstep-journal-block-1"

// maxLine bounds a line of a file, in bytes.
const maxLine = 64 << 20

// Header is the first line of a file.
type Header struct {
	Format           string `json:"format"`
	Organization     int64  `json:"organization"`
	OrganizationName string `json:"organization_name"`
	// Since and Until are what was asked for; a file has whole blocks, so it may have rows beyond them.
	Since *time.Time `json:"since,omitempty"`
	Until *time.Time `json:"until,omitempty"`
	// FirstBlock is the number of the first block, and Previous the digest of the one before; empty for the first of all.
	FirstBlock int64  `json:"first_block"`
	Previous   string `json:"previous"`
	// Key is the public key of the signature, in base64. It proves nothing by itself: compare it with one that you know.
	Key string `json:"key"`
}

// Block is the line before the rows of a block.
type Block struct {
	Number   int64     `json:"number"`
	Above    int64     `json:"above"`
	UpTo     int64     `json:"up_to"`
	Rows     int       `json:"rows"`
	Previous string    `json:"previous"`
	Digest   string    `json:"digest"`
	SealedAt time.Time `json:"sealed_at"`
}

// End is the last line before the signature.
type End struct {
	LastBlock int64  `json:"last_block"`
	Head      string `json:"head"`
	Rows      int    `json:"rows"`
}

// line is any line; which it is shows by the member that it has.
type line struct {
	Format    string          `json:"format"`
	Block     *Block          `json:"block"`
	Journal   string          `json:"journal"`
	Row       json.RawMessage `json:"row"`
	End       *End            `json:"end"`
	Signature string          `json:"signature"`
}

// Report is what a verified file has.
type Report struct {
	Header Header
	End    End
	// KnownKey reports whether the signature was compared with a key that the caller gave.
	KnownKey bool
}

// Digest is the digest of a block, in hexadecimal, from the SHA-256 of each of its rows' lines.
func Digest(organization int64, b Block, rows [][sha256.Size]byte) string {
	h := sha256.New()
	fmt.Fprintf(
		h, "%s\n%d\n%d\n%d\n%d\n%d\n%s\n%s\n", blockForm, organization, b.Number, b.Above, b.UpTo, b.Rows,
		b.SealedAt.UTC().Format(time.RFC3339Nano), b.Previous,
	)
	for _, sum := range rows {
		fmt.Fprintf(h, "%s\n", hex.EncodeToString(sum[:]))
	}
	return hex.EncodeToString(h.Sum(nil))
}

// ReadKey reads a public key: PEM (PKIX), or the 32 bytes in base64.
func ReadKey(text []byte) (ed25519.PublicKey, error) {
	if block, _ := pem.Decode(text); block != nil {
		key, err := x509.ParsePKIXPublicKey(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("key: %w", err)
		}
		if public, ok := key.(ed25519.PublicKey); ok {
			return public, nil
		}
		return nil, fmt.Errorf("key: found a key of type %T; expected an Ed25519 key", key)
	}
	raw, err := base64.StdEncoding.DecodeString(string(bytes.TrimSpace(text)))
	if err != nil || len(raw) != ed25519.PublicKeySize {
		return nil, errors.New("key: found neither PEM nor 32 bytes in base64; expected an Ed25519 public key")
	}
	return raw, nil
}

// verifier is how far a file was read.
type verifier struct {
	report Report
	sum    hash.Hash
	number int
	// block is the one whose rows are being read; nil before the first.
	block *Block
	rows  [][sha256.Size]byte
	ended bool
}

// Verify reads a file to its end. With a key the signature must be that key's; without one only the file's own key is compared, which
// the author of the file chose. The error names the line.
func Verify(file io.Reader, key ed25519.PublicKey) (Report, error) {
	v := verifier{sum: sha256.New()}
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, maxLine)
	for lines.Scan() {
		v.number++
		var l line
		if err := json.Unmarshal(lines.Bytes(), &l); err != nil {
			return v.report, fmt.Errorf("line %d: %w", v.number, err)
		}
		if l.Signature != "" {
			if err := v.signature(l.Signature, key); err != nil {
				return v.report, fmt.Errorf("line %d: %w", v.number, err)
			}
			if lines.Scan() {
				return v.report, fmt.Errorf("line %d: found a line after the signature; expected the end of the file", v.number+1)
			}
			return v.report, lines.Err()
		}
		if err := v.read(l, lines.Bytes()); err != nil {
			return v.report, fmt.Errorf("line %d: %w", v.number, err)
		}
		v.sum.Write(lines.Bytes())
		v.sum.Write([]byte("\n"))
	}
	if err := lines.Err(); err != nil {
		return v.report, fmt.Errorf("line %d: %w", v.number+1, err)
	}
	return v.report, fmt.Errorf("line %d: found the end of the file; expected a signature", v.number+1)
}

// read takes a line that is not the signature.
func (v *verifier) read(l line, text []byte) error {
	switch {
	case v.number == 1:
		if err := json.Unmarshal(text, &v.report.Header); err != nil {
			return err
		}
		if l.Format != Format {
			return fmt.Errorf("found format %q; expected %q", l.Format, Format)
		}
		return nil
	case v.ended:
		return errors.New("found another line after the end; expected the signature")
	case l.Block != nil:
		return v.begin(*l.Block)
	case l.Row != nil && v.block != nil:
		v.rows = append(v.rows, sha256.Sum256(text))
		v.report.End.Rows++
		return nil
	case l.End != nil:
		return v.end(*l.End)
	default:
		return errors.New("found a line of another kind; expected a block, a row, or the end")
	}
}

// close compares the block that was read with its digest.
func (v *verifier) close() error {
	b := v.block
	if b == nil {
		return nil
	}
	if len(v.rows) != b.Rows {
		return fmt.Errorf("block %d: found %d rows; expected %d", b.Number, len(v.rows), b.Rows)
	}
	if digest := Digest(v.report.Header.Organization, *b, v.rows); digest != b.Digest {
		return fmt.Errorf("block %d: the rows, or the block, are not what was sealed: found digest %s; expected %s", b.Number, digest, b.Digest)
	}
	v.report.End.LastBlock, v.report.End.Head = b.Number, b.Digest
	return nil
}

func (v *verifier) begin(b Block) error {
	if err := v.close(); err != nil {
		return err
	}
	number, previous := v.report.Header.FirstBlock, v.report.Header.Previous
	if v.block != nil {
		number, previous = v.block.Number+1, v.block.Digest
		if b.Above != v.block.UpTo {
			return fmt.Errorf("block %d begins behind position %d; expected %d, where the block before ends", b.Number, b.Above, v.block.UpTo)
		}
	}
	if b.Number != number || b.Previous != previous {
		return fmt.Errorf("block %d does not follow the block before; expected block %d after digest %q", b.Number, number, previous)
	}
	v.block, v.rows = &b, v.rows[:0]
	return nil
}

func (v *verifier) end(e End) error {
	if err := v.close(); err != nil {
		return err
	}
	v.ended = true
	if e != v.report.End {
		found := v.report.End
		return fmt.Errorf("the end has block %d with %d rows in all; found block %d with %d", e.LastBlock, e.Rows, found.LastBlock, found.Rows)
	}
	return nil
}

// signature compares the signature of everything before it.
func (v *verifier) signature(text string, key ed25519.PublicKey) error {
	if !v.ended {
		return errors.New("found the signature before the end")
	}
	v.report.KnownKey = key != nil
	if key == nil {
		own, err := ReadKey([]byte(v.report.Header.Key))
		if err != nil {
			return err
		}
		key = own
	}
	raw, err := base64.StdEncoding.DecodeString(text)
	if err != nil || !ed25519.Verify(key, v.sum.Sum(nil), raw) {
		return errors.New("the signature is not that of the key, or the file was changed")
	}
	return nil
}

// Writer writes a file, line by line.
type Writer struct {
	to  io.Writer
	sum hash.Hash
	end End
}

// NewWriter writes the header.
func NewWriter(to io.Writer, h Header) (*Writer, error) {
	h.Format = Format
	w := &Writer{to: to, sum: sha256.New()}
	return w, w.value(h)
}

// Block writes a block with the lines of its rows.
func (w *Writer) Block(b Block, rows [][]byte) error {
	if err := w.value(map[string]Block{"block": b}); err != nil {
		return err
	}
	for _, row := range rows {
		if err := w.line(row); err != nil {
			return err
		}
	}
	w.end.LastBlock, w.end.Head, w.end.Rows = b.Number, b.Digest, w.end.Rows+len(rows)
	return nil
}

// Sign writes the end and the signature.
func (w *Writer) Sign(key ed25519.PrivateKey) error {
	if err := w.value(map[string]End{"end": w.end}); err != nil {
		return err
	}
	return w.value(map[string]string{"signature": base64.StdEncoding.EncodeToString(ed25519.Sign(key, w.sum.Sum(nil)))})
}

func (w *Writer) value(v any) error {
	text, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("encode: %w", err)
	}
	return w.line(text)
}

func (w *Writer) line(text []byte) error {
	text = append(bytes.Clone(text), '\n')
	w.sum.Write(text)
	_, err := w.to.Write(text)
	return err
}

// String is the report for people.
func (r Report) String() string {
	text := fmt.Sprintf(
		"organization %d (%s): blocks %d to %d with %d rows are what was sealed and signed; the last digest is %s", r.Header.Organization,
		r.Header.OrganizationName, r.Header.FirstBlock, r.End.LastBlock, r.End.Rows, r.End.Head,
	)
	if !r.KnownKey {
		text += "\nThe key is the file's own (" + r.Header.Key + "): compare it with one that you know, or pass one."
	}
	return text
}
