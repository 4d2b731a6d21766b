// Package worker is for processes that carry out Functions of their own for programs of the workflow service.
//
// A worker registers its Functions and is given calls of them. A call is given at least once: after a crash of the worker, or a broken
// connection, it is given again under the same id, perhaps to another process. A Function therefore passes Call.ID on as the idempotency
// key of whatever it does, or finds by it what it has done before.
//
//	err := worker.Run(ctx, worker.Config{
//		Conn: conn, // to the workflow service, with a token of scope work
//		Name: "reservations-1",
//		Functions: []worker.Function{
//			worker.Handle("shop.reserve", worker.Changes, func(ctx context.Context, call worker.Call, r Reservation) (Receipt, error) {
//				return shop.Reserve(ctx, call.ID, r)
//			}),
//		},
//	})
//
// It is not a client for programs and runs: autoflowv1.NewAutoFlowClient is.
package worker
