package pg

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/lockstep-cd/lockstep/pkg/fault"
)

// EnsureRole makes the role that a service works as, if it is missing, and makes the accounts of the URLs its members, so
// that they may take it on (Config.Role). The role can do nothing by itself: it cannot sign in, and the owner of the
// tables grants it what it needs.
//
// owner is the connection that may do this: one that may create roles. Where the role and its memberships exist
// already, any account will do, so an operator may make them beforehand. A role that is missing and may not be created is
// Refused, with the statements that would make it.
func EnsureRole(ctx context.Context, owner Config, role string, members ...string) error {
	if err := checkRole(role); err != nil || role == "" {
		return err
	}
	owner = owner.directly()
	owner.Role, owner.MaxConns = "", 1
	pool, err := Open(ctx, owner)
	if err != nil {
		return err
	}
	defer pool.Close()
	accounts := []string{pool.Config().ConnConfig.User}
	for _, url := range members {
		cc, err := pgx.ParseConfig(url)
		if err != nil {
			return fault.Because(err, fault.Invalid, "database URL: %v", err)
		}
		if !slices.Contains(accounts, cc.User) {
			accounts = append(accounts, cc.User)
		}
	}
	return InTx(ctx, pool, func(tx pgx.Tx) error {
		// Roles belong to the server, and PostgreSQL answers those who grant at the same moment with an internal error.
		if _, err := tx.Exec(ctx, `SELECT pg_advisory_xact_lock($1)`, lockID(role, "role")); err != nil {
			return Classify(err, "lock role %s", role)
		}
		return grantRole(ctx, tx, role, accounts)
	})
}

// takesOn reports whether an account may work as a role. A superuser may work as any. From PostgreSQL 16 on a membership says
// whether it allows that: an account that creates a role without being a superuser becomes a member that may grant it to others,
// but not work as it.
const takesOn = `SELECT pg_has_role($1, $2, CASE WHEN current_setting('server_version_num')::integer >= 160000 THEN 'SET' ELSE 'MEMBER' END)`

// grantRole has its SQL in Go for the reason that createSchema has: identifiers cannot be parameters.
func grantRole(ctx context.Context, tx pgx.Tx, role string, accounts []string) error {
	name := pgx.Identifier{role}.Sanitize()
	var exists bool
	if err := tx.QueryRow(ctx, `SELECT EXISTS (SELECT FROM pg_roles WHERE rolname = $1)`, role).Scan(&exists); err != nil {
		return Classify(err, "look for role %s", role)
	}
	if !exists {
		if err := changeRole(ctx, tx, "CREATE ROLE "+name+" NOLOGIN NOSUPERUSER NOBYPASSRLS"); err != nil {
			return refusedRole(err, role, accounts)
		}
	}
	for _, account := range accounts {
		var may bool
		if err := tx.QueryRow(ctx, takesOn, account, role).Scan(&may); err != nil {
			return Classify(err, "look for members of role %s", role)
		}
		if may {
			continue
		}
		if err := changeRole(ctx, tx, "GRANT "+name+" TO "+pgx.Identifier{account}.Sanitize()); err != nil {
			return refusedRole(err, role, accounts)
		}
	}
	return nil
}

// changeRole runs a statement that creates a role or a membership. The lock is of one database: if a process in another database of the
// same server creates the same at the same moment, it exists when PostgreSQL refuses to create it again.
func changeRole(ctx context.Context, tx pgx.Tx, sql string) error {
	err := pgx.BeginFunc(ctx, tx, func(savepoint pgx.Tx) error {
		_, err := savepoint.Exec(ctx, sql)
		return err
	})
	if pe, ok := errors.AsType[*pgconn.PgError](err); ok && (pe.Code == codeUniqueViolation || pe.Code == codeDuplicateObject) {
		return nil
	}
	return err
}

const (
	codeInsufficientPrivilege = "42501"
	codeDuplicateObject       = "42710"
)

func refusedRole(err error, role string, accounts []string) error {
	pe, ok := errors.AsType[*pgconn.PgError](err)
	if !ok || pe.Code != codeInsufficientPrivilege {
		return Classify(err, "make role %s", role)
	}
	statements := fmt.Sprintf("CREATE ROLE %s NOLOGIN;", role)
	for _, account := range accounts {
		statements += fmt.Sprintf(" GRANT %s TO %s;", role, pgx.Identifier{account}.Sanitize())
	}
	return fault.Because(err, fault.Refused, "role %s: it is missing, or not granted, and this account may not change that; expected an administrator to have run: %s", role, statements)
}

func checkRole(role string) error {
	if role == "" || identifier.MatchString(role) {
		return nil
	}
	return fault.InvalidFields(fault.Field{
		Name: "database role", Problem: fmt.Sprintf("found %q; expected at most 63 lower-case letters, digits and underscores", role),
	})
}
