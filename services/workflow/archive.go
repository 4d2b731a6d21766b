package workflow

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/url"
	"path"
	"strconv"
	"strings"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/archive"
	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/control"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/engine"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/retention"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/offline"
)

// archived keeps deleted runs in a bucket, each as a recording that `lockstep workflow replay` reads, compressed by gzip:
//
//	runs/ORGANIZATION/WORKFLOW!/MILLISECONDS-NUMBER.json.gz
//
// WORKFLOW is the run's id, MILLISECONDS when it ended and NUMBER its number in the service. So a run that is archived again, after a crash
// before its deletion, replaces itself. The exclamation mark occurs in no escaped id and sorts before all that do: storages that sort
// folder by folder, and not by whole names, have the same order as the others.
type archived struct {
	operator *control.Operator
	bucket   *archive.Bucket
}

var (
	_ retention.Archive = archived{}
	_ control.Archive   = archived{}
)

const (
	// longestID is the longest id that is the name of a folder as it is, escaped; of others it is the beginning with a digest.
	longestID = 160
	// mostRecording bounds a recording that is read from the archive, in bytes without compression.
	mostRecording = 1 << 30
	suffix        = ".json.gz"
)

// folder is the folder of a workflow in the archive.
func folder(organization int64, workflow string) string {
	name := strings.ReplaceAll(url.PathEscape(workflow), ".", "%2E") // no folder is . or ..
	if len(name) > longestID {
		sum := sha256.Sum256([]byte(workflow))
		name = name[:longestID] + "~" + hex.EncodeToString(sum[:])
	}
	return fmt.Sprintf("runs/%d/%s!/", organization, name)
}

// Keep implements retention.Archive.
func (a archived) Keep(ctx context.Context, organization int64, run retention.Run) error {
	x, err := a.operator.ForArchive(ctx, organization, run.ID, run.Workflow)
	if err != nil {
		return err
	}
	r := offline.Recording{
		Workflow: x.Workflow, State: x.State.String(), Ref: x.Loaded.Ref,
		Program: map[string]string{offline.MainFile: string(x.Loaded.Program.Source)},
		Inputs:  x.Loaded.Inputs, Continuation: x.Loaded.Continuation, Generation: x.Generation, Concealed: x.Concealed,
		History: x.Loaded.History, Run: &x.Execution,
	}
	for name, source := range x.Loaded.Program.Modules {
		r.Program[name] = string(source)
	}
	var content bytes.Buffer
	packed := gzip.NewWriter(&content)
	if err := json.NewEncoder(packed).Encode(r); err != nil {
		return fmt.Errorf("encode workflow %q: %w", run.Workflow, err)
	}
	if err := packed.Close(); err != nil {
		return fmt.Errorf("compress workflow %q: %w", run.Workflow, err)
	}
	name := fmt.Sprintf("%s%013d-%d%s", folder(organization, run.Workflow), run.Ended.UnixMilli(), run.ID, suffix)
	return a.bucket.Put(ctx, name, "application/gzip", content.Bytes())
}

// Find implements control.Archive.
func (a archived) Find(ctx context.Context, organization int64, workflow string) (control.Export, error) {
	var last string
	for o, err := range a.bucket.List(ctx, folder(organization, workflow), "") {
		if err != nil {
			return control.Export{}, err
		}
		last = o.Name
	}
	if last == "" {
		return control.Export{}, fault.New(fault.NotFound, "workflow %q is not in the archive", workflow)
	}
	content, err := a.bucket.Get(ctx, last)
	if err != nil {
		return control.Export{}, err
	}
	r, err := unpack(content)
	if err != nil {
		return control.Export{}, fmt.Errorf("%s: %w", last, err)
	}
	if r.Run == nil || r.Run.Workflow != workflow || r.Run.Organization != organization {
		return control.Export{}, fault.New(fault.Terminal, "%s is not a recording of workflow %q of organization %d", last, workflow, organization)
	}
	x := control.Export{View: control.View{Execution: *r.Run}, Concealed: r.Concealed, Loaded: engine.Loaded{
		Execution: *r.Run, Program: offline.ProgramOf(r.Program), Inputs: r.Inputs, Continuation: r.Continuation, History: r.History,
	}}
	x.Loaded.Ref = r.Ref
	return x, nil
}

func unpack(content []byte) (offline.Recording, error) {
	packed, err := gzip.NewReader(bytes.NewReader(content))
	if err != nil {
		return offline.Recording{}, fault.Because(err, fault.Terminal, "expected gzip")
	}
	text, err := io.ReadAll(io.LimitReader(packed, mostRecording+1))
	if err != nil {
		return offline.Recording{}, fault.Because(err, fault.Terminal, "expected gzip")
	}
	if len(text) > mostRecording {
		return offline.Recording{}, fault.New(fault.Terminal, "found more than %d bytes, which is the most that is read", mostRecording)
	}
	return offline.Read(text)
}

// List implements control.Archive.
func (a archived) List(ctx context.Context, organization int64, after string, most int) ([]control.Archived, error) {
	var all []control.Archived
	prefix := fmt.Sprintf("runs/%d/", organization)
	if after != "" && !strings.HasPrefix(after, prefix) {
		return nil, fault.InvalidFields(fault.Field{Name: "page_token", Problem: "found one of another organization"})
	}
	for o, err := range a.bucket.List(ctx, prefix, after) {
		if err != nil {
			return nil, err
		}
		if run, ok := named(prefix, o); ok {
			all = append(all, run)
		}
		if len(all) == most {
			break
		}
	}
	return all, nil
}

// named is the run that an object is named for; false for what this service has not stored.
func named(prefix string, o archive.Object) (control.Archived, bool) {
	workflow, file := path.Split(strings.TrimPrefix(o.Name, prefix))
	workflow, _, _ = strings.Cut(strings.TrimSuffix(workflow, "!/"), "~")
	ended, _, ok := strings.Cut(file, "-")
	millis, err := strconv.ParseInt(ended, 10, 64)
	if id, wrong := url.PathUnescape(workflow); wrong == nil {
		workflow = id // else it is cut within an escape, and stays as it is
	}
	return control.Archived{Workflow: workflow, Ended: time.UnixMilli(millis).UTC(), Name: o.Name, Size: o.Size},
		ok && err == nil && strings.HasSuffix(file, suffix)
}
