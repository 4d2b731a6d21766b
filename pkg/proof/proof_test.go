package proof_test

import (
	"bytes"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/proof"
)

// file is an export with two blocks of two rows each.
func file(t *testing.T) (text []byte, key ed25519.PublicKey) {
	t.Helper()
	key, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	w, err := proof.NewWriter(&out, proof.Header{
		Organization: 1, OrganizationName: "shop", FirstBlock: 1,
		Key: base64.StdEncoding.EncodeToString(key),
	})
	if err != nil {
		t.Fatal(err)
	}
	previous := ""
	for n := int64(1); n <= 2; n++ {
		b := proof.Block{Number: n, Above: 10 * (n - 1), UpTo: 10 * n, Rows: 2, Previous: previous, SealedAt: time.Unix(n, 0).UTC()}
		rows := [][]byte{
			fmt.Appendf(nil, `{"journal":"change","row":{"id":%d}}`, 10*n-1),
			fmt.Appendf(nil, `{"journal":"rollout","row":{"id":%d}}`, 10*n),
		}
		b.Digest = proof.Digest(1, b, [][sha256.Size]byte{sha256.Sum256(rows[0]), sha256.Sum256(rows[1])})
		previous = b.Digest
		if err := w.Block(b, rows); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Sign(private); err != nil {
		t.Fatal(err)
	}
	return out.Bytes(), key
}

func TestAFileIsVerified(t *testing.T) { // D50
	t.Parallel()
	text, key := file(t)
	for _, one := range []ed25519.PublicKey{key, nil} {
		r, err := proof.Verify(bytes.NewReader(text), one)
		if err != nil || r.End.LastBlock != 2 || r.End.Rows != 4 || r.KnownKey != (one != nil) {
			t.Errorf("found %+v, %v", r, err)
		}
	}
	other, _, _ := ed25519.GenerateKey(nil)
	if _, err := proof.Verify(bytes.NewReader(text), other); err == nil {
		t.Error("another key: nothing was found")
	}
}

// TestEveryChangeOfAFileIsFound changes each byte, and removes, repeats and exchanges each line.
func TestEveryChangeOfAFileIsFound(t *testing.T) { // D50
	t.Parallel()
	text, key := file(t)
	wrong := func(what string, changed []byte) {
		t.Helper()
		if bytes.Equal(changed, text) {
			return
		}
		if _, err := proof.Verify(bytes.NewReader(changed), key); err == nil {
			t.Errorf("%s: nothing was found", what)
		}
	}
	for i := range len(text) - 1 {
		changed := bytes.Clone(text)
		changed[i] ^= 1
		wrong(fmt.Sprintf("byte %d", i), changed)
		wrong(fmt.Sprintf("cut off at %d", i), text[:i])
	}
	lines := strings.SplitAfter(strings.TrimSuffix(string(text), "\n"), "\n")
	for i := range lines {
		wrong(fmt.Sprintf("without line %d", i+1), []byte(strings.Join(append(append([]string{}, lines[:i]...), lines[i+1:]...), "")))
		wrong(fmt.Sprintf("line %d twice", i+1), []byte(strings.Join(append(append(append([]string{}, lines[:i+1]...), "\n"), lines[i:]...), "")))
		if i > 0 {
			swapped := append([]string{}, lines...)
			swapped[i-1], swapped[i] = swapped[i], swapped[i-1]
			wrong(fmt.Sprintf("line %d before", i+1), []byte(strings.Join(swapped, "")))
		}
	}
}
