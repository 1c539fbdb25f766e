package retention

import (
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"time"

	"github.com/mongostream/streamer/change"
)

// errDamaged says that bytes of a segment have changed since they were written.
var errDamaged = errors.New("damaged segment")

// ErrFormat says that a segment was written by a later version, which this one cannot read.
var ErrFormat = errors.New("segment of a later format")

// A segment is
//
//	header   magic STRMSEG1 | format u16 | least reader u16 | JSON length u32 | total length u64 | JSON | CRC32C
//	blocks   up to 256 KiB of records of one lane each, compressed
//	footer   JSON: lanes and blocks
//	trailer  footer offset u64 | footer length u32 | CRC32C of the footer u32 | total length u64 | magic STRMEND1
//
// in little endian. The first 24 bytes and the place of the header's checksum are the same in all
// formats.
const (
	segmentMagic = "STRMSEG1"
	trailerMagic = "STRMEND1"
	preludeSize  = 24
	trailerSize  = 32
	// headerSize bounds a header.
	headerSize = 4 << 10
	// maxFooter bounds a footer in bytes.
	maxFooter = 16 << 20

	format      = 1 // that this version writes
	leastReader = 1 // the oldest format whose readers understand that
)

//nolint:gochecknoglobals // a constant table
var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func checksum(b []byte) uint32 { return crc32.Checksum(b, castagnoli) }

// An ID is random and identifies a segment, whatever its number.
type ID [16]byte

// IsZero reports whether the ID is unset.
func (id ID) IsZero() bool { return id == ID{} }

