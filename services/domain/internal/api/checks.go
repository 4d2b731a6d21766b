package api

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strings"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/id"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/check"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/rollout"
)

// ChecksPath is the path to which the statuses of checks are reported: POST with a JSON object, or with a CloudEvent that has it as data.
const ChecksPath = "/v1/checks"

// statusType is the type of a CloudEvent that reports a status.
const statusType = "com.lockstep.check.status.v1"

// maxCheck is how many bytes the body of a report may have.
const maxCheck = 64 << 10

// versionSet is how the identifier of a version set begins.
const versionSet = "versionset"

// Checks records the statuses of checks.
type Checks interface {
	ReportCheck(ctx context.Context, a core.Actor, r check.Report) (core.CheckReport, error)
}

// statusReport is the body of a request to ChecksPath. Application and environment are names.
type statusReport struct {
	Application string `json:"application"`
	Environment string `json:"environment"`
	// VersionSet, Commit or Digest is the subject.
	VersionSet string `json:"version_set"`
	Commit     string `json:"commit"`
	Digest     string `json:"digest"`
	Key        string `json:"key"`
	// Phase is pending, success or failure.
	Phase       string     `json:"phase"`
	Description string     `json:"description"`
	Link        string     `json:"link"`
	ObservedAt  *time.Time `json:"observed_at"`
}

// statusAnswer is the report that counts.
type statusAnswer struct {
	Key         string    `json:"key"`
	Phase       string    `json:"phase"`
	Description string    `json:"description"`
	Link        string    `json:"link"`
	VersionSet  string    `json:"version_set"`
	Reporter    string    `json:"reporter"`
	ObservedAt  time.Time `json:"observed_at"`
	ReportedAt  time.Time `json:"reported_at"`
}

// checksHandler records one report. It is idempotent if the report says when it was observed: one that comes again changes nothing.
func checksHandler(c Checks) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		actor, ok := core.ActorFrom(r.Context())
		if !ok {
			unauthenticated(w, "found no token; expected a token")
			return
		}
		if r.Method != http.MethodPost {
			w.Header().Set("Allow", http.MethodPost)
			http.Error(w, "found method "+r.Method+"; expected POST", http.StatusMethodNotAllowed)
			return
		}
		report, err := readStatus(w, r)
		if !known(w, "report", err) {
			return
		}
		made, err := c.ReportCheck(r.Context(), actor, report)
		if !known(w, "report", inStatus(err)) {
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(statusAnswer{ // a client that is gone needs no answer
			Key: made.Key, Phase: string(made.Phase), Description: made.Description, Link: made.Link,
			VersionSet: id.Format(versionSet, made.VersionSetID), Reporter: made.Reporter.Name, ObservedAt: made.ObservedAt,
			ReportedAt: made.CreatedAt,
		})
	})
}

// readStatus reads the body of a request. Its errors are Invalid.
func readStatus(w http.ResponseWriter, r *http.Request) (check.Report, error) {
	in := statusReport{}
	const members = "application, environment, version_set, commit or digest, key, phase, and optionally description, link and observed_at"
	var err error
	if isEvent(r) {
		err = readStatusEvent(w, r, &in, members)
	} else {
		err = readObject(w, r, &in, members)
	}
	if err != nil {
		return check.Report{}, err
	}
	report := check.Report{
		Application: in.Application, Environment: in.Environment, Commit: in.Commit, Digest: in.Digest, Key: in.Key,
		Phase: core.CheckPhase(in.Phase), Description: in.Description, Link: in.Link, ObservedAt: in.ObservedAt,
	}
	var missing []fault.Field
	for _, one := range []struct{ name, value string }{{"/application", in.Application}, {"/environment", in.Environment}} {
		if one.value == "" {
			missing = append(missing, fault.Field{Name: one.name, Problem: "found nothing; expected a name"})
		}
	}
	if in.VersionSet != "" {
		if report.VersionSetID, err = id.Parse(versionSet, in.VersionSet); err != nil {
			missing = append(missing, fault.Field{Name: "/version_set", Problem: fmt.Sprintf("found %.100q; expected %s_7", in.VersionSet, versionSet)})
		}
	}
	if len(missing) > 0 {
		return report, fault.InvalidFields(missing...)
	}
	return report, nil
}

// kindOf is what a field of the body is, for people.
func kindOf(err *json.UnmarshalTypeError) string {
	if err.Field == "" {
		return "JSON object"
	}
	return err.Type.String()
}

// inStatus is an error with the names that the fields have in the body.
func inStatus(err error) error {
	fields := fault.FieldsOf(err)
	if len(fields) == 0 {
		return err
	}
	named := make([]fault.Field, len(fields))
	for i, f := range fields {
		named[i] = fault.Field{Name: strings.NewReplacer("versionSetId", "version_set", "observedAt", "observed_at").Replace(f.Name), Problem: f.Problem}
	}
	return fault.InvalidFields(named...)
}

