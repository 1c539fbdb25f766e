package input

import (
	"bytes"
	"flag"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
)

var rewrite = flag.Bool("rewrite", false, "write docs/reference/input.md anew")

const reference = "../../docs/reference/input.md"

// TestInputIsDocumented compares docs/reference/input.md with the table.
func TestInputIsDocumented(t *testing.T) {
	var p bytes.Buffer
	p.WriteString(`<!-- Generated from the table in internal/input by go generate ./internal/input. Do not edit. -->

# What clients may send

Every text and every list that a client chooses, with its bound. What is longer, has more elements, or has characters that are not allowed, is refused
before anything is kept of it: with ` + "`STRM-SESSION-BAD-REQUEST`" + ` unless the row names another code. Parameters and fields that are not listed are
refused over HTTP and ignored over gRPC.

- A **name** is printable UTF-8 in one line. A **text** is UTF-8 without the character 0. A **number** has digits
  only, and no leading zeros.
- **Memory**: it counts, twice and with 32 bytes, against ` + "`gateway.max_filter_bytes`" + ` of its identity as long as it is kept. **Checkpoint**: it is
  also stored with the subscriber.

## Messages over gRPC

A message has at most 4 MiB, and all of its lists together at most 262,144 elements (` + "`STRM-SESSION-TOO-LARGE`" + `).

| field | what | bytes | elements | charged to | code |
|---|---|---|---|---|---|
`)
	table := fields()
	for _, name := range slices.Sorted(maps.Keys(table)) {
		row(&p, string(name), table[name])
	}
	p.WriteString(`
## Requests over HTTP

Parameters of queries and parts of paths. The header ` + "`Last-Event-ID`" + ` has the bound of the parameter, which may also be written ` + "`lastEventId`" + `
or otherwise, as clients do that cannot set headers. Event streams take ` + "`_`, `r`, `padding`, `evs_buffer_size_limit` and `evs_preamble`" + `,
which libraries add by themselves, and ignore them.

| parameter | what | bytes | values | charged to | code |
|---|---|---|---|---|---|
`)
	asked := parameters()
	for _, name := range slices.Sorted(maps.Keys(asked)) {
		row(&p, name, asked[name])
	}
	if *rewrite {
		if err := os.WriteFile(reference, p.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile(reference)
	if err != nil || !bytes.Equal(text, p.Bytes()) {
		t.Errorf("%s does not say what the table says: run go generate ./internal/input (%v)", reference, err)
	}
}

func row(p *bytes.Buffer, name string, b Bound) {
	kind := map[Kind]string{Name: "name", Text: "text", Bytes: "bytes", Number: "number", Message: "messages"}[b.Kind]
	charge := map[Charge]string{Nothing: "–", Memory: "memory", Checkpoint: "memory, checkpoint"}[b.Charge]
	length, count, code := "–", "–", "–"
	if b.Bytes > 0 {
		length = fmt.Sprint(b.Bytes)
	}
	switch {
	case b.Count > 0:
		count = fmt.Sprint(b.Count)
	case b.Code == "STRM-SESSION-TOO-WIDE":
		count = "`gateway.max_subscriptions`"
	}
	if b.Code != "" {
		code = "`" + string(b.Code) + "`"
	}
	fmt.Fprintf(p, "| `%s` | %s | %s | %s | %s | %s |\n", strings.TrimPrefix(name, "streamer.v1."), kind, length, count, charge, code)
}
