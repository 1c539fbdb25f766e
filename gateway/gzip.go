package gateway

import (
	"bytes"
	"compress/flate"
	"encoding/binary"
	"hash/crc32"
	"net/http"
	"strconv"
	"strings"
	"sync"
)

// maxKept is half of the bytes of texts and fragments that a compressor keeps, beside one event of
// any size.
const maxKept = 4 << 20

// A compressor compresses the texts of event streams, each once for all streams. A fragment refers
// to nothing before it and ends at a byte: fragments in any order are one deflate stream (RFC 1951),
// and the size of one says nothing of other texts.
type compressor struct {
	writers sync.Pool // of *flate.Writer

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

// of returns the fragment of a text. It must not be modified.
func (c *compressor) of(text []byte) []byte {
	found := c.find(text)
	found.once.Do(func() {
		found.data = c.compress(text)
	})
	return found.data
}

// find returns the fragment of a text, which may have yet to be compressed.
func (c *compressor) find(text []byte) *fragment {
	c.mu.Lock()
	defer c.mu.Unlock()
	if found := c.mu.recent[string(text)]; found != nil {
		return found
	}
	found := c.mu.earlier[string(text)]
	if found == nil {
		found = &fragment{}
	}
	if c.mu.recent == nil || c.mu.size >= maxKept {
		c.mu.recent, c.mu.earlier, c.mu.size = make(map[string]*fragment), c.mu.recent, 0
	}
	c.mu.recent[string(text)] = found
	c.mu.size += 2 * len(text)
	return found
}

// compress compresses a text, by itself.
func (c *compressor) compress(text []byte) []byte {
	var out bytes.Buffer
	w, ok := c.writers.Get().(*flate.Writer)
	if ok {
		w.Reset(&out)
	} else {
		w, _ = flate.NewWriter(&out, flate.BestSpeed) // the level is valid
	}
	defer c.writers.Put(w)
	_, _ = w.Write(text) // a buffer takes everything
	_ = w.Flush()
	return bytes.Clone(out.Bytes())
}

// gzipHeader begins a gzip file (RFC 1952), without a name or a time.
const gzipHeader = "\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff"

// A gzipped is the state of a compressed stream.
type gzipped struct {
	compressor *compressor
	sealed     int    // bytes of the client's buffer that are compressed
	crc, size  uint32 // of the texts before
}

// begin begins the stream, before its first text.
func (g *gzipped) begin(buffer []byte) []byte {
	buffer = append(buffer, gzipHeader...)
	g.sealed = len(buffer)
	return buffer
}

// seal compresses what is not yet compressed in the buffer, as a fragment of its own.
func (g *gzipped) seal(buffer []byte) []byte {
	text := buffer[g.sealed:]
	if len(text) == 0 {
		return buffer
	}
	g.crc, g.size = crc32.Update(g.crc, crc32.IEEETable, text), g.size+uint32(len(text))
	buffer = append(buffer[:g.sealed], g.compressor.of(text)...)
	g.sealed = len(buffer)
	return buffer
}

// end returns the end of the stream: an empty final block, then the checks.
func (g *gzipped) end() []byte {
	const finalBlock = "\x03\x00"
	return binary.LittleEndian.AppendUint32(binary.LittleEndian.AppendUint32([]byte(finalBlock), g.crc), g.size)
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
