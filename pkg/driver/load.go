package driver

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/schema"
)

const (
	manifestFile = "manifest.json"
	// maxFile and maxFiles bound a bundle: it is written by hand, stored with every rollout, and sent to the engine.
	maxFile  = 512 << 10
	maxFiles = 64
)

// manifest is the entry point of a bundle (E31).
type manifest struct {
	Ref                          string            `json:"ref"`
	Steps                        []string          `json:"supported_pipeline_steps"`
	EnvironmentSchema            string            `json:"environment_schema"`
	ApplicationEnvironmentSchema string            `json:"application_environment_schema"`
	Workflows                    map[string]string `json:"workflows"`
	Modules                      map[string]string `json:"modules"`
	Gates                        *bool             `json:"gates"`
	Drift                        bool              `json:"drift"`
	Fleets                       *bool             `json:"fleets"`
	Places                       []placeForm       `json:"places"`
	Parts                        parts             `json:"parts"`
	// Description and Check are a check kind's.
	Description string     `json:"description"`
	Check       *checkForm `json:"check"`
}

//go:embed manifest.json
var manifestSchemaText []byte

// manifestSchema is compiled once. It is part of the build, so any test finds a defect in it.
//
//nolint:gochecknoglobals // written once, by sync.OnceValues
var manifestSchema = sync.OnceValues(func() (*schema.Schema, error) { return schema.Compile(manifestSchemaText) })

var majorFolder = regexp.MustCompile(`^v[1-9][0-9]{0,3}$`)

// Load reads all majors of the driver in one folder. The error is Invalid and names file and line.
func Load(folder fs.FS) ([]*Bundle, error) {
	files, err := Files(folder)
	if err != nil {
		return nil, err
	}
	return FromFiles(files)
}

// Files returns the texts of the driver in one folder, by path: the manifest, and everything in the folders of its majors. They are not
// checked; FromFiles does that. The error is Invalid for a folder without a manifest or with anything but regular files.
func Files(folder fs.FS) (map[string][]byte, error) {
	files := map[string][]byte{}
	var err error
	if files[manifestFile], err = read(folder, manifestFile); err != nil {
		return nil, err
	}
	entries, err := fs.ReadDir(folder, ".")
	if err != nil {
		return nil, fmt.Errorf("list driver folder: %w", err)
	}
	for _, entry := range entries {
		if !entry.IsDir() || !majorFolder.MatchString(entry.Name()) {
			continue
		}
		major, err := readMajor(folder, entry.Name())
		if err != nil {
			return nil, err
		}
		maps.Copy(files, major)
	}
	return files, nil
}

// FromFiles returns all majors of the driver with the given texts, by their paths in its folder. The error is Invalid and names file and
// line.
func FromFiles(files map[string][]byte) ([]*Bundle, error) {
	newest, ok := files[manifestFile]
	if !ok {
		return nil, missingFile(manifestFile)
	}
	if _, err := schema.Decode(newest); err != nil {
		return nil, located(manifestFile, newest, err)
	}
	majors, err := byMajor(files)
	if err != nil {
		return nil, err
	}
	var bundles []*Bundle
	for _, major := range slices.Sorted(maps.Keys(majors)) {
		files := majors[major]
		own := major + "/" + manifestFile
		if older, ok := files[own]; ok {
			delete(files, own)
			files[manifestFile] = older
		} else if bytes.Contains(newest, []byte(`"`+major+"/")) {
			files[manifestFile] = newest
		} else {
			return nil, fault.New(fault.Invalid, "%s: found no manifest for it; expected %s, or %s to name files in %s/", major,
				own, manifestFile, major)
		}
		b, err := build(files)
		if err != nil {
			return nil, err
		}
		bundles = append(bundles, b)
	}
	if len(bundles) == 0 {
		return nil, fault.New(fault.Invalid, "%s: found no folder v1, v2 … beside it; expected one for each major", manifestFile)
	}
	for _, b := range bundles[1:] {
		if b.name != bundles[0].name {
			return nil, fault.New(fault.Invalid, "%s: found majors of %q and of %q; expected one driver in a folder", manifestFile,
				bundles[0].name, b.name)
		}
	}
	return bundles, nil
}

