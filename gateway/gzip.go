package gateway

import (
	"bytes"
	"compress/flate"
	"encoding/binary"
	"hash/crc32"
	"io"
	"math"
	"net/http"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// maxKept is half of the bytes of texts and fragments that a compressor keeps. A text that does not
// fit into it with its fragment is not compressed: each stream would have to do that by itself.
const maxKept = 4 << 20

// A compressor compresses the texts of event streams, each once for all streams. A fragment refers
// to nothing before it and ends at a byte: fragments in any order are one deflate stream (RFC
// 1951), and the size of one says nothing of other texts.
type compressor struct {
	writers chan *flate.Writer // as many as can work at once, nil where none was needed yet

	mu struct {
		sync.Mutex

		recent, earlier map[string]*fragment // by their texts
		size            int                  // of the recent ones
	}
}

// A fragment is a compressed text.
type fragment struct {
	once sync.Once
	data []byte
}

// newCompressor returns a compressor that compresses as many texts at once as there are processors:
// a writer takes 1.2 MB.
func newCompressor() *compressor {
	c := &compressor{writers: make(chan *flate.Writer, runtime.GOMAXPROCS(0))}
	for range cap(c.writers) {
		c.writers <- nil
	}
	return c
}

// fragment returns the fragment of a text. It must not be modified.
func (c *compressor) fragment(text []byte) []byte {
	if 2*len(text) > maxKept {
		return stored(text)
	}
	found := c.entry(text)
	found.once.Do(func() {
		found.data = c.compress(text)
	})
	return found.data
}

// entry returns the kept fragment of a text, which may have yet to be compressed, or keeps a new
// one.
func (c *compressor) entry(text []byte) *fragment {
	c.mu.Lock()
	defer c.mu.Unlock()
	if found := c.mu.recent[string(text)]; found != nil {
		return found
	}
	found := c.mu.earlier[string(text)]
	if found == nil {
		found = &fragment{}
	}
	if c.mu.recent == nil || c.mu.size+2*len(text) > maxKept {
		c.mu.recent, c.mu.earlier, c.mu.size = make(map[string]*fragment), c.mu.recent, 0
	}
	c.mu.recent[string(text)] = found
	c.mu.size += 2 * len(text)
	return found
}

// compress compresses a text, by itself, or returns it as it is if every writer works: nobody waits
// for the texts of others.
func (c *compressor) compress(text []byte) []byte {
	var w *flate.Writer
	select {
	case w = <-c.writers:
	default:
		return stored(text)
	}
	var out bytes.Buffer
	if w == nil {
		w, _ = flate.NewWriter(&out, flate.BestSpeed) // the level is valid
	}
	w.Reset(&out)
	_, _ = w.Write(text) // a buffer takes everything
	_ = w.Flush()
	w.Reset(io.Discard) // or it would keep the fragment
	c.writers <- w
	return bytes.Clone(out.Bytes())
}

// stored returns a text as a fragment that is not compressed (RFC 1951, section 3.2.4).
func stored(text []byte) (fragment []byte) {
	for block := range slices.Chunk(text, math.MaxUint16) {
		n := uint16(len(block))
		fragment = append(fragment, 0)
		fragment = binary.LittleEndian.AppendUint16(fragment, n)
		fragment = binary.LittleEndian.AppendUint16(fragment, ^n)
		fragment = append(fragment, block...)
	}
	return fragment
}

// gzipHeader begins a gzip file (RFC 1952), without a name or a time.
const gzipHeader = "\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff"

// A gzipped is the state of a compressed stream.
type gzipped struct {
	compressor *compressor
	sealed     int    // bytes of the client's buffer that are compressed
	checks     checks // of the texts before
	sent       checks // of those that were written
}

// The checks at the end of a gzip file are of its texts together.
type checks struct {
	crc, size uint32
}

// begin begins the stream, before its first text.
func (g *gzipped) begin(buffer []byte) []byte {
	buffer = append(buffer, gzipHeader...)
	g.sealed = len(buffer)
	return buffer
}

// seal compresses the uncompressed rest of the buffer, as a fragment of its own.
func (g *gzipped) seal(buffer []byte) []byte {
	text := buffer[g.sealed:]
	if len(text) == 0 {
		return buffer
	}
	g.checks = checks{crc32.Update(g.checks.crc, crc32.IEEETable, text), g.checks.size + uint32(len(text))}
	buffer = append(buffer[:g.sealed], g.compressor.fragment(text)...)
	g.sealed = len(buffer)
	return buffer
}

// written says that the sealed part has been written.
func (g *gzipped) written() {
	g.sealed = 0
	g.sent = g.checks
}

// end returns the end of the stream as it was written: an empty final block, then the checks.
func (g *gzipped) end() []byte {
	const finalBlock = "\x03\x00"
	return binary.LittleEndian.AppendUint32(binary.LittleEndian.AppendUint32([]byte(finalBlock), g.sent.crc), g.sent.size)
}

// acceptsGzip reports whether a client accepts gzip, and does not prefer a response that is not
// compressed (RFC 9110, section 12.5.3).
func acceptsGzip(header http.Header) bool {
	weights := make(map[string]float64)
	for _, codings := range header.Values("Accept-Encoding") {
		for coding := range strings.SplitSeq(strings.ToLower(codings), ",") {
			name, parameter, weighted := strings.Cut(coding, ";")
			weight := 1.0
			if weighted {
				text, _ := strings.CutPrefix(strings.TrimSpace(parameter), "q=")
				weight, _ = strconv.ParseFloat(text, 64) // 0 where it is none
			}
			weights[strings.TrimSpace(name)] = weight
		}
	}
	weight, named := weights["gzip"]
	if !named {
		weight = weights["*"]
	}
	return weight > 0 && weight >= weights["identity"]
}