// MarshalText implements encoding.TextMarshaler.
func (id ID) MarshalText() ([]byte, error) { return hex.AppendEncode(nil, id[:]), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (id *ID) UnmarshalText(text []byte) error {
	if len(text) != 2*len(id) {
		return errors.New("an ID has 32 digits")
	}
	_, err := hex.Decode(id[:], text)
	return err
}

// A Coverage says which changes the stream of a segment's writer read, and with which images.
type Coverage struct {
	change.Coverage

	// FullDocument and BeforeChange are MongoDB's options of the stream; empty is MongoDB's
	// default.
	FullDocument string `json:"full_document,omitempty"`
	BeforeChange string `json:"before_change,omitempty"`
}

// Lacks returns the namespaces in which the coverage lacks something that a reader asks for; none
// are all of them. Some is false where it lacks nothing.
func (c Coverage) Lacks(asked Coverage) (namespaces []string, some bool) {
	wanted, has := *asked.Bounded(), *c.Bounded() // headers have the bounded form
	lacksDocuments := asked.FullDocument != "" && asked.FullDocument != c.FullDocument
	lacksImages := asked.BeforeChange != "" && asked.BeforeChange != c.BeforeChange
	if lacksDocuments || lacksImages {
		has.Namespaces = []string{""} // nothing
	}
	return wanted.Dropped(wanted, has)
}

// A Header describes a segment. It contains no resume token and no key of a document.
type Header struct {
	ID     ID     `json:"id"`
	Number uint64 `json:"number"`
	// Previous and PreviousNumber name the segment before; zero for the first one. Numbers between
	// the two are those of objects that could not be read.
	Previous       ID     `json:"previous,omitzero"`
	PreviousNumber uint64 `json:"previous_number,omitempty"`
	// From and To bound the stretch: changes from time From on, before time To.
	From change.Timestamp `json:"from"`
	To   change.Timestamp `json:"to"`
	// Cut says that the segment ends within a time: changes of time To are in it, and more may be
	// in the next one.
	Cut bool `json:"cut,omitempty"`
	// Last is the position of the last change so far, in this segment or an earlier one; nil before
	// the first change.
	Last []byte `json:"last,omitempty"`
	// Events and Losses are the numbers of entries.
	Events int `json:"events"`
	Losses int `json:"losses,omitempty"`

	// Rewritten counts how often changes were erased from the segment.
	Rewritten int `json:"rewritten,omitempty"`
	// Written is when a segment that was rewritten was written first, by the store's clock.
	Written time.Time `json:"written,omitzero"`

	Coverage Coverage `json:"coverage"`
	// Writer is the node that wrote it, Version its version.
	Writer  string `json:"writer"`
	Version string `json:"version,omitempty"`

	// Size is that of the object, which the header knows beside the JSON.
	Size int64 `json:"-"`
	size int64 // of the header itself
}

// precedes reports whether another segment is the next one.
func (h *Header) precedes(next *Header) bool {
	return next.Previous == h.ID && next.PreviousNumber == h.Number && next.From == h.To
}

// LastRef returns the position of the last change so far, zero if there is none.
func (h *Header) LastRef() change.Ref {
	r, err := change.ParseRef(h.Last)
	if err != nil {
		return change.Ref{}
	}
	return r
}

// appendHeader encodes a header.
func appendHeader(b []byte, h *Header) ([]byte, error) {
	h.Coverage.Coverage = *h.Coverage.Bounded()
	body, err := json.Marshal(h)
	if err != nil {
		return nil, fmt.Errorf("encode header: %w", err)
	}
	if preludeSize+len(body)+4 > headerSize {
		return nil, fmt.Errorf("encode header: %d bytes are too many", len(body))
	}
	b = append(b, segmentMagic...)
	b = binary.LittleEndian.AppendUint16(b, format)
	b = binary.LittleEndian.AppendUint16(b, leastReader)
	b = binary.LittleEndian.AppendUint32(b, uint32(len(body)))
	b = binary.LittleEndian.AppendUint64(b, uint64(h.Size))
	b = append(b, body...)
	return binary.LittleEndian.AppendUint32(b, checksum(b)), nil
}

// parseHeader decodes the header at the front of a segment. It returns errDamaged or ErrFormat.
func parseHeader(b []byte) (Header, error) {
	if len(b) < preludeSize || string(b[:8]) != segmentMagic {
		return Header{}, fmt.Errorf("%w: no segment", errDamaged)
	}
	size := preludeSize + int64(binary.LittleEndian.Uint32(b[12:])) + 4
	if size > headerSize || size > int64(len(b)) {
		return Header{}, fmt.Errorf("%w: header of %d bytes", errDamaged, size)
	}
	b = b[:size]
	if checksum(b[:size-4]) != binary.LittleEndian.Uint32(b[size-4:]) {
		return Header{}, fmt.Errorf("%w: checksum of the header", errDamaged)
	}
	if least := binary.LittleEndian.Uint16(b[10:]); least > format {
		return Header{}, fmt.Errorf("%w: %d", ErrFormat, least)
	}
	h := Header{Size: int64(binary.LittleEndian.Uint64(b[16:])), size: size}
	if err := json.Unmarshal(b[preludeSize:size-4], &h); err != nil {
		return Header{}, fmt.Errorf("%w: %w", errDamaged, err)
	}
	if h.Size < size+trailerSize || h.ID.IsZero() || h.To.Compare(h.From) < 0 {
		return Header{}, fmt.Errorf("%w: header", errDamaged)
	}
	return h, nil
}

// A footer lists the content of a segment's lanes, and its places.
type footer struct {
	ID    ID     `json:"id"` // of the segment
	Lanes []lane `json:"lanes"`
	// Targets says that the lanes name the targets of renames, too.
	Targets bool    `json:"targets,omitempty"`
	Blocks  []block `json:"blocks"`
	// Rewritten is that of the header. Forgotten are the stretches in which changes were erased.
	Rewritten int         `json:"rewritten,omitempty"`
	Forgotten []forgotten `json:"forgotten,omitempty"`
}

// A lane holds the changes of some namespaces.
type lane struct {
	// Namespaces are the namespaces that the changes concern: their own, as db.coll, db, or empty
	// for changes of everything, and the targets of renames. None if there are too many to list.
	Namespaces []string `json:"namespaces,omitempty"`
}

// A block is a part of a lane. First and Last are ordinals of entries in the segment, From and To
// the times of the first and the last one.
type block struct {
	Lane   int              `json:"lane"`
	Kind   kind             `json:"kind,omitempty"`
	Offset int64            `json:"offset"` // after the header
	Stored int              `json:"stored"`
	Raw    int              `json:"raw"`
	Count  int              `json:"count"`
	First  uint64           `json:"first"`
	Last   uint64           `json:"last"`
	From   change.Timestamp `json:"from"`
	To     change.Timestamp `json:"to"`
}

// appendFooter appends footer and trailer to the segment.
func appendFooter(b []byte, f *footer) ([]byte, error) {
	body, err := json.Marshal(f)
	if err != nil {
		return nil, fmt.Errorf("encode footer: %w", err)
	}
	offset := len(b)
	b = append(b, body...)
	b = binary.LittleEndian.AppendUint64(b, uint64(offset))
	b = binary.LittleEndian.AppendUint32(b, uint32(len(body)))
	b = binary.LittleEndian.AppendUint32(b, checksum(body))
	b = binary.LittleEndian.AppendUint64(b, uint64(len(b)+8+len(trailerMagic)))
	return append(b, trailerMagic...), nil
}

// parseTrailer returns the place and the checksum of the footer.
func parseTrailer(b []byte, h *Header) (offset, length int64, sum uint32, err error) {
	if len(b) != trailerSize || string(b[24:]) != trailerMagic {
		return 0, 0, 0, fmt.Errorf("%w: no trailer", errDamaged)
	}
	offset, length = int64(binary.LittleEndian.Uint64(b)), int64(binary.LittleEndian.Uint32(b[8:]))
	total := int64(binary.LittleEndian.Uint64(b[16:]))
	isFooter := h.size <= offset && length <= maxFooter && offset+length+trailerSize == total
	if total != h.Size || !isFooter {
		return 0, 0, 0, fmt.Errorf("%w: trailer", errDamaged)
	}
	return offset, length, binary.LittleEndian.Uint32(b[12:]), nil
}

// parseFooter decodes a footer and checks that its blocks are within the segment.
func parseFooter(b []byte, sum uint32, end int64) (*footer, error) {
	if checksum(b) != sum {
		return nil, fmt.Errorf("%w: checksum of the footer", errDamaged)
	}
	var f footer
	if err := json.Unmarshal(b, &f); err != nil {
		return nil, fmt.Errorf("%w: %w", errDamaged, err)
	}
	for _, k := range f.Blocks {
		isInLane := 0 <= k.Lane && k.Lane < len(f.Lanes)
		isBefore := k.Offset >= 0 && k.Stored >= 0 && k.Offset <= end-int64(k.Stored)
		isBlock := 0 <= k.Raw && k.Raw <= maxBlock && k.First <= k.Last
		if !isInLane || !isBefore || !isBlock {
			return nil, fmt.Errorf("%w: footer", errDamaged)
		}
	}
	return &f, nil
}