// byMajor groups texts by the major whose folder they are in. Other files belong to no bundle.
func byMajor(files map[string][]byte) (map[string]map[string][]byte, error) {
	majors := map[string]map[string][]byte{}
	for name, text := range files {
		major, _, below := strings.Cut(name, "/")
		if !below || !majorFolder.MatchString(major) {
			continue
		}
		if majors[major] == nil {
			majors[major] = map[string][]byte{}
		}
		majors[major][name] = text
		if len(majors[major]) > maxFiles {
			return nil, fault.New(fault.Invalid, "%s: found more than %d files; expected fewer", major, maxFiles)
		}
	}
	return majors, nil
}

// LoadAll reads every driver in a folder of drivers. It ignores files and hidden folders.
func LoadAll(folder fs.FS) (*Set, error) {
	entries, err := fs.ReadDir(folder, ".")
	if err != nil {
		return nil, fmt.Errorf("list drivers: %w", err)
	}
	var all []*Bundle
	for _, entry := range entries {
		if !entry.IsDir() || strings.HasPrefix(entry.Name(), ".") {
			continue
		}
		sub, err := fs.Sub(folder, entry.Name())
		if err != nil {
			return nil, fmt.Errorf("open driver %q: %w", entry.Name(), err)
		}
		bundles, err := Load(sub)
		if err != nil {
			return nil, fmt.Errorf("driver %q: %w", entry.Name(), err)
		}
		all = append(all, bundles...)
	}
	return NewSet(all...)
}

// readMajor reads every file in a major's folder.
func readMajor(folder fs.FS, major string) (map[string][]byte, error) {
	files := map[string][]byte{}
	err := fs.WalkDir(folder, major, func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		if !entry.Type().IsRegular() {
			return fault.New(fault.Invalid, "%s: found a link or device; expected a regular file", name)
		}
		if len(files) == maxFiles {
			return fault.New(fault.Invalid, "%s: found more than %d files; expected fewer", major, maxFiles)
		}
		files[name], err = read(folder, name)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", major, err)
	}
	return files, nil
}

func read(folder fs.FS, name string) ([]byte, error) {
	text, err := fs.ReadFile(folder, name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, missingFile(name)
	}
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	return text, nil
}

func missingFile(name string) error {
	return fault.New(fault.Invalid, "%s: found no such file; expected it in the driver's folder", name)
}

// build checks the files of one major and returns its bundle.
func build(files map[string][]byte) (*Bundle, error) {
	for name, text := range files {
		if err := checkText(name, text); err != nil {
			return nil, err
		}
	}
	form := manifestSchema
	if isCheckManifest(files[manifestFile]) {
		form = checkManifest
	}
	s, err := form()
	if err != nil {
		return nil, fmt.Errorf("compile the manifest's schema: %w", err)
	}
	files, err = withHost(files)
	if err != nil {
		return nil, err
	}
	b := &Bundle{files: files, digest: digest(files)}
	if err := s.Validate(files[manifestFile]); err != nil {
		return nil, located(manifestFile, files[manifestFile], err)
	}
	if err := json.Unmarshal(files[manifestFile], &b.manifest); err != nil {
		return nil, fault.Because(err, fault.Invalid, "%s: %s", manifestFile, err)
	}
	b.name = b.manifest.Ref
	if err := b.resolve(); err != nil {
		return nil, err
	}
	if b.IsCheck() {
		b.check, err = compile(files, b.manifest.Check.ConfigSchema)
		return b, err
	}
	if b.environment, err = compile(files, b.manifest.EnvironmentSchema); err != nil {
		return nil, err
	}
	if b.applicationEnvironment, err = compile(files, b.manifest.ApplicationEnvironmentSchema); err != nil {
		return nil, err
	}
	if err := checkLimited(b.manifest.ApplicationEnvironmentSchema, files[b.manifest.ApplicationEnvironmentSchema]); err != nil {
		return nil, err
	}
	return b, nil
}

