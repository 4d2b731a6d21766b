package api

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	autoflowv1 "github.com/lockstep-cd/lockstep/proto/lockstep/autoflow/v1"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/control"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/history"
)

// ExportWorkflow sends what a run can be replayed with elsewhere.
func (s *Server) ExportWorkflow(req *autoflowv1.ExportWorkflowRequest, stream autoflowv1.AutoFlow_ExportWorkflowServer) error {
	org, err := organization(stream.Context(), req.GetOrganizationId())
	if err != nil {
		return err
	}
	source := s.Operator.Export
	if req.GetArchived() {
		source = s.exportArchived
	}
	return source(stream.Context(), org, req.GetWorkflowId(), func(ctx context.Context, x control.Export) error {
		// Sending to a client that does not read takes for ever, and ends when this returns.
		sent := make(chan error, 1)
		go func() { sent <- sendExport(stream, x) }()
		select {
		case err := <-sent:
			return err
		case <-s.Stopping:
			return control.ErrStopping
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	})
}

// errNoArchive is the answer to requests for the archive where none is configured.
func errNoArchive() error {
	return fault.New(fault.Refused, "no archive is configured: ended runs that are deleted are not kept")
}

// exportArchived is Export for the runs of the archive.
func (s *Server) exportArchived(ctx context.Context, org int64, workflow string, use func(context.Context, control.Export) error) error {
	if s.Archive == nil {
		return errNoArchive()
	}
	return s.Operator.Exporting(ctx, org, workflow, s.Archive.Find, use)
}

// ListArchivedWorkflows answers a page of the archive.
func (s *Server) ListArchivedWorkflows(
	ctx context.Context, req *autoflowv1.ListArchivedWorkflowsRequest,
) (*autoflowv1.ListArchivedWorkflowsResponse, error) {
	org, err := organization(ctx, req.GetOrganizationId())
	if err != nil {
		return nil, err
	}
	if s.Archive == nil {
		return nil, errNoArchive()
	}
	size := cmp.Or(int(req.GetPageSize()), archivedPage)
	if size < 1 || size > mostArchived {
		return nil, invalid("page_size", "found %d, expected 1 to %d, or 0 for %d", size, mostArchived, archivedPage)
	}
	runs, err := s.Archive.List(ctx, org, req.GetPageToken(), size)
	if err != nil {
		return nil, err
	}
	resp := &autoflowv1.ListArchivedWorkflowsResponse{}
	for _, run := range runs {
		resp.Workflows = append(resp.Workflows, &autoflowv1.ArchivedWorkflow{
			WorkflowId: run.Workflow, FinishedAt: timestamppb.New(run.Ended), Object: run.Name, Size: run.Size,
		})
	}
	if len(runs) == size {
		resp.NextPageToken = runs[size-1].Name
	}
	return resp, nil
}

// The sizes of a page of the archive: by default, and at most.
const (
	archivedPage = 100
	mostArchived = 1000
)

func sendExport(stream autoflowv1.AutoFlow_ExportWorkflowServer, x control.Export) error {
	head := &autoflowv1.ExportedWorkflow{
		Workflow: view(x.View), Starlark: x.Loaded.Program.Source, Modules: x.Loaded.Program.Modules, Inputs: x.Loaded.Inputs,
		Continuation: x.Loaded.Continuation, Concealed: x.Concealed, Handle: x.Loaded.Ref,
	}
	if err := stream.Send(&autoflowv1.ExportWorkflowResponse{
		Part: &autoflowv1.ExportWorkflowResponse_Workflow{Workflow: head},
	}); err != nil {
		return fmt.Errorf("send the export of %q: %w", x.Workflow, err)
	}
	for _, e := range x.Loaded.History {
		entry, err := exportedEntry(e)
		if err != nil {
			return err
		}
		if err := stream.Send(&autoflowv1.ExportWorkflowResponse{Part: &autoflowv1.ExportWorkflowResponse_Entry{Entry: entry}}); err != nil {
			return fmt.Errorf("send the export of %q: %w", x.Workflow, err)
		}
	}
	return nil
}

func exportedEntry(e history.Entry) (*autoflowv1.ExportedEntry, error) {
	exported := &autoflowv1.ExportedEntry{
		Sequence: e.Seq, Branch: int32(e.Op.Branch), Operation: int32(e.Op.Index), Kind: string(e.Kind), Name: e.Name, Digest: e.Hash,
		Value: e.Value, Event: e.Event, RecordedAt: timestamppb.New(e.At),
		RetriesCount: int32(e.Tries.Failed()), Retries: retries(e.Tries),
	}
	if e.Error != nil {
		var err error
		if exported.Error, err = json.Marshal(e.Error); err != nil {
			return nil, fmt.Errorf("encode the error of entry %d: %w", e.Seq, err)
		}
	}
	return exported, nil
}
