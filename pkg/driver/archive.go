package driver

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"sync"

	"github.com/lockstep-cd/lockstep/pkg/fault"
)

// maxArchive bounds what Import reads.
const maxArchive = 16 << 20

// Export encodes the bundle, to be stored as long as a rollout that used it (D7): as a JSON object of its files' texts by path. Import
// decodes it; the digests agree.
func (b *Bundle) Export() ([]byte, error) {
	texts := make(map[string]string, len(b.files))
	for name, text := range b.files {
		texts[name] = string(text)
	}
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(texts); err != nil {
		return nil, fmt.Errorf("export driver %s: %w", b.Ref(), err)
	}
	return out.Bytes(), nil
}

// Import decodes what Export wrote, and checks it as Load does.
func Import(archive []byte) (*Bundle, error) {
	if len(archive) > maxArchive {
		return nil, fault.New(fault.Invalid, "driver archive: found %d bytes; expected at most %d", len(archive), maxArchive)
	}
	var texts map[string]string
	if err := json.Unmarshal(archive, &texts); err != nil {
		return nil, fault.Because(err, fault.Invalid, "driver archive: not what Export writes")
	}
	if _, ok := texts[manifestFile]; !ok {
		return nil, fault.New(fault.Invalid, "driver archive: found no %s; expected it", manifestFile)
	}
	if most := maxFiles + 1 + len(HostModules()); len(texts) > most {
		return nil, fault.New(fault.Invalid, "driver archive: found %d files; expected at most %d", len(texts), most)
	}
	files := make(map[string][]byte, len(texts))
	for name, text := range texts {
		if name != manifestFile && !fs.ValidPath(name) {
			return nil, fault.New(fault.Invalid, "driver archive: found file %q; expected a relative path", name)
		}
		files[name] = []byte(text)
	}
	return build(files)
}

// digest hashes all files of a bundle in the order of their paths, each preceded by both lengths, so that no two sets of files yield the
// same bytes.
func digest(files map[string][]byte) string {
	h := sha256.New()
	for _, name := range slices.Sorted(maps.Keys(files)) {
		fmt.Fprintf(h, "%d %d %s\n", len(name), len(files[name]), name)
		h.Write(files[name])
	}
	return "sha256:" + hex.EncodeToString(h.Sum(nil))
}

//go:embed bundles
var bundles embed.FS

// embedded loads the built-in drivers once.
//
//nolint:gochecknoglobals // written once, by sync.OnceValues
var embedded = sync.OnceValues(func() (*Set, error) {
	folder, err := fs.Sub(bundles, "bundles")
	if err != nil {
		return nil, fmt.Errorf("open built-in drivers: %w", err)
	}
	return LoadAll(folder)
})

// checkKinds are the built-in check kinds, and the module for programs of any.
//
//go:embed checks
var checkKinds embed.FS

// embeddedChecks loads the built-in check kinds once.
//
//nolint:gochecknoglobals // written once, by sync.OnceValues
var embeddedChecks = sync.OnceValues(func() (*Set, error) {
	if _, err := fs.Stat(checkKinds, "checks/kinds"); err != nil {
		return NewSet()
	}
	folder, err := fs.Sub(checkKinds, "checks/kinds")
	if err != nil {
		return nil, fmt.Errorf("open built-in check kinds: %w", err)
	}
	return LoadAll(folder)
})

// EmbeddedChecks returns the built-in check kinds. An error is a defect of the build.
func EmbeddedChecks() (*Set, error) { return embeddedChecks() }

// Embedded returns the built-in drivers. An error is a defect of the build.
func Embedded() (*Set, error) { return embedded() }
