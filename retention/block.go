package retention

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"time"

	"github.com/klauspost/compress/zstd"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/gap"
	"github.com/mongostream/streamer/oplog"
)

// A block is
//
//	magic SBLK | codec u8 | kind u8 | lane u16 | stored u32 | raw u32 | count u32 | first ordinal u64 | CRC32C u32
//
// and the stored bytes; the checksum is that of all other bytes. Uncompressed they are records: the
// ordinal minus that of the record before, and BSON (a change) or a length and JSON (a loss).
const (
	blockMagic  = "SBLK"
	blockHeader = 32
	// blockSize is how much a block has at most, unless it has one change.
	blockSize = 256 << 10
	// maxBlock bounds a block.
	maxBlock = 64 << 20
	// windowSize is how far back compressed bytes refer.
	windowSize = 1 << 20
)

// The codecs. 2 is reserved for encrypted blocks.
const (
	codecRaw  = 0
	codecZstd = 1
)

// A kind is that of a block's records.
type kind uint8

const (
	changes kind = 0
	losses  kind = 1
)

// newEncoder returns a compressor of blocks. Its fastest level stores as little as the default one
// (BenchmarkDraft) for two thirds of the time.
func newEncoder() *zstd.Encoder {
	e, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(1), zstd.WithWindowSize(windowSize),
		zstd.WithEncoderCRC(false))
	if err != nil {
		panic("retention: make an encoder: " + err.Error()) // constant options
	}
	return e
}

// newDecoder returns a decompressor of blocks.
func newDecoder() *zstd.Decoder {
	d, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(windowSize), zstd.WithDecoderMaxMemory(maxBlock))
	if err != nil {
		panic("retention: make a decoder: " + err.Error()) // constant options
	}
	return d
}

// appendBlock appends the records of a block.
func appendBlock(b []byte, encoder *zstd.Encoder, k *block, records []byte) []byte {
	at := len(b)
	b = append(b, make([]byte, blockHeader)...)
	codec := byte(codecZstd)
	b = encoder.EncodeAll(records, b)
	if len(b)-at-blockHeader >= len(records) {
		codec = codecRaw
		b = append(b[:at+blockHeader], records...)
	}
	head := b[at : at+blockHeader]
	copy(head, blockMagic)
	head[4], head[5] = codec, byte(k.Kind)
	binary.LittleEndian.PutUint16(head[6:], uint16(k.Lane))
	binary.LittleEndian.PutUint32(head[8:], uint32(len(b)-at-blockHeader))
	binary.LittleEndian.PutUint32(head[12:], uint32(len(records)))
	binary.LittleEndian.PutUint32(head[16:], uint32(k.Count))
	binary.LittleEndian.PutUint64(head[20:], k.First)
	binary.LittleEndian.PutUint32(head[28:], blockSum(b[at:]))
	k.Offset = int64(at)
	k.Stored = len(b) - at
	k.Raw = len(records)
	return b
}

// blockSum returns the checksum of a block, without the field that holds it.
func blockSum(b []byte) uint32 { return crc32.Update(checksum(b[:28]), castagnoli, b[blockHeader:]) }

// parseBlock returns the records of a block that the footer describes as k. It verifies the
// checksum first, and then allocates the footer's size, at most maxBlock.
func parseBlock(b []byte, decoder *zstd.Decoder, k *block) ([]byte, error) {
	if len(b) != k.Stored || len(b) < blockHeader || string(b[:4]) != blockMagic {
		return nil, fmt.Errorf("%w: no block", errDamaged)
	}
	if blockSum(b) != binary.LittleEndian.Uint32(b[28:]) {
		return nil, fmt.Errorf("%w: checksum of a block", errDamaged)
	}
	stored := b[blockHeader:]
	raw := int(binary.LittleEndian.Uint32(b[12:]))
	isSized := raw == k.Raw && binary.LittleEndian.Uint32(b[16:]) == uint32(k.Count)
	if !isSized || binary.LittleEndian.Uint64(b[20:]) != k.First || kind(b[5]) != k.Kind {
		return nil, fmt.Errorf("%w: block of another place", errDamaged)
	}
	switch b[4] {
	case codecRaw:
	case codecZstd:
		var err error
		if stored, err = decoder.DecodeAll(stored, make([]byte, 0, raw)); err != nil {
			return nil, fmt.Errorf("%w: %w", errDamaged, err)
		}
	default:
		return nil, fmt.Errorf("%w: codec %d", ErrFormat, b[4])
	}
	if len(stored) != raw {
		return nil, fmt.Errorf("%w: block of %d bytes", errDamaged, len(stored))
	}
	return stored, nil
}

// An entry is a change or a loss of a segment.
type entry struct {
	ordinal uint64
	raw     []byte // of a change
	loss    *oplog.Loss
}

// records reads the entries of a block.
type records struct {
	kind kind
	rest []byte
	last uint64 // ordinal
}

// reading returns the records of a block.
func reading(k *block, content []byte) records {
	return records{kind: k.Kind, rest: content, last: k.First}
}

var errRecord = errors.New("record")

// next returns the next entry; ok is false at the end. The entry aliases the block.
func (r *records) next() (e entry, ok bool, err error) {
	if len(r.rest) == 0 {
		return e, false, nil
	}
	delta, n := binary.Uvarint(r.rest)
	if n <= 0 {
		return e, false, fmt.Errorf("%w: %w", errDamaged, errRecord)
	}
	r.rest = r.rest[n:]
	r.last += delta
	e.ordinal = r.last
	size := uint64(0)
	skip := 0
	if r.kind == losses {
		if size, skip = binary.Uvarint(r.rest); skip <= 0 {
			return e, false, fmt.Errorf("%w: %w", errDamaged, errRecord)
		}
	} else if len(r.rest) >= 5 {
		size = uint64(binary.LittleEndian.Uint32(r.rest))
	}
	if size < 2 || size > uint64(len(r.rest)-skip) {
		return e, false, fmt.Errorf("%w: %w", errDamaged, errRecord)
	}
	body := r.rest[skip : skip+int(size) : skip+int(size)]
	r.rest = r.rest[skip+int(size):]
	if r.kind == changes {
		e.raw = body
		return e, true, nil
	}
	if e.loss, err = parseLoss(body); err != nil {
		return e, false, err
	}
	return e, true, nil
}

// A storedLoss is a loss in JSON.
type storedLoss struct {
	From, To   change.Position
	Reason     gap.Reason
	Namespaces []string `json:",omitempty"`
	Found      time.Time
}

func marshalLoss(l *oplog.Loss) ([]byte, error) {
	return json.Marshal(storedLoss{From: l.From, To: l.To, Reason: l.Reason, Namespaces: l.Namespaces, Found: l.Found})
}

func parseLoss(b []byte) (*oplog.Loss, error) {
	var l storedLoss
	if err := json.Unmarshal(b, &l); err != nil {
		return nil, fmt.Errorf("%w: %w", errDamaged, err)
	}
	return &oplog.Loss{From: l.From, To: l.To, Reason: l.Reason, Namespaces: l.Namespaces, Found: l.Found}, nil
}
