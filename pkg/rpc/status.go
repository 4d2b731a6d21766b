package rpc

import (
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/protoadapt"

	"github.com/lockstep-cd/lockstep/pkg/fault"
)

// Domain is the domain of every ErrorInfo.
const Domain = "lockstep.dev"

// toStatus is err as a caller sees it: the class as code, the public message, the fields as details. A status that
// grpc-go made itself passes as it is.
func toStatus(err error) *status.Status {
	if s, ok := err.(interface{ GRPCStatus() *status.Status }); ok { //nolint:errorlint // a wrapped status has lost its claim to be shown
		return s.GRPCStatus()
	}
	row := fault.Describe(fault.ClassOf(err))
	s := status.New(codes.Code(row.GRPC), fault.Public(err))
	details := []protoadapt.MessageV1{&errdetails.ErrorInfo{Reason: row.GraphQL, Domain: Domain}}
	if fields := fault.FieldsOf(err); len(fields) > 0 {
		bad := &errdetails.BadRequest{}
		for _, f := range fields {
			bad.FieldViolations = append(bad.FieldViolations, &errdetails.BadRequest_FieldViolation{Field: f.Name, Description: f.Problem})
		}
		details = append(details, bad)
	}
	if detailed, err := s.WithDetails(details...); err == nil {
		return detailed
	}
	return s
}

// fromStatus undoes toStatus on the caller's side: the error has the class and the fields again, and the status as its
// cause.
func fromStatus(err error) error {
	if err == nil {
		return nil
	}
	s := status.Convert(err)
	var fields []fault.Field
	for _, d := range s.Details() {
		if bad, ok := d.(*errdetails.BadRequest); ok {
			for _, v := range bad.GetFieldViolations() {
				fields = append(fields, fault.Field{Name: v.GetField(), Problem: v.GetDescription()})
			}
		}
	}
	if len(fields) > 0 {
		return fault.InvalidFields(fields...)
	}
	return fault.Because(err, fault.FromGRPC(uint32(s.Code())), "%s", s.Message())
}