// readObject reads the body of a request, an object with the members that the text names. Its errors are Invalid.
func readObject(w http.ResponseWriter, r *http.Request, into any, members string) error {
	if kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || kind != "application/json" {
		return fault.New(fault.Invalid, "found content type %.100q; expected application/json", r.Header.Get("Content-Type"))
	}
	return decodeObject(http.MaxBytesReader(w, r.Body, maxCheck), into, members)
}

// isEvent reports whether a request is a CloudEvent: by its content type, or by the attributes in its headers.
func isEvent(r *http.Request) bool {
	kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	return err == nil && kind == inBody || r.Header.Get("Ce-Specversion") != ""
}

// readStatusEvent reads a CloudEvent whose data is a report. Its time is when it was observed, unless the data says; its id and source are
// for those who look for it, since a repetition has the same time. Its errors are Invalid.
func readStatusEvent(w http.ResponseWriter, r *http.Request, into *statusReport, members string) error {
	e, err := readEvent(w, r)
	if err != nil {
		return err
	}
	var wrong []fault.Field
	for _, one := range []struct{ name, value string }{{"/id", e.ID}, {"/source", e.Source}} {
		if one.value == "" {
			wrong = append(wrong, fault.Field{Name: one.name, Problem: "found nothing; expected a text"})
		}
	}
	if e.Type != statusType {
		wrong = append(wrong, fault.Field{Name: "/type", Problem: fmt.Sprintf("found %.100q; expected %s", e.Type, statusType)})
	}
	if len(wrong) > 0 {
		return fault.InvalidFields(wrong...)
	}
	if err := decodeObject(bytes.NewReader(e.Data), into, members); err != nil || into.ObservedAt != nil || e.Time == "" {
		return err
	}
	at, err := time.Parse(time.RFC3339Nano, e.Time)
	if err != nil {
		return fault.InvalidFields(fault.Field{Name: "/time", Problem: fmt.Sprintf("found %.100q; expected one such as 2026-11-24T10:00:00Z", e.Time)})
	}
	into.ObservedAt = &at
	return nil
}

// decodeObject reads one JSON object with the members that the text names. Its errors are Invalid.
func decodeObject(from io.Reader, into any, members string) error {
	body := json.NewDecoder(from)
	body.DisallowUnknownFields()
	err := body.Decode(into)
	if err == nil {
		if _, after := body.Token(); !errors.Is(after, io.EOF) {
			err = errors.New("more after the first value")
		}
	}
	if long := (*http.MaxBytesError)(nil); errors.As(err, &long) {
		return fault.New(fault.Invalid, "found more than %d bytes; expected at most that, with a description of at most 1000", maxCheck)
	}
	if other := (*json.UnmarshalTypeError)(nil); errors.As(err, &other) {
		return fault.InvalidFields(fault.Field{
			Name: "/" + other.Field, Problem: fmt.Sprintf("found a %s; expected a %s", other.Value, kindOf(other)),
		})
	}
	if err != nil {
		return fault.Because(err, fault.Invalid, "found %s; expected one JSON object with %s", strings.TrimPrefix(err.Error(), "json: "), members)
	}
	return nil
}

// EvaluateCheckPath is the path at which systems ask for a check to be evaluated now, in place of being polled (R3-49): POST with a JSON
// object.
const EvaluateCheckPath = ChecksPath + "/evaluate"

// Evaluations has checks evaluated.
type Evaluations interface {
	EvaluateCheck(ctx context.Context, a core.Actor, n rollout.CheckNamed) (core.Rollout, error)
}

// evaluateHandler has one check of the active rollout of an application evaluated. It is idempotent: the check is evaluated at least once
// afterwards.
func evaluateHandler(e Evaluations) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		actor, ok := core.ActorFrom(r.Context())
		if !ok {
			unauthenticated(w, "found no token; expected a token")
			return
		}
		if r.Method != http.MethodPost {
			w.Header().Set("Allow", http.MethodPost)
			http.Error(w, "found method "+r.Method+"; expected POST", http.StatusMethodNotAllowed)
			return
		}
		in := struct {
			Application string `json:"application"`
			Environment string `json:"environment"`
			Key         string `json:"key"`
		}{}
		err := readObject(w, r, &in, "application, environment and key")
		if err == nil {
			var missing []fault.Field
			for _, one := range []struct{ name, value string }{{"/application", in.Application}, {"/environment", in.Environment}, {"/key", in.Key}} {
				if one.value == "" {
					missing = append(missing, fault.Field{Name: one.name, Problem: "found nothing; expected a text"})
				}
			}
			if len(missing) > 0 {
				err = fault.InvalidFields(missing...)
			}
		}
		if !known(w, "evaluation", err) {
			return
		}
		_, err = e.EvaluateCheck(r.Context(), actor, rollout.CheckNamed{Application: in.Application, Environment: in.Environment, Key: in.Key})
		if !known(w, "evaluation", err) {
			return
		}
		w.WriteHeader(http.StatusAccepted)
	})
}
