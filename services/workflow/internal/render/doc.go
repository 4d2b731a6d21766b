// Package render makes manifests of Kustomize overlays and Helm charts, by the libraries of these projects.
//
// What people have written in an overlay or a chart is not trusted: a template may compute without end, and an archive may grow without
// bound. Compute runs in a child process of its own that is confined (package sandbox), has neither network nor files, and ends with the
// task. What it works on is in the request: nothing refers to anything outside of it, so remote bases, plugins and dependencies of charts
// that are not in them are errors.
package render
