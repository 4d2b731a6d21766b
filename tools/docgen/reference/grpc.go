package reference

import (
	"context"
	"fmt"
	"path"
	"path/filepath"
	"strings"

	"github.com/bufbuild/protocompile"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// protoFiles are the files of our protocol buffers, relative to proto.
func protoFiles(root string) ([]string, error) {
	names, err := filepath.Glob(filepath.Join(root, "proto/lockstep/*/*/*.proto"))
	if err != nil || len(names) == 0 {
		return nil, fmt.Errorf("protocol buffers: found %d files, %w; expected some", len(names), err)
	}
	for i, name := range names {
		relative, err := filepath.Rel(filepath.Join(root, "proto"), name)
		if err != nil {
			return nil, fmt.Errorf("protocol buffers: %w", err)
		}
		names[i] = filepath.ToSlash(relative)
	}
	return names, nil
}

// descriptors are our protocol buffers with their comments.
func descriptors(root string) ([]protoreflect.FileDescriptor, error) {
	names, err := protoFiles(root)
	if err != nil {
		return nil, err
	}
	compiler := protocompile.Compiler{
		Resolver:       protocompile.WithStandardImports(&protocompile.SourceResolver{ImportPaths: []string{filepath.Join(root, "proto")}}),
		SourceInfoMode: protocompile.SourceInfoStandard,
	}
	compiled, err := compiler.Compile(context.Background(), names...)
	if err != nil {
		return nil, fmt.Errorf("protocol buffers: %w", err)
	}
	var files []protoreflect.FileDescriptor
	for _, file := range compiled {
		files = append(files, file)
	}
	return files, nil
}

// grpc is the page of the services and messages of our protocol buffers.
func grpc(root string) ([]*page, error) {
	p, err := newPage("grpc.md", "the protocol buffers in proto")
	if err != nil {
		return nil, err
	}
	files, err := descriptors(root)
	if err != nil {
		return nil, err
	}
	titles := map[string]bool{}
	for _, file := range files {
		title := string(file.Package())
		if titles[title] { // a second file of the package
			title = strings.TrimSuffix(path.Base(file.Path()), ".proto") + " in " + title
		}
		titles[title] = true
		p.heading(2, title)
		p.paragraph(prose(commentOf(file.SourceLocations().ByPath(protoreflect.SourcePath{syntaxField}))))
		for i := range file.Services().Len() {
			writeService(p, file.Services().Get(i))
		}
		for i := range file.Messages().Len() {
			writeMessage(p, file.Messages().Get(i))
		}
		for i := range file.Enums().Len() {
			writeEnum(p, file.Enums().Get(i))
		}
	}
	return []*page{p}, nil
}

// syntaxField is the number of the field syntax of google.protobuf.FileDescriptorProto, where the comment of a file is.
const syntaxField = 12

func writeService(p *page, service protoreflect.ServiceDescriptor) {
	p.heading(3, string(service.Name()))
	p.paragraph(prose(described(service)))
	for i := range service.Methods().Len() {
		method := service.Methods().Get(i)
		p.heading(4, string(method.Name()))
		p.paragraph(prose(described(method)))
		stream := ""
		if method.IsStreamingServer() {
			stream = "stream of "
		}
		p.list("Request: "+messageLink(method.Input()), "Response: "+stream+messageLink(method.Output()),
			"Full name: "+code(fmt.Sprintf("/%s/%s", service.FullName(), method.Name())))
	}
}

func writeMessage(p *page, message protoreflect.MessageDescriptor) {
	p.heading(3, string(message.Name()))
	p.paragraph(prose(described(message)))
	var rows [][]string
	for i := range message.Fields().Len() {
		field := message.Fields().Get(i)
		meaning := described(field)
		if of := field.ContainingOneof(); of != nil && !of.IsSynthetic() {
			meaning = strings.TrimSpace(meaning + " One of those of `" + string(of.Name()) + "`.")
		}
		rows = append(rows, []string{code(string(field.Name())), fieldType(field), strings.ReplaceAll(prose(meaning), "\n\n", " ")})
	}
	p.table([]string{"Field", "Type", "Meaning"}, rows)
}

func writeEnum(p *page, enum protoreflect.EnumDescriptor) {
	p.heading(3, string(enum.Name()))
	p.paragraph(prose(described(enum)))
	var rows [][]string
	for i := range enum.Values().Len() {
		value := enum.Values().Get(i)
		rows = append(rows, []string{code(string(value.Name())), prose(described(value))})
	}
	p.table([]string{"Value", "Meaning"}, rows)
}

// fieldType names the type of a field, with a link where it is one of ours.
func fieldType(field protoreflect.FieldDescriptor) string {
	switch {
	case field.IsMap():
		return "map of " + fieldType(field.MapKey()) + " to " + fieldType(field.MapValue())
	case field.IsList():
		return "list of " + elementType(field)
	case field.HasOptionalKeyword():
		return "optional " + elementType(field)
	default:
		return elementType(field)
	}
}

func elementType(field protoreflect.FieldDescriptor) string {
	switch field.Kind() {
	case protoreflect.MessageKind:
		return messageLink(field.Message())
	case protoreflect.EnumKind:
		return "[" + string(field.Enum().Name()) + "](#" + anchor(string(field.Enum().Name())) + ")"
	default:
		return code(field.Kind().String())
	}
}

// messageLink is a message with a link, if it is one of ours.
func messageLink(message protoreflect.MessageDescriptor) string {
	if !strings.HasPrefix(string(message.FullName()), "lockstep.") {
		return code(string(message.FullName()))
	}
	return "[" + string(message.Name()) + "](#" + anchor(string(message.Name())) + ")"
}

// described is the comment of a declaration.
func described(d protoreflect.Descriptor) string {
	return commentOf(d.ParentFile().SourceLocations().ByDescriptor(d))
}

// commentOf is the comment at a place, each paragraph in one line.
func commentOf(at protoreflect.SourceLocation) string {
	paragraphs := strings.Split(strings.ReplaceAll(strings.TrimSpace(at.LeadingComments), "\n \n", "\n\n"), "\n\n")
	for i, text := range paragraphs {
		paragraphs[i] = strings.Join(strings.Fields(text), " ")
	}
	return strings.Join(paragraphs, "\n\n")
}
