package apiserver

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Error is a refusal as the API says it: a Status object.
type Error struct {
	Status metav1.Status
}

// Error is the message.
func (e *Error) Error() string { return e.Status.Message }

// failure is a Status about one object, in Kubernetes' words.
func failure(code int32, reason metav1.StatusReason, k Key, what string) *Error {
	name := k.Resource.Plural
	if k.Resource.Group != "" {
		name += "." + k.Resource.Group
	}
	message := fmt.Sprintf("%s %q %s", name, k.Name, what)
	if reason == "Conflict" {
		message = fmt.Sprintf("Operation cannot be fulfilled on %s %q: %s", name, k.Name, what)
	}
	return &Error{metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"},
		Status:   metav1.StatusFailure, Code: code, Reason: reason, Message: message,
		Details: &metav1.StatusDetails{Name: k.Name, Group: k.Resource.Group, Kind: k.Resource.Plural},
	}}
}

// general is a Status about a request as such.
func general(code int32, reason metav1.StatusReason, format string, args ...any) *Error {
	return &Error{metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"},
		Status:   metav1.StatusFailure, Code: code, Reason: reason, Message: fmt.Sprintf(format, args...),
	}}
}

// Is reports whether err is a Status of the reason.
func Is(err error, reason metav1.StatusReason) bool {
	e, ok := errors.AsType[*Error](err)
	return ok && e.Status.Reason == reason
}

func writeError(w http.ResponseWriter, err error) {
	e, ok := errors.AsType[*Error](err)
	if !ok {
		e = general(http.StatusInternalServerError, metav1.StatusReasonInternalError, "Internal error occurred: %v", err)
	}
	writeJSON(w, int(e.Status.Code), e.Status)
}

func writeJSON(w http.ResponseWriter, code int, v any) {
	text, err := json.Marshal(v)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_, _ = w.Write(append(text, '\n')) // a client that has gone away needs no answer
}
