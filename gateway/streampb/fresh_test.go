package streampb_test

import (
	"testing"

	"github.com/bufbuild/protocompile"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/mongostream/streamer/gateway/streampb"
)

// The generated code must say what proto/ says; otherwise make proto is due. Comments go into it
// too, but change nothing on the wire.
func TestGeneratedCodeIsFresh(t *testing.T) {
	compiler := protocompile.Compiler{Resolver: protocompile.WithStandardImports(&protocompile.SourceResolver{ImportPaths: []string{"../../proto"}})}
	files, err := compiler.Compile(t.Context(), "streamer/v1/gateway.proto")
	if err != nil {
		t.Fatal(err)
	}
	want, got := protodesc.ToFileDescriptorProto(files[0]), protodesc.ToFileDescriptorProto(streampb.File_streamer_v1_gateway_proto)
	want.SourceCodeInfo = nil
	if diff := cmp.Diff(want, got, protocmp.Transform()); diff != "" {
		t.Errorf("run make proto: the generated code differs from proto/ (-proto +code):\n%s", diff)
	}
	if proto.Size(want) == 0 {
		t.Error("there is nothing in proto/")
	}
}
