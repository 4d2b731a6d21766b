// Package guard decides whether a call of a Function may change what it touches. The run of a rollout changes only what the domain
// service has granted to it; any other run changes no protected environment. The store keeps what the domain service has reported, in the
// transactions that store the reports for waits, so no program sees a grant that the guard does not know.
package guard
