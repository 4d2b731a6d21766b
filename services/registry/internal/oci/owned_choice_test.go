package oci_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/sealing"
)

// D56: of credentials for the same URL, one that was revoked does not hide its successor, and the name decides between those in force. A
// revoked one with a longer URL still says no.
func TestARevokedLoginDoesNotHideItsSuccessor(t *testing.T) {
	t.Parallel()
	o := own(t)
	shop := sealing.Terms{Name: "old", Username: "robot", URLPrefixes: o.at("/shop")}
	o.put(shop, "")
	o.finds(t, fault.Unauthenticated, "revoked")
	shop.Name = "second"
	o.put(shop, "another")
	shop.Name = "first"
	o.put(shop, canary)
	o.finds(t, 0, "")
	shop.Name = "a-revoked-one"
	o.put(shop, "")
	o.finds(t, 0, "")
	o.put(sealing.Terms{Name: "narrow", Username: "robot", URLPrefixes: o.at("/shop/api")}, "")
	o.finds(t, fault.Unauthenticated, "revoked")
}

// D56: what issues tokens may repeat what it was sent; nothing of its answer is in the error, at the first token and at a later one.
func TestAnAnswerThatRepeatsALoginIsNotShown(t *testing.T) {
	t.Parallel()
	for name, answer := range map[string]string{
		"no token": `{"details":"%s:%s"}`, "no JSON": `%s %s`, "another form": `{"token":{"%s":"%s"}}`, "a token of nothing": `{"token":"","is":"%s%s"}`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := own(t)
			o.put(sealing.Terms{Name: "images", Username: "robot", URLPrefixes: o.at("/")}, canary)
			o.instead = func(w http.ResponseWriter, r *http.Request) bool {
				if strings.HasPrefix(r.URL.Path, "/token") {
					user, password, _ := r.BasicAuth()
					_, _ = fmt.Fprintf(w, answer, user, password)
					return true
				}
				w.Header().Set("WWW-Authenticate", `Bearer realm="http://`+o.host+`/token",service="x"`)
				w.WriteHeader(http.StatusUnauthorized)
				return true
			}
			o.finds(t, fault.Unavailable, "cannot be used")
		})
	}
	t.Run("later", func(t *testing.T) {
		t.Parallel()
		o := own(t)
		o.put(sealing.Terms{Name: "images", Username: "robot", URLPrefixes: o.at("/")}, canary)
		issued := 0
		o.instead = func(w http.ResponseWriter, r *http.Request) bool {
			switch {
			case strings.HasPrefix(r.URL.Path, "/token"):
				_, password, _ := r.BasicAuth()
				if issued++; issued == 1 {
					_, _ = fmt.Fprint(w, `{"token":"first"}`)
				} else {
					_, _ = fmt.Fprintf(w, `{"details":%q}`, password)
				}
			default:
				w.Header().Set("WWW-Authenticate", `Bearer realm="http://`+o.host+`/token",service="x"`)
				w.WriteHeader(http.StatusUnauthorized)
			}
			return true
		}
		o.finds(t, fault.Unavailable, "no token that can be read")
	})
	t.Run("in a redirect", func(t *testing.T) {
		t.Parallel()
		o := own(t)
		o.put(sealing.Terms{Name: "images", Username: "robot", URLPrefixes: o.at("/")}, canary)
		o.instead = func(w http.ResponseWriter, r *http.Request) bool {
			_, password, given := r.BasicAuth()
			if given {
				http.Redirect(w, r, "http://127.0.0.1:1/"+password, http.StatusFound)
			}
			return given
		}
		o.finds(t, fault.Unavailable, "does not answer")
	})
}
