package pg

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/lockstep-cd/lockstep/pkg/clock"
)

const (
	// txAttempts bounds how often a transaction is run in all.
	txAttempts = 5
	// txPause is the longest first pause between two attempts; it doubles.
	txPause = 10 * time.Millisecond
)

// InTx runs fn in a transaction and commits it when fn returns nil. A transaction that PostgreSQL gave up because of
// another one (serialization failure, deadlock), or whose first statement found a connection that had died in the pool, is
// run again a few times: fn must therefore have no effect outside of tx. The error of fn is returned as it is; an error of
// begin or commit has its class from Classify.
//
// A connection that breaks during the commit leaves open whether it happened. That error is Unavailable; the caller's
// keys (event ids, unique constraints) must make doing it again harmless.
func InTx(ctx context.Context, pool *pgxpool.Pool, fn func(pgx.Tx) error) error {
	return InTxWith(ctx, pool, nil, fn)
}

// InTxWith is InTx with settings of the server that hold until the end of the transaction, by name. They are made in the round trip
// that begins it.
func InTxWith(ctx context.Context, pool *pgxpool.Pool, settings map[string]string, fn func(pgx.Tx) error) error {
	var begin pgx.TxOptions
	if len(settings) > 0 {
		begin.BeginQuery = "begin; SELECT " + strings.Join(localSettings(settings), ", ")
	}
	return repeated(ctx, func() error { return once(ctx, pool, begin, fn) })
}

// InSnapshot is InTx for reads that have to see the same: what others commit meanwhile is not visible to any of them.
func InSnapshot(ctx context.Context, pool *pgxpool.Pool, fn func(pgx.Tx) error) error {
	return repeated(ctx, func() error {
		return once(ctx, pool, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}, fn)
	})
}

// localSettings are the calls that make settings, in the order of their names. PostgreSQL takes no parameters in several statements at
// once.
func localSettings(settings map[string]string) []string {
	var calls []string
	for _, name := range slices.Sorted(maps.Keys(settings)) {
		calls = append(calls, fmt.Sprintf("set_config(%s, %s, true)", literal(name), literal(settings[name])))
	}
	return calls
}

// literal is a text as SQL has it, whatever standard_conforming_strings says.
func literal(text string) string {
	return "E'" + strings.NewReplacer(`\`, `\\`, "'", "''").Replace(text) + "'"
}

// Alone is for a single statement that is a transaction by itself: it is run again as InTx runs a transaction again. Its
// error is returned as it is.
func Alone(ctx context.Context, statement func() error) error { return repeated(ctx, statement) }

// repeated runs a transaction, a few times if need be.
func repeated(ctx context.Context, once func() error) error {
	pause := txPause
	for attempt := 1; ; attempt++ {
		err := once()
		if err == nil || attempt == txAttempts || !again(err) {
			return err
		}
		if clock.Sleep(ctx, clock.System(), rand.N(pause)) != nil { //nolint:gosec // jitter needs no secrecy
			return err
		}
		pause *= 2
	}
}

func once(ctx context.Context, pool *pgxpool.Pool, begin pgx.TxOptions, fn func(pgx.Tx) error) error {
	tx, err := pool.BeginTx(ctx, begin)
	if err != nil {
		return Classify(err, "begin transaction")
	}
	// After a commit this does nothing; after a broken connection there is nothing left to do either.
	defer func() { _ = tx.Rollback(ctx) }()
	if err := fn(tx); err != nil {
		return err
	}
	return Classify(tx.Commit(ctx), "commit transaction")
}

// again reports whether nothing has happened and the same transaction may well succeed now.
func again(err error) bool {
	if pe, ok := errors.AsType[*pgconn.PgError](err); ok {
		return pe.Code == codeSerializationFailure || pe.Code == codeDeadlockDetected
	}
	return pgconn.SafeToRetry(err)
}
