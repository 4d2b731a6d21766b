package fleet

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"unicode/utf8"

	"github.com/lockstep-cd/lockstep/pkg/fault"
)

// The bounds of a fleet and of labels.
const (
	labelsMost   = 50
	valuesMost   = 50
	wavesMost    = 100
	intervalMost = 7 * 24 * 3600
	freshMost    = 30 * 24 * 3600
	deadlineMost = 24 * 3600
)

var (
	labelKey   = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9._/-]{0,61}[A-Za-z0-9])?$`)
	labelValue = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?$`)
)

// Empty reports whether a text of JSON is no fleet: missing, null or an object without members.
func Empty(text json.RawMessage) bool {
	var members map[string]json.RawMessage
	return len(text) == 0 || json.Unmarshal(text, &members) == nil && len(members) == 0
}

// Parse reads a fleet as a person has written it. It says everything that is wrong, by JSON pointer.
func Parse(text json.RawMessage) (Spec, []fault.Field) {
	var s Spec
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&s); err != nil {
		at := ""
		var wrong *json.UnmarshalTypeError
		if errors.As(err, &wrong) && wrong.Field != "" {
			at = "/" + string(bytes.ReplaceAll([]byte(wrong.Field), []byte("."), []byte("/")))
		}
		return s, []fault.Field{{Name: at, Problem: "found " + problemOf(err) + "; expected a fleet: selector, waves and, where wanted, order, " +
			"interval_seconds, success, freshness_seconds, deadline_seconds"}}
	}
	return s, s.check()
}

func problemOf(err error) string {
	var wrong *json.UnmarshalTypeError
	if errors.As(err, &wrong) {
		return "a " + wrong.Value
	}
	return err.Error()
}

func (s Spec) check() (found []fault.Field) {
	report := func(at, format string, args ...any) {
		found = append(found, fault.Field{Name: at, Problem: fmt.Sprintf(format, args...)})
	}
	if len(s.Selector) == 0 || len(s.Selector) > labelsMost {
		report("/selector", "found %d labels; expected 1 to %d", len(s.Selector), labelsMost)
	}
	for key, values := range s.Selector {
		if !labelKey.MatchString(key) {
			report("/selector", "found the label %.80q; expected letters, digits, dots, dashes, slashes and underscores, at most 63", key)
		}
		if len(values) == 0 || len(values) > valuesMost {
			report("/selector/"+key, "found %d values; expected 1 to %d", len(values), valuesMost)
		}
		for _, v := range values {
			if v != "*" && !labelValue.MatchString(v) {
				report("/selector/"+key, "found %.80q; expected letters, digits, dots, dashes and underscores, at most 63, or *", v)
			}
		}
	}
	if s.OrderBy != nil && (s.OrderBy.Hash == (s.OrderBy.Label != "") || s.OrderBy.Label != "" && !labelKey.MatchString(s.OrderBy.Label)) {
		report("/order", "found label %.80q and hash %v; expected either the key of a label or hash: true", s.OrderBy.Label, s.OrderBy.Hash)
	}
	if len(s.Waves) == 0 || len(s.Waves) > wavesMost {
		report("/waves", "found %d; expected 1 to %d", len(s.Waves), wavesMost)
	}
	for i, w := range s.Waves {
		byNumber, byPart := w.Targets >= 1 && w.Targets <= TargetsMost && w.Percent == 0, w.Percent >= 1 && w.Percent <= 100 && w.Targets == 0
		if !byNumber && !byPart {
			report(fmt.Sprintf("/waves/%d", i), "found targets %d and percent %d; expected targets from 1 to %d, or percent from 1 to 100", w.Targets,
				w.Percent, TargetsMost)
		}
	}
	for _, b := range []struct {
		at          string
		value, most int
	}{
		{"/interval_seconds", s.IntervalSeconds, intervalMost},
		{"/freshness_seconds", s.FreshnessSeconds, freshMost},
		{"/deadline_seconds", s.DeadlineSeconds, deadlineMost},
	} {
		if b.value < 0 || b.value > b.most {
			report(b.at, "found %d; expected 0 to %d", b.value, b.most)
		}
	}
	if s.FreshnessSeconds > 0 && s.FreshnessSeconds <= s.IntervalSeconds {
		report("/freshness_seconds", "found %d; expected more than the interval of %d: no wave could begin", s.FreshnessSeconds, s.IntervalSeconds)
	}
	if s.AtEnd {
		report("/at_end", "found true; expected none: only rollbacks are judged at their end")
	}
	if s.Success != nil {
		found = append(found, s.Success.Wave.check("/success/wave")...)
		found = append(found, s.Success.Overall.check("/success/overall")...)
	}
	return found
}

func (t *Threshold) check(at string) (found []fault.Field) {
	if t == nil {
		return nil
	}
	if t.MinHealthyPercent == nil && t.MaxFailed == nil {
		found = append(found, fault.Field{Name: at, Problem: "found neither; expected min_healthy_percent, max_failed, or both"})
	}
	if p := t.MinHealthyPercent; p != nil && (*p < 0 || *p > 100) {
		found = append(found, fault.Field{Name: at + "/min_healthy_percent", Problem: fmt.Sprintf("found %d; expected 0 to 100", *p)})
	}
	if n := t.MaxFailed; n != nil && (*n < 0 || *n > TargetsMost) {
		found = append(found, fault.Field{Name: at + "/max_failed", Problem: fmt.Sprintf("found %d; expected 0 to %d", *n, TargetsMost)})
	}
	return found
}

// CheckLabels says what is wrong with labels of an agent, at a field.
func CheckLabels(at string, labels map[string]string) (found []fault.Field) {
	if len(labels) > labelsMost {
		found = append(found, fault.Field{Name: at, Problem: fmt.Sprintf("found %d; expected at most %d", len(labels), labelsMost)})
	}
	keys := make([]string, 0, len(labels))
	for key := range labels {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	for _, key := range keys {
		if !labelKey.MatchString(key) || !utf8.ValidString(key) {
			found = append(found, fault.Field{
				Name:    at,
				Problem: fmt.Sprintf("found the key %.80q; expected letters, digits, dots, dashes, slashes and underscores, at most 63", key),
			})
		}
		if !labelValue.MatchString(labels[key]) {
			found = append(found, fault.Field{
				Name:    at + "/" + key,
				Problem: fmt.Sprintf("found %.80q; expected letters, digits, dots, dashes and underscores, at most 63", labels[key]),
			})
		}
	}
	return found
}
