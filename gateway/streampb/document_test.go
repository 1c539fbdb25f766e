package streampb_test

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/bufbuild/protocompile"
	"google.golang.org/protobuf/reflect/protoreflect"
)

var rewrite = flag.Bool("rewrite", false, "write docs/reference/protocol.md anew")

const reference = "../../docs/reference/protocol.md"

// TestProtocolIsDocumented compares docs/reference/protocol.md with proto/.
func TestProtocolIsDocumented(t *testing.T) {
	compiler := protocompile.Compiler{
		Resolver:       protocompile.WithStandardImports(&protocompile.SourceResolver{ImportPaths: []string{"../../proto"}}),
		SourceInfoMode: protocompile.SourceInfoStandard,
	}
	files, err := compiler.Compile(t.Context(), "streamer/v1/gateway.proto")
	if err != nil {
		t.Fatal(err)
	}
	p := protocol{file: files[0]}
	p.WriteString(`<!-- Generated from proto/ by go generate ./gateway/streampb. Do not edit. -->

# Protocol

The gRPC service of [proto/streamer/v1/gateway.proto](../../proto/streamer/v1/gateway.proto), which nodes also serve by reflection. Go programs use the
package ` + "`client`" + `, which speaks it.
`)
	for i := range p.file.Services().Len() {
		service := p.file.Services().Get(i)
		fmt.Fprintf(&p, "\n## %s\n\n%s\n", service.Name(), p.comment(service))
		for j := range service.Methods().Len() {
			method := service.Methods().Get(j)
			fmt.Fprintf(&p, "\n`%s(stream %s) returns (stream %s)`: %s\n", method.Name(), method.Input().Name(), method.Output().Name(), p.comment(method))
			if !method.IsStreamingClient() || !method.IsStreamingServer() {
				t.Errorf("%s does not stream both ways", method.Name())
			}
		}
	}
	for i := range p.file.Messages().Len() {
		p.message(p.file.Messages().Get(i))
	}
	for i := range p.file.Enums().Len() {
		p.enum(p.file.Enums().Get(i))
	}
	if p.messages < 15 {
		t.Errorf("only %d messages", p.messages)
	}
	if *rewrite {
		if err := os.WriteFile(reference, p.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := os.ReadFile(reference); err != nil || !bytes.Equal(got, p.Bytes()) {
		t.Errorf("%s is not what proto/ says: go generate ./gateway/streampb (%v)", reference, err)
	}
}

// A protocol is the document of a file.
type protocol struct {
	bytes.Buffer

	file     protoreflect.FileDescriptor
	messages int
}

// comment returns what is said of a declaration, in one line.
func (p *protocol) comment(d protoreflect.Descriptor) string {
	l := p.file.SourceLocations().ByDescriptor(d)
	text := strings.Join(strings.Fields(l.LeadingComments+" "+l.TrailingComments), " ")
	return strings.NewReplacer("|", `\|`, "<", "&lt;").Replace(text)
}

func (p *protocol) message(m protoreflect.MessageDescriptor) {
	p.messages++
	fmt.Fprintf(p, "\n## %s\n\n%s\n", m.Name(), p.comment(m))
	if m.Fields().Len() > 0 {
		p.WriteString("\n| field | type | meaning |\n|---|---|---|\n")
	}
	for i := range m.Fields().Len() {
		f := m.Fields().Get(i)
		kind := f.Kind().String()
		switch {
		case f.Message() != nil:
			kind = string(f.Message().Name())
		case f.Enum() != nil:
			kind = string(f.Enum().Name())
		}
		if f.IsList() {
			kind = "repeated " + kind
		}
		fmt.Fprintf(p, "| `%s` = %d | %s | %s |\n", f.Name(), f.Number(), kind, p.comment(f))
	}
	for i := range m.Messages().Len() {
		if below := m.Messages().Get(i); !below.IsMapEntry() {
			p.message(below)
		}
	}
	for i := range m.Enums().Len() {
		p.enum(m.Enums().Get(i))
	}
}

func (p *protocol) enum(e protoreflect.EnumDescriptor) {
	fmt.Fprintf(p, "\n## %s\n\n%s\n\n| value | meaning |\n|---|---|\n", e.Name(), p.comment(e))
	for i := range e.Values().Len() {
		v := e.Values().Get(i)
		fmt.Fprintf(p, "| `%s` = %d | %s |\n", v.Name(), v.Number(), p.comment(v))
	}
}
