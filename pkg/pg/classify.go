package pg

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"syscall"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/lockstep-cd/lockstep/pkg/fault"
)

// The SQLSTATE codes and classes (their first two characters) that callers act on.
const (
	codeUnknownCharacter     = "22021" // in text: a NUL, or not UTF-8
	codeUntranslatable       = "22P05" // in JSON: \u0000
	codeNotNullViolation     = "23502"
	codeForeignKeyViolation  = "23503"
	codeRestrictViolation    = "23001"
	codeUniqueViolation      = "23505"
	codeCheckViolation       = "23514"
	codeExclusionViolation   = "23P01"
	codeIdleInTransaction    = "25P03" // idle_in_transaction_session_timeout has ended the connection
	codeReadOnlyTransaction  = "25006" // connected to a standby: a fail-over is under way
	codeSerializationFailure = "40001"
	codeDeadlockDetected     = "40P01"
	codeLockNotAvailable     = "55P03"
	codeQueryCanceled        = "57014"
	codeAdminShutdown        = "57P01"
	codeCrashShutdown        = "57P02"
	codeCannotConnectNow     = "57P03"
	codeIdleSessionTimeout   = "57P05"

	classConnectionException   = "08"
	classInsufficientResources = "53"
)

// Classify wraps err as "op: …", op being formatted with args, and gives it the class that a caller acts on: a
// connection that is away and a lock that is not available are Unavailable, a violated unique or exclusion constraint is
// a Conflict, a violated check, foreign key or not-null constraint is Invalid. Any other error, pgx.ErrNoRows among them,
// stays unclassed. The public message names the constraint and never shows values or SQL; the cause stays in the chain.
// An error that has a class already keeps it. Classify of nil is nil.
func Classify(err error, op string, args ...any) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", fmt.Sprintf(op, args...), classed(err))
}

// Constraint is the name of the constraint that err says was violated, and "" where it says no such thing.
func Constraint(err error) string {
	if pe, ok := errors.AsType[*pgconn.PgError](err); ok {
		return pe.ConstraintName
	}
	return ""
}

func classed(err error) error {
	if _, ok := errors.AsType[*fault.Error](err); ok {
		return err
	}
	if pe, ok := errors.AsType[*pgconn.PgError](err); ok {
		return classedByCode(err, pe)
	}
	if reason, ok := connectionTrouble(err); ok {
		return fault.Because(err, fault.Unavailable, "the database is unavailable: %s", reason)
	}
	return err
}

func classedByCode(err error, pe *pgconn.PgError) error {
	switch pe.Code {
	case codeUniqueViolation, codeExclusionViolation:
		return fault.Because(err, fault.Conflict, "%s exists already", pe.ConstraintName)
	case codeNotNullViolation:
		return fault.Because(err, fault.Invalid, "%s.%s is missing", pe.TableName, pe.ColumnName)
	case codeForeignKeyViolation, codeRestrictViolation:
		return fault.Because(err, fault.Invalid, "%s does not hold: the row referred to does not exist, or is still referred to",
			pe.ConstraintName)
	case codeCheckViolation:
		return fault.Because(err, fault.Invalid, "%s does not hold", pe.ConstraintName)
	case codeUnknownCharacter, codeUntranslatable:
		return fault.Because(err, fault.Invalid, "found text with a NUL character or bytes that are not UTF-8; expected UTF-8 without NUL")
	}
	if unavailable(pe.Code) {
		return fault.Because(err, fault.Unavailable, "the database is unavailable: %s (SQLSTATE %s)", pe.Message, pe.Code)
	}
	return err
}

// unavailable reports whether the code is for a temporary condition.
func unavailable(code string) bool {
	switch code {
	case codeIdleInTransaction, codeReadOnlyTransaction, codeSerializationFailure, codeDeadlockDetected, codeLockNotAvailable,
		codeQueryCanceled, codeAdminShutdown, codeCrashShutdown, codeCannotConnectNow, codeIdleSessionTimeout:
		return true
	}
	return strings.HasPrefix(code, classConnectionException) || strings.HasPrefix(code, classInsufficientResources)
}

// connectionTrouble says in a few words what is wrong with the connection, without its address.
func connectionTrouble(err error) (string, bool) {
	if errno, ok := errors.AsType[syscall.Errno](err); ok {
		return errno.Error(), true
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return "no answer in time", true
	}
	if errors.Is(err, context.Canceled) {
		return "", false // the caller gave up; nothing is wrong with the database
	}
	var netErr net.Error
	var connectErr *pgconn.ConnectError
	switch {
	case errors.As(err, &connectErr):
		return "cannot connect", true
	case errors.As(err, &netErr), errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), pgconn.SafeToRetry(err):
		return "the connection broke", true
	}
	return "", false
}
