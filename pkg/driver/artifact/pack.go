package artifact

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/fault"
)

const (
	// maxContent bounds the bytes of a layer, maxUnpacked the bytes that it unpacks to, headers included, and maxEntries the files and
	// folders. A driver is written by hand: the built-in one has twenty files and 100 kB.
	maxContent  = 4 << 20
	maxUnpacked = 16 << 20
	maxEntries  = 2048
)

// Pack returns a driver's files as a layer. The same files give the same bytes: no times, no owners, sorted.
func Pack(files map[string][]byte) ([]byte, error) {
	var out bytes.Buffer
	zipped := gzip.NewWriter(&out)
	archive := tar.NewWriter(zipped)
	for _, name := range slices.Sorted(maps.Keys(files)) {
		err := archive.WriteHeader(&tar.Header{
			Typeflag: tar.TypeReg, Name: name, Size: int64(len(files[name])), Mode: 0o644,
			ModTime: time.Unix(0, 0), Format: tar.FormatPAX,
		})
		if err == nil {
			_, err = archive.Write(files[name])
		}
		if err != nil {
			return nil, fmt.Errorf("pack %s: %w", name, err)
		}
	}
	if err := errors.Join(archive.Close(), zipped.Close()); err != nil {
		return nil, fmt.Errorf("pack a driver: %w", err)
	}
	if out.Len() > maxContent {
		return nil, fault.New(fault.Invalid, "found a driver of %d bytes, compressed; expected at most %d", out.Len(), maxContent)
	}
	return out.Bytes(), nil
}

// Unpack returns the files of a layer by path, and writes nothing to disk. The error is Invalid for anything but a folder of regular files
// within bounds: paths that lead out of the folder, links, devices, duplicate files, too much data.
func Unpack(content []byte) (map[string][]byte, error) {
	zipped, err := gzip.NewReader(bytes.NewReader(content))
	if err != nil {
		return nil, fault.Because(err, fault.Invalid, "the layer is not compressed with gzip")
	}
	// An archive bomb is cut off here, wherever in the archive it is.
	bounded := &io.LimitedReader{R: zipped, N: maxUnpacked + 1}
	archive := tar.NewReader(bounded)
	files := map[string][]byte{}
	total := int64(0)
	for entries := 0; ; entries++ {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return files, nil
		}
		if err == nil && entries == maxEntries {
			return nil, fault.New(fault.Invalid, "found more than %d files; expected fewer", maxEntries)
		}
		// Declared sizes count, too: the holes of a sparse file take no bytes in the archive.
		if err == nil {
			total += header.Size
		}
		if bounded.N == 0 || total > maxUnpacked || total < 0 {
			return nil, tooLarge()
		}
		name, text, err := entry(archive, header, err)
		if bounded.N == 0 {
			return nil, tooLarge()
		}
		if err != nil {
			return nil, err
		}
		if _, twice := files[name]; twice {
			return nil, fault.New(fault.Invalid, "%s: found it twice; expected one file", name)
		}
		if name != "" {
			files[name] = text
		}
	}
}

// entry reads the next file. The name is empty for other entries, such as folders.
func entry(archive *tar.Reader, header *tar.Header, err error) (string, []byte, error) {
	if err != nil {
		return "", nil, fault.Because(err, fault.Invalid, "the layer is not a tar archive, or ends too early")
	}
	name := strings.TrimPrefix(header.Name, "./") // as tar itself writes what is in the current folder
	switch header.Typeflag {
	case tar.TypeXGlobalHeader: // `git archive` writes the commit there
		return "", nil, nil
	case tar.TypeDir:
		name = strings.TrimSuffix(name, "/")
		if name != "" && !fs.ValidPath(name) {
			return "", nil, badPath(header.Name)
		}
		return "", nil, nil
	case tar.TypeReg:
	default:
		return "", nil, fault.New(fault.Invalid, "%q: found a link or device; expected a regular file", header.Name)
	}
	// A backslash separates folders on some systems that a driver may be unpacked on (`lockstep driver pull`).
	if !fs.ValidPath(name) || name == "." || strings.ContainsAny(name, "\\\x00") {
		return "", nil, badPath(header.Name)
	}
	text, err := io.ReadAll(archive)
	if err != nil {
		return "", nil, fault.Because(err, fault.Invalid, "%s: ends too early", name)
	}
	return name, text, nil
}

func tooLarge() error {
	return fault.New(fault.Invalid, "found more than %d bytes, unpacked; expected fewer", maxUnpacked)
}

func badPath(name string) error {
	return fault.New(fault.Invalid, "found file %q; expected a path inside the driver's folder", name)
}
