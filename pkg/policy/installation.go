package policy

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"
)

// InstallationSet is a policy set that the operator of an installation has given to a service: it concerns every organization.
type InstallationSet struct {
	// Name is that by which decisions name it: installation. and what the operator calls it. No set of an organization has a dot.
	Name string
	// Mode is enforce, dry_run or off.
	Mode, TimeZone, Text string
	Document             *Document
	Zone                 *time.Location
}

// The most sets of an installation, and the most policies that all of them have together: those of an organization have to have room.
const (
	maxInstallationSets     = 20
	maxInstallationPolicies = 200
)

// InstallationFile says where a set of an installation is.
type InstallationFile struct{ Name, File, Mode, TimeZone string }

// ReadInstallation reads the sets of an installation. Whatever is wrong is an error, of one file or of all (-1), so that a service which
// cannot decide by them does not start.
func ReadInstallation(files []InstallationFile) (all []InstallationSet, wrong int, err error) {
	if len(files) > maxInstallationSets {
		return nil, -1, fmt.Errorf("found %d sets; expected at most %d", len(files), maxInstallationSets)
	}
	policies := 0
	for i, f := range files {
		s, err := readInstallationSet(f.Name, f.File, f.Mode, f.TimeZone)
		if err != nil {
			return nil, i, err
		}
		if slices.ContainsFunc(all, func(other InstallationSet) bool { return other.Name == s.Name }) {
			return nil, i, fmt.Errorf("found the name %s twice", f.Name)
		}
		all = append(all, s)
		if policies += len(s.Document.policies); policies > maxInstallationPolicies {
			return nil, i, fmt.Errorf("found %d policies up to this set; expected at most %d in all sets", policies, maxInstallationPolicies)
		}
	}
	return all, -1, nil
}

// readInstallationSet reads a set from a file.
func readInstallationSet(name, file, mode, zone string) (InstallationSet, error) {
	s := InstallationSet{Name: "installation." + name, Mode: mode, TimeZone: zone}
	if !idForm.MatchString(name) {
		return s, fmt.Errorf("found the name %.80q; expected 1 to 63 lower-case letters, digits and hyphens", name)
	}
	switch mode {
	case "":
		s.Mode = "enforce"
	case "enforce", "dry_run", "off":
	default:
		return s, fmt.Errorf("policy set %s: found the mode %.80q; expected enforce, dry_run or off", name, mode)
	}
	if zone == "" {
		s.TimeZone = "UTC"
	}
	var err error
	if s.Zone, err = time.LoadLocation(s.TimeZone); err != nil || s.TimeZone == "Local" {
		return s, fmt.Errorf("policy set %s: found the time zone %.80q; expected one such as Europe/Berlin", name, zone)
	}
	from, err := os.Open(file)
	if err != nil {
		return s, fmt.Errorf("policy set %s: %w", name, err)
	}
	defer from.Close() //nolint:errcheck // it was only read
	text, err := io.ReadAll(io.LimitReader(from, MaxText+1))
	if err != nil {
		return s, fmt.Errorf("policy set %s: read %s: %w", name, file, err)
	}
	s.Text = string(text)
	var problems []Problem
	if s.Document, problems = Parse(s.Text); len(problems) > 0 {
		all := make([]string, len(problems))
		for i, p := range problems {
			all[i] = p.String()
		}
		return s, fmt.Errorf("policy set %s: %s: %s", name, file, strings.Join(all, "; "))
	}
	return s, nil
}