// resolve checks that every path of the manifest names a file, and that all belong to one major.
func (b *Bundle) resolve() error {
	first := "environment_schema"
	paths := map[string]string{}
	folder := path.Dir(b.manifest.EnvironmentSchema)
	if b.IsCheck() {
		first, folder = "check/config_schema", path.Dir(b.manifest.Check.ConfigSchema)
		paths["/check/config_schema"], paths["/check/program"] = b.manifest.Check.ConfigSchema, b.manifest.Check.Program
	} else {
		paths["/environment_schema"] = b.manifest.EnvironmentSchema
		paths["/application_environment_schema"] = b.manifest.ApplicationEnvironmentSchema
	}
	for name, p := range b.manifest.Workflows {
		paths[schema.Pointer("workflows", name)] = p
	}
	for name, p := range b.manifest.Modules {
		paths[schema.Pointer("modules", name)] = p
	}
	var wrong []fault.Field
	for pointer, p := range paths {
		if path.Dir(p) != folder {
			wrong = append(wrong, fault.Field{
				Name:    pointer,
				Problem: fmt.Sprintf("found %q; expected a file in %s/, as %s has it: a bundle is one major", p, folder, first),
			})
		} else if text, ok := b.files[p]; !ok {
			wrong = append(wrong, fault.Field{
				Name:    pointer,
				Problem: fmt.Sprintf("found %q, which does not exist; expected a file of the driver", p),
			})
		} else if len(bytes.TrimSpace(text)) == 0 {
			wrong = append(wrong, fault.Field{Name: pointer, Problem: fmt.Sprintf("found %q, which is empty; expected a program or schema", p)})
		}
	}
	for name, part := range b.manifest.Parts.byName() {
		if _, known := b.manifest.Modules[part.Module]; !known {
			wrong = append(wrong, fault.Field{
				Name:    schema.Pointer("parts", name, "module"),
				Problem: fmt.Sprintf("found %q; expected one of the modules of the manifest", part.Module),
			})
		}
	}
	if len(wrong) > 0 {
		return located(manifestFile, b.files[manifestFile], fault.InvalidFields(wrong...))
	}
	var err error
	b.major, err = strconv.Atoi(strings.TrimPrefix(folder, "v"))
	if err != nil {
		return fmt.Errorf("read major of %q: %w", folder, err)
	}
	return nil
}

func compile(files map[string][]byte, name string) (*schema.Schema, error) {
	s, err := schema.Compile(files[name], schema.UI(), allowedBy(), credentialKind(), expressions(), templates())
	if err != nil {
		return nil, located(name, files[name], err)
	}
	return s, nil
}

// checkText checks that a file is text. Whether a program is valid is checked by the engine when it is submitted.
func checkText(name string, text []byte) error {
	if len(text) > maxFile {
		return fault.New(fault.Invalid, "%s: found %d bytes; expected at most %d", name, len(text), maxFile)
	}
	for i, line := range bytes.Split(text, []byte("\n")) {
		if !utf8.Valid(line) || bytes.IndexByte(line, 0) >= 0 {
			return fault.New(fault.Invalid, "%s:%d: found bytes that are not text; expected UTF-8", name, i+1)
		}
	}
	return nil
}

// located prefixes file and line to an error about the text of a JSON file.
func located(file string, text []byte, err error) error {
	fields := fault.FieldsOf(err)
	if len(fields) == 0 {
		return fault.Because(err, fault.Invalid, "%s: %s", file, err)
	}
	out := make([]fault.Field, len(fields))
	for i, f := range fields {
		out[i] = fault.Field{Name: fmt.Sprintf("%s:%d: %s", file, schema.Line(text, f.Name), f.Name), Problem: f.Problem}
		if strings.HasPrefix(f.Name, "line ") {
			out[i].Name = file + ": " + f.Name
		}
	}
	return fault.InvalidFields(out...)
}
